import pytest
import torch
from torch import Tensor

from synthbench.forms import linear, streaming
from synthbench.forms.linear import Factors, Guard, Side
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import FeatureAttention
from synthbench.mechanisms.slay.slay import Slay
from tests.mechanisms.loops import built
from tests.tensors import is_repeatable, normal, with_gradients

WIDTHS = {1: (5,), 2: (3, 4), 3: (4, 2, 3)}
TRAINED = {"rewa-fourier"}
"""Features that read a parameter, which must get its gradient from them."""
STREAMED = ["linear", "slay", "cosformer", "rff", "performer-exp", *TRAINED]
"""One mechanism for each kind of features."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "CHUNK", 3)
    monkeypatch.setattr(streaming, "BLOCK", 6)


def draw(num_factors: int, length: int) -> list[Tensor]:
    width = sum(WIDTHS[num_factors])
    return [normal(2, 3, length, of, seed=seed).requires_grad_() for seed, of in enumerate((width, width, 4))]


def factors_of(x: Tensor, side: Side, first_position: int) -> Factors:
    """Positive factors that differ by side and by position."""
    widths = next(of for of in WIDTHS.values() if sum(of) == x.shape[-1])
    positions = torch.arange(first_position, first_position + x.shape[-2], dtype=x.dtype).unsqueeze(-1)
    shift = 0.1 if side == "query" else 0.2
    return tuple((part / 4 + shift * (positions / 5).cos()).exp() for part in x.split(widths, dim=-1))


@pytest.mark.parametrize("guard", ["add", "clamp"])
@pytest.mark.parametrize("num_factors", WIDTHS)
@pytest.mark.parametrize("length", [1, 6, 17])
def test_the_streamed_form_equals_the_recurrent_form_and_so_do_its_gradients(
    guard: Guard, num_factors: int, length: int
) -> None:
    case = q, k, v = draw(num_factors, length)
    delta = 1e-6 if guard == "add" else 3.0  # some denominators lie below 3

    expected = linear.recurrent(factors_of(q, "query", 0), factors_of(k, "key", 0), v, guard=guard, delta=delta)
    streamed = streaming.streamed(factors_of, q, k, v, guard=guard, delta=delta)

    torch.testing.assert_close(with_gradients(streamed, case), with_gradients(expected, case), rtol=1e-10, atol=1e-10)


def test_a_second_backward_pass_gives_the_same() -> None:
    case = draw(2, 14)

    assert is_repeatable(streaming.streamed(factors_of, *case, guard="add", delta=1e-6), case)


def test_memory_need_not_be_contiguous() -> None:
    q, k, v = draw(2, 14)
    odd = q[:1].mT.contiguous().mT.expand_as(q)

    out = streaming.streamed(factors_of, odd, k, v, guard="add", delta=1e-6)

    expected = streaming.streamed(factors_of, odd.contiguous(), k, v, guard="add", delta=1e-6)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("name", STREAMED)
def test_long_sequences_are_streamed_where_features_are_frozen_and_nothing_changes(name: str) -> None:
    mechanism = built(MECHANISMS[name], model_dim=16, max_length=32)
    assert isinstance(mechanism, FeatureAttention)
    case = q, k, v = [normal(2, 2, 20, 8, seed=seed).requires_grad_() for seed in range(3)]

    streamed = mechanism.attend(q, k, v)

    factors = mechanism.factors(q, "query"), mechanism.factors(k, "key")
    expected = linear.gram(*factors, v, guard=mechanism.guard, delta=mechanism.delta)
    assert ("_Streamed" in type(streamed.grad_fn).__name__) == (name not in TRAINED)
    # Relative to the largest: denominators that cancel to nearly nothing make some gradients large.
    for own, other in zip(with_gradients(streamed, case), with_gradients(expected, case), strict=True):
        assert (own - other).abs().max() <= 1e-9 * other.abs().max()


def test_what_a_mechanism_keeps_may_be_replaced_before_the_backward_pass() -> None:
    mechanism, other = (built(Slay, seed, model_dim=16) for seed in range(2))
    case = [normal(1, 2, 20, 8, seed=seed).requires_grad_() for seed in range(3)]
    expected = with_gradients(mechanism.attend(*case), case)

    out = mechanism.attend(*case)
    for name, value in other.named_buffers():
        setattr(mechanism, name, value)

    torch.testing.assert_close(with_gradients(out, case), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_over_tokens_are_float32_at_least(dtype: torch.dtype) -> None:
    length = 600
    ones = torch.ones(1, length, 5, dtype=dtype, requires_grad=True)
    v = torch.linspace(-1, 1, length).view(1, -1, 1).to(dtype)

    out = streaming.streamed(lambda x, _side, _first: (x,), ones, ones, v, guard="add", delta=1e-6)

    # Alike features make means of what came before; a sum of ones in bfloat16 would stop at 256.
    expected = v.float().cumsum(1) / torch.arange(1, length + 1).view(1, -1, 1)
    assert out.dtype == dtype
    torch.testing.assert_close(out, expected.to(dtype))
    assert all(x.dtype == dtype for x in torch.autograd.grad(out.sum(), ones))
