"""Make cells from rows (one per run): a cell holds the results of one mechanism on one task, by seed.

The facts about each task and mechanism are read from the rows too.
"""

import json
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from statistics import median_low
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from synthbench.bits import BITS
from synthbench.levels import LevelScore, load_at_half
from synthbench.reports.aggregates import Interval, t_interval
from synthbench.reports.ladder import Ladder, Profile, ladder_in, mean_profile, scored_levels
from synthbench.reports.selection import AROUND, SETTING, TASK_KEY, settings
from synthbench.reports.statistics import Scores, spread
from synthbench.results.schema import split_match

Row = dict[Hashable, Any]
Key = tuple[Any, ...]


class TaskFacts(NamedTuple):
    """A task with given arguments and length, and facts about the task from the rows of its runs."""

    key: Key
    label: str
    """The task's name, with size or arguments added where a report has several tasks of that name."""
    name: str
    category: str
    floor: float
    floor_is_exact: bool
    ceiling: float
    ceiling_is_exact: bool
    local_ceiling: float
    """Best score of a rule that sees only one token and its position; NaN if unknown."""
    shortcut: tuple[str, float] | None
    """Name and score of the best shortcut baseline, a rule that avoids what the task tests; None if unknown."""
    source: str
    ladder: Ladder | None = None
    """The levels over which a score is a mean; None if scores are accuracies or bits."""
    is_in_bits: bool = False
    """True if scores are negative bits per token."""

    @property
    def gap(self) -> float:
        """Difference between the ceiling (best possible score) and the floor (best score without seeing the input)."""
        return self.ceiling - self.floor


class MechanismFacts(NamedTuple):
    """A mechanism with its setting, block and position encoding, read from the rows of its runs.

    The setting consists of the values of the mechanism's options. For a mechanism that was rescaled to a given size,
    the setting is this size. The block is the part of the model around the mechanism.
    """

    key: Key
    label: str
    name: str
    version: str
    arguments: str
    """Arguments in the newest row, as JSON; a mechanism rescaled to a given size may have different arguments on each
    task."""
    match: str | None
    """The size to which the mechanism was rescaled, and the mechanism as requested: ``state=4096 of slay:P=8``.

    None if the mechanism was not rescaled.
    """
    family: str
    origin: str
    source: str
    num_parameters: float
    """Number of the mechanism's parameters in all layers together, maximum over tasks; NaN if unknown."""
    state: float
    """State size: how many numbers one layer keeps, maximum over tasks; NaN if unknown."""
    row_label: str = ""
    """The label in the rows, which ``cells.csv`` shows."""
    step_ms: float = math.nan
    """Time of a training step in milliseconds, median over the rows; NaN if unknown."""
    condition: str | None = None
    """Condition of the layer, ``stock`` or ``bare``; None in suites without conditions."""
    sees_places: bool | None = None
    """True if outputs change when the same tokens are shifted to later positions; None if unknown."""

    @property
    def convolution(self) -> str:
        """Width of the short convolution in the mechanism or its block, as text.

        The text is empty if there is no convolution, or if its width is 1.
        """
        widths = re.findall(r"(?:\"conv(?:_width)?\":|:conv=)(\d+)", self.arguments + self.block)
        return ", ".join(width for width in widths if width != "1")

    @property
    def block(self) -> str:
        """The block (the layers around the mechanism) with its options, as in ``aether:norm=pre``."""
        return str(self.key[1])

    @property
    def positions(self) -> str:
        """The position encoding with its options, as in ``rope:base=500``."""
        return str(self.key[2])


@dataclass(frozen=True)
class CellStats:
    """The results of one mechanism on one task, by seed. Scores are in [0, 1], or are negative bits per token."""

    scores: dict[int, float] = field(default_factory=dict)
    """Scores of the successful runs, by seed."""
    skill: float = math.nan
    """Mean over seeds of the skills, each clipped to [0, 1]; NaN if floor and ceiling are equal."""
    metrics: dict[int, Mapping[str, float | None]] = field(default_factory=dict)
    """Metrics of the successful runs, by seed."""
    rows: Sequence[Row] = ()
    """The rows of all runs, in the order of their seeds."""

    @cached_property
    def runs(self) -> dict[int, float]:
        """Score of every run by seed; 0 for a failed run."""
        return {int(row["seed"]): 0.0 for row in self.rows} | self.scores

    @cached_property
    def levels(self) -> list[list[LevelScore]]:
        """Results of each successful run on all levels (difficulties) of the task; empty for a task without levels."""
        return [levels for metrics in self.metrics.values() if (levels := scored_levels(metrics))]

    @cached_property
    def loads_at_half(self) -> list[float]:
        """Capacity of each successful run: the load (such as a number of pairs) at which skill falls to one half.

        The capacity is ``inf`` if the skill is at least one half on all levels, and 0 if it is below one half on the
        first level.
        """
        return list(map(load_at_half, self.levels))

    @property
    def load_at_half(self) -> float:
        """The median capacity over seeds; a run's capacity is the load at which skill falls to one half.

        For an even number of seeds, the lower of the two middle values is taken, since their mean could be infinite.
        The result is NaN if no run has results on levels.
        """
        return median_low(self.loads_at_half) if self.levels else math.nan

    @property
    def num_failed(self) -> int:
        """Number of seeds whose run has no score."""
        return len(self.runs) - self.n

    @property
    def n(self) -> int:
        """Number of seeds with a score."""
        return len(self.scores)

    @cached_property
    def mean(self) -> float:
        """Mean score over seeds; NaN if no run has a score."""
        return float(np.mean(list(self.scores.values()))) if self.scores else math.nan

    @property
    def descending(self) -> float:
        """Key for sorting results by mean score, highest first; results without a score come last.

        Means are rounded to ``DIGITS`` decimals.
        """
        return -round(self.mean, DIGITS) if self.n else math.inf

    @cached_property
    def std(self) -> float:
        """Sample standard deviation of scores over seeds (divisor ``n - 1``); NaN with fewer than two scores."""
        return float(np.std(list(self.scores.values()), ddof=1)) if self.n > 1 else math.nan

    @property
    def evaluation_error(self) -> float:
        """Standard error of the mean score due to the finite test set alone; NaN if unknown."""
        num_sequences = sum(int(row["n_eval"]) for row in self.rows if int(row["seed"]) in self.scores)
        stds = [metrics.get("score_std_over_sequences") for metrics in self.metrics.values()]
        return mean_of(stds) / math.sqrt(num_sequences) if num_sequences else math.nan


IN_ROWS = ("Softmax", "Standard")
"""The common name of softmax attention, shown in reports, and its name in the SLAY papers, used in rows."""
DIGITS = 9
"""Decimals to which means are rounded before sorting, so that rounding errors do not change the order."""
NO_ROWS = CellStats()
CELL_COLUMNS = {
    "category": "of the task",
    "task": "name with the options that set it apart",
    "mechanism": "label in the rows",
    "n": "runs with a score",
    "failed": "runs without a score",
    "mean": "mean score of the runs",
    "std": "sample standard deviation of the scores",
    "low": "lower end of the 95 % interval of the mean over seeds",
    "high": "upper end of that interval",
    "floor": "score of the best predictor that sees no input",
    "ceiling": "score of the best causal predictor",
    "skill": "(mean - floor) / (ceiling - floor), cut to 0 to 1",
    "rungs": "levels of the task",
    "load_at_half": "load at which the skill falls to one half, median over seeds",
    "load_in": "unit of the load",
}
"""Meanings of the columns of a report's ``cells.csv``; the last three are for tasks with levels."""
_ORDER = {
    # First as in Table 8 of the SLAY paper, then alphabetically.
    "category": ("basic", "arithmetic", "long_range", "memory", "patterns", "reasoning", "robustness"),
    "task": (
        *("copy", "sort", "reverse", "counting", "parity", "addition", "modular", "long_copy", "distant_match"),
        *("multihop", "retrieval", "kv_recall", "first_token", "selective_copy", "bigram", "majority", "histogram"),
        *("stack", "induction", "pattern", "noisy_copy", "compression"),
    ),
    # The first of these tasks in a category provides its capacity, since these are often quoted.
    "capacity": ("mqar", "string_copy", "parity_running", "khop_induction"),
    "mechanism": ("softmax", "yat-spherical", "performer", "linear", "slay", "slay-laplace", "slay-hadamard"),
}
"""Names in the order in which tables print them; all others follow alphabetically."""


@dataclass(frozen=True)
class Cells:
    """The cells of a report: one cell per task and mechanism.

    Tasks and mechanisms are in the order in which tables print them.
    """

    tasks: tuple[TaskFacts, ...]
    mechanisms: tuple[MechanismFacts, ...]
    estimates: dict[tuple[Key, Key], CellStats]
    """Results by the keys of task and mechanism; cells without rows are absent."""

    def __iter__(self) -> Iterator[tuple[TaskFacts, MechanismFacts, CellStats]]:
        """Yield every task with every mechanism and the results of this pair, in the order of tables."""
        return ((task, mechanism, self.cell(task, mechanism)) for task in self.tasks for mechanism in self.mechanisms)

    def cell(self, task: TaskFacts, mechanism: MechanismFacts) -> CellStats:
        """Return the results of a mechanism on a task; they are empty if the mechanism has no run of the task."""
        return self.estimates.get((task.key, mechanism.key), NO_ROWS)

    def cells_of(self, task: TaskFacts) -> list[CellStats]:
        """Return the results of all mechanisms on one task, in the order of ``mechanisms``."""
        return [self.cell(task, mechanism) for mechanism in self.mechanisms]

    def ranked(self, task: TaskFacts) -> list[MechanismFacts]:
        """Sort the mechanisms by mean score on a task, highest first; mechanisms without a score come last."""
        return sorted(self.mechanisms, key=lambda mechanism: self.cell(task, mechanism).descending)

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the task categories.

        The categories in Table 8 of the SLAY paper come first, in the order of that table. All others follow
        alphabetically.
        """
        return tuple(dict.fromkeys(task.category for task in self.tasks))

    @property
    def has_ladder(self) -> bool:
        """True if any task has levels (a ladder of difficulties).

        The score on a task with levels is a mean over levels, not an accuracy.
        """
        return any(task.ladder for task in self.tasks)

    @property
    def has_local(self) -> bool:
        """True if any task has a known ``local_ceiling``.

        A local ceiling is the best score of a rule that sees only one token and its position.
        """
        return not all(math.isnan(task.local_ceiling) for task in self.tasks)

    @property
    def is_apart(self) -> bool:
        """True if all tasks are scored in bits per token; reports show such tasks in separate tables."""
        return all(task.is_in_bits for task in self.tasks)

    @cached_property
    def scores(self) -> Scores:
        """All scores, in an array [tasks, mechanisms, seeds]; NaN where a run is missing or failed."""
        scores = by_seed([cell.scores for *_, cell in self], self.seeds)
        return scores.reshape(len(self.tasks), len(self.mechanisms), len(self.seeds))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A table with one line per task and mechanism: mean score, 95 % interval, floor, ceiling and so on."""
        names = [*CELL_COLUMNS] if self.has_ladder else [*CELL_COLUMNS][:-3]
        lines = [
            [
                *(task.category, task.label, mechanism.row_label, cell.n, cell.num_failed, cell.mean, cell.std),
                *(*self.interval(task, mechanism), task.floor, task.ceiling, cell.skill),
                *((task.ladder.num_levels, cell.load_at_half, task.ladder.unit) if task.ladder else ()),
            ]
            for task, mechanism, cell in self
        ]
        return pd.DataFrame(lines, columns=names)

    def interval(self, task: TaskFacts, mechanism: MechanismFacts) -> tuple[float, float]:
        """Return the ends of the 95 % interval over seeds of a mechanism's mean score on a task; NaN if unknown.

        :func:`synthbench.reports.statistics.spread` estimates the variance over seeds from the runs of all mechanisms
        on the task.
        """
        return self._intervals[task.key, mechanism.key][1:]

    def skill_interval(self, task: TaskFacts, mechanism: MechanismFacts) -> tuple[float, float]:
        """Return the ends of the 95 % interval over seeds of a mechanism's mean skill on a task; NaN if unknown."""
        low, high = (
            clipped((end - task.floor) / task.gap) if task.gap and not math.isnan(end) else math.nan
            for end in self.interval(task, mechanism)
        )
        return low, high

    def skill_on(self, task: TaskFacts, mechanism: MechanismFacts) -> Interval:
        """Return the mean skill of a mechanism on a task, with its 95 % interval over seeds.

        A failed run counts as skill 0 in the mean. If a run failed, the ends of the interval are NaN.
        """
        cell = self.cell(task, mechanism)
        ends = (math.nan, math.nan) if cell.num_failed else self.skill_interval(task, mechanism)
        return Interval(mean_of(skills_of(cell, task, sorted(cell.runs))), *ends)

    def profile(self, task: TaskFacts, mechanism: MechanismFacts) -> Profile | None:
        """Average the skills of a mechanism's runs on each level (difficulty) of a task.

        The result is None if no run has results on all levels.
        """
        return mean_profile(task.ladder, self.cell(task, mechanism).levels) if task.ladder else None

    @cached_property
    def _intervals(self) -> dict[tuple[Key, Key], Interval]:
        num_runs = (~np.isnan(self.scores)).sum(axis=2)
        variance, _, dof = spread(self.scores)
        with np.errstate(invalid="ignore", divide="ignore"):
            means, errors = np.nansum(self.scores, axis=2) / num_runs, np.sqrt(variance / num_runs)
        intervals = {}
        for task, *of_task in zip(self.tasks, means.tolist(), errors.tolist(), dof.tolist(), strict=True):
            low, high = (-math.inf, 0.0) if task.is_in_bits else (0.0, 1.0)
            for mechanism, *facts in zip(self.mechanisms, *of_task, strict=True):
                intervals[task.key, mechanism.key] = t_interval(*facts, low=low, high=high)
        return intervals

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """All seeds of the runs, in ascending order."""
        return tuple(sorted({seed for cell in self.estimates.values() for seed in cell.runs}))

    def tasks_of(self, category: str | None) -> tuple[TaskFacts, ...]:
        """Return the tasks of one category; None selects all tasks."""
        return tuple(task for task in self.tasks if category in (None, task.category))

    def among(self, tasks: Sequence[TaskFacts]) -> "Cells":
        """Return only the cells of the given tasks; mechanisms without a run of any of these tasks are left out."""
        keys = {task.key for task in tasks}
        estimates = {(task, mechanism): cell for (task, mechanism), cell in self.estimates.items() if task in keys}
        present = {mechanism for _task, mechanism in estimates}
        mechanisms = tuple(mechanism for mechanism in self.mechanisms if mechanism.key in present)
        return Cells(tuple(tasks), mechanisms, estimates)


def grid(rows: pd.DataFrame) -> Cells:
    """Group the rows (one per run) of a report into cells, one for each mechanism on each task.

    Tasks and mechanisms that are in Table 8 of the SLAY paper come first, in the order of that table. All others follow
    alphabetically.

    Args:
        rows: Rows of one suite version with one version of every task and mechanism, in any order, as
            :func:`synthbench.reports.selection.select` returns them.
    """
    _refuse_mixtures(rows)
    ordered = rows.sort_values(["finished_at", "run_id"])
    # Column by column: pandas' own to_dict("records") takes ten times as long.
    columns = [ordered[name].to_numpy(dtype=object).tolist() for name in ordered]
    oldest_first: list[Row] = [dict(zip(ordered, values, strict=True)) for values in zip(*columns, strict=True)]
    # The newest row describes a component: later rows overwrite earlier ones.
    tasks = {task_key(row): row for row in oldest_first}
    rows_of: dict[Key, list[Row]] = {}
    for row in oldest_first:
        rows_of.setdefault(mechanism_key(row), []).append(row)
    mechanisms = {key: mechanism_rows[-1] for key, mechanism_rows in rows_of.items()}
    rows_of_cell: dict[tuple[Key, Key], list[Row]] = {}
    for row in sorted(oldest_first, key=lambda row: int(row["seed"])):
        rows_of_cell.setdefault((task_key(row), mechanism_key(row)), []).append(row)
    task_labels = _labels(tasks, "task", ["seq_len", "task_args", "task_category"])
    mechanism_labels = _labels(_with_settings(mechanisms), "mech_label", ["mech", "positions", "block", "setting"])
    shown = [_task(key, task_labels[key], row) for key, row in sorted(tasks.items(), key=_task_rank)]
    if not all(task.ladder for task in shown):  # no table shows scores on ladders beside accuracies
        shown = [task._replace(ladder=None) for task in shown]
    return Cells(
        tasks=tuple(shown),
        mechanisms=tuple(
            _mechanism(key, mechanism_labels[key], row, rows_of[key])
            for key, row in sorted(mechanisms.items(), key=_mechanism_rank)
        ),
        estimates={keys: _estimate(runs) for keys, runs in rows_of_cell.items()},
    )


def task_key(row: Row) -> Key:
    """Return the key that identifies the task of a row: its category, name, arguments and length in tokens."""
    return tuple(row[column] for column in TASK_KEY)


def mechanism_key(row: Row) -> Key:
    """Return the key that identifies a row's mechanism in tables: name, block, position encoding and setting.

    The setting consists of the values of the mechanism's options. For a mechanism that was rescaled to a given size,
    the setting is this size. Tables have one row or column per key.
    """
    setting = next(row[column] for column in SETTING if is_known(row[column]))
    return (*(row[column] for column in AROUND), setting)


def arguments_in(text: str) -> dict[str, Any]:
    """Parse a JSON object of arguments by name; any other JSON value becomes one argument called ``arguments``."""
    given = json.loads(text)
    return given if isinstance(given, dict) else {"arguments": given}


def by_seed(numbers: Sequence[Mapping[int, float]], seeds: Sequence[int]) -> Float[np.ndarray, "cells seeds"]:
    """Arrange numbers by seed: a row per cell (task × mechanism), a column per seed, NaN where a number is missing."""
    rows = [[cell.get(seed, math.nan) for seed in seeds] for cell in numbers]
    return np.array(rows, dtype=float).reshape(len(numbers), len(seeds))


def is_known(value: Any) -> bool:
    """Return whether a value is neither null nor NaN."""
    # pandas' notna does the same but takes up to three times as long for one value.
    return not (value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)))


def _refuse_mixtures(rows: pd.DataFrame) -> None:
    if len(rows[["suite", "suite_version"]].drop_duplicates()) > 1:
        raise ValueError("the rows mix versions of suites; select one first")
    for unit, version in ((["task"], ["task_version"]), (AROUND, ["mech_version"])):
        if len(rows[[*unit, *version]].drop_duplicates()) > len(rows[unit].drop_duplicates()):
            raise ValueError(f"the rows mix versions of {unit[0]}s; select one of each first")
    if rows[[*TASK_KEY, *AROUND, "seed"]].assign(setting=settings(rows)).duplicated().any():
        raise ValueError("the rows repeat a seed in a cell; select one of each first")


def _with_settings(mechanisms: Mapping[Key, Row]) -> dict[Key, Row]:
    """Add to each mechanism's row an entry ``setting``: the arguments in which settings of this mechanism differ.

    If a mechanism was rescaled to a given size, the entry is the mechanism as the user requested it, and the label
    names the size. The label also says if the layer is bare (recurrence or attention scores only).
    """
    arguments = {key: arguments_in(row["mech_args"]) for key, row in mechanisms.items()}
    described = {}
    for key, row in mechanisms.items():
        label = f"{row['mech_label']} (bare)" if row.get("condition") == "bare" else row["mech_label"]
        if is_known(row["match"]):
            asked, setting = split_match(row["match"])
            label = f"{label} (match {asked})"
        else:
            others = [arguments[other] for other in mechanisms if other[:-1] == key[:-1]]
            given = arguments[key].items()
            differing = [item for item in given if any(other.get(item[0]) != item[1] for other in others)]
            setting = ", ".join(f"{name}={value}" for name, value in differing)
        described[key] = {**row, "mech_label": label, "setting": setting}
    return described


def _labels(units: Mapping[Key, Row], label: str, parts: Sequence[str]) -> dict[Key, str]:
    """Return a label for each task or mechanism, by its key.

    If several have the same label, values of columns in ``parts`` that differ between them are added, until all labels
    are distinct.
    """
    sharing: dict[str, list[Key]] = {}
    for key, row in units.items():
        sharing.setdefault(str(row[label]), []).append(key)
    labels = {}
    for shared, keys in sharing.items():
        shown: list[str] = []
        for part in parts:
            if len({tuple(str(units[key][column]) for column in shown) for key in keys}) == len(keys):
                break
            if len({str(units[key][part]) for key in keys}) > 1:
                shown.append(part)
        for key in keys:
            details = ", ".join(str(units[key][part]) for part in shown)
            labels[key] = f"{shared} ({details})" if details else shared
    return labels


def _task_rank(item: tuple[Key, Row]) -> tuple[Any, ...]:
    row = item[1]
    category, task = row["task_category"], row["task"]
    in_order = (place_of("category", category), category, place_of("task", task), task)
    return (*in_order, row["seq_len"], row["task_args"])


def _mechanism_rank(item: tuple[Key, Row]) -> tuple[Any, ...]:
    (*around, setting), row = item
    # First by the order of tables, then by label, ignoring case; P=8 comes before P=16.
    return place_of("mechanism", row["mech"]), str(row["mech_label"]).casefold(), around, len(setting), setting


def _task(key: Key, label: str, row: Row) -> TaskFacts:
    ladder = ladder_in(arguments_in(row["task_args"]))
    metrics = json.loads(row["metrics"]).items()
    shortcuts = [
        (name.removeprefix("shortcut."), score)
        for name, score in metrics
        if name.startswith("shortcut.") and score is not None
    ]
    return TaskFacts(
        key=key,
        label=label,
        name=row["task"],
        category=row["task_category"],
        floor=_number(row["floor"]),
        floor_is_exact=row["floor_kind"] == "exact",
        ceiling=_number(row["ceiling"]),
        ceiling_is_exact=row["ceiling_kind"] == "exact",
        local_ceiling=math.nan if ladder else _number(row["local_ceiling"]),
        shortcut=max(shortcuts, key=itemgetter(1), default=None),
        source=row["task_source"],
        ladder=ladder,
        is_in_bits=row["metric_name"].endswith(BITS),
    )


def shown_label(label: str) -> str:
    """Convert a mechanism's label in rows to its label in reports: ``Standard`` at the start becomes ``Softmax``."""
    return re.sub(rf"^{IN_ROWS[1]}\b", IN_ROWS[0], label)


def _mechanism(key: Key, label: str, row: Row, rows: Sequence[Row]) -> MechanismFacts:
    num_parameters, state = (
        max((float(each[column]) for each in rows if is_known(each[column])), default=math.nan)
        for column in ("n_params_mixer", "state_size")
    )
    # Batched runs share the time of a step.
    steps = [row["step_ms_median"] / row["ensemble_size"] for row in rows if is_known(row.get("step_ms_median"))]
    return MechanismFacts(
        key=key,
        label=shown_label(label),
        name=row["mech"],
        version=row["mech_version"],
        arguments=row["mech_args"],
        match=row["match"] if is_known(row["match"]) else None,
        family=row["mech_family"],
        origin=row["mech_origin"],
        source=row["mech_source"],
        num_parameters=num_parameters,
        state=state,
        row_label=label,
        step_ms=float(np.median(steps)) if steps else math.nan,
        condition=row["condition"] if row.get("condition") in ("stock", "bare") else None,
        sees_places=row["sees_places"] if is_known(row.get("sees_places")) else None,
    )


def _estimate(runs: Sequence[Row]) -> CellStats:
    finished = {int(row["seed"]): row for row in runs if row["status"] == "ok" and is_known(row["score"])}
    return CellStats(
        scores={seed: float(row["score"]) for seed, row in finished.items()},
        skill=mean_of([row["skill"] for row in finished.values()], clipped),
        metrics={seed: json.loads(row["metrics"]) for seed, row in finished.items()},
        rows=runs,
    )


def skills_of(cell: CellStats, task: TaskFacts, seeds: Sequence[int]) -> list[float]:
    """Return one skill for each of ``seeds``, clipped to [0, 1]; the skill is 0 for a seed without a score."""
    return [clipped((cell.scores[seed] - task.floor) / task.gap) if seed in cell.scores else 0.0 for seed in seeds]


def clipped(skill: float) -> float:
    """Clip a skill to [0, 1]; 0 is the floor (chance level), and 1 is the ceiling (the best possible score)."""
    return min(1.0, max(0.0, float(skill)))


def mean_of(items: Sequence[Any], value: Callable[[Any], float] = float) -> float:
    """Return the mean of ``value(item)`` over the items that are neither null nor NaN; NaN if no item is left."""
    known = [value(item) for item in items if is_known(item)]
    return float(np.mean(known)) if known else math.nan


def _number(value: Any) -> float:
    return float(value) if is_known(value) else math.nan


def place_of(kind: Literal["category", "task", "mechanism", "capacity"], name: str) -> int:
    """Return the index (from 0) of a name in the fixed order in which tables show names of one kind.

    The order lists only some names. All other names get the index after the last listed name.
    """
    names = _ORDER[kind]
    return names.index(name) if name in names else len(names)
