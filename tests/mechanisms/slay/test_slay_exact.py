import torch

from synthbench.forms.feature_maps import unit_vectors
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
