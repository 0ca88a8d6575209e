"""Mechanisms with witnesses in Euclidean space, on a sphere and in a ball, and properties of the whole family."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from synthbench.forms import scores as forms
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.rewa.rewa_adaptive import RewaAdaptive
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.mechanisms.rewa.rewa_lsh import RewaLsh, nearest
from synthbench.mechanisms.rewa.rewa_mixture import RewaMixture
from synthbench.training.ensemble import stack_mixers
from tests.mechanisms.loops import built, mapped, turn
from tests.tensors import normal

build = partial(built, RewaGeometric)
GEOMETRIES = {"euclidean": "m", "spherical": "n", "hyperbolic": "p"}
"""Of each geometry, the option that is its width."""
REWA = [name for name in MECHANISMS if name.startswith("rewa-")]


def alone(geometry: str, width: int = 15, **options: Any) -> RewaGeometric:
    """Only this geometry."""
    widths = dict.fromkeys(GEOMETRIES.values(), 0) | {GEOMETRIES[geometry]: width}
    return build(**widths, **options)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_one_geometry_is_the_geometric_one_with_the_other_widths_at_zero(geometry: str) -> None:
    x = normal(2, 9, 16)

    one = built(MECHANISMS[f"rewa-{geometry}"], model_dim=16)
    assert torch.equal(one(x), alone(geometry, model_dim=16)(x))


@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("name", REWA)
def test_gradients_stay_finite_where_queries_and_keys_are_equal_or_vanish(name: str, scale: float) -> None:
    unit: Any = built(MECHANISMS[name], model_dim=16).float()
    x = scale * normal(1, 2, 6, 8).float()
    x[..., 3:, :] = 0
    x.requires_grad_()
    learned = [value for part, value in unit.named_parameters() if not part.startswith(("qkv.", "out."))]

    gradients = torch.autograd.grad(unit.attend(x, x, x).square().sum(), [x, *learned])

    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["rewa-adaptive", "rewa-geometric", "rewa-lsh", "rewa-mixture", "rewa-riemannian"])
def test_stacked_runs_keep_outputs_metrics_and_phases_apart(name: str) -> None:
    runs: list[Any] = [built(MECHANISMS[name], seed, model_dim=16) for seed in range(3)]
    stacked, x = stack_mixers(runs, "stack"), normal(3, 2, 12, 16)
    for phase in (2, 4):
        for mixer in (stacked, *runs):
            mixer.enter_phase(phase)

        torch.testing.assert_close(stacked(x), torch.stack([run(rows) for run, rows in zip(runs, x, strict=True)]))
        for inputs in (x, x[:, :, :2]):
            for metric, values in stacked.metrics(inputs).items():
                expected = torch.stack([run.metrics(rows)[metric] for run, rows in zip(runs, inputs, strict=True)])
                torch.testing.assert_close(values.reshape(3, -1), expected)


@pytest.mark.parametrize("name", ["rewa-fisher", "rewa-operator", "rewa-path"])
def test_the_temperature_is_reported_a_head(name: str) -> None:
    temperatures = built(MECHANISMS[name], tau=0.25).metrics(normal(1, 2, 8))["tau"]

    torch.testing.assert_close(temperatures, torch.full((2,), 0.25).double())


@torch.no_grad()
def distances(unit: RewaGeometric, geometry: str, q: Tensor, k: Tensor, turn: Tensor | None = None) -> Any:
    """Definition 4.1: distances of all pairs in one geometry, [..., heads, queries, keys], of queries that may turn."""
    x, y = mapped(unit.witnesses.map(geometry), q, k)
    x = x if turn is None else x @ turn
    if geometry == "euclidean":
        return (x.unsqueeze(-2) - y.unsqueeze(-3)).norm(dim=-1)
    x_length, y_length = x.norm(dim=-1, keepdim=True), y.norm(dim=-1, keepdim=True)
    if geometry == "spherical":
        return (x @ y.mT / x_length / y_length.mT).acos()
    u, v = (x_length.tanh() * x / x_length).unsqueeze(-2), (y_length.tanh() * y / y_length).unsqueeze(-3)
    room = (1 - u.square().sum(-1)) * (1 - v.square().sum(-1))
    return (1 + 2 * (u - v).square().sum(-1) / room).acosh()


def product_metric(unit: RewaGeometric, *inputs: Tensor) -> Tensor:
    """The weighted sum of powers of the distances, over the temperature."""
    total = sum(weight() * distances(unit, name, *inputs) ** unit.power for name, weight in unit.weights.items())
    return torch.as_tensor(-total / unit.temperature())


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("widths", [{}, {"m": 0}, {"n": 0, "p": 3}, {"m": 0, "n": 0}, {"m": 2, "p": 0}])
def test_scores_are_those_of_the_product_metric_of_pairs(widths: dict[str, int], power: int, *, shared: bool) -> None:
    rewa = build(power=power, shared=shared, tau=0.7, **widths)
    q, k = 0.5 * normal(2, 2, 5, 4)

    torch.testing.assert_close(rewa.scores(q, k), product_metric(rewa, q, k), rtol=1e-6, atol=0)


@pytest.mark.parametrize("width", [4, 5])
def test_positions_turn_witnesses_by_the_offset_of_each_pair_and_leave_an_odd_last_channel(width: int) -> None:
    rewa, plain = (build(tau=0.7, m=width, n=width, p=width) for _ in range(2))
    turn(rewa, 5)
    q, k = 0.5 * normal(2, 1, 2, 5, 4)
    scores = rewa.scores(q, k)

    for offset in range(-4, 5):
        turned = torch.eye(width, dtype=torch.float64)
        for plane in range(2):
            c, s = math.cos(offset * 0.01**plane), math.sin(offset * 0.01**plane)
            turned[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2] = torch.tensor([[c, s], [-s, c]])
        expected = product_metric(plain, q, k, turned)
        of_offset = [each.diagonal(-offset, dim1=-2, dim2=-1) for each in (scores, expected)]
        torch.testing.assert_close(*of_offset, rtol=1e-6, atol=0)
    torch.testing.assert_close(rewa.scores(q[..., 3:, :], k), scores[..., 3:, :])


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


@pytest.mark.parametrize(("geometry", "kappa"), [("spherical", -1.0), ("hyperbolic", 1.0), ("euclidean", 0.0)])
def test_claim_effective_curvature_has_the_sign_of_a_curvature_is_false(geometry: str, kappa: float) -> None:
    """The sphere has curvature 1 by definition 2.3 and -1 by equation 59, the hyperbolic plane the reverse."""
    assert alone(geometry).metrics(torch.zeros(1, 1, 8))["kappa"].tolist() == [kappa, kappa]


ACTING = {1: (0, 1, 0), 2: (1, 1, 0), 3: (1, 1, 1), 4: (1, 1, 1)}


@pytest.mark.parametrize("phase", ACTING)
def test_algorithm_7_geometries_begin_to_act_in_their_phase(phase: int) -> None:
    rewa = build(power=2)
    q, k = normal(2, 2, 5, 4)
    parts = [
        rewa.weight(geometry) / rewa.temperature() * distances(rewa, geometry, q, k) ** 2 for geometry in GEOMETRIES
    ]
    rewa.enter_phase(phase)

    expected = -sum((part * acts for part, acts in zip(parts, ACTING[phase], strict=True)), torch.zeros(()))
    torch.testing.assert_close(rewa.scores(q, k), expected)
    is_zero = [bool((rewa.metrics(q)[name] == 0).all()) for name in ("alpha", "beta", "gamma")]
    assert is_zero == [not acts for acts in ACTING[phase]]


def test_phases_come_and_go_and_are_saved_and_one_geometry_acts_in_each() -> None:
    rewa, other, one = build(), build(seed=1), alone("hyperbolic")
    for each in (rewa, one):
        each.enter_phase(1)
    other.load_state_dict(rewa.state_dict())
    rewa.enter_phase(3)

    assert [each.witnesses.active.tolist() for each in (other, rewa, one)] == [[0, 1, 0], [1, 1, 1], [1]]


def spherical(power: int, tau: float) -> RewaGeometric:
    """Only the sphere, and the head's own coordinates as witnesses."""
    rewa = alone("spherical", 8, num_heads=1, power=power, tau=tau)
    rewa.witnesses.map("spherical").query = nn.Parameter(torch.eye(8).double().unsqueeze(0))
    return rewa


def difference_from_softmax(power: int, angle: float, tau: float, tau_softmax: float) -> float:
    """Of the weights of vectors within about an angle of one direction."""
    q, k = normalize(torch.eye(8).double()[0] + angle / 8**0.5 * normal(2, 1, 10, 8), dim=-1)
    mask = torch.ones(10, 10, dtype=torch.bool).triu(1)
    softmax = (q @ k.mT / tau_softmax).masked_fill(mask, -torch.inf).softmax(-1)
    unit = spherical(power, tau)
    return float((forms.weights(unit.scores(q, k), unit.normaliser) - softmax).detach().norm())


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


# Weights of geometries that depend on the query


def shares_of(unit: RewaAdaptive | RewaMixture, q: Tensor) -> Tensor:
    """Algorithm 8 for every query: softmax of a network with one hidden layer."""
    network = unit.gate.network
    return ((q @ network.inner + network.inner_bias).tanh() @ network.outer + network.outer_bias).softmax(-1)


@pytest.mark.parametrize("power", [1, 2])
def test_algorithm_8_every_query_weighs_the_distances_by_its_own_softmax(power: int) -> None:
    adaptive = built(RewaAdaptive, power=power, tau=0.4)
    q, k = normal(2, 2, 5, 4)
    shares = shares_of(adaptive, q).unsqueeze(-2)
    of_geometries = torch.stack([distances(adaptive, geometry, q, k) ** power for geometry in GEOMETRIES], dim=-1)

    torch.testing.assert_close(adaptive.scores(q, k), -(shares * of_geometries).sum(-1) / 0.4, rtol=1e-6, atol=1e-6)


def test_a_phase_leaves_the_shares_to_the_geometries_that_act() -> None:
    adaptive = built(RewaAdaptive)
    q = normal(2, 5, 4)
    whole = torch.cat(list(adaptive.gate(q, adaptive.witnesses).values()), -1)
    adaptive.enter_phase(2)
    shares = torch.cat(list(adaptive.gate(q, adaptive.witnesses).values()), -1)

    assert (shares[..., 2] == 0).all()
    torch.testing.assert_close(shares[..., :2], whole[..., :2] / whole[..., :2].sum(-1, keepdim=True))
    (gradient,) = torch.autograd.grad(adaptive.scores(q, q).sum(), [adaptive.gate.network.outer])
    assert gradient.isfinite().all()


def test_metrics_of_shares_are_means_over_the_queries() -> None:
    adaptive, x = built(RewaAdaptive), normal(3, 5, 8)
    metrics = adaptive.metrics(x)

    means = shares_of(adaptive, adaptive.heads(x)[0]).mean((0, 2))
    torch.testing.assert_close(torch.stack([metrics[name] for name in ("alpha", "beta", "gamma")], dim=-1), means)
    torch.testing.assert_close(metrics["kappa"], means[:, 2] - means[:, 1])


@pytest.mark.parametrize("power", [1, 2])
def test_definition_10_4_outputs_of_one_geometry_experts_are_mixed_by_the_gate(power: int) -> None:
    mixture = built(RewaMixture, power=power, tau=0.6)
    q, k, v = normal(3, 2, 2, 6, 4)
    gate = shares_of(mixture, q)

    expected = torch.zeros_like(v)
    for index, geometry in enumerate(GEOMETRIES):
        expert = alone(geometry, 5, power=power, tau=0.6)
        expert.witnesses.maps[geometry] = mixture.witnesses.map(geometry)
        expected = expected + gate[..., index : index + 1] * expert.attend(q, k, v)

    torch.testing.assert_close(mixture.attend(q, k, v), expected, rtol=1e-6, atol=1e-6)


def test_phase_1_of_a_mixture_is_the_spherical_expert_alone() -> None:
    mixture = built(RewaMixture)
    mixture.enter_phase(1)
    q, k, v = normal(3, 1, 2, 6, 4)

    spherical = forms.weights(mixture.expert_scores("spherical", q, k), "softmax") @ v
    torch.testing.assert_close(mixture.attend(q, k, v), spherical)


# Nearest keys by hashes


def composite_hashes(rewa: Any, x: Tensor) -> Tensor:
    """Algorithm 4: the parts of each table's hash, not yet made one integer, [heads, length, L, parts]."""
    cells = (x @ rewa.witnesses.map("euclidean").query / rewa.cell).unsqueeze(-2)
    shifts = rewa.shifts.unflatten(-1, (rewa.L, -1))
    of_planes = [
        (x @ rewa.witnesses.map(name).query @ planes).unflatten(-1, (rewa.L, -1)) > 0
        for name, planes in (("spherical", rewa.spherical_planes), ("hyperbolic", rewa.hyperbolic_planes))
    ]
    return torch.cat([(cells + shifts).floor(), *of_planes], dim=-1)


def test_algorithm_4_written_out() -> None:
    rewa = built(RewaLsh, K=4, L=3, m=2, n=3, p=3, bits=1)
    q, k, v = normal(3, 2, 20, 4)
    out, scores = rewa.attend(q, k, v), RewaGeometric.scores(rewa, q, k)
    collide = (composite_hashes(rewa, q).unsqueeze(2) == composite_hashes(rewa, k).unsqueeze(1)).all(-1).any(-1)
    num_cut = 0

    for head in range(2):
        for i in range(20):
            candidates = [j for j in range(i + 1) if i < 4 or i == j or collide[head, i, j]]
            kept = sorted(candidates, key=lambda j: -scores[head, i, j].item())[:4]
            num_cut += len(kept) < len(candidates)
            torch.testing.assert_close(out[head, i], scores[head, i, kept].softmax(-1) @ v[head, kept])
    assert num_cut > 3


def test_keys_that_tie_with_the_last_are_all_kept() -> None:
    scores = torch.tensor([[-1.0, -2.0, -2.0, -3.0, 0.0]])
    candidates = torch.tensor([[True, True, True, True, False]])

    assert nearest(scores, candidates, 2).tolist() == [[True, True, True, False, False]]
    assert nearest(scores, candidates, 4).tolist() == candidates.tolist()
    assert nearest(scores, candidates, 9).tolist() == candidates.tolist()


def share_of_collisions(geometry: str, x: list[float], y: list[float], **options: Any) -> float:
    """Of two witnesses, over the tables of some seeds, which are so many samples."""
    hits = []
    for seed in range(40):
        rewa = built(RewaLsh, seed, model_dim=len(x), num_heads=1, L=256, **{"m": 0, "n": 0, "p": 0, **options})
        rewa.witnesses.map(geometry).query = nn.Parameter(torch.eye(len(x)).double().unsqueeze(0))
        one, other = torch.tensor([x, y], dtype=torch.float64).view(2, 1, 1, -1)
        hits.append((rewa.hashes(one, "query") == rewa.hashes(other, "key")).double().mean())
    return torch.stack(hits).mean().item()


@pytest.mark.parametrize(("angle", "bits"), [(0.3, 3), (2.8, 1)])
def test_lemma_4_5_collisions_on_the_sphere(angle: float, bits: int) -> None:
    """(1 - θ/π) to the number of hyperplanes."""
    share = share_of_collisions("spherical", [1, 0, 0, 0], [math.cos(angle), math.sin(angle), 0, 0], n=4, bits=bits)

    assert share == pytest.approx((1 - angle / math.pi) ** bits, abs=0.02)


def test_shifted_grid_collides_by_the_coordinates_differences() -> None:
    """The product of 1 - |x_c - y_c| / cell over the coordinates."""
    share = share_of_collisions("euclidean", [0.3, -0.2], [0.9, 0.1], m=2, cell=2.0)

    assert share == pytest.approx((1 - 0.6 / 2) * (1 - 0.3 / 2), abs=0.02)


def test_claim_of_lemma_4_5_in_the_ball_is_false() -> None:
    """Points of one direction always collide, however far apart they are."""
    rewa = built(RewaLsh, model_dim=2, num_heads=1, m=0, n=0, p=2, L=64, bits=8)
    x = torch.tensor([[[0.3, 0.4]]], dtype=torch.float64)

    assert (rewa.hashes(x, "query") == rewa.hashes(20 * x, "key")).all()
    assert rewa.witnesses.distance("hyperbolic", x, 20 * x).item() > 0.5


def test_claim_of_lemma_4_5_that_collisions_fall_with_the_total_distance_is_false() -> None:
    """With diameters π and 10 the nearer pair never collides and the farther one does (eq. 57)."""

    def probability(d_sphere: float, d_euclidean: float) -> float:
        return (1 - d_sphere / math.pi) * (1 - d_euclidean / 10)

    assert math.pi + 0 < 0 + 9
    assert probability(math.pi, 0) < probability(0, 9)


def test_recall_is_the_share_of_the_true_nearest_among_the_candidates() -> None:
    rewa = built(RewaLsh, K=4)
    x = normal(3, 15, 8)
    q, k, _ = rewa.heads(x)
    scores, candidates = RewaGeometric.scores(rewa, q, k), rewa.candidates(q, k)
    recall = rewa.metrics(x)["recall"]

    seen = scores.masked_fill(torch.ones(15, 15, dtype=torch.bool).triu(1), -torch.inf)
    best = seen[:, :, 4:].topk(4).indices
    torch.testing.assert_close(recall, candidates[:, :, 4:].gather(-1, best).double().mean((0, 2, 3)))
    assert ((recall > 0.05) & (recall < 1)).all()
    assert built(RewaLsh, K=15).metrics(x)["recall"].tolist() == [1, 1]


def test_a_hash_uses_only_the_geometries_that_act() -> None:
    rewa, x = built(RewaLsh), normal(2, 30, 4)
    whole = rewa.hashes(x, "query")
    rewa.enter_phase(1)
    alone = rewa.hashes(x, "query")

    assert alone[..., 0].unique().numel() <= 2**rewa.bits
    assert whole[..., 0].unique().numel() > alone[..., 0].unique().numel()
