"""A mechanism whose dependency nobody has."""

from a_module_that_nobody_has import Broken

__all__ = ["Broken"]
