"""Forms that mechanisms declare: each is that of one class, since what inherits may compute something else."""

import pytest

from synthbench.forms.own import own_form
from synthbench.mechanisms import MECHANISMS

FORMS = ("own_kernel", "yat_sides", "key_exponents")
DECLARED = [
    ("performer-exp", "key_exponents"),
    ("slay", "own_kernel"),
    ("yat", "yat_sides"),
    ("yat-spherical", "own_kernel"),
    ("yat-spherical", "yat_sides"),
    ("yat-sum", "yat_sides"),
]


def test_these_forms_are_declared() -> None:
    found = [(name, form) for name in MECHANISMS for form in FORMS if own_form(MECHANISMS[name](), form) is not None]

    assert sorted(found) == DECLARED


@pytest.mark.parametrize(("name", "form"), DECLARED)
def test_a_form_is_not_inherited_but_may_be_declared_again(name: str, form: str) -> None:
    unit = MECHANISMS[name]
    heir, twin = (type("Heir", (unit,), declared) for declared in ({}, {form: vars(unit)[form]}))

    assert own_form(heir(), form) is None
    assert own_form(twin(), form) is not None
