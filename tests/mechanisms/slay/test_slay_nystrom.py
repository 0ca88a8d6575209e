import torch

from synthbench.forms.feature_maps import unit_vectors
from synthbench.mechanisms.slay.slay_nystrom import SlayNystrom
from tests.tensors import normal


def test_kernel_is_that_of_the_ridge_regression_on_the_anchors() -> None:
    nystrom = SlayNystrom(P=6, ridge=0.1, generator=torch.Generator().manual_seed(0)).double()
    q, k = unit_vectors(normal(4, 16)), unit_vectors(normal(4, 16, seed=1))
    anchors = nystrom.anchors
    K = (anchors.mT @ anchors) ** 2
    expected = (q @ anchors) ** 2 @ torch.linalg.inv(K + 0.1 * torch.eye(6)) @ ((k @ anchors) ** 2).mT

    torch.testing.assert_close(nystrom.polynomial(q) @ nystrom.polynomial(k).mT, expected, rtol=1e-5, atol=1e-6)


def test_too_many_anchors_keep_the_features_finite() -> None:
    """Their kernel is singular: 64 anchors, 10 different squares."""
    nystrom = SlayNystrom(model_dim=16, P=64, ridge=1e-6, generator=torch.Generator().manual_seed(0))

    assert nystrom.polynomial(unit_vectors(normal(5, 4)).float()).isfinite().all()
    assert nystrom.whitening.abs().max() <= 1e3 * 1.001
