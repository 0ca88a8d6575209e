"""Suite ``peers`` beside numbers that other suites published on the same tasks at the same training lengths.

A number differs from ours if the two are more than three standard errors apart. The cause of a difference is shown by
runs of the same task and mechanism in which something was changed: their positions, a convolution, a longer budget. It
is a guess where no such run comes close enough.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
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
from synthbench.reports.table import NOTHING, Cell, Column, Table, fixed, interval_cell, sources_of, table_of

NEAR = 0.03
"""Largest distance from a published number that counts as near."""
LIMIT = 3.0
"""Standard errors beyond which two numbers differ."""
UNKNOWN = 2.0
"""Multiple of our standard error that stands for both, as no published number here comes with one of its own."""
AFFORDABLE = 4.0
"""Core-hours up to which one run at the published budget is within reach."""
Measure = Literal["score", "skill"]
MEASURES: dict[str, Measure] = {name: name for name in get_args(Measure)}
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
    def kinds(self) -> str:
        """The kinds of what differs from the main setting."""
        return " and ".join(self.changes)

    @property
    def words(self) -> str:
        """What differs from the main setting."""
        return ", ".join(self.changes.values())

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
            return f"{self.cause.kinds}, shown below"
        parts = [result.kinds for result in self.changed if result.explains(self.main) == "a part"]
        guess = f"a guess: {self.main.published.guess}" if self.main.published.guess else "not known"
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
            measure=MEASURES[line["measure"]],
            value=float(line["published"]),
            # Half of the last digit: 0.964 was rounded from a number at most 0.0005 away.
            reading=float(line["reading"] or 0.5 * 10.0 ** -len(line["published"].partition(".")[2])),
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
        around = (task.name, mechanism.name, mechanism.block, mechanism.positions)
        if around != (number.task, number.mechanism, number.block, number.positions) or mechanism.match is not None:
            continue
        # Settings of the number's mechanism: that of the suite, and those that may explain a difference.
        settings = {
            (suite, key): rows
            for (at, suite, key), rows in runs.items()
            if at == task.key
            and key[0] == number.mechanism
            and number.arguments.items() <= arguments_in(rows[-1]["mech_args"]).items()
        }
        rows = settings.pop((PEERS, mechanism.key), [])
        main = _result(number, rows)
        if main.ours.n:
            others = [_result(number, other, _changes(rows[-1], other[-1])) for other in settings.values()]
            changed = sorted(
                (other for other in others if other.ours.n), key=lambda other: (len(other.changes), other.words)
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
    return table_of(
        "peers",
        "Against other suites",
        "Numbers that other suites published, beside ours at the same training lengths: accuracy, or skill if "
        "theirs is scaled so that chance is 0. Ours: mean over seeds at the given multiples of the training "
        "length, with its 95 % t interval for other seeds (too narrow if only some seeds learn); theirs is often "
        f"the best of many runs. {LIMIT:g} SE: standard errors of ours over seeds, at least those of the test "
        "sequences, doubled because theirs are unknown, with the error of reading the number. At 1×: ours at the "
        "training length. A score that is high there and low beyond was learned but did not extend; one that is "
        "low there was not learned in our number of steps. Their budget: core-hours of one run with their steps "
        f"and batch, at our length and width and our fastest step; above {AFFORDABLE:g} it is out of reach. "
        "Beneath a number that differs stand our runs with something changed. They explain a part of the "
        f"difference if they are {LIMIT:g} standard errors nearer, and all of it if they lie within besides.",
        ("Task", "Mechanism"),
        [
            (comparison, result)
            for comparison in comparisons
            for result in (comparison.main, *comparison.changed * (not comparison.main.is_within))
        ],
        lambda row: (row[0].task.label, f"changed: {row[1].kinds}" if row[1].changes else row[0].mechanism.label),
        {
            "Test": _of_number(lambda one: ", ".join(f"{factor}×" for factor in one.main.published.factors)),
            Column("Measure", "word"): _of_number(
                lambda one: {"score": "accuracy", "skill": "skill"}[one.main.published.measure]
            ),
            "Published": _of_number(lambda one: fixed(one.main.published.value, 3)),
            "Ours": lambda row: _ours(row[1].ours),
            "Difference": lambda row: fixed(row[1].difference, 3, is_signed=True),
            f"{LIMIT:g} SE": lambda row: fixed(row[1].reach, 3),
            Column("Within", "word"): lambda row: (
                NOTHING if math.isnan(row[1].reach) else "yes" if row[1].is_within else "no"
            ),
            "At 1×": lambda row: fixed(row[1].trained.mean, 3),
            Column("Cause", "text"): lambda row: (
                f"{row[1].words}: {_explained(row[1], row[0].main)}"
                if row[1].changes
                else row[0].cause_in_words or NOTHING
            ),
            "Their budget": _of_number(
                lambda one: Cell(fixed(one.hours, 1), remarks=() if one.is_affordable else ("out of reach",))
            ),
            Column("Their protocol", "text"): _of_number(lambda one: one.main.published.setting),
            Column("Source", "word"): _of_number(lambda one: one.main.published.source),
        },
        sources=sources_of(
            (one.task for one in comparisons),
            (one.mechanism for one in comparisons),
            (one.main.published.source for one in comparisons),
        ),
        outcome=_outcome(comparisons),
        is_grouped=True,
    )


def _of_number(cell_of: Callable[[Comparison], Cell | str]) -> Callable[[tuple[Comparison, Result]], Cell | str]:
    """What stands in the row of a number alone; empty beneath it."""
    return lambda row: "" if row[1].changes else cell_of(row[0])


def _outcome(comparisons: Sequence[Comparison]) -> str:
    """How many numbers lie within, how many of those that are affordable do, and what is known of the others."""
    affordable = [one for one in comparisons if one.is_affordable]
    num_within, num_affordable_within = (sum(one.main.is_within for one in some) for some in (comparisons, affordable))
    num_shown, num_affordable_shown = (sum(one.cause is not None for one in some) for some in (comparisons, affordable))
    num_near = sum(abs(one.main.difference) <= NEAR for one in comparisons)
    num_open = len(comparisons) - num_within - num_shown
    reaches = [one.main.reach for one in comparisons if not math.isnan(one.main.reach)]
    compared = [one.main.published for one in comparisons]
    num_missing = sum(number not in compared for number in published_numbers())
    return (
        f"{num_within} of {len(comparisons)} published numbers lie within {LIMIT:g} standard errors of ours, "
        f"{num_near} within {NEAR:g}"
        + (f"; in half of them a difference of {np.median(reaches):.2f} would go unnoticed" if reaches else "")
        + ". "
        f"Of the {len(affordable)} with a budget of at most {AFFORDABLE:g} core-hours a run here, "
        f"{num_affordable_within} do, and {num_affordable_shown} more do with one or more settings changed. "
        f"Of the {num_shown + num_open} that differ, rows show the cause of {num_shown}; that of {num_open} is not "
        "shown." + (f" {num_missing} more published numbers have no rows yet." if num_missing else "")
    )


def _explained(result: Result, main: Result) -> str:
    """Whether what was changed explains the difference of the main result."""
    if math.isnan(result.reach):
        return "one seed, which shows nothing"
    if share := result.explains(main):
        return "explains it" if share == "all" else f"explains {share}"
    return "undecided, as the seeds scatter too much" if result.is_within else "does not explain it"


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
        ours, theirs = (_part(config, part) for config in (before, after))
        if differing := _differing(ours, theirs):
            alone = next(iter(differing)) if len(differing) == 1 else ""
            changes[{"model_dim": "width", "rates": "rate"}.get(alone, kind)] = ", ".join(differing.values())
    return changes


def _without_convolution(row: Row) -> tuple[str, dict[str, str]]:
    name, options = parse_term(row["block"])
    return name, {option: value for option, value in options.items() if not option.startswith("conv")}


def _part(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of a configuration, ``training`` with the learning rates; empty if it has none, as a foreign row may."""
    part = found if isinstance(found := config.get(name), dict) else {}
    if name == "training":
        return part | {"rates": _part(config, "tuning").get("learning_rates", [config.get("learning_rate")])}
    return part


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
    means, variances = {}, []
    for row in rows:
        metrics: dict[str, Any] = json.loads(row["metrics"])
        tests = [
            {name: row[name] if factor == 1 else metrics.get(f"x{factor}.{name}") for name in _FACTS}
            for factor in number.factors
        ]
        if all(is_known(facts[number.measure]) for facts in tests):
            means[int(row["seed"])] = float(np.mean([facts[number.measure] for facts in tests]))
            variances += [
                _variance(number.measure, facts, row, factor)
                for factor, facts in zip(number.factors, tests, strict=True)
            ]
    error = math.sqrt(sum(variances)) / max(1, len(variances))
    return replace(NO_ROWS, scores=means, evaluation_std=error, num_sequences=1)


_FACTS = ("score", "skill", "floor", "ceiling")


def _variance(measure: Measure, facts: Mapping[str, Any], row: Row, factor: int) -> float:
    """Of drawing other test sequences, if answers are right or wrong independently; 0 if their number is unknown."""
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
