from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.forms import recurrences
from synthbench.forms.recurrences import CHUNK, decayed, decayed_recurrent, delta, delta_recurrent

Form = Callable[..., Tensor]
LENGTHS = [1, 2, 7, CHUNK, CHUNK + 1, 3 * CHUNK + 5]


def value_and_gradients(form: Form, inputs: list[Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = form(*leaves)
    return [out.detach(), *torch.autograd.grad(out.sin().sum(), leaves)]


@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_of_decay_agree_with_single_steps_and_so_do_their_gradients(
    length: int, width: int, normal: Callable[..., Tensor]
) -> None:
    q, k, v = (normal(2, 3, length, size, seed=seed) for seed, size in enumerate((5, 5, 4)))
    inputs = [q, k, v, -normal(2, 3, length, width, seed=3).square()]

    torch.testing.assert_close(
        value_and_gradients(decayed, inputs), value_and_gradients(decayed_recurrent, inputs), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("top", [1.0, 2.0])
@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_of_the_delta_rule_agree_with_single_steps_and_so_do_their_gradients(
    length: int, top: float, normal: Callable[..., Tensor]
) -> None:
    q, k, v = (normal(2, 3, length, size, seed=seed) for seed, size in enumerate((5, 5, 4)))
    k = torch.nn.functional.normalize(k, dim=-1)
    inputs = [q, k, v, top * normal(2, 3, length, 1, seed=3).sigmoid()]

    torch.testing.assert_close(
        value_and_gradients(delta, inputs), value_and_gradients(delta_recurrent, inputs), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("chunk", [1, 4, 16])
@pytest.mark.parametrize("pairs", [1, 4])
def test_sizes_of_chunks_and_blocks_do_not_matter(
    chunk: int, pairs: int, normal: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v, decay = (normal(2, 21, 3, seed=seed) for seed in range(4))
    beta = normal(2, 21, 1, seed=4).sigmoid()
    before = decayed(q, k, v, -decay.square()), delta(q, k, v, beta)
    monkeypatch.setattr(recurrences, "CHUNK", chunk)
    monkeypatch.setattr(recurrences, "PAIRS", pairs)

    torch.testing.assert_close((decayed(q, k, v, -decay.square()), delta(q, k, v, beta)), before)


@pytest.mark.parametrize("length", [8, 9, 16, 21])
@pytest.mark.parametrize("width", [1, 3])
def test_segments_do_not_matter_to_values_and_gradients(
    length: int, width: int, normal: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = (normal(2, length, 3, seed=seed) for seed in range(3))
    decay, beta = -normal(2, length, width, seed=3).square(), normal(2, length, 1, seed=4).sigmoid()
    before = value_and_gradients(decayed, [q, k, v, decay]), value_and_gradients(delta, [q, k, v, beta])
    monkeypatch.setattr(recurrences, "CHUNK", 4)
    monkeypatch.setattr(recurrences, "SEGMENT", 8)

    after = value_and_gradients(decayed, [q, k, v, decay]), value_and_gradients(delta, [q, k, v, beta])

    torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-10)


def test_a_long_sequence_goes_segment_by_segment(
    normal: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_the_last_query_alone_gives_the_last_output(width: int, normal: Callable[..., Tensor]) -> None:
    q, k, v = (normal(2, 3, 70, 5, seed=seed) for seed in range(3))
    log_decay = -normal(2, 3, 70, width, seed=3).square()

    torch.testing.assert_close(
        decayed(q[..., -1:, :], k, v, log_decay), decayed_recurrent(q, k, v, log_decay)[..., -1:, :]
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-2)])
@pytest.mark.parametrize("width", [1, 5])
def test_decay_so_fast_that_its_inverse_overflows_does_no_harm(
    width: int, dtype: torch.dtype, tolerance: float, normal: Callable[..., Tensor]
) -> None:
    q, k, v = (normal(2, 3, 70, 5, seed=seed) for seed in range(3))
    log_decay = torch.where(normal(2, 3, 70, width, seed=3) > 0, -200.0, -0.01)
    fast = value_and_gradients(decayed, [x.to(dtype) for x in (q, k, v, log_decay)])
    plain = value_and_gradients(decayed_recurrent, [q, k, v, log_decay.double()])

    torch.testing.assert_close([x.double() for x in fast], plain, rtol=tolerance, atol=tolerance)


def test_leading_axes_broadcast(normal: Callable[..., Tensor]) -> None:
    """Heads may share queries and keys, and sequences may share decays."""
    q, k, v = normal(2, 1, 70, 5, seed=0), normal(2, 1, 70, 5, seed=1), normal(2, 3, 70, 4, seed=2)
    log_decay = -normal(3, 70, 1, seed=3).square()

    expected = decayed(q.expand(2, 3, -1, -1), k.expand(2, 3, -1, -1), v, log_decay.expand(2, -1, -1, -1))

    torch.testing.assert_close(decayed(q, k, v, log_decay), expected)
    torch.testing.assert_close(decayed_recurrent(q, k, v, log_decay), expected)
