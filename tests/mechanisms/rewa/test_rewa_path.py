import itertools

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_path import RewaPath
from tests.mechanisms.loops import built
from tests.tensors import normal


def explicit(unit: RewaPath, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Entities of queries and of keys, scaled, and relations of one head, [length, m, m] each."""

    def operators(x: Tensor, weight: Tensor) -> Tensor:
        u, v = (x @ weight).view(-1, 2, unit.r, unit.m).unbind(1)
        return torch.einsum("tra,trb->tab", u, v)

    def scaled(matrices: Tensor) -> Tensor:
        result: Tensor = matrices / torch.linalg.matrix_norm(matrices, keepdim=True)
        return result

    key_map = unit.entity.query if unit.entity.key is None else unit.entity.key
    return (
        scaled(operators(q, unit.entity.query[0])),
        scaled(operators(k, key_map[0])),
        operators(k, unit.relation.query[0]),
    )


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_path_scores_are_the_sum_over_all_chains_of_earlier_tokens(*, hops: int, shared: bool) -> None:
    unit = built(RewaPath, model_dim=4, num_heads=1, m=3, r=2, hops=hops, tau=0.5, shared=shared)
    q, k, v = (normal(1, 5, 4, seed=seed) for seed in range(3))
    starts, ends, relations = explicit(unit, q[0], k[0])

    rows = []
    for i in range(5):
        norm = torch.linalg.matrix_norm(relations[: i + 1].sum(0))
        scores = torch.zeros(i + 1, dtype=torch.float64)
        for j in range(i + 1):
            for chain in itertools.product(range(i + 1), repeat=hops):
                path = starts[i]
                for s in chain:
                    path = path @ relations[s] / norm
                scores[j] += torch.trace(path @ ends[j].mT)
        rows.append((scores / 0.5).softmax(0) @ v[0, : i + 1])

    torch.testing.assert_close(unit.attend(q, k, v)[0], torch.stack(rows), rtol=1e-6, atol=1e-6)


def test_scores_are_bounded_whatever_the_size_of_the_input() -> None:
    unit = built(RewaPath)
    q, k = (normal(2, 20, 4, seed=seed) for seed in range(2))

    paths = unit.paths(q, k)
    assert (torch.linalg.matrix_norm(paths) <= 1 + 1e-9).all()
    torch.testing.assert_close(unit.paths(5 * q, 5 * k), paths)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 2), (1, 1), (1, 2), (3, 2)])
def test_carrying_an_entity_along_relations_is_a_functor(first: int, second: int) -> None:
    """Phadke (2025), definition 10.6: chains of relations go to operators, the empty one to the identity, and one chain
    behind another to the product. Read off what the mechanism gives: with A invertible, A_i F = P has one solution F.
    """
    unit = built(RewaPath, m=3, r=3)
    q, k = (normal(2, 2, 6, 4, seed=seed) for seed in range(2))

    def paths(hops: int) -> Tensor:
        unit.hops = hops
        return unit.paths(q, k)

    def functor(hops: int) -> Tensor:
        solved: Tensor = torch.linalg.solve(paths(0), paths(hops))
        return solved

    torch.testing.assert_close(functor(0), torch.eye(3, dtype=q.dtype).expand_as(functor(0)))
    torch.testing.assert_close(functor(first) @ functor(second), functor(first + second))


def test_a_change_of_basis_of_entities_and_relations_changes_no_score() -> None:
    """An orthogonal G is a natural isomorphism: A to A Gᵀ and R to G R Gᵀ keep every tr(A R R A*)."""
    unit = built(RewaPath, model_dim=4, num_heads=1, m=3, r=2)
    q, k, v = (normal(1, 1, 6, 4, seed=seed) for seed in range(3))
    before = unit.attend(q, k, v)
    basis = torch.linalg.qr(normal(3, 3, seed=5)).Q

    with torch.no_grad():
        for witness, is_turned in ((unit.entity, (False, True)), (unit.relation, (True, True))):
            left, right = witness.query.unflatten(-1, (2, 2, 3)).unbind(-3)
            sides = [side @ basis.mT if turned else side for side, turned in zip((left, right), is_turned, strict=True)]
            witness.query.copy_(torch.stack(sides, dim=-3).flatten(-3))

    torch.testing.assert_close(unit.attend(q, k, v), before)
