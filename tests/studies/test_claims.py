"""The page on the papers' claims, for made-up rows."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from studies.real import claims, tangent
from synthbench.reports.table import in_words
from tests.reports._made import make_row


def rows_of(*gains: float) -> pd.DataFrame:
    """Rows of softmax attention, .5 right with every seed, and of geometric REWA, that much more often."""
    return pd.DataFrame(
        make_row(mech, seed, 0.5 + seed / 100 + gain, suite="climb", task="tree_compose")
        for seed, more in enumerate(gains, start=1)
        for mech, gain in (("softmax", 0.0), ("rewa-geometric", more))
    )


HIGHER, LOWER = (0.02, 0.03, 0.04), (-0.02, -0.03, -0.04)


@pytest.mark.parametrize(
    ("gains", "sign", "verdict"),
    [(HIGHER, 1, "holds"), (LOWER, 1, "contradicted"), (LOWER, -1, "holds"), ((0.02, -0.03, 0.01), 1, "not shown")],
)
def test_a_claim_holds_if_the_interval_of_paired_seeds_lies_on_its_side(
    gains: tuple[float, ...], sign: int, verdict: str
) -> None:
    claim = claims.PREDICTIONS[0]._replace(sign=sign)
    ((_, _, measured),) = claims.found_in([claim], rows_of(*gains))

    assert measured.value == pytest.approx(100 * sum(gains) / 3)
    assert claims._verdict(claim, measured) == verdict
    if verdict == "contradicted":
        assert in_words(measured, 1) == "−3.0 (−5.5 to −0.5)"


def test_tokens_needed_are_those_at_the_first_loss_as_low_as_the_last_of_the_baseline() -> None:
    losses = pd.DataFrame(
        [
            {"mech": mech, "task": task, "seed": 1, "tokens": tokens, "value": value}
            for task, of_new in (("dyck", (3.0, 0.9, 0.8, 0.7)), ("mqar", (3.0, 2.0, 1.5, 1.1)))
            for mech, values in (("new", of_new), ("old", (3.0, 2.0, 1.5, 1.0)))
            for tokens, value in zip((10, 20, 30, 40), values, strict=True)
        ]
    )

    assert claims.tokens_needed(losses, "new", "old").to_dict() == {1: (50 + 100) / 2}
    assert claims.tokens_needed(losses, "old", "old").to_dict() == {1: 100}


def test_a_mean_is_over_tasks_and_curvature_over_heads() -> None:
    rows = pd.DataFrame(
        make_row("rewa-geometric", seed, score / seed, task=task,
                 metrics=json.dumps({"layer0.kappa.head0": score, "layer1.kappa.head0": 0.0, "layer0.tau.head0": 9.0}))
        for task, score in (("dyck", 0.2), ("tree_compose", 0.4), ("mqar", 1.0))
        for seed in (1, 2)
    )  # fmt: skip

    means = claims.mean("rewa-geometric", claims.NESTING)(rows)
    curvatures = claims.mean("rewa-geometric", claims.NESTING, claims.curvature)(rows)
    assert means.to_dict() == pytest.approx({1: 30, 2: 15})
    assert curvatures.to_dict() == pytest.approx({1: 15, 2: 15})


def test_the_angle_is_not_near_softmax_and_nearer_where_vectors_are_few() -> None:
    assert claims.distance_from_softmax().low > 0.1
    assert claims.distance_from_softmax(num=1).high == 0


@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_the_tangent_kernel_is_the_product_of_all_derivatives(epsilon: float) -> None:
    rng = np.random.default_rng(1)
    inputs, weights = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    point = torch.tensor(weights, requires_grad=True)
    derivatives = []
    for each in torch.tensor(inputs):
        values = (point @ each) ** 2 / ((point - each).square().sum(-1) + epsilon)
        (gradient,) = torch.autograd.grad(values.sum(), point)
        derivatives.append(torch.cat([values.detach(), gradient.flatten()]).numpy())
    stacked = np.stack(derivatives)

    np.testing.assert_allclose(tangent.yat_kernel(inputs, weights, epsilon), stacked @ stacked.T / 5, rtol=1e-10)


def test_a_spectrum_says_how_fast_eigenvalues_fall() -> None:
    values = np.arange(1, 257) ** -2.0

    found = tangent.spectrum(np.diag(values))

    assert found.exponent == pytest.approx(-2)
    assert found.num_of_part == 1 + int((values.cumsum() < 0.9 * values.sum()).sum())
    assert tangent.spectrum(np.eye(10)).num_of_part == 9
