import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from synthbench.forms.scores import weights
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from tests.mechanisms.loops import built, turn
from tests.tensors import normal

build = partial(built, RewaGeometric)


@torch.no_grad()
def written_out(rewa: RewaGeometric, q: Tensor, k: Tensor, head: int, *, power: int) -> float:
    """Definition 4.1 for one pair."""
    total = 0.0
    for geometry, weight in rewa.weights.items():
        maps = rewa.witnesses.map(geometry)
        x, y = q @ maps.query[head], k @ (maps.query if maps.key is None else maps.key)[head]
        if geometry == "euclidean":
            distance = float((x - y).norm())
        elif geometry == "spherical":
            distance = math.acos(float(x @ y / x.norm() / y.norm()))
        else:
            u, v = math.tanh(float(x.norm())) * x / x.norm(), math.tanh(float(y.norm())) * y / y.norm()
            room = (1 - float(u @ u)) * (1 - float(v @ v))
            distance = math.acosh(1 + 2 * float((u - v) @ (u - v)) / room)
        total += float(weight()[head]) * distance**power
    return -total / float(rewa.temperature()[head])


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("maps", ["shared", "separate"])
@pytest.mark.parametrize("widths", [{}, {"m": 0}, {"n": 0, "p": 3}, {"m": 0, "n": 0}, {"m": 2, "p": 0}])
def test_scores_are_those_of_the_product_metric_of_each_pair(widths: dict[str, int], maps: str, power: int) -> None:
    rewa = build(power=power, shared=maps == "shared", tau=0.7, **widths)
    q, k = 0.5 * normal(2, 5, 4), 0.5 * normal(2, 5, 4, seed=1)
    scores = rewa.scores(q, k)

    for head in range(2):
        for i in range(5):
            for j in range(5):
                expected = written_out(rewa, q[head, i], k[head, j], head, power=power)
                assert scores[head, i, j].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("width", [4, 5])
def test_positions_turn_witnesses_by_the_offset_of_each_pair_and_leave_an_odd_last_channel(width: int) -> None:
    rewa, plain = (build(tau=0.7, m=width, n=width, p=width) for _ in range(2))
    turn(rewa, 5)
    q, k = 0.5 * normal(1, 2, 5, 4), 0.5 * normal(1, 2, 5, 4, seed=1)
    scores = rewa.scores(q, k)

    for offset in range(-4, 5):
        turned = torch.eye(width, dtype=torch.float64)
        for plane in range(2):
            c, s = math.cos(offset * 0.01**plane), math.sin(offset * 0.01**plane)
            turned[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2] = torch.tensor([[c, s], [-s, c]])
        other = with_turned_queries(plain, turned)
        for i in range(max(0, offset), min(5, 5 + offset)):
            for head in range(2):
                expected = written_out(other, q[0, head, i], k[0, head, i - offset], head, power=1)
                assert scores[0, head, i, i - offset].item() == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(rewa.scores(q[..., 3:, :], k), scores[..., 3:, :])


def with_turned_queries(rewa: RewaGeometric, turn: Tensor) -> RewaGeometric:
    """The same with maps of its own for queries, whose witnesses are multiplied by a matrix."""
    turned = build(shared=False, m=len(turn), n=len(turn), p=len(turn))
    turned.load_state_dict(rewa.state_dict(), strict=False)
    for geometry in rewa.weights:
        weight = rewa.witnesses.map(geometry).query.detach()
        turned.witnesses.map(geometry).key = nn.Parameter(weight)
        turned.witnesses.map(geometry).query = nn.Parameter(weight @ turn)
    return turned


@pytest.mark.parametrize(("m", "p"), [(5, 5), (256, 16)])
def test_weights_start_at_the_papers(m: int, p: int) -> None:
    metrics = build(m=m, p=p, tau=0.5).metrics(torch.zeros(1, 1, 8))

    for name, value in {"alpha": m**-0.5, "beta": 1.0, "gamma": p**-0.5, "tau": 0.5}.items():
        torch.testing.assert_close(metrics[name], torch.full((2,), value).double(), rtol=1e-6, atol=1e-6)


def test_corollary_4_8_effective_curvature() -> None:
    rewa = build()
    with torch.no_grad():
        for weight in rewa.weights.parameters():
            weight.add_(torch.tensor([[[0.5]], [[-1.0]]]))
    metrics = rewa.metrics(torch.zeros(1, 1, 8))
    alpha, beta, gamma = (metrics[name] for name in ("alpha", "beta", "gamma"))

    torch.testing.assert_close(metrics["kappa"], (gamma - beta) / (alpha + beta + gamma))
    assert (metrics["kappa"].abs() < 1).all()


@pytest.mark.parametrize(
    ("widths", "kappa"), [({"m": 0, "p": 0}, -1.0), ({"n": 0, "m": 0}, 1.0), ({"n": 0, "p": 0}, 0.0)]
)
def test_claim_effective_curvature_has_the_sign_of_a_curvature_is_false(widths: dict[str, int], kappa: float) -> None:
    """The sphere has curvature 1 by definition 2.3 and -1 by equation 59, the hyperbolic plane the reverse."""
    assert build(**widths).metrics(torch.zeros(1, 1, 8))["kappa"].tolist() == [kappa, kappa]


ACTING = {1: (0, 1, 0), 2: (1, 1, 0), 3: (1, 1, 1), 4: (1, 1, 1)}


@pytest.mark.parametrize("phase", ACTING)
def test_algorithm_7_geometries_begin_to_act_in_their_phase(phase: int) -> None:
    rewa = build(power=2)
    q, k = normal(2, 5, 4), normal(2, 5, 4, seed=1)
    whole = rewa.scores(q, k)
    parts = [
        rewa.weight(geometry) / rewa.temperature() * rewa.witnesses.distance(geometry, q, k)
        for geometry in ("euclidean", "spherical", "hyperbolic")
    ]
    torch.testing.assert_close(whole, -sum(parts, torch.zeros(())))
    rewa.enter_phase(phase)

    expected = -sum((part * acts for part, acts in zip(parts, ACTING[phase], strict=True)), torch.zeros(()))
    torch.testing.assert_close(rewa.scores(q, k), expected)
    is_zero = [bool((rewa.metrics(q)[name] == 0).all()) for name in ("alpha", "beta", "gamma")]
    assert is_zero == [not acts for acts in ACTING[phase]]


def test_phases_come_and_go_and_are_saved_and_one_geometry_acts_in_each() -> None:
    rewa, other, alone = build(), build(seed=1), build(m=0, n=0)
    for one in (rewa, alone):
        one.enter_phase(1)
    other.load_state_dict(rewa.state_dict())
    rewa.enter_phase(3)

    assert [one.witnesses.active.tolist() for one in (other, rewa, alone)] == [[0, 1, 0], [1, 1, 1], [1]]


def spherical(power: int, tau: float) -> RewaGeometric:
    """Only the sphere, and the head's own coordinates as witnesses."""
    rewa = build(model_dim=8, num_heads=1, m=0, n=8, p=0, power=power, tau=tau)
    rewa.witnesses.map("spherical").query = nn.Parameter(torch.eye(8).double().unsqueeze(0))
    return rewa


def cap(angle: float, seed: int) -> Tensor:
    """Unit vectors within about ``angle`` of one direction."""
    noise = torch.randn(1, 10, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return normalize(torch.eye(8).double()[0] + angle / 8**0.5 * noise, dim=-1)


def difference_from_softmax(power: int, angle: float, tau: float, tau_softmax: float) -> float:
    q, k = cap(angle, seed=0), cap(angle, seed=1)
    mask = torch.ones(10, 10, dtype=torch.bool).triu(1)
    softmax = (q @ k.mT / tau_softmax).masked_fill(mask, -torch.inf).softmax(-1)
    unit = spherical(power, tau)
    return float((weights(unit.scores(q, k), unit.normaliser) - softmax).detach().norm())


def test_the_squared_angle_reduces_to_softmax_at_twice_its_temperature() -> None:
    """The difference is of fourth order in the angle."""
    at = {angle: difference_from_softmax(2, angle, tau=0.2, tau_softmax=0.1) for angle in (0.2, 0.1, 0.05)}

    assert at[0.2] < 2e-2
    assert at[0.1] < 2e-3
    assert at[0.1] / at[0.05] == pytest.approx(16, rel=0.2)


def test_claim_theorem_4_2_part_3_that_the_angle_reduces_to_softmax_is_false() -> None:
    """Eq. 53 promises second order in the angle at √2 the temperature; it is of first."""
    tau = math.sqrt(2) * 0.1
    at = {angle: difference_from_softmax(1, angle, tau=tau, tau_softmax=0.1) for angle in (0.1, 0.01, 0.005)}

    assert at[0.1] > 0.1
    assert at[0.01] / at[0.005] == pytest.approx(2, rel=0.1)


def test_the_kernel_of_the_angle_has_a_cusp_and_that_of_its_square_has_none() -> None:
    """Slopes in z = cos θ near z = 1: unbounded as 1/√(1 - z), or 1/τ of the value."""

    def slope(power: int, gap: float, tau: float) -> float:
        cosine = 1 - gap
        q = torch.tensor([[[1.0] + [0.0] * 7]], dtype=torch.float64)
        k = torch.tensor([[[cosine, math.sqrt(1 - cosine**2)] + [0.0] * 6]], dtype=torch.float64)
        rewa = spherical(power, tau)
        ends = [rewa.scores(q, x).exp().item() for x in (q, k)]
        return (ends[0] - ends[1]) / gap

    one = [slope(1, gap, 0.5) for gap in (1e-4, 1e-6, 1e-8)]
    assert one[1] / one[0] == pytest.approx(10, rel=0.05)
    assert one[2] / one[1] == pytest.approx(10, rel=0.05)
    assert slope(2, 1e-4, 0.5) == pytest.approx(2 / 0.5, rel=1e-3)
    assert slope(2, 1e-6, 0.5) == pytest.approx(2 / 0.5, rel=1e-3)
