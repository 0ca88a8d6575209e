"""Theorems of the ESPR derivation about the computed maps, and statements of it that are false."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from synthbench.layers import Rotation
from synthbench.mechanisms.performer_exp import PerformerExp
from synthbench.positions._rotations import cayley, num_entries, skew_matrix
from synthbench.positions.espr import Espr
from tests.mechanisms.loops import moved
from tests.positions.rotating import GRID, matrices, rotation_of

pytestmark = pytest.mark.usefixtures("double")

seeds = st.integers(0, 2**32 - 1)
HEADS, DIM, LENGTH = 2, 8, 12
ROTATING = ["rope", "string", "espr:null=keep", "espr:null=keep,order=conjugate"]
NOT_COMMUTING = ["espr:null=keep,commuting=false", "espr:null=keep,commuting=false,order=conjugate"]


def norm(matrix: Tensor) -> float:
    """The operator norm of T0.9."""
    return float(torch.linalg.matrix_norm(matrix, ord=2))


def random_skew(dim: int, generator: torch.Generator) -> Tensor:
    entries = torch.randn(num_entries(dim), generator=generator, dtype=torch.float64)
    return skew_matrix(entries, dim)


def pure_mixing(num_active: int, num_null: int, size: float, generator: torch.Generator) -> Tensor:
    """A skew S of norm ``size`` with no block among active channels: the hypothesis of T6'.7."""
    dim = num_active + num_null
    skew = random_skew(dim, generator)
    skew[:num_active, :num_active] = 0
    return skew * (size / norm(skew))


class Drawn:
    """One head with random non-commuting generators on two axes, a pure mixing, and two positions r and s."""

    def __init__(self, seed: int, order: str, null: str, *, num_planes: int = 2, num_null: int = 3) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.num_active = 2 * num_planes
        dim = self.num_active + num_null
        scale = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
        coordinates = torch.randn(2, 2, generator=generator, dtype=torch.float64) * 2 * scale[0]
        self.rho = 0.98 * scale[1] + 1e-3
        skew = pure_mixing(self.num_active, num_null, self.rho, generator)
        self.eta = norm(skew[: self.num_active, self.num_active :])
        given: dict[str, Any] = {"order": order, "null": null, "commuting": False, "active": num_planes / (dim // 2)}
        encoding = Espr(model_dim=dim, num_heads=1, length=2, coordinates=coordinates, **given)
        self.rotation = encoding.rotation(generator)
        assert self.rotation.num_active == self.num_active
        with torch.no_grad():
            rows, columns = torch.triu_indices(dim, dim, offset=1)
            self.rotation.skew.copy_(skew[columns, rows])
            self.rotation.rates.normal_(std=0.5, generator=generator)
        self.r, self.s = coordinates
        self.generators = [skew_matrix(self.rotation.rates[0, :, axis].detach(), self.num_active) for axis in (0, 1)]
        first, second = self.generators
        self.epsilon = norm(first @ second - second @ first)
        self.mixing = cayley(skew)
        self.from_commutator = self.epsilon * self.r.abs().sum().item() * self.s.abs().sum().item() / 2

    def turning(self, r: Tensor) -> Tensor:
        """R_STR(r) on the active channels."""
        first, second = self.generators
        turning: Tensor = torch.linalg.matrix_exp(r[0] * first + r[1] * second)
        return turning


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("term", ROTATING + NOT_COMMUTING)
def test_theorems_2_8_3_2_and_3_5_every_map_is_a_rotation(term: str, axes: int) -> None:
    turned = matrices(moved(rotation_of(term, GRID[:, :axes])), HEADS, LENGTH, DIM)

    torch.testing.assert_close(turned.mT @ turned, torch.eye(DIM).expand_as(turned), rtol=0, atol=1e-12)
    torch.testing.assert_close(turned.det(), torch.ones(HEADS, LENGTH), rtol=0, atol=1e-12)


def residual_of_offsets(rotation: Rotation, channels: int = DIM) -> float:
    """Compute the largest distance of R(r_i)ᵀR(r_j) from R(0)ᵀR(r_j - r_i); rows of the grid are offsets."""
    turned = matrices(rotation, HEADS, LENGTH, DIM).detach()
    between = (turned.mT.unsqueeze(2) @ turned.unsqueeze(1))[..., :channels, :channels]  # [heads, i, j, ...]
    differences = [
        (between[:, 4 * row + column, 4 * (row + down) + column + right] - between[:, 0, 4 * down + right]).abs().max()
        for down, right in itertools.product(range(3), range(4))
        for row, column in itertools.product(range(3 - down), range(4 - right))
    ]
    return float(torch.stack(differences).max())


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("term", ROTATING)
def test_theorem_2_9_commuting_generators_see_only_the_offset(term: str, axes: int) -> None:
    assert residual_of_offsets(moved(rotation_of(term, GRID[:, :axes]))) < 1e-11


@pytest.mark.parametrize("term", NOT_COMMUTING)
def test_theorem_2_9_holds_for_any_generator_of_one_axis_and_fails_for_two_that_do_not_commute(term: str) -> None:
    one, two = rotation_of(term, GRID[:, :1]), rotation_of(term, GRID)
    assert residual_of_offsets(two) < 1e-11  # as it begins, they commute

    assert residual_of_offsets(moved(one)) < 1e-11
    assert residual_of_offsets(moved(two)) > 0.1


@pytest.mark.parametrize("order", ["post", "conjugate"])
def test_theorems_3_7_and_8_23_mixing_within_the_null_part_leaves_offsets_and_claim_theorem_8_14_is_false(
    order: str,
) -> None:
    """8.14 states a positive residual of STRING; its hypothesis, generators that do not commute, excludes it."""
    rotation = moved(rotation_of(f"espr:null=keep,order={order},active=0.5", GRID))
    rows, _ = torch.triu_indices(rotation.dim, rotation.dim, offset=1)
    with torch.no_grad():  # of S, what turns null channels among themselves: P in the class A of T3.4
        rotation.skew[:, rows < rotation.num_active] = 0
    turned = matrices(rotation, HEADS, LENGTH, DIM).detach()
    assert (turned[..., 4:, 4:] - torch.eye(4)).abs().max() > (0.1 if order == "post" else -1)

    from_start = (turned[:, :1].mT @ turned)[..., :4, :4]
    torch.testing.assert_close(from_start, turned[..., :4, :4], rtol=0, atol=1e-12)
    assert residual_of_offsets(rotation, channels=4) < 1e-11


def test_claim_theorem_6_1_bounds_the_sum_over_planes_is_false() -> None:
    frequencies, r = torch.ones(4, 1), torch.ones(1)
    largest = frequencies.abs().sum(-1).max() * r.abs().sum()

    assert (frequencies @ r).abs().sum() == 4 * largest


def test_claim_theorem_6_5_decomposition_of_the_difference_is_false_in_a_sign() -> None:
    one, two = skew_matrix(torch.tensor([0.5]), 2), skew_matrix(torch.tensor([0.1]), 2)
    inverse_one, inverse_two = torch.linalg.inv(torch.eye(2) + one), torch.linalg.inv(torch.eye(2) + two)
    printed = (two - one) @ inverse_one + (torch.eye(2) - two) @ (inverse_two - inverse_one)

    assert norm(cayley(one) - cayley(two) - printed) > 0.5


def test_claim_theorem_6_9_bound_of_the_whole_mixing_by_the_square_is_false() -> None:
    skew = pure_mixing(2, 2, 0.01, torch.Generator().manual_seed(0))
    eta = norm(skew[:2, 2:])

    assert norm(cayley(skew) - torch.eye(4)) > 50 * 2 * eta**2 / (1 - 0.01) ** 3


def test_claim_theorems_5_8_and_6_8_active_block_is_near_the_identity_is_false() -> None:
    mixing = torch.diag(torch.tensor([-1.0, -1.0, 1.0]))  # a rotation; A = -I, B = C = 0

    assert mixing.det() == 1
    assert norm(mixing[:2, 2:]) == norm(mixing[2:, :2]) == 0
    assert norm(mixing[:2, :2] - torch.eye(2)) == pytest.approx(2)


def test_claim_theorem_6_11_model_free_is_false() -> None:
    """Without any mixing of active and null channels, P turns the planes: the offset is seen, R(offset) is not."""
    quarter = torch.tensor([[0.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    turning = torch.block_diag(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.eye(2))  # the offset turns one plane

    assert quarter.det() == 1
    assert norm(quarter.T @ turning @ quarter - turning) > 1  # the bound is 0


@settings(max_examples=10)
@given(seed=seeds)
def test_theorem_6_11_scores_are_near_those_of_the_offset(seed: int) -> None:
    drawn = Drawn(seed, "post", "drop")
    generator = torch.Generator().manual_seed(seed + 1)
    dim = len(drawn.mixing)
    q, k = torch.randn(2, dim, generator=generator, dtype=torch.float64)
    turned = drawn.rotation(torch.stack((q, k)).view(1, 1, 2, dim))[0, 0]
    score = (turned[0] @ turned[1]).item() / math.sqrt(dim)
    q, k = q[: drawn.num_active], k[: drawn.num_active]
    scale = math.sqrt(drawn.num_active)
    ideal = (q @ drawn.turning(drawn.s - drawn.r) @ k).item() / scale

    bound = drawn.from_commutator + 4 * drawn.eta**2 / (1 - drawn.rho)
    assert abs(score - ideal) <= bound * (q.norm() * k.norm()).item() / scale + 1e-11


def test_theorem_7_5_variance_of_positive_features_of_rotated_vectors() -> None:
    """With x = d^(-1/4) q: mean exp(α), variance e^(2α) (e^(‖x‖² + ‖y‖² + 2α) - 1) / M."""
    drawn, draws, generator = Drawn(0, "post", "drop"), 40_000, torch.Generator().manual_seed(1)
    dim = len(drawn.mixing)
    turned = drawn.rotation(torch.randn(1, 1, 2, dim, generator=generator, dtype=torch.float64) / 2)[0, 0].detach()
    performer = PerformerExp(model_dim=dim, num_heads=1, M=8, omega="iid")
    performer.directions = nn.Buffer(torch.randn(draws, dim, 8, generator=generator, dtype=torch.float64))

    x, y = performer.features(turned.expand(draws, 2, dim), "key").unbind(1)
    deviations = (x * y).sum(-1) - (alpha := turned[0] @ turned[1] / dim**0.5).exp()
    variance = (2 * alpha).exp() * ((turned.square().sum() / dim**0.5 + 2 * alpha).exp() - 1) / 8

    assert abs(deviations.mean()) < 5 * (variance / draws).sqrt()
    assert abs((squares := deviations.square()).mean() - variance) < 5 * squares.std() / draws**0.5


@pytest.mark.parametrize("order", ["post", "conjugate"])
@settings(max_examples=10)
@given(seed=seeds)
def test_theorems_6_10_and_8_13_the_invariance_residual_is_bounded(order: str, seed: int) -> None:
    drawn = Drawn(seed, order, "keep")
    dim = len(drawn.mixing)
    basis = torch.eye(dim, dtype=torch.float64).view(dim, 1, 1, dim).expand(dim, 1, 2, dim)
    at_r, at_s = drawn.rotation(basis)[:, 0].permute(1, 2, 0).detach()
    active = slice(0, drawn.num_active)
    residual = norm((at_r.mT @ at_s)[active, active] - drawn.turning(drawn.s - drawn.r))

    assert residual <= drawn.from_commutator + 8 * drawn.eta**2 / (1 - drawn.rho) + 1e-11


def test_claim_theorems_6_11_and_8_13_constants_of_the_mixing_are_false() -> None:
    """One plane that turns by π and mixes with two null channels: A = cos φ I, B = -sin φ I, tan(φ/2) = η."""
    eta = 0.1
    skew = torch.zeros(4, 4)
    skew[0, 2] = skew[1, 3] = eta
    skew[2, 0] = skew[3, 1] = -eta
    mixing = cayley(skew)
    turning = torch.block_diag(-torch.eye(2), torch.eye(2))
    active = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    ideal = active @ turning @ active
    printed = 2 / (1 - eta) ** 3 * eta**2
    ours = eta**2 / (1 - eta)

    # T8'.7's residual, and T6'.10's, which is the same here. The printed bound on it is T8'.13.
    residual = norm(active @ mixing @ turning @ mixing.T @ active - ideal)
    assert residual > 2.8 * printed
    assert residual <= 8 * ours
    # T4.4's score, which projects in the middle, for unit q and k; T6'.11's bound has no 1/√(2m).
    of_score = norm(active @ mixing.T @ active @ turning @ active @ mixing @ active - ideal)
    assert of_score <= 4 * ours
    smaller = 0.01
    score_residual = (1 - ((1 - smaller**2) / (1 + smaller**2)) ** 2) / math.sqrt(2)
    assert score_residual > 2 / (1 - smaller) ** 3 * smaller**2
