"""The registry: names, suggestions, versions and origins of units."""

import importlib
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from synthbench.errors import UnknownName, UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.plugins import origin_of
from synthbench.registry import Registry, code_hash, version_of
from synthbench.runner.plan import select_mechanisms
from synthbench.suites import load_suite
from synthbench.tasks.base import TASKS

PLAIN = '''
class Unit:
    """One docstring."""

    name = "unit"

    def double(self, number):
        """Another docstring."""
        return 2 * number
'''
RELAID = PLAIN.replace("2 * number", "(2\n * number)").replace("One", "# Another").replace("):", "):  # a comment\n\n")
HEIR = """
import unit_base

class Unit(unit_base.Unit):
    name = "heir"
"""


ROOM = {
    "__init__.py": "",
    "_shared.py": "raise RuntimeError('not a unit')",
    "base.py": "from synthbench.registry import Registry\nUNITS = Registry('unit', room='some_room')",
    "sub/__init__.py": "",
    "sub/one.py": "from some_room.base import UNITS\nclass One:\n    name = 'one'\nUNITS.register(One)",
}
"""A package that has one unit, by file."""


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    """The registry of a package that is on the path."""
    (tmp_path / "some_room" / "sub").mkdir(parents=True)
    for name, text in ROOM.items():
        (tmp_path / "some_room" / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry: Registry[Any] = importlib.import_module("some_room.base").UNITS
    return registry


def unit_called(name: str) -> type[Any]:
    return type("Unit", (), {"name": name, "__qualname__": f"Unit_{name}"})


def unit_from(path: Path, text: str) -> type[Any]:
    """Import a file as a module of its own and take the class Unit from it."""
    path.write_text(text, encoding="utf-8")
    module = sys.modules[path.stem] = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(text, path, "exec"), vars(module))  # noqa: S102 - as an import does
    unit: type[Any] = module.Unit
    return unit


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("unit_", "some_room")):
            del sys.modules[name]


def test_the_room_is_imported_on_first_use_and_not_its_underscored_files(units: Registry[Any]) -> None:
    assert "some_room.sub.one" not in sys.modules
    units.register(unit_called("copy"))
    assert list(units) == ["copy", "one"]
    assert len(units) == 2
    assert "one" in units
    assert "two" not in units
    assert units["one"].__name__ == "One"
    with pytest.raises(UnknownName, match="no unit called 'coppy'; did you mean 'copy'"):
        units["coppy"]


@pytest.mark.parametrize("name", ["", "Copy", "long copy", "-copy", "_copy", "a" * 65, "copy:1", 7, None])
def test_a_malformed_name_is_refused(name: Any, units: Registry[Any]) -> None:
    with pytest.raises(UsageError, match="allowed: lower-case letters"):
        units.register(unit_called(name))


def test_two_units_under_one_name_are_refused(units: Registry[Any]) -> None:
    first, second = unit_called("copy"), unit_called("copy")
    second.__qualname__ = "Other"
    units.register(first)

    with pytest.raises(UsageError, match=r"two units are called 'copy': .*Unit_copy and .*Other"):
        units.register(second)
    assert units["copy"] is first
    again = unit_called("copy")  # as where its module is loaded again
    units.register(again)
    assert units["copy"] is again


def heirs_of(path: Path, *sources: str) -> Iterator[str]:
    """The hashes of one heir whose base is defined by each source in turn, in a file of its own."""
    for source in sources:
        base = unit_from(path, source)
        sys.modules["unit_base"] = sys.modules[base.__module__]
        yield code_hash(unit_from(path.parents[1] / "unit_heir.py", HEIR))


def test_code_hash_sees_the_code_of_bases_but_no_comments_docstrings_or_layout(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    changed = [PLAIN.replace(*change) for change in (("2 *", "3 *"), ('"unit"', '"units"'), ("double", "triple"))]
    plain, relaid, *others = heirs_of(tmp_path / "lib" / "unit_base.py", PLAIN, RELAID, *changed)

    assert len(plain) == 12
    assert plain == relaid
    assert len({plain, *others}) == 4


def test_an_installed_base_counts_by_the_version_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site-packages").mkdir()
    versions = iter(["lib==1", "lib==1", "lib==2"])
    monkeypatch.setattr("synthbench.registry.origin_of", lambda _unit: next(versions))
    first, edited, raised = heirs_of(
        tmp_path / "site-packages" / "unit_base.py", PLAIN, PLAIN.replace("2 *", "3 *"), PLAIN
    )

    assert first == edited != raised


NOTEBOOK = """
SCALE = 2
SHIFT = 1

def shift(x):
    i = 0
    return x + SHIFT + i

class Base:
    'One docstring.'
    @property
    def scale(self):
        return SCALE

class Helper:
    def __init__(self):
        self.shift = 4

class Other:
    seven = 7

class Unit(Base):
    name = "unit"
    def forward(self, x):
        return self.scale * shift(x) * Helper().shift
"""


@pytest.mark.parametrize(
    ("old", "new", "is_seen"),
    [
        ("SCALE = 2", "SCALE = 3", True),
        ("return x + SHIFT", "return x - SHIFT", True),
        ("return SCALE", "return SCALE + 1", True),
        ("self.shift = 4", "self.shift = 5", True),
        ('"unit"', '"units"', True),
        ("seven = 7", "seven = 8", False),
        ("SCALE = 2", "SCALE = 2\ni = 8", False),
        ("One docstring", "Another", False),
    ],
)
def test_code_hash_sees_what_a_unit_of_a_notebook_reads_from_other_cells(
    old: str,
    new: str,
    is_seen: bool,  # noqa: FBT001 - a case, not a switch
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashes = []
    for cell, text in {"<cell 1>": NOTEBOOK, "<cell 2>": NOTEBOOK.replace(old, new)}.items():
        notebook = ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", notebook)
        monkeypatch.setitem(linecache.cache, cell, (len(text), None, text.splitlines(keepends=True), cell))
        exec(compile(text, cell, "exec"), vars(notebook))  # noqa: S102 - as a notebook does
        hashes.append(code_hash(notebook.Unit))

    assert old in NOTEBOOK
    assert (hashes[0] != hashes[1]) == is_seen


def test_a_foreign_unit_has_its_source_for_a_version_unless_it_declares_one_itself(tmp_path: Path) -> None:
    plain = unit_from(tmp_path / "unit_plain.py", PLAIN)
    second = unit_from(tmp_path / "unit_second.py", PLAIN.replace('name = "unit"', 'name = "unit"; version = 2'))
    source = "from synthbench.tasks import TASKS\n\nclass Unit(TASKS['composite_recall']):\n    name = 'own'\n"
    heir_of_a_built_in = unit_from(tmp_path / "unit_heir.py", source)
    heir = type("Heir", (second,), {"__module__": second.__module__})

    assert version_of(TASKS["composite_recall"]) == "2"
    assert version_of(plain) == f"1+{code_hash(plain)}"
    assert version_of(second) == "2"
    assert version_of(heir) == f"2+{code_hash(heir)}"
    assert version_of(heir_of_a_built_in) == f"2+{code_hash(heir_of_a_built_in)}"


@pytest.mark.parametrize("version", [0, True, "2b", 1.5, None])
def test_a_version_that_is_no_whole_number_is_refused(version: object, units: Registry[Any]) -> None:
    unit = unit_called("copy")
    unit.version = version

    with pytest.raises(UsageError, match=r"has the version .*; allowed: whole numbers from 1"):
        units.register(unit)


def test_the_origin_of_what_is_installed_is_its_distribution() -> None:
    assert origin_of(pytest.Item) == f"pytest=={pytest.__version__}"


def test_every_task_lies_in_the_file_that_bears_its_name() -> None:
    for name, unit in TASKS.items():
        assert unit.__module__ == f"synthbench.tasks.{unit.category()}.{name}"


@pytest.mark.parametrize("registry", [TASKS, MECHANISMS])
def test_every_name_and_label_in_any_spelling_names_one_component(registry: Registry[Any]) -> None:
    for name in filter(registry.is_built_in, registry):
        label = getattr(registry[name], "label", name)
        spellings = [
            text for written in (name, label) for text in (written, written.upper(), written.replace("-", " "))
        ]
        assert {registry.resolve(text) for text in [*spellings, label.replace(" ", "_")]} == {name}
        assert not {*",:!@*?["} & {*label}  # signs that the command line reads for itself


def test_a_pattern_may_be_of_labels() -> None:
    assert MECHANISMS.resolve("GLA+Standard+Gated_DeltaNet") == "gla+softmax+gated-deltanet"
    assert MECHANISMS.resolve("Performer (FAVOR+)") == "performer-exp"
    assert MECHANISMS.resolve("GLA+nobody") == "gla+nobody"
    assert list(select_mechanisms(load_suite("core"), ["Mamba-2,gated_deltanet", "FoX", "!SOFTMAX"])) == [
        "mamba2",
        "gated-deltanet",
        "forgetting",
    ]
