"""A search for simple rules that beat a level's shortcut baseline, which is the best accuracy of the known rules.

A rule that clearly beats the baseline should be added to the known rules. The search draws new sequences, not the
sequences used to measure the baselines, and also tries rules that no baseline includes. The file ``shortcuts.csv``
holds the results for all levels. The command ``synthbench shortcuts --write`` recreates the file.
"""

import csv
import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.registry import bare_source
from synthbench.tasks import _measured, _rules
from synthbench.tasks._recorded import level_bounds
from synthbench.tasks.base import Batch, Level, Task

FILE = Path(__file__).with_name("shortcuts.csv")
LONGEST = _measured.MOST_SEARCHED
SEEDS = (1000, 1001)
"""Seeds of the two samples of the search; baselines use 0 and 1."""
MOST_SKILL = 0.05
"""Skill above which a rule should be added to the baseline."""
TREES, LEAF, NUM_LEARNED, NUM_TESTED = 60, 5, 2**14, 2**13
"""Random forest: number of trees, minimum samples per leaf, and numbers of positions to learn from and to test on."""


@dataclass(frozen=True)
class Found:
    """Result of the search for simple rules on one level: the best rule found, and the level's shortcut baseline."""

    task: str
    version: int
    load: int
    length: int
    baseline: float
    baseline_by: str
    ceiling: float
    best: float
    best_by: str
    digest: str

    @property
    def skill(self) -> float:
        """Skill of the best rule: its accuracy, rescaled so that the baseline is 0 and the ceiling is 1."""
        return (self.best - self.baseline) / (self.ceiling - self.baseline)

    @property
    def is_beaten(self) -> bool:
        """True if the best rule's skill is above ``MOST_SKILL``; the rule should then be added to the known rules."""
        return self.skill > MOST_SKILL

    def facts(self) -> dict[str, Any]:
        """Return all fields, ``skill`` and ``is_beaten`` as a dictionary, with floats rounded as in the CSV file."""
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return {**rounded, "skill": round(self.skill, 3), "is_beaten": self.is_beaten}


@cache
def digest_of(unit: type[Task], *, has_forest: bool = False) -> str:
    """Hash everything that determines the result of the search for simple rules on a task.

    The hash covers the task's version, levels, code and ``no_shortcuts`` (names of rules to leave out). It also covers
    the code of all generic rules, the seeds, and whether a random forest is tried. Comments and docstrings do not
    change the hash.
    """
    levels = [str(dict(level)) for level in (*unit.levels, *unit.extended_levels)]
    text = [f"{unit.name} {unit.version} {has_forest} {SEEDS}", *levels, str(dict(unit.no_shortcuts))]
    text += [bare_source(inspect.getsource(module)) for module in (_rules, _measured)]
    text += [_source_of(base) for base in unit.__mro__ if issubclass(base, Task) and base is not Task]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:12]


def _source_of(unit: type[Task]) -> str:
    try:
        return bare_source(inspect.getsource(unit))
    except (OSError, TypeError):  # a class made without a file, for example by type()
        return unit.__qualname__


def search_level(level: Level, *, scale: float = 1.0, has_forest: bool = False) -> Found:
    """Find the most accurate rule on one level, among more rules than the level's shortcut baseline includes.

    Args:
        level: The level to search.
        scale: Number of scored positions examined, as a multiple of the number that a baseline examines.
        has_forest: Also try a random forest on hand-made features.

    Raises:
        UsageError: If ``has_forest`` is True and scikit-learn is not installed.
    """
    bounds, task = level_bounds(level), level.task
    fit, fresh = (
        Batch(inputs, level.new_targets(targets))
        for inputs, targets in (_measured.large_sample(task, level.length, seed) for seed in SEEDS)
    )
    found = {
        best.rule: best.accuracy
        for best in _rules.search(
            fit, fresh, task.vocab_size, left_out=task.no_shortcuts, scale=scale, is_wide=True
        ).values()
    }
    for name, predictions in task.level_shortcuts(fresh.inputs).items():
        found[name] = _measured.accuracy(predictions, fresh.targets).value
    if has_forest:
        found["random forest"] = _forest(fit, fresh, task.vocab_size)
    best = max(found, key=found.__getitem__)
    return Found(
        task=task.name,
        version=task.version,
        load=level.load,
        length=level.length,
        baseline=bounds.base,
        baseline_by=bounds.rule,
        ceiling=bounds.ceiling,
        best=found[best],
        best_by=best,
        digest=digest_of(type(task), has_forest=has_forest),
    )


def levels_of(unit: type[Task], longest: int = LONGEST) -> list[Level]:
    """List the levels of a task's ladder, then the levels that occur only in the task's second, extended ladder.

    Levels whose sequences have more than ``longest`` tokens are left out.
    """
    levels = unit.ladder(longest)
    return levels + [level for level in unit.ladder(longest, is_extended=True) if level not in levels]


def read_found(file: Path = FILE) -> list[Found]:
    """Read the results of a search for simple rules from a CSV file, one result per level."""
    with file.open(encoding="utf-8", newline="") as lines:
        read = csv.DictReader(lines)
        return [Found(**{name: kind(line[name]) for name, kind in Found.__annotations__.items()}) for line in read]


def write_found(found: Sequence[Found], file: Path = FILE) -> None:
    """Write the results of a search to a CSV file, sorted by task; results of other tasks in the file remain.

    Args:
        found: Results of all levels of one or more tasks.
        file: The CSV file to write to.
    """
    names = {level.task for level in found}
    known = [level for level in read_found(file) if level.task not in names] if file.is_file() else []
    columns = [*(name for name in Found.__annotations__ if name != "digest"), "skill", "digest"]
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(level.facts() for level in sorted([*known, *found], key=lambda level: level.task))


def features(batch: Batch, vocab_size: int, most: int) -> tuple[Int[np.ndarray, "scored features"], Any]:
    """Compute features of at most ``most`` scored positions for a random forest; return the features and the answers.

    The features of a position are its index, the number of tokens up to the sequence's first scored position, the last
    10 tokens read, and the first 3 tokens. Further features are the distances back to the 3 latest copies of the
    current token, and the tokens on either side of each copy. If there are at most 64 token ids, the count of each id
    among the tokens read is a feature, too.
    """
    view = _rules.View.of(batch, vocab_size, most)
    scored, length = np.arange(len(view.places)), batch.inputs.shape[1]
    columns = [view.places, view.starts]
    columns += [
        np.where(view.places >= back, view.tokens[scored, (view.places - back).clip(0)], -1)
        for back in range(min(10, length))
    ]
    columns += [view.tokens[:, place] for place in range(min(3, length))]
    is_equal = view.is_equal.copy()
    for _ in range(3):
        has_copy = is_equal.any(axis=1)
        latest = np.where(has_copy, length - 1 - is_equal[:, ::-1].argmax(axis=1), 0)
        columns.append(np.where(has_copy, view.places - latest, -1))
        for step in (-1, 1):
            columns.append(np.where(has_copy, view.tokens[scored, (latest + step).clip(0, length - 1)], -1))
        is_equal[scored, latest] = False
    counts = view.counts(view.is_read) if vocab_size <= 64 else np.empty((len(scored), 0), dtype=np.int64)
    return np.column_stack([*columns, counts]), view.answers


def _forest(fit: Batch, fresh: Batch, vocab_size: int) -> float:
    try:
        from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415  only this needs it
    except ImportError:
        raise UsageError("--forest needs scikit-learn: pip install scikit-learn") from None
    known, answers = features(fit, vocab_size, NUM_LEARNED)
    asked, right = features(fresh, vocab_size, NUM_TESTED)
    forest = RandomForestClassifier(TREES, min_samples_leaf=LEAF, random_state=0).fit(known, answers)
    return float((forest.predict(asked) == right).mean())
