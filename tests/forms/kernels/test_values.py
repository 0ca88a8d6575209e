"""Kernels against the definitions in float64, in Triton's interpreter."""

from functools import partial

import pytest
import torch
from torch import Tensor

from synthbench.forms.linear import Guard
from synthbench.mechanisms.slay.slay import Slay
from synthbench.mechanisms.yat_spherical import YatSpherical
from synthbench.training.ensemble import stack_modules

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from synthbench.forms.kernels import _slay, _yat_spherical
from synthbench.forms.kernels._tiles import padded
from tests.forms.kernels import inputs
from tests.forms.kernels.inputs import draw
from tests.tensors import is_repeatable, mix, value_and_gradients

make = partial(inputs.make, "slay")


def constants_of(unit: Slay) -> _slay.Constants:
    return _slay.Constants(unit.anchors, unit.directions, unit.shift, unit.log_scale)


def define(unit: Slay, inputs: tuple[Tensor, ...], guard: Guard, delta: float) -> Tensor:
    """The definition, in float64."""
    q, k, v = (x.double() for x in inputs)
    u, w = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12) for x in (q, k))
    anchors, directions = unit.anchors.double(), unit.directions.double()
    shift, log_scale = unit.shift.double(), unit.log_scale.double()
    squares = [(x @ anchors).square() for x in (u, w)]
    exponentials = [((x @ directions - shift).clamp(-20, 20) + log_scale).exp() for x in (u, w)]
    kernel = (squares[0] @ squares[1].mT) * (exponentials[0] @ exponentials[1].mT) / unit.P
    return mix(kernel, v, guard, delta)


def compare_slay(
    unit: Slay, case: tuple[Tensor, ...], guard: Guard = "add", delta: float = 1e-6, segment: int | None = 64
) -> None:
    """The kernel against the definition."""
    out = _slay.attend(constants_of(unit), *case, guard=guard, delta=delta, segment=segment)

    torch.testing.assert_close(out, define(unit, case, guard, delta).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("length", "segment"), [(1, None), (64, None), (130, None), (63, 64), (128, 64), (130, 64)])
def test_slay_computes_the_definition(length: int, segment: int | None) -> None:
    compare_slay(make(), draw(length), segment=segment)


@pytest.mark.parametrize(
    ("head_dim", "options"),
    [(32, {"P": 8, "R": 3, "D": 16}), (16, {"P": 1, "R": 1, "D": 1}), (12, {"P": 9})],
    ids=str,
)
def test_widths_of_slay_need_not_be_powers_of_two(head_dim: int, options: dict[str, int]) -> None:
    compare_slay(make(head_dim, **options), draw(70, head_dim, 10))


@pytest.mark.parametrize(("features", "value_dim", "at_once"), [(48, 32, 8), (48, 64, 4), (126, 64, 2), (126, 128, 1)])
def test_states_are_of_as_many_anchors_as_fit(features: int, value_dim: int, at_once: int) -> None:
    assert 16 >> _slay.num_halvings(padded(features), value_dim, "bf16") == at_once


@pytest.mark.end_to_end
@pytest.mark.parametrize(("num_anchors", "features", "value_dim"), [(5, 48, 64), (2, 126, 128)])
def test_states_are_summed_for_as_many_anchors_as_fit(num_anchors: int, features: int, value_dim: int) -> None:
    """Anchors that are no multiple of those, too."""
    compare_slay(make(R=3, D=features // 3, P=num_anchors), draw(70, 16, value_dim))


def test_exponents_of_slay_are_clipped_and_vectors_may_vanish() -> None:
    unit, (q, k, v) = make(R=6, D=16), draw(20)
    case = q.index_fill(-2, torch.tensor([3]), 0), k.index_fill(-2, torch.tensor([0, 5]), 0), v
    unit.shift.add_(19)  # the exponents of many features are now below -20

    compare_slay(unit, case, "clamp", 1e-20, segment=None)


@pytest.mark.parametrize(
    ("length", "guard", "segment"),
    [(1, "clamp", None), (130, "clamp", None), (260, "add", 128)],
)
def test_gradients_of_slay_are_those_of_the_definition(length: int, guard: Guard, segment: int | None) -> None:
    unit, case = make(), draw(length, 16, 10)
    delta = 0.05  # some denominators lie below that, where they are clamped
    kernel = partial(_slay.attend, constants_of(unit), guard=guard, delta=delta, segment=segment)

    expected = value_and_gradients(lambda *qkv: define(unit, qkv, guard, delta), [x.double() for x in case])
    for own, true in zip(value_and_gradients(kernel, case), expected, strict=True):
        assert (own - true).abs().max() <= 1e-5 * true.abs().max().clamp(min=1)


def test_runs_may_have_constants_of_their_own() -> None:
    units, case = [make(seed=seed, P=2) for seed in range(2)], draw(66, batch=(2, 1))
    together = stack_modules(units, activation_axes=5)

    out = _slay.attend(constants_of(together), *case, guard="add", delta=1e-6, segment=64)

    assert together.anchors.shape == (2, 1, 1, 16, 2)
    for run, unit in enumerate(units):
        expected = define(unit, tuple(x[run] for x in case), "add", 1e-6)
        torch.testing.assert_close(out[run], expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("options", "value_dim", "at_once", "length"),
    [({"P": 8}, 10, 8, 140), ({"P": 6}, 48, 4, 129)],
    ids=str,
)
def test_bfloat16_reads_states_of_anchors(options: dict[str, int], value_dim: int, at_once: int, length: int) -> None:
    """And is hardly further off for it, in values and gradients; the interpreter rounds towards 0, by up to 2^-7."""
    unit, case = make(**options), [x.bfloat16() for x in draw(length, 16, value_dim)]
    assert _slay.anchors_read(unit.P, padded(value_dim), "bf16") == at_once
    expected = value_and_gradients(lambda *qkv: define(unit, qkv, "add", 1e-6), [x.double() for x in case])

    missed = []
    for segment in (128, 384):  # with states, and without
        kernel = partial(_slay.attend, constants_of(unit), guard="add", delta=1e-6, segment=segment)
        found = value_and_gradients(kernel, case)
        assert all(x.dtype == torch.bfloat16 for x in found)
        missed.append([float((x.double() - y).norm() / y.norm()) for x, y in zip(found, expected, strict=True)])

    assert all(x <= min(1.25 * y, 2**-5) for x, y in zip(*missed, strict=True))


def compare_yat(case: tuple[Tensor, ...], epsilon: float = 1e-3) -> None:
    """Values and gradients against the definition in float64.

    1e-5 of the largest may be missed, or twice what PyTorch misses in float32: where weights are nearly 0, gradients
    are large.
    """
    unit = YatSpherical(epsilon=epsilon)
    expected = value_and_gradients(lambda q, k, v: mix(unit.kernel(q, k), v), tuple(x.double() for x in case))
    by_torch = value_and_gradients(unit.attend, case)

    found = value_and_gradients(lambda *qkv: _yat_spherical.attend(epsilon, *qkv), case)

    for own, torchs, true in zip(found, by_torch, expected, strict=True):
        assert own.dtype == torch.float32
        allowed = max(1e-5 * float(true.abs().max().clamp(min=1)), 2 * float((torchs - true).abs().max()))
        assert (own - true).abs().max() <= allowed


@pytest.mark.parametrize(
    ("sizes", "epsilon"),
    [((1,), 1e-3), ((64,), 1e-3), ((130,), 1e-3), ((70, 3, 5), 1e-3), ((70, 20, 17), 1e-3), ((20,), 0.5)],
)
def test_tiles_of_yat_compute_the_definition_and_its_gradients(sizes: tuple[int, ...], epsilon: float) -> None:
    compare_yat(draw(*sizes), epsilon)


def test_vectors_of_yat_may_vanish() -> None:
    q, k, v = draw(20)

    # Gradients at a vanishing vector are 1e12 times a number, so values only.
    case = q.index_fill(-2, torch.tensor([3]), 0), k.index_fill(-2, torch.tensor([0, 5]), 0), v
    expected = mix(YatSpherical().kernel(case[0].double(), case[1].double()), v.double())

    torch.testing.assert_close(_yat_spherical.attend(1e-3, *case), expected.float(), rtol=1e-5, atol=1e-5)


def test_a_gap_of_yat_at_its_smallest_value_passes_no_gradient() -> None:
    """With epsilon 0 and equal directions the denominator is held at 1e-6."""
    axes = torch.eye(16)[:4].expand(1, 2, 4, 16)  # exact in float32, so that both forms hold the same gaps

    compare_yat((axes, axes, torch.arange(8.0).view(1, 2, 4, 1)), epsilon=0.0)


def test_memory_need_not_be_contiguous_and_a_second_backward_pass_gives_the_same() -> None:
    q, k, v = draw(20)
    odd = q.mT.contiguous().mT, k[:, :1].expand_as(k), v[..., ::2]

    compare_slay(make(), odd)
    compare_yat(odd)
    case = tuple(x.requires_grad_() for x in (q, k, v))
    assert is_repeatable(_yat_spherical.attend(1e-3, *case), case)
