"""Forms of its own that a mechanism declares: methods that give what is computed in a faster or a safer way."""

from collections.abc import Callable
from typing import Any


def own_form(unit: object, name: str) -> Callable[..., Any] | None:
    """The method ``name`` of a mechanism if its very class declares it; None if there is none, or it is inherited.

    A form computes what the class that declares it computes. A subclass may compute something else, so it has a form
    only if it declares it again: ``yat_sides = Yat.yat_sides``.
    """
    return getattr(unit, name) if name in vars(type(unit)) else None
