from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.forms import recurrences
from synthbench.forms.recurrences import CHUNK, LARGEST, corrected, decayed, delta
from synthbench.forms.state import State
from tests.tensors import normal, value_and_gradients

Form = Callable[..., Tensor]
LENGTHS = [1, CHUNK, CHUNK + 1, 3 * CHUNK + 5]


def token_by_token(form: Form, *tensors: Tensor) -> Tensor:
    """One query and its steps at a time: what the chunks are compared with."""
    queries, state = tensors[0].shape[-2], State()
    tokens = zip(*(x.split(x.shape[-2] // queries, dim=-2) for x in tensors), strict=True)
    return torch.cat([form(*token, state=state) for token in tokens], dim=-2)


def simple(form: Form, length: int, size: float) -> list[Tensor]:
    """Inputs of ``decayed``, whose decays have a width, or of ``delta``, whose rates have a largest value."""
    q, k, v = (normal(2, 3, length, width, seed=seed) for seed, width in enumerate((5, 5, 4)))
    if form is decayed:
        return [q, k, v, -normal(2, 3, length, int(size), seed=3).square()]
    return [q, torch.nn.functional.normalize(k, dim=-1), v, size * normal(2, 3, length, 1, seed=3).sigmoid()]


@pytest.mark.parametrize(("form", "size"), [(decayed, 1), (decayed, 5), (delta, 1.0), (delta, 2.0)])
@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_agree_with_single_steps_and_so_do_their_gradients(form: Form, size: float, length: int) -> None:
    inputs = simple(form, length, size)

    torch.testing.assert_close(
        value_and_gradients(form, inputs),
        value_and_gradients(partial(token_by_token, form), inputs),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize(("chunk", "pairs", "segment"), [(1, 4, 1024), (4, 4, 8), (16, 1, 16)])
@pytest.mark.parametrize(
    "case", [(decayed, 1), (decayed, 5), (delta, 1.0), (1, 1, "two"), (5, 2, "two"), (5, 1, "three")]
)
def test_sizes_of_chunks_blocks_and_segments_do_not_matter_to_values_and_gradients(
    case: tuple[Any, ...], chunk: int, pairs: int, segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(case) == 2:
        form, inputs = case[0], simple(case[0], 21, case[1])
    else:
        width, steps, keys = case
        form = corrected
        inputs = corrections(21, width=width, steps=steps, top=1.0, keys=keys, decay=0.3)
    before = value_and_gradients(form, inputs)
    for name, value in {"CHUNK": chunk, "PAIRS": pairs, "SEGMENT": segment}.items():
        monkeypatch.setattr(recurrences, name, value)

    torch.testing.assert_close(value_and_gradients(form, inputs), before, rtol=1e-10, atol=1e-10)


def test_a_long_sequence_goes_segment_by_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    within = recurrences._within_by_head

    def record(q: Tensor, *others: Tensor) -> Tensor:
        lengths.append(q.shape[-3] * q.shape[-2])
        return within(q, *others)

    monkeypatch.setattr(recurrences, "_within_by_head", record)
    monkeypatch.setattr(recurrences, "SEGMENT", 2 * CHUNK)
    q, k, v = (normal(1, 5 * CHUNK, 2, seed=seed) for seed in range(3))

    decayed(q, k, v, torch.zeros(1, 5 * CHUNK, 1, dtype=q.dtype))

    assert lengths == [2 * CHUNK, 2 * CHUNK, CHUNK]


@pytest.mark.parametrize("width", [1, 5])
def test_the_last_query_alone_gives_the_last_output(width: int) -> None:
    q, k, v = (normal(2, 3, 70, 5, seed=seed) for seed in range(3))
    log_decay = -normal(2, 3, 70, width, seed=3).square()

    torch.testing.assert_close(
        decayed(q[..., -1:, :], k, v, log_decay), token_by_token(decayed, q, k, v, log_decay)[..., -1:, :]
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-2)])
@pytest.mark.parametrize("width", [1, 5])
def test_decay_so_fast_that_its_inverse_overflows_does_no_harm(
    width: int, dtype: torch.dtype, tolerance: float
) -> None:
    q, k, v = (normal(2, 3, 70, 5, seed=seed) for seed in range(3))
    log_decay = torch.where(normal(2, 3, 70, width, seed=3) > 0, -100.0, -0.01)
    fast = value_and_gradients(decayed, [x.to(dtype) for x in (q, k, v, log_decay)])
    plain = value_and_gradients(partial(token_by_token, decayed), [q, k, v, log_decay.double()])

    torch.testing.assert_close([x.double() for x in fast], plain, rtol=tolerance, atol=tolerance)


def test_leading_axes_broadcast() -> None:
    """Heads may share queries and keys, and sequences may share decays."""
    q, k, v = normal(2, 1, 70, 5, seed=0), normal(2, 1, 70, 5, seed=1), normal(2, 3, 70, 4, seed=2)
    log_decay = -normal(3, 70, 1, seed=3).square()

    expected = decayed(q.expand(2, 3, -1, -1), k.expand(2, 3, -1, -1), v, log_decay.expand(2, -1, -1, -1))

    torch.testing.assert_close(decayed(q, k, v, log_decay), expected)
    torch.testing.assert_close(token_by_token(decayed, q, k, v, log_decay), expected)


def corrected_step_by_step(
    q: Tensor, read: Tensor, write: Tensor, v: Tensor, log_decay: Tensor, key: Tensor | None = None
) -> Tensor:
    """One step at a time, from the formula; a query comes after the last of its steps."""
    steps = v.shape[-2] // q.shape[-2]
    state, outs = torch.zeros_like(write[..., 0, :, None] * v[..., 0, None, :]), []
    for t in range(v.shape[-2]):
        state = log_decay[..., t, :, None].exp() * state
        stored = (read[..., t, :, None] * state).sum(-2)
        put_in = v[..., t, :] if key is None else torch.zeros_like(v[..., t, :])
        state = state + write[..., t, :, None] * (put_in - stored).unsqueeze(-2)
        if key is not None:
            state = state + key[..., t, :, None] * v[..., t, None, :]
        if t % steps == steps - 1:
            outs.append((q[..., t // steps, :, None] * state).sum(-2))
    return torch.stack(outs, dim=-2)


def corrections(length: int, *, width: int, steps: int, top: float, keys: str, decay: float) -> list[Tensor]:
    """Inputs of ``corrected``: keys of length 1, read ones times a rate up to ``top``; ``three`` adds keys for v."""
    q, k, v, key = (
        normal(2, 3, rows, size, seed=seed)
        for seed, (rows, size) in enumerate(
            ((length, 5), (steps * length, 5), (steps * length, 4), (steps * length, 5))
        )
    )
    write = torch.nn.functional.normalize(k, dim=-1)
    read = top * normal(2, 3, steps * length, 1, seed=4).sigmoid() * write
    log_decay = -decay * normal(2, 3, steps * length, width, seed=5).square()
    return [q, read, write, v, log_decay, *([key] if keys == "three" else [])]


@pytest.mark.parametrize(
    ("width", "steps", "top", "keys"),  # every value of one with every value of each other
    [
        (1, 1, 2.0, "two"),
        (5, 1, 1.0, "three"),
        (1, 2, 1.0, "three"),
        (5, 2, 2.0, "two"),
        (1, 3, 1.0, "two"),
        (5, 3, 2.0, "three"),
    ],
)
@pytest.mark.parametrize("length", [1, CHUNK + 1, 2 * CHUNK + 5])
def test_chunks_of_corrections_agree_with_single_steps_and_so_do_their_gradients(
    length: int, width: int, steps: int, top: float, keys: str
) -> None:
    inputs = corrections(length, width=width, steps=steps, top=top, keys=keys, decay=0.3)

    torch.testing.assert_close(
        value_and_gradients(corrected, inputs),
        value_and_gradients(corrected_step_by_step, inputs),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize(("length", "steps"), [(9, 2), (CHUNK, 1), (2 * CHUNK + 5, 2)])
def test_corrections_with_slow_decays_measured_from_the_middle_are_the_same(
    length: int, steps: int, dtype: torch.dtype, tolerance: float
) -> None:
    inputs = corrections(length, width=5, steps=steps, top=1.0, keys="three", decay=1.0)
    fastest = 2 * LARGEST / (CHUNK * steps)
    inputs[4] = inputs[4].clamp(min=-fastest)
    inputs[4][0, 0] = -fastest  # a whole head at the bound
    fast = value_and_gradients(partial(corrected, fastest=fastest), [x.to(dtype) for x in inputs])

    torch.testing.assert_close(
        [x.double() for x in fast], value_and_gradients(corrected_step_by_step, inputs), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(("width", "steps", "keys"), [(1, 1, "two"), (5, 3, "three")])
def test_corrections_token_by_token_are_those_of_the_formula(width: int, steps: int, keys: str) -> None:
    inputs = corrections(9, width=width, steps=steps, top=2.0, keys=keys, decay=0.3)

    torch.testing.assert_close(token_by_token(corrected, *inputs), corrected_step_by_step(*inputs))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-2)])
@pytest.mark.parametrize(("width", "steps", "keys"), [(1, 2, "three"), (5, 2, "two")])
def test_corrections_of_a_state_that_decays_fast_are_finite_and_right(
    width: int, steps: int, keys: str, dtype: torch.dtype, tolerance: float
) -> None:
    inputs = corrections(75, width=width, steps=steps, top=1.0, keys=keys, decay=20.0)
    inputs[4] = torch.where(inputs[4] < -10, -20.0, -0.01).double()
    fast = value_and_gradients(corrected, [x.to(dtype) for x in inputs])

    torch.testing.assert_close(
        [x.double() for x in fast], value_and_gradients(corrected_step_by_step, inputs), rtol=tolerance, atol=tolerance
    )


def test_without_decay_corrections_are_the_delta_rule_and_without_reading_they_are_decay() -> None:
    q, read, write, v, log_decay = corrections(70, width=5, steps=1, top=1.0, keys="two", decay=0.3)
    beta = (read * write).sum(-1, keepdim=True)

    torch.testing.assert_close(
        corrected(q, read, write, beta * v, torch.zeros_like(log_decay[..., :1])), delta(q, write, v, beta)
    )
    torch.testing.assert_close(
        corrected(q, torch.zeros_like(read), write, v, log_decay), decayed(q, write, v, log_decay)
    )
