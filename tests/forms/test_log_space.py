"""Exponential features beyond the range of floating-point numbers, and features that never go there."""

import pytest
import torch
from torch import Tensor

from synthbench.forms import linear, log_space
from synthbench.forms.linear import Guard
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import FeatureAttention
from synthbench.mechanisms.performer_exp import PerformerExp
from tests.tensors import with_gradients

BOUNDED = ["slay", "slay-exact", "slay-laplace", "slay-hadamard", "rff", "rewa-functional", "performer", "linear"]


def draw(length: int, *, queries: int | None = None, spread: float = 3.0) -> tuple[Tensor, Tensor, Tensor]:
    """Positive features of queries, exponents of keys, values."""
    generator = torch.Generator().manual_seed(length)
    f, e, v = (torch.randn(2, 3, length, width, generator=generator, dtype=torch.float64) for width in (5, 5, 4))
    f = f[..., length - (queries or length) :, :].exp()
    return f.requires_grad_(), (spread * e).requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize(("guard", "delta"), [("add", 0.0), ("add", 5.0), ("clamp", 5.0)])
@pytest.mark.parametrize(("length", "queries"), [(1, 1), (64, 64), (140, 140), (140, 70)])
def test_it_is_attention_by_the_features_with_gradients(guard: Guard, delta: float, length: int, queries: int) -> None:
    f, e, v = case = draw(length, queries=queries)

    expected = linear.gram((f,), (e.exp(),), v, guard=guard, delta=delta)
    out = log_space.attend(f, e, v, guard=guard, delta=delta)

    torch.testing.assert_close(with_gradients(out, case), with_gradients(expected, case), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("level", [-900.0, 900.0])
def test_exponents_that_no_float32_holds_give_what_they_give_at_any_other_level(level: float) -> None:
    f, e, v = (x.detach().float() for x in draw(140))
    expected = linear.gram((f,), (e.exp(),), v, guard="add", delta=0.0)

    out = log_space.attend(f, e + level, v, guard="add", delta=0.0)

    torch.testing.assert_close(out, expected, rtol=2e-3, atol=2e-3)  # 900 has 4 digits less behind the point than 1
    assert not linear.gram((f,), ((e + level).exp(),), v, guard="add", delta=0.0).isfinite().all()


def test_what_is_to_come_changes_no_digit_though_it_is_far_larger() -> None:
    f, e, v = (x.detach().float() for x in draw(140))
    before = log_space.attend(f, e, v, guard="add", delta=1e-6)
    e[..., 100:, :] += 500.0

    after = log_space.attend(f, e, v, guard="add", delta=1e-6)

    assert torch.equal(after[..., :100, :], before[..., :100, :])
    assert after.isfinite().all()


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_gradients_stay_finite_where_features_vanish(delta: float) -> None:
    f, e, v = (x.detach().float().requires_grad_() for x in draw(70))

    out = log_space.attend(f, e - 1000, v, guard="add", delta=delta)

    assert all(x.isfinite().all() for x in with_gradients(out, (f, e, v)))


def wide_performer() -> PerformerExp:
    return PerformerExp(
        model_dim=256, num_heads=1, M=16, max_length=64, generator=torch.Generator().manual_seed(0), delta=1e-6
    )


def test_wide_heads_of_performer_exp_do_not_overflow() -> None:
    performer = wide_performer()
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 1, 40, 256, generator=generator) for _ in range(3))
    # Along a direction the exponent reaches ‖ω‖²/2, about 128, and float32 ends at 88.
    k[..., ::5, :] = performer.directions[0].T[:8] * 256**0.25
    double = wide_performer().double()
    factors = double.factors(q.double(), "query"), double.factors(k.double(), "key")
    expected = linear.gram(*factors, v.double(), guard="add", delta=1e-6).float()

    out = performer.attend(q, k, v)

    assert not performer.factors(k, "key")[0].isfinite().all()
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(performer.attend(q[..., -1:, :], k, v), out[..., -1:, :])


def test_heads_of_the_usual_width_keep_their_features() -> None:
    k = torch.zeros(1, 4, 3, 16)

    assert not log_space.may_overflow(k)
    assert not log_space.may_overflow(k.bfloat16())
    assert log_space.may_overflow(k.half())


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_other_features_hold_any_length_of_queries_and_keys(name: str, size: float) -> None:
    mechanism = MECHANISMS[name](model_dim=16, num_heads=2, generator=torch.Generator().manual_seed(0))
    assert isinstance(mechanism, FeatureAttention)
    x = size * torch.randn(1, 2, 100, 8, generator=torch.Generator().manual_seed(1))

    factors = mechanism.factors(x, "key")

    # A sum over 1e6 tokens of products of the largest features of both sides stays in the range of float32.
    largest = torch.stack([factor.abs().amax() for factor in factors]).prod()
    assert largest.square() * linear.rank(factors) * 1e6 < torch.finfo(torch.float32).max
    assert mechanism.attend(x, x, torch.ones_like(x)).isfinite().all()
