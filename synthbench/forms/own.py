"""Forms declared by a mechanism's class: methods that compute the class's function faster or more safely."""

from collections.abc import Callable
from typing import Any


def own_form(unit: object, name: str) -> Callable[..., Any] | None:
    """Return the method ``name`` if the mechanism's own class declares it; None if it is missing or inherited.

    The method is a faster way to compute the attention of the class that declares it. A subclass may compute another
    attention. A subclass that computes the same attention must declare the method again, as in
    ``yat_sides = Yat.yat_sides``.
    """
    return getattr(unit, name) if name in vars(type(unit)) else None
