"""The table of faults in the documentation names tests that there are, and every test of faults."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \|.*\|(.*)\|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")

NUM_FAULTS = 47


def named() -> dict[int, list[str]]:
    """The tests that the table names, by the number of the fault."""
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    return {int(number): TEST.findall(cell) for number, cell in ROW.findall(text)}


def _defined(path: Path) -> set[str]:
    """The tests of a file, by the name that pytest gives them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {f"{path.relative_to(ROOT).as_posix()}::{name}" for name in names}


def test_every_fault_has_tests_that_there_are() -> None:
    tests = named()

    assert list(tests) == list(range(1, NUM_FAULTS + 1))
    assert [number for number, names in tests.items() if not names] == []
    missing = [
        name for names in tests.values() for name in names if name not in _defined(ROOT / name.partition("::")[0])
    ]
    assert missing == []


def test_every_test_of_faults_is_in_the_table() -> None:
    here = set().union(*map(_defined, Path(__file__).parent.glob("test_*.py"))) - _defined(Path(__file__))

    assert here <= {name for names in named().values() for name in names}
