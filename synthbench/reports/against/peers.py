"""Suite ``peers`` beside numbers that other suites published on the same tasks at the same training lengths.

A number differs from ours if the two are more than three standard errors apart. The cause of a difference is shown by
runs of the same task and mechanism in which something was changed: their positions, a convolution, a longer budget. It
is a guess where no such run comes close enough.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from synthbench.knobs import parse_term
from synthbench.reports.against.published import PEERS, lines_of
from synthbench.reports.aggregates import t_interval
from synthbench.reports.cells import (
    COLUMNS,
    NO_ROWS,
    Cells,
    Estimate,
    Key,
    MechanismFacts,
    Row,
    TaskFacts,
    arguments_in,
    is_known,
    mechanism_key,
    records,
    task_key,
)
from synthbench.reports.selection import Selection
from synthbench.reports.statistics import spread
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, fixed, grouped, interval_cell, sources_of

NEAR = 0.03
"""Largest distance from a published number that counts as near."""
LIMIT = 3.0
"""Standard errors beyond which two numbers differ."""
UNKNOWN = 2.0
"""Multiple of our standard error that stands for both, as no published number here comes with one of its own."""
AFFORDABLE = 4.0
"""Core-hours up to which one run at the published budget is within reach."""
Measure = Literal["score", "skill"]
_MEASURED = ("batch_size", "config_json", "ensemble_size", "n_eval_examples", "step_ms_median")
"""Columns that are read beside those of the cells."""


class PublishedNumber(NamedTuple):
    """A number that another suite published."""

    task: str
    mechanism: str
    arguments: dict[str, object]
    """Arguments that the mechanism must have."""
    block: str
    """The block of ours that it is compared with; rows with another one may explain a difference."""
    positions: str
    """The position encoding of ours, in the same way."""
    factors: tuple[int, ...]
    """Multiples of the training length that our mean is over; theirs is over lengths in their range."""
    measure: Measure
    """Accuracy, or accuracy scaled so that chance is 0 and perfect is 1."""
    value: float
    """A fraction, as printed."""
    reading: float
    """How far the true number may be from it: half of its last digit, or more if it was read off a figure."""
    sequences: int
    """Training sequences of one of their runs: steps × batch."""
    source: str
    setting: str
    """How the published protocol differs from the suite."""
    guess: str
    """What may cause a difference, for as long as no row shows it; empty if there is no guess."""


class Result(NamedTuple):
    """Our runs at a published number, in one setting."""

    published: PublishedNumber
    ours: Estimate
    """Its scores by seed are means of the same measure over the multiples; beside them it has an error only."""
    trained: Estimate
    """The same at the training length: what is low there was not learned, rather than not extended."""
    changes: Mapping[str, str] = {}
    """What differs from the main setting, by the kind of the cause; empty for the main setting."""

    @property
    def difference(self) -> float:
        """Our mean − the published number."""
        return self.ours.mean - self.published.value

    @property
    def error(self) -> float:
        """Standard error of our mean; NaN below two seeds.

        Three seeds may agree by luck, so it is never less than the error of their test sequences alone.
        """
        return math.nan if self.ours.n < 2 else max(self.ours.standard_error, self.ours.evaluation_error)

    @property
    def reach(self) -> float:
        """Largest difference within three standard errors; NaN below two seeds.

        Theirs is unknown, so ours counts twice; the error of reading the number, uniform in its range, is added.
        """
        return LIMIT * math.hypot(UNKNOWN * self.error, self.published.reading / math.sqrt(3))

    @property
    def is_within(self) -> bool:
        """Whether the difference is at most three standard errors; False below two seeds."""
        return abs(self.difference) <= self.reach

    def explains(self, main: "Result") -> Literal["", "a part", "all"]:
        """How much of the main result's difference is gone: a part, if this one is three standard errors nearer.

        All, if it is within besides. One whose seeds scatter so much that it is within any number explains nothing.
        """
        nearer = abs(main.difference) - abs(self.difference)
        if not nearer > LIMIT * math.hypot(self.error, main.error):  # an unknown error too
            return ""
        return "all" if self.is_within else "a part"


class Comparison(NamedTuple):
    """A published number and ours."""

    task: TaskFacts
    mechanism: MechanismFacts
    main: Result
    """In the setting of the suite."""
    hours: float
    """Core-hours of one run at the published budget, at the fastest step of ours; NaN if unknown."""
    changed: tuple[Result, ...]
    """In other settings and at other budgets, those with the fewest changes first."""

    @property
    def published(self) -> PublishedNumber:
        """The published number."""
        return self.main.published

    @property
    def is_affordable(self) -> bool:
        """Whether a run at the published budget is within reach; False if its cost is unknown."""
        return self.hours <= AFFORDABLE

    @property
    def cause(self) -> Result | None:
        """The least changed result that explains the difference; None without one, or without a difference."""
        if self.main.is_within:
            return None
        return next((result for result in self.changed if result.explains(self.main) == "all"), None)

    @property
    def cause_in_words(self) -> str:
        """What causes the difference, and how that is known; empty if the main result is within."""
        if self.main.is_within:
            return ""
        if self.cause is not None:
            return f"{_kinds(self.cause)}, shown below"
        parts = [_kinds(result) for result in self.changed if result.explains(self.main) == "a part"]
        guess = f"a guess: {self.published.guess}" if self.published.guess else "not known"
        return f"in part {' or '.join(parts)}, shown below; the rest is {guess}" if parts else guess


@cache
def published_numbers() -> tuple[PublishedNumber, ...]:
    """All numbers, in the order of the data."""
    return tuple(
        PublishedNumber(
            task=line["task"],
            mechanism=line["mechanism"],
            arguments=json.loads(line["mech_args"]),
            block=line["block"],
            positions=line["positions"],
            factors=tuple(int(test.removeprefix("x")) for test in line["tests"].split()),
            measure=_measure(line["measure"]),
            value=float(line["published"]),
            reading=float(line["reading"] or _half_of_last_digit(line["published"])),
            sequences=int(line["steps"]) * int(line["batch"]),
            source=line["source"],
            setting=line["setting"],
            guess=line["guess"],
        )
        for line in lines_of("peers.csv")
    )


def compare(cells: Cells, selection: Selection) -> list[Comparison]:
    """Every published number whose task and mechanism are in the rows, tested at all its lengths.

    Args:
        cells: Of the rows of ``selection``.
        selection: The rows of the suite; those of other settings and budgets among them or in ``changed``.
    """
    runs = _runs(selection)
    comparisons = []
    for number, task, mechanism in product(published_numbers(), cells.tasks, cells.mechanisms):
        if not _is_of(number, task, mechanism):
            continue
        rows = runs.get((task.key, PEERS, mechanism.key), [])
        main = _result(number, rows)
        if main.ours.n:
            others = [
                _result(number, of_setting, _changes(rows[-1], of_setting[-1]))
                for (at, _suite, key), of_setting in runs.items()
                if at == task.key and of_setting is not rows and _may_explain(number, key, of_setting[-1])
            ]
            changed = sorted(
                (other for other in others if other.ours.n), key=lambda other: (len(other.changes), _words(other))
            )
            comparisons.append(Comparison(task, mechanism, main, _hours(number, rows), tuple(changed)))
    return comparisons


def peers_table(cells: Cells, selection: Selection) -> Table | None:
    """Published numbers beside ours; None if there is nothing to compare.

    A row each; beneath a number that differs, the rows of other settings and budgets.
    """
    comparisons = compare(cells, selection)
    if not comparisons:
        return None
    return Table(
        name="peers",
        title="Against other suites",
        caption=(
            "Numbers that other suites published, beside ours at the same training lengths: accuracy, or skill if "
            "theirs is scaled so that chance is 0. Ours: mean over seeds at the given multiples of the training "
            "length, with its 95 % t interval for other seeds (too narrow if only some seeds learn); theirs is often "
            f"the best of many runs. {LIMIT:g} SE: standard errors of ours over seeds, at least those of the test "
            "sequences, doubled because theirs are unknown, with the error of reading the number. At 1×: ours at the "
            "training length. A score that is high there and low beyond was learned but did not extend; one that is "
            "low there was not learned in our number of steps. Their budget: core-hours of one run with their steps "
            f"and batch, at our length and width and our fastest step; above {AFFORDABLE:g} it is out of reach. "
            "Beneath a number that differs stand our runs with something changed. They explain a part of the "
            f"difference if they are {LIMIT:g} standard errors nearer, and all of it if they lie within besides."
        ),
        headings=("Task", "Mechanism"),
        columns=(
            Column("Test"),
            Column("Measure", "word"),
            Column("Published"),
            Column("Ours"),
            Column("Difference"),
            Column(f"{LIMIT:g} SE"),
            Column("Within", "word"),
            Column("At 1×"),
            Column("Cause", "text"),
            Column("Their budget"),
            Column("Their protocol", "text"),
            Column("Source", "word"),
        ),
        lines=grouped(line for comparison in comparisons for line in _lines(comparison)),
        sources=sources_of(
            (comparison.task for comparison in comparisons),
            (comparison.mechanism for comparison in comparisons),
            (comparison.published.source for comparison in comparisons),
        ),
        outcome=_outcome(comparisons),
    )


def _outcome(comparisons: Sequence[Comparison]) -> str:
    """How many numbers lie within, how many of those that are affordable do, and what is known of the others."""
    within = [comparison for comparison in comparisons if comparison.main.is_within]
    affordable = [comparison for comparison in comparisons if comparison.is_affordable]
    num_near = sum(abs(comparison.main.difference) <= NEAR for comparison in comparisons)
    num_affordable_within = sum(comparison.main.is_within for comparison in affordable)
    num_shown = sum(comparison.cause is not None for comparison in comparisons)
    num_affordable_shown = sum(comparison.cause is not None for comparison in affordable)
    num_open = len(comparisons) - len(within) - num_shown
    reaches = [comparison.main.reach for comparison in comparisons if not math.isnan(comparison.main.reach)]
    compared = [comparison.published for comparison in comparisons]
    num_missing = sum(number not in compared for number in published_numbers())
    return (
        f"{len(within)} of {len(comparisons)} published numbers lie within {LIMIT:g} standard errors of ours, "
        f"{num_near} within {NEAR:g}"
        + (f"; in half of them a difference of {np.median(reaches):.2f} would go unnoticed" if reaches else "")
        + ". "
        f"Of the {len(affordable)} with a budget of at most {AFFORDABLE:g} core-hours a run here, "
        f"{num_affordable_within} do, and {num_affordable_shown} more do with one or more settings changed. "
        f"Of the {num_shown + num_open} that differ, rows show the cause of {num_shown}; that of {num_open} is not "
        "shown." + (f" {num_missing} more published numbers have no rows yet." if num_missing else "")
    )


def _lines(comparison: Comparison) -> Iterable[Line]:
    """The line of a number and, if it differs, those of the results with something changed."""
    published, main = comparison.published, comparison.main
    yield Line(
        (comparison.task.label, comparison.mechanism.label),
        (
            Cell(", ".join(f"{factor}×" for factor in published.factors)),
            Cell({"score": "accuracy", "skill": "skill"}[published.measure]),
            Cell(fixed(published.value, 3)),
            *_numbers(main),
            Cell(comparison.cause_in_words or NOTHING),
            Cell(fixed(comparison.hours, 1), remarks=() if comparison.is_affordable else ("out of reach",)),
            Cell(published.setting),
            Cell(published.source),
        ),
    )
    if not main.is_within:
        for result in comparison.changed:
            yield Line(
                (comparison.task.label, f"changed: {_kinds(result)}"),
                (
                    *3 * (Cell(""),),
                    *_numbers(result),
                    Cell(f"{_words(result)}: {_explained(result, main)}"),
                    *3 * (Cell(""),),
                ),
            )


def _numbers(result: Result) -> tuple[Cell, ...]:
    """Ours, the difference, its limit, whether it is within, and ours at the training length."""
    verdict = NOTHING if math.isnan(result.reach) else "yes" if result.is_within else "no"
    return (
        _ours(result.ours),
        Cell(fixed(result.difference, 3, is_signed=True)),
        Cell(fixed(result.reach, 3)),
        Cell(verdict),
        Cell(fixed(result.trained.mean, 3)),
    )


def _explained(result: Result, main: Result) -> str:
    """Whether what was changed explains the difference of the main result."""
    if math.isnan(result.reach):
        return "one seed, which shows nothing"
    if share := result.explains(main):
        return "explains it" if share == "all" else f"explains {share}"
    return "undecided, as the seeds scatter too much" if result.is_within else "does not explain it"


def _kinds(result: Result) -> str:
    return " and ".join(result.changes)


def _words(result: Result) -> str:
    return ", ".join(result.changes.values())


# Which of our rows belong to a number, and what differs between two settings.


def _runs(selection: Selection) -> dict[tuple[Key, str, Key], list[Row]]:
    """The rows with a score, oldest first, by the key of their task, their suite and the key of their mechanism."""
    frames = [frame for frame in (selection.rows, selection.changed) if len(frame)]
    rows = pd.concat(frames, ignore_index=True)
    runs: dict[tuple[Key, str, Key], list[Row]] = {}
    for row in records(rows, [name for name in (*COLUMNS, *_MEASURED) if name in rows]):
        if row["status"] == "ok":
            runs.setdefault((task_key(row), str(row["suite"]), mechanism_key(row)), []).append(row)
    return runs


def _is_of(number: PublishedNumber, task: TaskFacts, mechanism: MechanismFacts) -> bool:
    return (
        (task.name, mechanism.name, mechanism.block, mechanism.positions)
        == (number.task, number.mechanism, number.block, number.positions)
        and mechanism.match is None
        and number.arguments.items() <= arguments_in(mechanism.arguments).items()
    )


def _may_explain(number: PublishedNumber, key: Key, row: Row) -> bool:
    """Whether a setting is one of the number's mechanism."""
    return key[0] == number.mechanism and number.arguments.items() <= arguments_in(row["mech_args"]).items()


def _changes(main: Row, other: Row) -> dict[str, str]:
    """What differs between the settings of two rows, in words, by the kind of cause that it is."""
    before, after = (arguments_in(row["config_json"]) for row in (main, other))
    changes = {}
    if main["positions"] != other["positions"]:
        changes["positions"] = f"positions {other['positions']} instead of {main['positions']}"
    if main["block"] != other["block"]:
        kind = "convolution" if _without_convolution(main) == _without_convolution(other) else "block"
        changes[kind] = f"{other['block']} instead of {main['block']}"
    if is_known(other["match"]):
        changes["matching"] = f"match {other['match']}"
    elif main["mech_args"] != other["mech_args"]:
        options = _differing(arguments_in(main["mech_args"]), arguments_in(other["mech_args"]))
        changes["options"] = ", ".join(options.values())
    for kind, part in (("size", "model"), ("budget", "training"), ("tests", "evaluation")):
        ours, theirs = (
            _part(config, part) | (_rates(config) if kind == "budget" else {}) for config in (before, after)
        )
        if differing := _differing(ours, theirs):
            alone = next(iter(differing)) if len(differing) == 1 else ""
            changes[{"model_dim": "width", "rates": "rate"}.get(alone, kind)] = ", ".join(differing.values())
    return changes


def _without_convolution(row: Row) -> tuple[str, dict[str, str]]:
    name, options = parse_term(row["block"])
    return name, {option: value for option, value in options.items() if not option.startswith("conv")}


def _rates(config: Mapping[str, Any]) -> dict[str, Any]:
    """The learning rates to choose from."""
    return {"rates": _part(config, "tuning").get("learning_rates", [config.get("learning_rate")])}


def _part(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of a configuration; empty if it has none, as that of a foreign row may."""
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """What differs, by name: ``steps 20,000 instead of 2,000``; a value that is absent is none."""
    return {
        name: f"{name} {_shown(after.get(name))} instead of {_shown(before.get(name))}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    }


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " or ".join(map(_shown, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)


def _result(number: PublishedNumber, rows: Sequence[Row], changes: Mapping[str, str] | None = None) -> Result:
    return Result(number, _estimate(number, rows), _estimate(number._replace(factors=(1,)), rows), changes or {})


def _hours(number: PublishedNumber, rows: Sequence[Row]) -> float:
    """Core-hours of one run at the published budget; what ran beside ours only slowed it, so the fastest step counts.

    NaN if no row says how long a step took.
    """
    seconds = [
        float(row["step_ms_median"]) / 1000 / int(row["ensemble_size"]) / int(row["batch_size"])
        for row in rows
        if is_known(row.get("step_ms_median"))
    ]
    return number.sequences * min(seconds) / 3600 if seconds else math.nan


def _estimate(number: PublishedNumber, rows: Sequence[Row]) -> Estimate:
    """The mean over the multiples of a number, by seed; runs that were not tested at all of them are left out.

    Its ``evaluation_error`` is that of the test sequences alone.
    """
    tested = {int(row["seed"]): _tests(number, row) for row in rows}
    complete = {seed: tests for seed, tests in tested.items() if len(tests) == len(number.factors)}
    means = {seed: float(np.mean([test.value for test in tests])) for seed, tests in complete.items()}
    variance = sum(test.variance for tests in complete.values() for test in tests)
    count = len(complete) * len(number.factors)
    return replace(NO_ROWS, scores=means, evaluation_std=math.sqrt(variance) / max(1, count), num_sequences=1)


class _Test(NamedTuple):
    """One run's result at one multiple of its training length."""

    value: float
    variance: float
    """Of drawing other test sequences, if answers are right or wrong independently; 0 if their number is unknown."""


def _tests(number: PublishedNumber, row: Row) -> list[_Test]:
    """The results of one run at the multiples of the number at which it was tested."""
    metrics: dict[str, Any] = json.loads(row["metrics"])
    tests = []
    for factor in number.factors:
        facts: dict[str, Any] = {
            name: row[name] if factor == 1 else metrics.get(f"x{factor}.{name}") for name in _FACTS
        }
        if is_known(facts[number.measure]):
            tests.append(_Test(float(facts[number.measure]), _variance(number.measure, facts, row, factor)))
    return tests


_FACTS = ("score", "skill", "floor", "ceiling")


def _variance(measure: Measure, facts: Mapping[str, Any], row: Row, factor: int) -> float:
    names = ("score", "floor", "ceiling") if measure == "skill" else ("score",)
    if not (all(is_known(facts[name]) for name in names) and is_known(row.get("n_eval_examples"))):
        return 0.0
    score = float(facts["score"])
    gap = float(facts["ceiling"]) - float(facts["floor"]) if measure == "skill" else 1.0
    # A test at twice the length has half as many sequences.
    return max(0.0, score * (1 - score)) / gap**2 / max(1, int(row["n_eval_examples"]) // factor)


def _ours(cell: Estimate) -> Cell:
    variance, _, dof = spread(np.array([[list(cell.scores.values())]], dtype=float))
    interval = t_interval(cell.mean, math.sqrt(variance[0, 0] / cell.n), float(dof[0, 0]), low=-math.inf)
    return interval_cell(interval, show=lambda number: fixed(number, 3))


def _half_of_last_digit(text: str) -> float:
    """``0.964`` was rounded from a number at most 0.0005 away."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def _measure(text: str) -> Measure:
    if text not in get_args(Measure):
        raise ValueError(f"measure is {text!r}; allowed: {', '.join(get_args(Measure))}")
    return "skill" if text == "skill" else "score"
