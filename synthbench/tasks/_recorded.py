"""Floors, ceilings and shortcut baselines of tasks, read from a file because measuring them takes seconds.

A floor is the best score without the input, a ceiling the best possible score, and a shortcut baseline the best score
of a simple rule. The file, ``bounds.json``, covers the tasks of all suites and all levels. Values that the file lacks
are measured on demand. The command ``python docs/generate.py`` adds missing values to the file.
"""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from synthbench.options import arguments_of
from synthbench.tasks._measured import answers_per_sequence, measured_bases, measured_local_ceiling, measured_shortcuts
from synthbench.tasks.base import Bound, Level, Task

FILE = Path(__file__).with_name("bounds.json")

Entry = Mapping[str, Any]
"""Entry of the file for a task at one length, or for a level; each list holds the fields of a :class:`Bound`."""


def key_of(task: Task, length: int) -> str:
    """Build the key of a task, with its options and a length in tokens, in ``bounds.json``."""
    options = {"length": length, **arguments_of(task)}
    return f"{task.name} {task.version} " + ",".join(f"{name}={options[name]}" for name in sorted(options))


def measured(task: Task, length: int, *, is_stretched: bool = False) -> dict[str, Any]:
    """Compute the values that ``bounds.json`` holds for a task at a length in tokens.

    These are the floor, the ceiling, the scores of reference predictors, the local ceiling and the accuracies of
    shortcuts. The last two are left out for tasks scored in bits, and for tests beyond the training range
    (``is_stretched``).
    """
    entry: dict[str, Any] = {"floor": task.floor(length), "ceiling": task.ceiling(length)}
    if found := task.references(length):
        entry["references"] = found
    if task.measure == "accuracy" and not is_stretched:
        entry |= {"local_ceiling": measured_local_ceiling(task, length), "shortcuts": measured_shortcuts(task, length)}
    return entry


@cache
def entries() -> Mapping[str, Entry]:
    """Return the content of ``bounds.json``, which is read at the first call.

    The functions :func:`key_of` and :func:`level_key` build the keys.
    """
    read: dict[str, Entry] = json.loads(FILE.read_text(encoding="utf-8"))
    return read


def _entry(task: Task, key: str) -> Entry:
    # A task from elsewhere may have the name and version of a built-in task and sample something else.
    is_built_in = type(task).__module__.startswith("synthbench.tasks.")
    return entries().get(key, {}) if is_built_in else {}


def _recorded(task: Task, length: int) -> Entry:
    return _entry(task, key_of(task, length))


def floor_and_ceiling(task: Task, length: int) -> tuple[Bound, Bound]:
    """Return a task's floor and ceiling at a length in tokens; compute them if ``bounds.json`` lacks them."""
    if entry := _recorded(task, length):
        return Bound(*entry["floor"]), Bound(*entry["ceiling"])
    return task.floor(length), task.ceiling(length)


@lru_cache(maxsize=4096)
def local_ceiling(task: Task, length: int) -> Bound:
    """Return the local ceiling: the accuracy of the best rule that sees only the current token and its position.

    Accuracies up to this ceiling need no information from other positions. For each pair of position and token, the
    rule answers with the most frequent target of this pair. The rule is learned from one fixed sample and scored on
    another. The result is at least the floor. For tasks whose answers are all read from the last position, the result
    equals the floor. With many pairs, the true ceiling may be slightly higher than the result. Tasks scored in bits
    have no local ceiling.
    """
    found = _recorded(task, length).get("local_ceiling")
    return measured_local_ceiling(task, length) if found is None else Bound(*found)


@lru_cache(maxsize=4096)
def shortcut_accuracies(task: Task, length: int) -> dict[str, Bound]:
    """Return the accuracies of the rules of ``task.shortcuts`` on a fixed sample; keys are the names of the rules."""
    found = _recorded(task, length).get("shortcuts")
    return measured_shortcuts(task, length) if found is None else {rule: Bound(*of) for rule, of in found.items()}


@lru_cache(maxsize=64)
def references(task: Task, length: int) -> dict[str, float]:
    """Return the scores of simple predictors; call ``task.references`` only if ``bounds.json`` lacks the scores."""
    found: dict[str, float] | None = _recorded(task, length).get("references")
    return task.references(length) if found is None else found


class LevelBounds(NamedTuple):
    """Shortcut baseline and ceiling of the accuracy on a level, and the mean number of answers per sequence.

    The shortcut baseline is the highest accuracy of a simple rule. All accuracies are in [0, 1].
    """

    base: float
    """The shortcut baseline: the highest accuracy of a shortcut."""
    rule: str
    """Name of the shortcut with the highest accuracy: see :func:`synthbench.tasks._measured.measured_bases`."""
    ceiling: float
    answers: float
    """Mean number of targets in a sequence, including targets that only lower levels score."""


def level_key(level: Level) -> str:
    """Build the key of a level in ``bounds.json``."""
    return f"{key_of(level.task, level.length)} from {level.first_new}"


def measured_level(level: Level) -> dict[str, Any]:
    """Compute the values that ``bounds.json`` holds for a level: baselines, ceiling and answers per sequence."""
    return {
        "bases": measured_bases(level),
        "ceiling": level.task.ceiling(level.length).value,
        "answers": answers_per_sequence(level.task, level.length),
    }


@lru_cache(maxsize=4096)
def level_bounds(level: Level) -> LevelBounds:
    """Return a level's shortcut baseline, ceiling and number of answers; measure them if ``bounds.json`` lacks them."""
    return committed_bounds(level) or _bounds_in(measured_level(level))


def committed_bounds(level: Level) -> LevelBounds | None:
    """Look up a level's shortcut baseline, ceiling and number of answers in ``bounds.json``.

    Return None if the file lacks the level.
    """
    entry = _entry(level.task, level_key(level))
    return _bounds_in(entry) if entry else None


def _bounds_in(entry: Entry) -> LevelBounds:
    rule = max(entry["bases"], key=lambda name: entry["bases"][name])
    return LevelBounds(entry["bases"][rule], rule, entry["ceiling"], entry["answers"])
