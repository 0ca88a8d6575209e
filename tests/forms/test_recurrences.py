from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from synthbench.forms import recurrences
from synthbench.forms.recurrences import CHUNK, LARGEST, corrected, decayed, delta
from synthbench.forms.state import State
from tests.tensors import normal, value_and_gradients

Form = Callable[..., Tensor]
OWN = (CHUNK, recurrences.PAIRS, recurrences.SEGMENT)
"""Sizes of chunks, blocks and segments, unless a test changes them."""


def token_by_token(form: Form, *tensors: Tensor) -> Tensor:
    """One query and its steps at a time: what the chunks are compared with."""
    queries, state = tensors[0].shape[-2], State()
    tokens = zip(*(x.split(x.shape[-2] // queries, dim=-2) for x in tensors), strict=True)
    return torch.cat([form(*token, state=state) for token in tokens], dim=-2)


def check(form: Form, inputs: list[Tensor], tolerance: float = 1e-9, dtype: torch.dtype = torch.float64) -> None:
    """In this precision, chunks compute what single tokens do in float64, and so are the gradients."""
    of_chunks = value_and_gradients(form, [x.to(dtype) for x in inputs])
    plain = value_and_gradients(partial(token_by_token, form), inputs)

    torch.testing.assert_close([x.double() for x in of_chunks], plain, rtol=tolerance, atol=tolerance)


def inputs_of(
    form: Form, length: int, *, width: int = 1, steps: int = 1, top: float = 1.0, keys: str = "two", decay: float = 0.3
) -> list[Tensor]:
    """Decays have a width, and rates a largest value; a query comes after its steps; ``three`` adds keys for v."""
    rows = steps * length
    q, k, v, key = (
        normal(2, 3, count, size, seed=seed)
        for seed, (count, size) in enumerate(((length, 5), (rows, 5), (rows, 4), (rows, 5)))
    )
    rate, log_decay = top * normal(2, 3, rows, 1, seed=4).sigmoid(), -decay * normal(2, 3, rows, width, seed=5).square()
    write = torch.nn.functional.normalize(k, dim=-1)
    if form is decayed:
        return [q, k, v, log_decay]
    if form is delta:
        return [q, write, v, rate]
    return [q, rate * write, write, v, log_decay, *([key] if keys == "three" else [])]


CASES: list[tuple[Form, dict[str, Any]]] = [
    (decayed, {"width": 1, "decay": 1.0}),
    (decayed, {"width": 5, "decay": 1.0}),
    (delta, {"top": 1.0}),
    (delta, {"top": 2.0}),
    # Every value of one with every value of each other.
    (corrected, {"width": 1, "steps": 1, "top": 2.0, "keys": "two"}),
    (corrected, {"width": 5, "steps": 1, "top": 1.0, "keys": "three"}),
    (corrected, {"width": 1, "steps": 2, "top": 1.0, "keys": "three"}),
    (corrected, {"width": 5, "steps": 2, "top": 2.0, "keys": "two"}),
    (corrected, {"width": 1, "steps": 3, "top": 1.0, "keys": "two"}),
    (corrected, {"width": 5, "steps": 3, "top": 2.0, "keys": "three"}),
]


@pytest.mark.parametrize(("form", "options"), CASES)
@pytest.mark.parametrize(
    ("length", "sizes"),
    [(1, OWN), (CHUNK, OWN), (2 * CHUNK + 6, OWN), (21, (1, 4, 1024)), (21, (4, 4, 8)), (21, (16, 1, 16))],
)
def test_chunks_blocks_and_segments_of_any_size_agree_with_single_steps_and_so_do_gradients(
    form: Form, options: dict[str, Any], length: int, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(("CHUNK", "PAIRS", "SEGMENT"), sizes, strict=True):
        monkeypatch.setattr(recurrences, name, value)

    check(form, inputs_of(form, length, **options), 1e-10)


def test_a_long_sequence_goes_segment_by_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    within = Mock(wraps=recurrences._within_by_head)
    monkeypatch.setattr(recurrences, "_within_by_head", within)
    monkeypatch.setattr(recurrences, "SEGMENT", 2 * CHUNK)
    q, k, v = (normal(1, 5 * CHUNK, 2, seed=seed) for seed in range(3))

    decayed(q, k, v, torch.zeros(1, 5 * CHUNK, 1, dtype=q.dtype))

    chunks = [call.args[0].shape[-3:-1] for call in within.call_args_list]
    assert [count * length for count, length in chunks] == [2 * CHUNK, 2 * CHUNK, CHUNK]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize(("length", "steps"), [(CHUNK, 1), (CHUNK + 6, 2)])
def test_slow_decays_measured_from_the_middle(length: int, steps: int, dtype: torch.dtype, tolerance: float) -> None:
    inputs = inputs_of(corrected, length, width=5, steps=steps, keys="three", decay=1.0)
    fastest = 2 * LARGEST / (CHUNK * steps)
    inputs[4] = inputs[4].clamp(min=-fastest)
    inputs[4][0, 0] = -fastest  # a whole head at the bound

    check(partial(corrected, fastest=fastest), inputs, tolerance, dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-2)])
@pytest.mark.parametrize(
    ("form", "options", "fastest"),
    [
        (decayed, {"width": 1}, -100.0),
        (decayed, {"width": 5}, -100.0),
        (corrected, {"width": 1, "steps": 2, "keys": "three"}, -20.0),
        (corrected, {"width": 5, "steps": 2, "keys": "two"}, -20.0),
    ],
)
def test_decay_so_fast_that_its_inverse_overflows_does_no_harm(
    form: Form, options: dict[str, Any], fastest: float, dtype: torch.dtype, tolerance: float
) -> None:
    inputs = inputs_of(form, 75, **options)
    place = 3 if form is decayed else 4
    inputs[place] = torch.where(inputs[place] < -0.1, fastest, -0.01).double()

    check(form, inputs, tolerance, dtype)
