"""Forms that mechanisms declare: each is that of one class, since what inherits may compute something else."""

import pytest
import torch
from torch import Tensor

from synthbench.forms import linear, scores
from synthbench.forms.own import own_form
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import Side
from synthbench.mechanisms.performer_exp import PerformerExp
from synthbench.mechanisms.yat import Yat
from tests.mechanisms.loops import built
from tests.tensors import normal

FORMS = ("own_kernel", "yat_sides", "key_exponents")
DECLARED = [
    ("performer-exp", "key_exponents"),
    ("slay", "own_kernel"),
    ("yat", "yat_sides"),
    ("yat-spherical", "own_kernel"),
    ("yat-spherical", "yat_sides"),
    ("yat-sum", "yat_sides"),
]


class OtherScores(Yat):
    """Scores that are not the Yat kernel."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT


class OtherFeatures(PerformerExp):
    """Features that are no exponentials."""

    def features(self, x: Tensor, side: Side) -> Tensor:
        return super().features(x, side).square() + 1


def test_these_forms_are_declared() -> None:
    found = [(name, form) for name in MECHANISMS for form in FORMS if own_form(MECHANISMS[name](), form) is not None]

    assert sorted(found) == DECLARED


@pytest.mark.parametrize(("name", "form"), DECLARED)
def test_a_form_is_not_inherited_but_may_be_declared_again(name: str, form: str) -> None:
    unit = MECHANISMS[name]
    heir, twin = (type("Heir", (unit,), declared) for declared in ({}, {form: vars(unit)[form]}))

    assert own_form(heir(), form) is None
    assert own_form(twin(), form) is not None


def test_an_heir_with_other_scores_attends_by_them_at_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "DENSE_MAX_LENGTH", 16)
    monkeypatch.setattr(scores, "BLOCK", 4)
    unit, (q, k, v) = built(OtherScores), normal(3, 1, 2, 20, 4)

    torch.testing.assert_close(unit.attend(q, k, v), scores.dense(unit.scores, "softmax", q, k, v))


def test_an_heir_with_other_features_attends_by_them_at_any_width() -> None:
    unit, (q, k, v) = built(OtherFeatures, model_dim=128, num_heads=1), normal(3, 1, 1, 20, 128)
    factors = unit.factors(q, "query"), unit.factors(k, "key")

    torch.testing.assert_close(unit.attend(q, k, v), linear.gram(*factors, v, guard="add", delta=1e-6))
