"""Tests look at the shapes of arrays wherever shapes are stated."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_module_that_states_shapes_is_looked_at(pytestconfig: pytest.Config) -> None:
    *rooms, _checker = pytestconfig.getoption("jaxtyping_packages").split(",")
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "synthbench").rglob("*.py")
        if re.search(r"^from jaxtyping import", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]

    assert len(modules) > 100
    assert [module for module in modules if not any(f"{module}.".startswith(f"{room}.") for room in rooms)] == []
