import pytest

import synthbench
from tests.cli.commands import python


def test_every_public_name_is_there() -> None:
    assert set(synthbench.__all__) == {*synthbench._HOMES, "__version__"}
    for name in synthbench.__all__:
        assert getattr(synthbench, name) is not None


def test_completion_offers_the_public_names_before_anything_heavy_is_imported() -> None:
    script = "import sys, synthbench; print(*dir(synthbench)); print(*sys.modules)"
    done = python("-c", script)
    names, modules = (set(line.split()) for line in done.stdout.splitlines())

    assert set(synthbench.__all__) <= names
    assert modules.isdisjoint({"torch", "numpy", "pandas", "typer"})


def test_a_process_of_checks_can_start_before_torch_is_imported() -> None:
    script = "import sys, synthbench.cli.plugins, synthbench.contract.isolated; print('torch' in sys.modules)"
    done = python("-c", script)

    assert done.stdout.strip() == "False"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'slay'"):
        synthbench.slay  # noqa: B018 - looking it up is the test
