import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.yat_spherical import YatSpherical

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from synthbench.forms.kernels import _yat_spherical
from tests.forms.kernels.inputs import draw
from tests.tensors import is_repeatable, mix, value_and_gradients


def compare(case: tuple[Tensor, ...], epsilon: float = 1e-3) -> None:
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


@pytest.mark.parametrize("sizes", [(1,), (64,), (130,), (70, 3, 5), (70, 20, 17)])
def test_tiles_compute_the_definition_and_its_gradients_at_any_length_and_width(sizes: tuple[int, ...]) -> None:
    compare(draw(*sizes))


def test_epsilon_is_the_mechanisms_own() -> None:
    compare(draw(20), epsilon=0.5)


def test_vectors_may_vanish() -> None:
    q, k, v = draw(20)

    # Gradients at a vanishing vector are 1e12 times a number, so values only.
    case = q.index_fill(-2, torch.tensor([3]), 0), k.index_fill(-2, torch.tensor([0, 5]), 0), v
    expected = mix(YatSpherical().kernel(case[0].double(), case[1].double()), v.double())

    torch.testing.assert_close(_yat_spherical.attend(1e-3, *case), expected.float(), rtol=1e-5, atol=1e-5)


def test_a_gap_at_its_smallest_value_passes_no_gradient() -> None:
    """With epsilon 0 and equal directions the denominator is held at 1e-6."""
    axes = torch.eye(16)[:4].expand(1, 2, 4, 16)  # exact in float32, so that both forms hold the same gaps

    compare((axes, axes, torch.arange(8.0).view(1, 2, 4, 1)), epsilon=0.0)


def test_a_second_backward_pass_gives_the_same() -> None:
    case = tuple(x.requires_grad_() for x in draw(20))

    assert is_repeatable(_yat_spherical.attend(1e-3, *case), case)


def test_memory_need_not_be_contiguous() -> None:
    q, k, v = draw(20)

    compare((q.mT.contiguous().mT, k[:, :1].expand_as(k), v[..., ::2]))
