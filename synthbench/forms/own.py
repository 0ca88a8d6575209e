"""Forms declared by a mechanism's class: methods that compute the class's function faster or more safely."""

from collections.abc import Callable
from typing import Any


def own_form(unit: object, name: str) -> Callable[..., Any] | None:
    """Return the mechanism's method ``name`` if its own class declares this method; None if missing or inherited.

    Such a method is a faster way to compute the attention of its class. An inherited method is ignored, since a
    subclass may compute a different attention. A subclass that computes the same attention must declare the method
    again, as in ``yat_sides = Yat.yat_sides``.
    """
    return getattr(unit, name) if name in vars(type(unit)) else None
