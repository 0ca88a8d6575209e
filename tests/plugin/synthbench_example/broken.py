"""A mechanism whose dependency nobody has."""

from importlib import import_module

Broken = import_module("a_module_that_nobody_has").Broken
