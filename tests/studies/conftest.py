"""Shared code of the tests of studies."""

import importlib
from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def script() -> Callable[[str], ModuleType]:
    """Import a script of a study by its name, as in ``depth.page``."""
    return lambda name: importlib.import_module(f"studies.{name}")
