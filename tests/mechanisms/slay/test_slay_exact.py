import torch

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.quadrature import inverse_distance
from synthbench.mechanisms.slay.slay_exact import SlayExact
from tests.tensors import normal


def test_full_form_is_the_outer_product() -> None:
    exact = SlayExact(form="full").double()
    u = unit_vectors(normal(16))

    torch.testing.assert_close(exact.polynomial(u.unsqueeze(0))[0], torch.outer(u, u).flatten())


def test_symmetric_form_has_each_product_once() -> None:
    exact = SlayExact(model_dim=12).double()
    a, b, c = u = unit_vectors(normal(3))

    expected = torch.stack([a * a, 2**0.5 * a * b, 2**0.5 * a * c, b * b, 2**0.5 * b * c, c * c])

    torch.testing.assert_close(exact.polynomial(u.unsqueeze(0))[0], expected, rtol=1e-6, atol=1e-8)


def test_many_features_give_the_quadrature_of_the_kernel() -> None:
    """A large epsilon keeps the nodes small, and with them the variance."""
    d, heads = 4, 64
    exact = SlayExact(
        model_dim=heads * d,
        num_heads=heads,
        R=2,
        D=1024,
        epsilon=1.0,
        omega="orthogonal",
        generator=torch.Generator().manual_seed(0),
    ).double()
    q, k = normal(6, d), normal(6, d, seed=1)
    x = unit_vectors(q) @ unit_vectors(k).mT

    (poly_q, exp_q), (poly_k, exp_k) = (exact.features(u.expand(heads, 6, d), "query") for u in (q, k))
    kernels = (poly_q @ poly_k.mT) * (exp_q @ exp_k.mT)
    expected = x**2 * inverse_distance(2, 1.0, x)
    errors = kernels.std(0) / heads**0.5

    assert ((kernels.mean(0) - expected).abs() < 4 * errors + 1e-6).all()
    assert (errors < 0.1 * expected.max()).all()
