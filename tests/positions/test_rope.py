import math

import pytest
import torch

from synthbench.positions.rope import Rope
from tests.positions.rotating import GRID
from tests.tensors import normal

pytestmark = pytest.mark.usefixtures("double")


def test_pairs_of_channels_are_multiplied_by_a_complex_phase() -> None:
    q = normal(2, 3, 20, 8)
    turned = Rope(model_dim=24, num_heads=3, length=20, base=500.0).rotation(None)(q)

    for t in range(20):
        for i in range(4):
            phase = complex(math.cos(t * 500 ** (-2 * i / 8)), math.sin(t * 500 ** (-2 * i / 8)))
            expected = torch.complex(q[..., t, 2 * i], q[..., t, 2 * i + 1]) * phase
            torch.testing.assert_close(turned[..., t, 2 * i], expected.real, rtol=0, atol=1e-12)
            torch.testing.assert_close(turned[..., t, 2 * i + 1], expected.imag, rtol=0, atol=1e-12)


def test_each_axis_has_its_own_planes_and_the_frequencies_of_a_narrower_head() -> None:
    q = normal(2, 1, 12, 10)
    turned = Rope(model_dim=10, num_heads=1, length=12, coordinates=GRID).rotation(None)(q)

    for axis, channels, width in ((0, slice(0, 6), 6), (1, slice(6, 10), 4)):
        alone = Rope(model_dim=width, num_heads=1, length=12, coordinates=GRID[:, axis : axis + 1]).rotation(None)
        torch.testing.assert_close(turned[..., channels], alone(q[..., channels]), rtol=0, atol=1e-12)


def test_angles_at_far_positions_are_exact_to_the_precision_of_the_parameters() -> None:
    far = torch.tensor([[131_071.0]])
    x = torch.tensor([1.0, 0.0], dtype=torch.float32).view(1, 1, 1, 2)
    turned = Rope(model_dim=2, num_heads=1, length=1, coordinates=far).rotation(None).float()(x)

    assert turned.flatten().tolist() == pytest.approx([math.cos(131_071), math.sin(131_071)], abs=1e-7)
