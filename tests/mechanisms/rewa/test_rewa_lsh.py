import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.mechanisms.rewa.rewa_lsh import RewaLsh, nearest
from tests.mechanisms.loops import built
from tests.tensors import normal

build = partial(built, RewaLsh)


def composite_hash(rewa: RewaLsh, x: Tensor, head: int, table: int) -> tuple[int, ...]:
    """Algorithm 4 for one token: the parts, not yet made one integer."""
    witnesses = rewa.witnesses
    bits = slice(table * rewa.bits, (table + 1) * rewa.bits)
    shift = rewa.shifts[head, 0, table * rewa.m : (table + 1) * rewa.m]
    cells = [math.floor(value) for value in (x @ witnesses.map("euclidean").query[head] / rewa.cell + shift).tolist()]
    signs = [
        (x @ witnesses.map(name).query[head] @ getattr(rewa, f"{name}_planes")[head][:, bits] > 0).tolist()
        for name in ("spherical", "hyperbolic")
    ]
    return (*cells, *(int(sign) for part in signs for sign in part))


def test_algorithm_4_written_out() -> None:
    rewa = build(K=4, L=3, m=2, n=3, p=3, bits=1)
    q, k, v = (normal(2, 20, 4, seed=seed) for seed in range(3))
    out = rewa.attend(q, k, v)
    scores = RewaGeometric.scores(rewa, q, k)
    num_cut = 0

    for head in range(2):
        for i in range(20):
            candidates = [
                j
                for j in range(i + 1)
                if i < 4
                or i == j
                or any(
                    composite_hash(rewa, q[head, i], head, table) == composite_hash(rewa, k[head, j], head, table)
                    for table in range(3)
                )
            ]
            kept = sorted(candidates, key=lambda j: -scores[head, i, j].item())[:4]
            num_cut += len(kept) < len(candidates)
            weights = scores[head, i, kept].softmax(-1)
            torch.testing.assert_close(out[head, i], weights @ v[head, kept])
    assert num_cut > 3


@pytest.mark.parametrize("num_kept", [12, 1000])
def test_enough_keys_make_it_geometric_rewa(num_kept: int) -> None:
    rewa = build(K=num_kept, cell=0.01)
    geometric = RewaGeometric(model_dim=8, num_heads=2).double()
    geometric.load_state_dict(rewa.state_dict(), strict=False)
    q, k, v = (normal(2, 2, 12, 4, seed=seed) for seed in range(3))

    torch.testing.assert_close(rewa.attend(q, k, v), geometric.attend(q, k, v), rtol=0, atol=0)


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
        rewa = build(seed, model_dim=len(x), num_heads=1, L=256, **{"m": 0, "n": 0, "p": 0, **options})
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
    rewa = build(model_dim=2, num_heads=1, m=0, n=0, p=2, L=64, bits=8)
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
    rewa = build(K=4)
    x = normal(3, 15, 8)
    q, k, _ = rewa.heads(x)
    scores, candidates = RewaGeometric.scores(rewa, q, k), rewa.candidates(q, k)
    recall = rewa.metrics(x)["recall"]

    for head in range(2):
        shares = []
        for b in range(3):
            for t in range(4, 15):
                best = scores[b, head, t, : t + 1].topk(4).indices
                shares.append(candidates[b, head, t, best].double().mean())
        torch.testing.assert_close(recall[head], torch.stack(shares).mean())
    assert ((recall > 0.05) & (recall < 1)).all()


def test_recall_grows_with_tables_and_is_one_without_need_of_them() -> None:
    x = normal(3, 40, 8)
    few, many = (build(K=4, L=L).metrics(x)["recall"].mean() for L in (1, 32))

    assert few < many
    assert build(K=40).metrics(x)["recall"].tolist() == [1, 1]


def test_a_hash_uses_only_the_geometries_that_act() -> None:
    rewa, x = build(), normal(2, 30, 4)
    whole = rewa.hashes(x, "query")
    rewa.enter_phase(1)
    alone = rewa.hashes(x, "query")

    assert alone[..., 0].unique().numel() <= 2**rewa.bits
    assert whole[..., 0].unique().numel() > alone[..., 0].unique().numel()
