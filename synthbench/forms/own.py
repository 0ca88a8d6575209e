"""Forms that the class of a mechanism declares: methods that compute the same result faster or more safely."""

from collections.abc import Callable
from typing import Any


def own_form(unit: object, name: str) -> Callable[..., Any] | None:
    """Return the method ``name`` if the mechanism's own class declares it; None if it is missing or inherited.

    A form computes the same function as the class that declares it. A subclass may compute another function, so it must
    declare the form again: ``yat_sides = Yat.yat_sides``.
    """
    return getattr(unit, name) if name in vars(type(unit)) else None
