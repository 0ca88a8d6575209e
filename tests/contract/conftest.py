"""Shared fixtures of the tests of the contract."""

import pytest

from synthbench.contract import causality, mechanisms


@pytest.fixture
def few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every twentieth shape of the main suite, where what depends on shapes is tried with all of them elsewhere."""
    few = causality.shapes_of_main_suite()[::20]
    monkeypatch.setattr(mechanisms, "shapes_of_main_suite", lambda: few)
