"""Mechanisms whose witnesses are densities, distributions, spectra, operators, chains or diagrams, and their claims."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa import rewa_topological
from synthbench.mechanisms.rewa._geometry import hyperbolic_distance
from synthbench.mechanisms.rewa.rewa_density import RewaDensity, fidelity, nuclear_norm
from synthbench.mechanisms.rewa.rewa_fisher import RewaFisher, fisher_rao, published
from synthbench.mechanisms.rewa.rewa_fourier import RewaFourier
from synthbench.mechanisms.rewa.rewa_functional import RewaFunctional
from synthbench.mechanisms.rewa.rewa_operator import RewaOperator
from synthbench.mechanisms.rewa.rewa_oscillatory import RewaOscillatory
from synthbench.mechanisms.rewa.rewa_path import RewaPath
from synthbench.mechanisms.rewa.rewa_riemannian import RewaRiemannian, trapezoid_distance
from synthbench.mechanisms.rewa.rewa_topological import BLOCK, RewaTopological, nearest, spanning_edges
from tests.mechanisms.loops import Kernel, built, check_kernel, every, mapped
from tests.tensors import normal, with_gradients


def pairs(unit: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Witnesses of queries [..., length, 1, m] and of keys [..., 1, length, m]."""
    of_query, of_key = mapped(unit.witness, q, k)
    return of_query.unsqueeze(-2), of_key.unsqueeze(-3)


def tempered(distance: Kernel) -> Kernel:
    """Softmax of a power of the distance over the temperature."""
    return lambda unit, q, k: (-(distance(unit, q, k) ** unit.power) / unit.tau).exp()


def powers_of_fidelity(unit: RewaDensity, q: Tensor, k: Tensor) -> Any:
    a, b = (x.unflatten(-1, (unit.r, unit.m)) for x in mapped(unit.witness, q, k))
    a, b = (x / torch.linalg.matrix_norm(x, keepdim=True) for x in (a, b))
    return torch.linalg.svdvals(torch.einsum("bhirm,bhjsm->bhijrs", a, b)).sum(-1) ** (2 * unit.power)


def between_distributions(unit: RewaFisher, q: Tensor, k: Tensor) -> Any:
    p, r = (x.softmax(-1) for x in pairs(unit, q, k))
    if unit.distance == "published":
        return ((p - r) ** 2 / (p + r)).sum(-1).sqrt()
    return 2 * (p * r).sqrt().sum(-1).acos()


def between_operators(unit: RewaOperator, q: Tensor, k: Tensor) -> Any:
    of_query, of_key = (operators(unit, x) for x in pairs(unit, q, k))
    return torch.linalg.matrix_norm(of_query - of_key)


def operators(unit: Any, witness: Tensor) -> Any:
    u, v = witness.unflatten(-1, (2, unit.r, unit.m)).unbind(-3)
    return u.mT @ v


def mean_cosine(unit: RewaFunctional, q: Tensor, k: Tensor) -> Tensor:
    """The estimated kernel, from differences."""
    offsets = q.unsqueeze(-2) - k.unsqueeze(-3)
    return torch.einsum("bhijd,hdf->bhijf", offsets, unit.frequencies).cos().mean(-1)


def raised_cosines(unit: RewaOscillatory, q: Tensor, k: Tensor) -> Tensor:
    """The overlap, term by term."""
    a, b = pairs(unit, q, k)
    distances = torch.linalg.vector_norm(a - b, dim=-1)
    total = torch.zeros_like(distances)
    for n in range(unit.K):
        c, decay, frequency = (of()[:, :, n].unsqueeze(-1) for of in (unit.weights, unit.decays, unit.frequencies))
        total = total + c * (-decay * distances).exp() * (1 + (frequency * distances).cos()) / 2
    return total


def chains(unit: RewaPath, q: Tensor, k: Tensor) -> Tensor:
    """The scores of all chains of earlier tokens, one by one."""
    starts, ends = (operators(unit, x) for x in mapped(unit.entity, q, k))
    starts, ends = (x / torch.linalg.matrix_norm(x, keepdim=True) for x in (starts, ends))
    relations, rows = operators(unit, k @ unit.relation.query), []
    for i in range(q.shape[-2]):
        norm = torch.linalg.matrix_norm(relations[:, :, : i + 1].sum(2), keepdim=True)
        total = torch.zeros_like(starts[:, :, i])
        for chain in itertools.product(range(i + 1), repeat=unit.hops):
            path = starts[:, :, i]
            for s in chain:
                path = path @ relations[:, :, s] / norm
            total = total + path
        rows.append(torch.einsum("bhxy,bhjxy->bhj", total, ends))
    return (torch.stack(rows, dim=-2) / unit.tau).exp()


def under_the_mean_metric(unit: RewaRiemannian, q: Tensor, k: Tensor) -> Any:
    """The chord of each pair under the mean of the two metric tensors, over the root of the width."""

    def tensor(x: Tensor) -> Any:
        hidden = torch.tanh(x @ network.inner.unsqueeze(1) + network.inner_bias.unsqueeze(1))
        out = hidden @ network.outer.unsqueeze(1) + network.outer_bias.unsqueeze(1)
        root = torch.eye(unit.m) + out.unflatten(-1, (unit.m, unit.m))
        return root @ root.mT + 1e-3 * torch.eye(unit.m)

    network, (x, y) = unit.network, pairs(unit, q, k)
    mean = (tensor(x) + tensor(y)) / 2
    return torch.einsum("...a,...ab,...b->...", x - y, mean, x - y).sqrt() / unit.m ** (0.5 / unit.power)


SHARED = [True, False]
ROUGH: dict[str, Any] = {"tolerance": [1e-6], "power": [1, 2]}
"""Roots of sums that cancel, and their temperatures, lose digits."""
CHAIN: dict[str, Any] = {"model_dim": [4], "num_heads": [1], "m": [3], "r": [2], "tau": [0.5], "length": [5]}
OPERATOR: dict[str, Any] = {"r": [2], "tau": [0.7], "shared": SHARED}
CASES = [
    *every("rewa-density", powers_of_fidelity, power=[1.0, 2.5], shared=SHARED, length=[10]),
    *every("rewa-density", powers_of_fidelity, r=[1, 3], length=[10]),
    *every(
        "rewa-fisher", tempered(between_distributions), m=[6], distance=["fisher-rao", "published"], shared=SHARED,
        **ROUGH,
    ),
    *every("rewa-operator", tempered(between_operators), m=[8, 9], **OPERATOR, **ROUGH),
    *every("rewa-operator", tempered(between_operators), m=[3], **{**OPERATOR, "r": [3]}, **ROUGH),
    *every("rewa-riemannian", tempered(under_the_mean_metric), m=[3], tau=[0.7], **ROUGH),
    *every("rewa-functional", mean_cosine, D=[32], bandwidth=[2.0], size=[0.3]),
    # Apart by what keeps a raised cosine from 0.
    *every("rewa-oscillatory", raised_cosines, K=[3], decay=[0.5], frequency=[2.0], shared=SHARED, tolerance=[1e-4]),
    *every("rewa-path", chains, hops=[1, 2, 3], shared=SHARED, **CHAIN),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kernel", "given"), CASES)
def test_values_and_gradients_are_those_of_the_kernel(name: str, kernel: Kernel, given: dict[str, Any]) -> None:
    check_kernel(name, kernel, **given)


@pytest.mark.parametrize("r", range(1, 6))
@pytest.mark.parametrize("seed", range(0, 4, 2))
def test_equation_111_fidelity_is_that_of_the_explicit_matrices(seed: int, r: int) -> None:
    def root(matrix: Tensor) -> Any:
        values, vectors = torch.linalg.eigh(matrix)
        return (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)) @ vectors.mT

    left, right = (normal(length, r, 5, seed=seed + of) for of, length in enumerate((3, 4)))
    left, right = (x / torch.linalg.matrix_norm(x, keepdim=True) for x in (left, right))
    rho, sigma = root(left.mT @ left).unsqueeze(1), right.mT @ right
    traces = torch.linalg.eigvalsh(rho @ sigma @ rho).clamp(min=0).sqrt().sum(-1)

    # Roots of eigenvalues that are 0 to rounding are of size 1e-8.
    torch.testing.assert_close(fidelity(left, right), traces**2, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "singular", [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 1.0), (2.0, 2.0, 1.0)]
)
def test_gradients_stay_finite_at_repeated_and_zero_singular_values(singular: tuple[float, float, float]) -> None:
    left, right = torch.linalg.qr(normal(2, 3, 3)).Q
    values = torch.tensor(singular, dtype=torch.float64)
    matrix = ((left * values) @ right.mT).requires_grad_()

    norm = nuclear_norm(matrix)
    (gradient,) = torch.autograd.grad(norm, matrix)

    torch.testing.assert_close(norm.item(), sum(singular))
    # The subgradient of least norm: the polar factor on the range.
    torch.testing.assert_close(gradient, (left * (values > 0)) @ right.mT)


def test_claim_equation_115_is_the_fisher_distance_is_false() -> None:
    """Certain opposites are √2 apart by it and π by Fisher–Rao; nearby distributions differ by a factor √2."""
    certain = torch.tensor([[0.0, -100.0], [-100.0, 0.0]], dtype=torch.float64)
    assert published(certain, certain)[0, 1].item() == pytest.approx(math.sqrt(2))
    assert fisher_rao(certain, certain)[0, 1].item() == pytest.approx(math.pi)

    p = (2 * normal(1, 5)).softmax(-1)
    nearby = p + 1e-2 * torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0], dtype=torch.float64) * p.amin()
    ratio = fisher_rao(p.log(), nearby.log()) / published(p.log(), nearby.log())
    assert ratio.item() == pytest.approx(math.sqrt(2), rel=1e-2)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("num_coefficients", [1, 2, 5, 16])
def test_overlap_is_the_integral_of_the_product_of_spectra(*, num_coefficients: int, shared: bool) -> None:
    """Equation 64 over a period, by the midpoint rule on far more points than the degree."""
    unit = built(RewaFourier, K=num_coefficients, shared=shared)
    q, k = normal(2, 50, 4, seed=0), normal(2, 50, 4, seed=1)
    frequencies = 2 * math.pi * (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    waves = torch.polar(torch.ones(()).double(), torch.outer(torch.arange(num_coefficients), frequencies))
    of_query, of_key = ((x + 0j) @ waves for x in mapped(unit.witness, q, k))
    phi_q, phi_k = unit.features(q, "query"), unit.features(k, "key")

    # The quadrature weights are stored in single precision.
    expected = of_query.abs().square() @ of_key.abs().square().mT / 1000
    torch.testing.assert_close(phi_q @ phi_k.mT, expected, rtol=1e-6, atol=1e-6)
    assert (phi_k >= 0).all()  # so that no sum crosses zero


@pytest.mark.parametrize(
    ("num_frequencies", "scale", "expected"), [(32, 64**-0.5, 0.5), (64, (2 / 64) ** 0.5, 2.0), (64, 64**-0.5, 1.0)]
)
def test_claims_algorithm_5_and_appendix_a_3_estimate_the_kernel_are_false(
    num_frequencies: int, scale: float, expected: float
) -> None:
    """A token's kernel with itself is 1/2 by one and 2 by the other; with the 1/√D of theorem 5.3 it is 1."""
    angles = normal(5, 3) @ normal(3, num_frequencies, seed=1)
    phi = scale * torch.cat([angles.cos(), angles.sin()], dim=-1)

    torch.testing.assert_close(phi.square().sum(-1), torch.full((5,), expected, dtype=torch.float64))


def test_claim_k_frequencies_take_two_to_the_k_dimensions_is_false() -> None:
    """Theorem 5.1: scores with K incommensurate frequencies are inner products on a sphere in 2K dimensions."""
    frequencies = torch.tensor([2, 3, 5, 7, 11, 13, 17], dtype=torch.float64).sqrt()
    positions = torch.arange(100, dtype=torch.float64).unsqueeze(-1)
    scores = ((positions - positions.mT).unsqueeze(-1) * frequencies).cos().sum(-1)
    witnesses = torch.cat([(positions * frequencies).cos(), (positions * frequencies).sin()], dim=-1)

    assert witnesses.shape[-1] == 2 * len(frequencies) < 2 ** len(frequencies)
    torch.testing.assert_close(witnesses.square().sum(-1), torch.full((100,), 7.0, dtype=torch.float64))
    torch.testing.assert_close((witnesses @ witnesses.mT).softmax(-1), scores.softmax(-1))


def test_claim_the_oscillatory_kernel_is_an_overlap_is_false() -> None:
    """Equation 110 is negative at half a period: two keys, one there and one at 0, get weights of 32 and -31."""
    distances = torch.tensor([0.0, torch.pi], dtype=torch.float64)
    published = (-0.01 * distances).exp() * distances.cos()

    assert published[1] < 0
    assert (published / published.sum()).tolist() == pytest.approx([32.33, -31.33], abs=0.01)


def test_distant_keys_of_oscillatory_rewa_still_share_the_weight(generator: torch.Generator) -> None:
    """Overlaps of exp(-1000) underflow; their ratios do not."""
    k, v = 1000 * torch.randn(1, 4, 8, 16, generator=generator), torch.ones(1, 4, 8, 16)

    torch.testing.assert_close(RewaOscillatory(generator=generator).attend(torch.zeros_like(k), k, v), v)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 2), (1, 1), (1, 2), (3, 2)])
def test_carrying_an_entity_along_relations_is_a_functor(first: int, second: int) -> None:
    """Phadke (2025), definition 10.6: chains of relations go to operators, the empty one to the identity, and one chain
    behind another to the product. Read off what the mechanism gives: with A invertible, A_i F = P has one solution F.
    """
    unit = built(RewaPath, m=3, r=3)
    q, k = normal(2, 2, 2, 6, 4)

    def functor(hops: int) -> Tensor:
        paths = []
        for unit.hops in (0, hops):
            paths.append(unit.paths(q, k))
        solved: Tensor = torch.linalg.solve(*paths)
        return solved

    torch.testing.assert_close(functor(0), torch.eye(3, dtype=q.dtype).expand_as(functor(0)))
    torch.testing.assert_close(functor(first) @ functor(second), functor(first + second))


def test_a_change_of_basis_of_entities_and_relations_changes_no_score() -> None:
    """An orthogonal G is a natural isomorphism: A to A Gᵀ and R to G R Gᵀ keep every tr(A R R A*)."""
    unit = built(RewaPath, model_dim=4, num_heads=1, m=3, r=2)
    qkv = normal(3, 1, 1, 6, 4)
    before = unit.attend(*qkv)
    basis = torch.linalg.qr(normal(3, 3, seed=5)).Q

    with torch.no_grad():
        for witness, turns in ((unit.entity, (torch.eye(3).double(), basis)), (unit.relation, (basis, basis))):
            sides = witness.query.unflatten(-1, (2, 2, 3)).unbind(-3)
            turned = [side @ turn.mT for side, turn in zip(sides, turns, strict=True)]
            witness.query.copy_(torch.stack(turned, dim=-3).flatten(-3))

    torch.testing.assert_close(unit.attend(*qkv), before)


def errors_of_the_chord(h: float) -> tuple[float, float]:
    """Under the mean of two metric tensors (eq. 123), and under the first alone, against the geodesic distance."""
    x = torch.tensor([[0.3, 0.2, -0.1]], dtype=torch.float64)
    y = x + h * torch.tensor([[0.6, 0.64, 0.48]], dtype=torch.float64)
    at_x, at_y = ((4 / (1 - z.square().sum()) ** 2 * torch.eye(3, dtype=z.dtype)).unsqueeze(0) for z in (x, y))
    exact = hyperbolic_distance(x, y).item()
    both, first = (trapezoid_distance(x, at_x, y, other).item() for other in (at_y, at_x))
    return abs(both - exact), abs(first - exact)


def test_the_chord_is_the_geodesic_up_to_third_order() -> None:
    """Halving the step divides the error by 8; with the tensor of one end by 4."""
    coarse, fine = errors_of_the_chord(0.02), errors_of_the_chord(0.01)

    assert coarse[0] / fine[0] == pytest.approx(8, rel=0.05)
    assert coarse[1] / fine[1] == pytest.approx(4, rel=0.05)


def test_in_float32_the_nearest_are_as_near_and_trees_as_long_wherever_the_axes_lie(generator: torch.Generator) -> None:
    """Rounding decides between keys or edges that are nearly as good, but not their lengths."""
    points, keys, clouds = normal(2, 130, 15), normal(2, 130, 15, seed=1), normal(260, 5, 15, seed=2)
    turn, _ = torch.linalg.qr(torch.randn(15, 15, generator=generator, dtype=torch.float64))

    def found(points: Tensor, keys: Tensor, clouds: Tensor) -> list[Tensor]:
        index, is_there = nearest(points, keys, 4, num_seen=1)
        near = keys.gather(-2, index.flatten(-2).unsqueeze(-1).expand(-1, -1, 15)).unflatten(-2, (-1, 4))
        lengths = (near - points.unsqueeze(-2)).norm(dim=-1).where(is_there, 0)
        between = (clouds.unsqueeze(-2) - clouds.unsqueeze(-3)).norm(dim=-1)
        return [lengths.double(), spanning_edges(between).sort(-1).values.double()]

    expected = found(points, keys, clouds)
    order = torch.randperm(5, generator=generator)
    now = found((points @ turn).float(), (keys @ turn).float(), (clouds[:, order] @ turn).float())
    torch.testing.assert_close(now, expected, rtol=1e-5, atol=1e-5)


def from_diagrams(unit: RewaTopological, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One head, from the formulas: each neighbourhood by itself, its tree by joining the closest clusters (Kruskal)."""

    def diagram(point: Tensor, others: Tensor) -> Tensor:
        near = others[(others - point).norm(dim=-1).argsort()[: unit.k]]
        cloud = torch.cat([point[None], near, point.expand(unit.k - len(near), -1)])
        cluster, deaths = list(range(len(cloud))), []
        pairs = [(i, j) for i in range(len(cloud)) for j in range(i)]
        for i, j in sorted(pairs, key=lambda pair: float((cloud[pair[0]] - cloud[pair[1]]).detach().norm())):
            if cluster[i] != cluster[j]:
                is_same = cloud[i].equal(cloud[j])  # whose norm has no gradient
                deaths.append(cloud.new_zeros(()) if is_same else (cloud[i] - cloud[j]).norm())
                cluster = [cluster[i] if c == cluster[j] else c for c in cluster]
        return torch.stack(deaths).sort().values

    queries, keys = (x[0] for x in mapped(unit.witness, q, k))
    of_keys = torch.stack([diagram(keys[j], keys[:j]) for j in range(len(keys))])
    rows = []
    for i in range(len(queries)):
        difference = diagram(queries[i], keys[: i + 1]) - of_keys[: i + 1]
        distances = difference.square().sum(-1).clamp(min=1e-300).sqrt()
        rows.append((-distances / unit.temperature()[0, 0, 0]).softmax(0) @ v[: i + 1])
    return torch.stack(rows)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("length", "block"), [(1, BLOCK), (2, BLOCK), (9, BLOCK), (9, 4)])
def test_topological_attention_in_blocks_is_that_of_diagrams_and_so_are_gradients(
    length: int, block: int, *, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewa_topological, "BLOCK", block)
    unit = built(RewaTopological, model_dim=4, num_heads=1, m=3, k=3, tau=0.5, shared=shared)
    inputs = [normal(1, length, 4, seed=seed).requires_grad_() for seed in range(3)]
    leaves = [*inputs, *unit.witness.parameters(), *unit.temperature.parameters()]
    fast, plain = unit.attend(*inputs)[0], from_diagrams(unit, *(x[0] for x in inputs))

    # Distances within rounding of 0 are that of the rounding.
    torch.testing.assert_close(with_gradients(fast, leaves), with_gradients(plain, leaves), rtol=1e-6, atol=1e-6)
