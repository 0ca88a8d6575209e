import pytest

import synthbench
from tests.cli.commands import python


def test_every_public_name_is_there() -> None:
    assert set(synthbench.__all__) == {*synthbench._HOMES, "__version__"}
    for name in synthbench.__all__:
        assert getattr(synthbench, name) is not None


def test_completion_offers_the_public_names_before_anything_heavy_is_imported() -> None:
    """A process of checks can start then too."""
    script = (
        "import sys, synthbench; print(*dir(synthbench)); print(*sys.modules)\n"
        "import synthbench.cli.plugins, synthbench.contract.isolated; print(*sys.modules)"
    )
    names, at_first, for_checks = (set(line.split()) for line in python("-c", script).stdout.splitlines())

    assert set(synthbench.__all__) <= names
    assert at_first.isdisjoint({"torch", "numpy", "pandas", "typer"})
    assert "torch" not in for_checks


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'slay'"):
        synthbench.slay  # noqa: B018 - looking it up is the test
