import torch

from synthbench.forms.feature_maps import unit_vectors
from synthbench.mechanisms.slay.slay_sketch import SlaySketch
from tests.mechanisms.loops import built
from tests.tensors import normal


def test_features_are_the_count_sketch_of_the_tensor_product_of_every_head_and_node() -> None:
    """Entry (p, i) of anchors ⊗ positive features goes to place h(p) + h'(i), mod S, with the sign σ(p) σ'(i)."""
    P, D, R, S, heads = 3, 4, 2, 5, 2
    sketch = built(SlaySketch, P=P, D=D, R=R, S=S)
    u = unit_vectors(normal(heads, 1, 4))
    polynomial, exponential = (u @ sketch.anchors).square() / P**0.5, sketch.exponential(u)
    expected = torch.zeros(heads, 1, R * S, dtype=torch.float64)
    for head in range(heads):
        for r in range(R):
            first = sketch.polynomial_sketch[head, :, r * S : (r + 1) * S]
            second = sketch.exponential_sketch[head * R + r]
            for p in range(P):
                for i in range(D):
                    (h,), (other,) = first[p].nonzero().tolist()[0], second[i].nonzero().tolist()[0]
                    value = polynomial[head, 0, p] * exponential[head, 0, r * D + i]
                    expected[head, 0, r * S + (h + other) % S] += first[p, h] * second[i, other] * value

    torch.testing.assert_close(sketch.features(u, "query"), expected)


def test_every_head_and_node_has_its_own_sketch() -> None:
    sketch = SlaySketch(generator=torch.Generator().manual_seed(0))

    matrices = [
        *sketch.exponential_sketch,
        *sketch.polynomial_sketch.unflatten(-1, (3, 64)).transpose(1, 2).flatten(0, 1),
    ]

    assert [tuple(matrix.shape) for matrix in matrices] == 12 * [(16, 64)] + 12 * [(8, 64)]
    assert all((matrix.abs().sum(-1) == 1).all() for matrix in matrices)
    for same_shape in (matrices[:12], matrices[12:]):
        assert not any(torch.equal(a, b) for at, a in enumerate(same_shape) for b in same_shape[:at])
