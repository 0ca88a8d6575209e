import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize, softplus

from synthbench.mechanisms.rewa._geometry import (
    RADIUS,
    euclidean_distance,
    hyperbolic_distance,
    spherical_distance,
    to_ball,
)
from tests.tensors import normal

SEEDS = st.integers(0, 2**32 - 1)


def ball(*shape: int, seed: int = 0) -> Tensor:
    """Points in all directions, of lengths below 0.97."""
    x = normal(*shape, seed=seed)
    return 0.97 * x / (1 + x.square().sum(-1, keepdim=True)).sqrt()


def arcosh_distance(u: Tensor, v: Tensor) -> float:
    """Eq. 124."""
    room = (1 - float(u @ u)) * (1 - float(v @ v))
    return math.acosh(1 + 2 * float((u - v) @ (u - v)) / room)


def moebius_distance(u: Tensor, v: Tensor) -> float:
    """2 artanh ‖(-u) ⊕ v‖."""
    a, inner, squares = -u, -float(u @ v), (float(u @ u), float(v @ v))
    total = (1 + 2 * inner + squares[1]) * a + (1 - squares[0]) * v
    return 2 * math.atanh(float(total.norm()) / (1 + 2 * inner + squares[0] * squares[1]))


def published_distance(u: Tensor, v: Tensor, sign: int) -> float:
    """Eq. 99 with sign -1, eq. 125 with sign 1."""
    return 2 * math.atanh(min(float((u - v).norm()) / (1 + sign * float(u @ v)), 1 - 1e-12))


@settings(max_examples=10)
@given(seed=SEEDS, p=st.integers(1, 8))
def test_the_two_correct_forms_of_the_poincare_distance_agree(seed: int, p: int) -> None:
    u, v = ball(4, p, seed=seed), ball(4, p, seed=seed + 1)

    for form in (arcosh_distance, moebius_distance):
        expected = torch.tensor([[form(a, b) for b in v] for a in u], dtype=torch.float64)
        torch.testing.assert_close(hyperbolic_distance(u, v), expected, rtol=1e-9, atol=1e-9)


def test_claim_equation_99_is_not_the_poincare_distance() -> None:
    """It is one on a line; equation 125, with the other sign, is none at all."""
    u, v = torch.tensor([0.6, 0.0]).double(), torch.tensor([0.0, 0.6]).double()
    assert arcosh_distance(u, v) == pytest.approx(moebius_distance(u, v), abs=1e-12)
    assert abs(published_distance(u, v, sign=-1) - arcosh_distance(u, v)) > 0.1
    assert abs(published_distance(u, v, sign=1) - arcosh_distance(u, v)) > 0.1

    a, b = torch.tensor([0.5]).double(), torch.tensor([-0.3]).double()
    assert published_distance(a, b, sign=-1) == pytest.approx(arcosh_distance(a, b), abs=1e-12)
    assert abs(published_distance(a, b, sign=1) - arcosh_distance(a, b)) > 0.1


def test_claim_tanh_of_every_coordinate_stays_in_the_ball_is_false() -> None:
    lengths = normal(200, 256).tanh().norm(dim=-1)

    assert lengths.median() > 9.5
    assert (lengths > 1).all()


@settings(max_examples=30)
@given(seed=SEEDS, scale=st.sampled_from([1e-20, 1e-3, 1.0, 30.0, 1e6]))
def test_the_exponential_map_stays_in_the_ball(seed: int, scale: float) -> None:
    x = scale * normal(10, 6, seed=seed)
    for points in (to_ball(x), to_ball(x.float())):
        assert (points.norm(dim=-1) <= RADIUS * (1 + 1e-6)).all()
    torch.testing.assert_close(normalize(to_ball(x), dim=-1, eps=1e-30), normalize(x, dim=-1, eps=1e-30))


Distance = Callable[[Tensor, Tensor], Tensor]
Place = Callable[[Tensor], Tensor]
SPACES: list[tuple[Distance, Place]] = [
    (euclidean_distance, lambda x: x),
    (spherical_distance, lambda x: normalize(x, dim=-1)),
    (hyperbolic_distance, to_ball),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("distance", "place"), SPACES)
def test_gradients_are_finite_at_odd_points(distance: Distance, place: Place, power: int, dtype: torch.dtype) -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-1.0, -2.0], [0.0, 0.0], [1e4, 2e4], [1e-30, 0.0]], dtype=dtype)
    x.requires_grad_()
    values = distance(place(x), place(x)) ** power
    (gradient,) = torch.autograd.grad(values.sum(), x)

    assert values.isfinite().all()
    assert gradient.isfinite().all()


def test_single_precision_distances_at_the_edge_of_the_ball_are_right_to_a_tenth() -> None:
    x = 20 * normal(30, 5)
    exact = hyperbolic_distance(to_ball(x), to_ball(x))

    rounded = hyperbolic_distance(to_ball(x.float()), to_ball(x.float())).double()

    assert (exact - rounded).abs().max() < 0.2
    assert (exact - rounded).abs()[~torch.eye(30, dtype=torch.bool)].max() < 1e-2


def test_lemma_4_4_the_angle_is_near_the_chord_with_other_constants_than_printed() -> None:
    """(arccos z - √(2(1 - z))) / (1 - z)^(3/2) falls from π/2 - √2 at 0 (printed: .52) to √2/12 at 1 (1/(12√2))."""
    z = torch.linspace(0, 0.999, 200, dtype=torch.float64)
    points = torch.stack([z, (1 - z.square()).sqrt()], dim=-1)
    angles = spherical_distance(torch.eye(1, 2, dtype=torch.float64), points)[0]
    ratios = (angles - (2 - 2 * z).sqrt()) / (1 - z) ** 1.5

    assert ratios[0].item() == pytest.approx(math.pi / 2 - math.sqrt(2), rel=1e-6)
    assert ratios[-1].item() == pytest.approx(math.sqrt(2) / 12, rel=1e-2)
    assert (ratios.diff() < 1e-6).all()


def test_claim_softplus_of_the_parameter_starts_at_the_stated_weights_is_false() -> None:
    """Appendix B.1 stores 1/√256 itself."""
    assert softplus(torch.tensor(1 / 16)).item() == pytest.approx(0.725, abs=1e-3)


def test_claim_a_tree_embeds_exactly_in_the_disk_is_false() -> None:
    """Eq. 40: a node with three neighbours at distance 1; two of them are nearer to each other than 2."""
    angles = torch.tensor([0.0, 2 * math.pi / 3, 4 * math.pi / 3]).double()
    neighbours = math.tanh(0.5) * torch.stack([angles.cos(), angles.sin()], -1)

    torch.testing.assert_close(
        hyperbolic_distance(torch.zeros(1, 2).double(), neighbours), torch.ones(1, 3).double(), rtol=1e-6, atol=1e-6
    )
    assert (hyperbolic_distance(neighbours, neighbours)[0, 1:] < 1.8).all()


@pytest.mark.parametrize("seed", range(3))
def test_claim_proposition_5_2_holds_for_all_operators_is_false(seed: int) -> None:
    """An orthogonal A_y makes the bound 0; what it bounds is of order one for some A_x of norm 1."""
    y, z = normal(2, 16, 16, seed=seed)
    z = z / torch.linalg.matrix_norm(z)
    orthogonal, _ = torch.linalg.qr(y)
    difference = z - orthogonal @ z @ orthogonal.mT
    x = difference / torch.linalg.matrix_norm(difference)

    bound = torch.linalg.matrix_norm(torch.eye(16, dtype=torch.float64) - orthogonal @ orthogonal.mT)
    gap = torch.trace(x.mT @ z) - torch.trace((x @ orthogonal).mT @ (orthogonal @ z))

    assert bound.item() < 1e-12
    assert gap > 1
