"""Units of installed packages: listed from metadata, imported when chosen, broken ones named."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from synthbench import plugins
from synthbench.errors import ContractError, UnknownName, UsageError
from synthbench.registry import Registry
from synthbench.suites import load_suite, suite_names
from synthbench.tasks import TASKS
from tests.cli.commands import Command
from tests.suites.files import suite_file

Install = Callable[..., None]

GOOD = """
from synthbench.registry import Registry
from room_of_tests import UNITS

class Good:
    name = "good"

UNITS.register(Good)
"""


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[object]]:
    """A registry of its own, whose group is that of the blocks."""
    for package in ("some_units", "some_units/blocks"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    registry: Registry[object] = Registry("unit", room="some_units.blocks")
    monkeypatch.setitem(sys.modules, "room_of_tests", SimpleNamespace(UNITS=registry))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SYNTHBENCH_PLUGINS", "on")
    for cached in ("_offers", "_distributions"):
        monkeypatch.setattr(plugins, cached, getattr(plugins, cached).__wrapped__)
    yield registry
    for name in [name for name in sys.modules if name.startswith("some_")]:
        del sys.modules[name]


ENTRIES = """
[synthbench.blocks]
bad = some_bad:Bad
good = some_good:Good
missing = some_good:Missing
plain = some_plain:Plain
"""


def test_a_unit_is_known_by_its_package_and_imported_when_chosen(install: Install, units: Registry[object]) -> None:
    modules = {"some_good": GOOD, "some_bad": "raise SystemExit(3)", "some_plain": "class Plain:\n    name = 'plain'"}
    install("Some.Package", ENTRIES, **modules)

    assert list(units) == [f"some-package/{name}" for name in ("bad", "good", "missing", "plain")]
    assert "some-package/bad" in units
    assert not units.is_built_in("some-package/good")
    assert units.registered_by("some_good") == []
    assert units["some-package/good"].__name__ == "Good"
    assert units.registered_by("some_good") == ["some-package/good"]
    assert units["some-package/good"].name == "some-package/good"  # type: ignore[attr-defined]
    assert units.usable() == ["some-package/good"]
    broken = units.broken()
    assert "some_plain:Plain is no unit that is registered under this name" in broken.pop("some-package/plain")
    assert broken == {
        "some-package/bad": "unit 'some-package/bad' is broken: SystemExit: 3",
        "some-package/missing": (
            "unit 'some-package/missing' is broken: AttributeError: module 'some_good' has no attribute 'Missing'"
        ),
    }
    with pytest.raises(ContractError, match="'some-package/bad' is broken: SystemExit: 3"):
        units["some-package/bad"]
    with pytest.raises(UnknownName, match="did you mean 'some-package/good'"):
        units["some-package/goot"]


@pytest.mark.parametrize("name", ["../../x", "x" * 300, "\N{PILE OF POO}", "<script>"])
def test_a_hostile_name_is_broken_and_printed_as_ascii(name: str, install: Install, units: Registry[object]) -> None:
    install("hostile", f"[synthbench.blocks]\n{name} = some_good:Good\n")

    (listed,) = units
    assert listed.isascii()
    assert "allowed: lower-case letters" in units.broken()[listed]
    assert units.usable() == []


def test_a_name_that_is_declared_twice_names_both(install: Install, units: Registry[object]) -> None:
    install("twice", "[synthbench.blocks]\ngood = one:Good\ngood = two:Good\n")

    assert "it is declared twice, as one:Good and as two:Good" in units.broken()["twice/good"]


def test_plugins_can_be_turned_off(install: Install, units: Registry[object], monkeypatch: pytest.MonkeyPatch) -> None:
    install("some-package", "[synthbench.blocks]\ngood = some_good:Good\n")
    monkeypatch.setenv("SYNTHBENCH_PLUGINS", "off")

    assert list(units) == []
    monkeypatch.setenv("SYNTHBENCH_PLUGINS", "of")
    with pytest.raises(UsageError, match="SYNTHBENCH_PLUGINS is 'of'; allowed: on, off"):
        list(units)


@pytest.mark.usefixtures("units")
def test_a_suite_of_a_package_is_read_from_the_file_that_it_names(install: Install, tmp_path: Path) -> None:
    suite_file(tmp_path / "mine.toml", "smoke")
    module = f"from pathlib import Path\n\n\ndef mine():\n    return Path({str(tmp_path / 'mine.toml')!r})\n"
    entry = "[synthbench.suites]\nmine = some_suites:mine\nlost = some_suites:lost\nwrong = some_suites:Path\n"
    install("suite-maker", entry, some_suites=module)

    assert {"smoke", "suite-maker/mine"} <= set(suite_names())
    assert load_suite("suite-maker/mine").name == "suite-maker/mine"
    with pytest.raises(ContractError, match="'suite-maker/lost' is broken: AttributeError"):
        load_suite("suite-maker/lost")
    with pytest.raises(ContractError, match="suite 'suite-maker/wrong' is broken"):
        load_suite("suite-maker/wrong")


@pytest.mark.end_to_end
def test_list_and_doctor_name_what_is_broken_and_show_the_rest(
    install: Install, synthbench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_in = [*TASKS]
    install("culprit", "[synthbench.tasks]\nbad = some_bad:Bad\n", some_bad="1 / 0")
    offered = {"tasks": {"culprit/bad": plugins.Offer("culprit/bad", "some_bad:Bad")}}
    monkeypatch.setattr(plugins, "_offers", lambda group: offered.get(group, {}))
    monkeypatch.setattr(TASKS, "_faults", {})
    facts = json.loads(synthbench("list", "tasks", "--json").stdout)

    assert {fact["name"] for fact in facts} == {*built_in, "culprit/bad"}
    broken = next(fact for fact in facts if fact["name"] == "culprit/bad")
    assert broken["broken"] == "task 'culprit/bad' is broken: ZeroDivisionError: division by zero"
    doctor = synthbench("doctor")
    assert doctor.returncode == 1
    assert "ZeroDivisionError: division by zero" in doctor.stdout
    for words in (("run", "--suite", "smoke", "--task", "culprit/bad"), ("check", "culprit/bad")):
        refused = synthbench(*words)
        assert refused.returncode == 4
        assert "is broken: ZeroDivisionError" in refused.stderr
