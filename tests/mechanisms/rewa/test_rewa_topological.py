import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa import rewa_topological
from synthbench.mechanisms.rewa.rewa_topological import RewaTopological, nearest, spanning_edges
from tests.mechanisms.loops import built, mapped
from tests.tensors import normal, with_gradients


def num_clusters(points: Tensor, scale: float) -> int:
    """Connected components of the graph that joins points no further apart than this."""
    joined = torch.cdist(points, points) <= scale
    for _ in points:
        joined = (joined.double() @ joined.double()) > 0
    return len({tuple(row) for row in joined.tolist()})


@pytest.mark.parametrize("num_points", [2, 5, 9])
def test_edges_of_the_tree_are_the_scales_at_which_clusters_join(num_points: int) -> None:
    """The definition of persistence in dimension 0: one cluster, and one for each edge that is longer."""
    for seed in range(10):
        points = normal(num_points, 3, seed=seed)
        edges = spanning_edges(torch.cdist(points, points))

        assert len(edges) == num_points - 1
        for scale in [0.0, *(edges + 1e-9).tolist(), *(edges - 1e-9).tolist()]:
            assert num_clusters(points, scale) == 1 + int((edges > scale).sum())


def test_a_token_sees_the_nearest_of_the_keys_before_it() -> None:
    points, keys = normal(2, 7, 3), normal(2, 7, 3, seed=1)

    for num_seen in (0, 1):
        index, is_there = nearest(points, keys, 3, num_seen)
        for head in range(2):
            for n in range(7):
                seen = keys[head, : num_seen + n]
                expected = (points[head, n] - seen).norm(dim=-1).argsort()[:3]
                assert is_there[head, n].sum() == len(expected)
                assert index[head, n, : len(expected)].tolist() == expected.tolist()


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


def token_by_token(unit: RewaTopological, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
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
@pytest.mark.parametrize("length", [1, 2, 9])
def test_attention_is_that_of_the_formulas_and_so_are_gradients(length: int, *, shared: bool) -> None:
    unit = built(RewaTopological, model_dim=4, num_heads=1, m=3, k=3, tau=0.5, shared=shared)
    inputs = [normal(1, length, 4, seed=seed).requires_grad_() for seed in range(3)]
    leaves = [*inputs, *unit.witness.parameters(), *unit.temperature.parameters()]
    fast, plain = unit.attend(*inputs)[0], token_by_token(unit, *(x[0] for x in inputs))

    # Distances within rounding of 0 are that of the rounding.
    torch.testing.assert_close(with_gradients(fast, leaves), with_gradients(plain, leaves), rtol=1e-6, atol=1e-6)


def test_blocks_of_queries_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = built(RewaTopological)
    q, k, v = (normal(3, 2, 21, 4, seed=seed) for seed in range(3))
    expected = unit.attend(q, k, v)

    monkeypatch.setattr(rewa_topological, "BLOCK", 4)
    torch.testing.assert_close(unit.attend(q, k, v), expected)
