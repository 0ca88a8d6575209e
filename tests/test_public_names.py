import subprocess
import sys

import pytest

import synthbench


def test_every_public_name_is_there() -> None:
    assert set(synthbench.__all__) == {*synthbench._HOMES, "__version__"}
    for name in synthbench.__all__:
        assert getattr(synthbench, name) is not None


def test_completion_offers_the_public_names_before_they_are_imported() -> None:
    script = "import synthbench; print(*dir(synthbench))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert set(synthbench.__all__) <= set(done.stdout.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, synthbench; sys.exit(bool({'torch', 'numpy', 'pandas', 'typer'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'slay'"):
        synthbench.slay  # noqa: B018 - looking it up is the test
