"""The file of bounds: complete, right, and silent on what is not in it."""

import runpy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthbench.plugins import SWITCH
from synthbench.suites import load_suite
from synthbench.tasks import TASKS, Bound, Level, Task, _recorded
from synthbench.tasks._measured import MOST_SEARCHED, accuracy, large_sample, measured_local_ceiling, measured_shortcuts
from synthbench.tasks._rules import is_left_out, rule_names
from synthbench.tasks.basic.copy import Copy
from tests.cli.commands import python

GENERATE = Path(__file__).parents[2] / "docs" / "generate.py"
CHEAP = ("bucket_sort", "even_pairs", "reverse_string", "sort", "text")
LADDERS = ("mqar", "parity_running")
UNSETTLED = {("bucket_sort", "string length")}
"""Shortcuts that choose between equally likely answers by how a processor rounds: what they score is not held."""
RULES = ("floor", "local", "place", "seen", "unasked")
"""Measurements of any level, besides its task's shortcuts."""


@pytest.fixture(scope="module")
def generate() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "off")
        patch.syspath_prepend(GENERATE.parent)
        yield runpy.run_path(str(GENERATE))


@pytest.fixture(scope="module")
def in_suites(generate: dict[str, Any]) -> dict[str, tuple[Task, int, bool]]:
    return dict(generate["suite_tasks"]())


@pytest.fixture(scope="module")
def on_ladders(generate: dict[str, Any]) -> dict[str, Level]:
    return dict(generate["levels"]())


def bounds_in(entry: Mapping[str, Any]) -> dict[str, Bound]:
    own = {name: of for name, of in entry.items() if name not in ("references", "shortcuts")}
    return {name: Bound(*of) for name, of in (own | entry.get("shortcuts", {})).items()}


def assert_right(key: str, task: Task, length: int, *, is_stretched: bool) -> None:
    """Other CPUs sum in another order, so the last bits of a bound may differ."""
    entry, measured = _recorded.entries()[key], _recorded.measured(task, length, is_stretched=is_stretched)
    # Another version of the compressor may save some bytes.
    assert measured.get("references", {}) == pytest.approx(entry.get("references", {}), rel=1e-3), key
    of_file, bounds = bounds_in(entry), bounds_in(measured)

    assert of_file.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert of_file[name].kind == bound.kind, (key, name)
        if (task.name, name) not in UNSETTLED:
            assert of_file[name][::2] == pytest.approx(bound[::2], rel=1e-9, abs=1e-12), (key, name)


def assert_level_right(key: str, level: Level) -> None:
    entry, measured = _recorded.entries()[key], _recorded.measured_level(level)
    of_file, bases = (
        {name: base for name, base in of["bases"].items() if (level.task.name, name) not in UNSETTLED}
        for of in (entry, measured)
    )

    assert of_file == pytest.approx(bases, rel=1e-9, abs=1e-12), key
    assert entry["ceiling"] == pytest.approx(measured["ceiling"], rel=1e-9), key


def test_every_level_of_every_task_is_in_the_file_at_its_version(on_ladders: dict[str, Level]) -> None:
    in_file, generic_rules = _recorded.entries(), cache(rule_names)

    assert not on_ladders.keys() - in_file.keys(), "python docs/generate.py adds them"
    for key, level in on_ladders.items():
        one = level.task.sample(np.random.default_rng(0), 1, level.length).inputs
        own = {*RULES, *level.task.level_shortcuts(one)}
        generic = in_file[key]["bases"].keys() - own
        assert own <= in_file[key]["bases"].keys(), key
        assert generic <= generic_rules(level.length), key
        assert bool(generic) == (level.length <= MOST_SEARCHED), "python docs/generate.py --levels measures them again"
        assert not any(is_left_out(rule, level.task.no_shortcuts) for rule in generic), key


def test_every_task_of_a_suite_is_in_the_file(in_suites: dict[str, Any], on_ladders: dict[str, Level]) -> None:
    in_file = _recorded.entries()

    assert not in_suites.keys() - in_file.keys(), "python docs/generate.py adds them"
    assert not in_file.keys() - in_suites.keys() - on_ladders.keys(), "python docs/generate.py takes them out"
    for key, (task, length, is_stretched) in in_suites.items():
        rules = {} if is_stretched else task.shortcuts(task.sample(np.random.default_rng(0), 2, length).inputs)
        assert in_file[key].get("shortcuts", {}).keys() == rules.keys(), key
        assert in_file[key].get("references", {}).keys() == task.references(length).keys(), key
        assert ("shortcuts" in in_file[key]) == (not is_stretched and task.measure == "accuracy")


def test_what_is_cheap_to_measure_is_right(in_suites: dict[str, Any]) -> None:
    cheap = {key: of for key, of in in_suites.items() if of[0].name in CHEAP and of[1] <= 160}

    assert {task.name for task, *_ in cheap.values()} == {*CHEAP}
    for key, (task, length, is_stretched) in cheap.items():
        assert_right(key, task, length, is_stretched=is_stretched)


def test_what_is_cheap_to_measure_of_a_ladder_is_right(on_ladders: dict[str, Level]) -> None:
    cheap = {level.task.name: key for key, level in on_ladders.items() if level.length <= 8}

    for name in LADDERS:
        assert_level_right(cheap[name], on_ladders[cheap[name]])


@pytest.mark.parametrize("name", [name for name in TASKS if TASKS[name].levels])
def test_the_rules_of_a_task_score_on_its_second_level_what_the_file_says(name: str) -> None:
    level = TASKS[name].ladder(longest=128)[1]
    inputs, targets = large_sample(level.task, level.length, 1)
    bases = _recorded.entries()[_recorded.level_key(level)]["bases"]
    for rule, predictions in level.task.level_shortcuts(inputs).items():
        if (name, rule) not in UNSETTLED:
            reached = accuracy(predictions, level.new_targets(targets)).value
            assert reached == pytest.approx(bases[rule], rel=1e-9, abs=1e-12), rule


@pytest.mark.slow
def test_the_whole_file_is_right(in_suites: dict[str, Any], on_ladders: dict[str, Level]) -> None:
    """Of every ladder its top, where the levels below differ by their numbers only."""
    for key, (task, length, is_stretched) in in_suites.items():
        assert_right(key, task, length, is_stretched=is_stretched)
    tops = {level.task.name: (key, level) for key, level in on_ladders.items()}
    for key, level in tops.values():
        assert_level_right(key, level)


def test_a_task_of_a_suite_and_a_level_are_answered_without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits included: a number in the file reads back as the one that was written."""
    for unit in (TASKS["sort"], TASKS["mqar"]):
        monkeypatch.setattr(unit, "sample", None)
        monkeypatch.setattr(unit, "ceiling", None)
    for function in (_recorded.local_ceiling, _recorded.shortcut_accuracies, _recorded.level_bounds):
        function.cache_clear()
    length, task = int(str(load_suite("paper").tasks["sort"]["length"])), TASKS["sort"]()
    entry = _recorded.entries()[_recorded.key_of(task, length)]

    assert _recorded.floor_and_ceiling(task, length) == (Bound(*entry["floor"]), Bound(*entry["ceiling"]))
    assert _recorded.local_ceiling(task, length) == Bound(*entry["local_ceiling"])
    assert _recorded.shortcut_accuracies(task, length) == {}

    level = TASKS["mqar"].ladder(longest=32)[-1]
    entry = _recorded.entries()[_recorded.level_key(level)]
    found = _recorded.level_bounds(level)

    assert found.base == max(entry["bases"].values()) == entry["bases"][found.rule]
    assert (found.ceiling, found.answers) == (entry["ceiling"], entry["answers"])


@dataclass(frozen=True)
class Mine(Copy):
    """A task from elsewhere under a built-in name, of another floor."""

    def floor(self, length: int) -> Bound:
        return Bound(super().floor(length).value / 2)


def test_what_the_file_does_not_have_is_measured() -> None:
    from_elsewhere, with_an_option = Mine(), Copy(vocabulary=7)

    for task in (from_elsewhere, with_an_option):
        assert _recorded.floor_and_ceiling(task, 32) == (task.floor(32), task.ceiling(32))
    assert _recorded.local_ceiling(with_an_option, 32) == measured_local_ceiling(with_an_option, 32)
    assert _recorded.shortcut_accuracies(with_an_option, 32) == measured_shortcuts(with_an_option, 32)


def test_naming_the_tasks_does_not_read_the_file() -> None:
    code = "from synthbench.tasks import TASKS, _recorded; list(TASKS); print(_recorded.entries.cache_info().currsize)"
    done = python("-c", code)

    assert done.stdout == "0\n"
