"""What the literature predicts on a ladder: a mechanism copes with a multiple of the load of another."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from statistics import median_low
from typing import Literal, NamedTuple, get_args

from synthbench.heights import load_at_half
from synthbench.reports.against.predictions import Class, class_of
from synthbench.reports.against.published import lines_of
from synthbench.reports.cells import Cells, MechanismFacts, TaskFacts
from synthbench.reports.heights import load_text
from synthbench.reports.ladder import Ladder
from synthbench.reports.statistics import TOLERANCE
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, fixed, grouped, sources_of

Outcome = Literal["agrees", "disagrees", "undecided"]

CLEAR = 0.9
"""Share of the pairs of runs that must say the same: all nine of three runs against three."""


class Prediction(NamedTuple):
    """A class copes with at least a multiple of the load of another."""

    task: str
    more: Class
    less: Class
    ratio: float
    source: str
    place: str
    """Where the source says so."""


class Comparison(NamedTuple):
    """A prediction and the loads at half of the skill that were measured."""

    prediction: Prediction
    task: TaskFacts
    ladder: Ladder
    more: MechanismFacts
    less: MechanismFacts
    loads: tuple[float, ...]
    """Of every run of the mechanism that should cope with more."""
    other_loads: tuple[float, ...]
    """Of every run of the other."""

    @property
    def outcome(self) -> Outcome:
        """Whether the loads agree with the prediction."""
        return judge(self.ladder, self.prediction.ratio, self.loads, self.other_loads)

    @property
    def if_reversed(self) -> Outcome:
        """Whether they would agree if the mechanisms changed places."""
        return judge(self.ladder, self.prediction.ratio, self.other_loads, self.loads)

    @property
    def medians(self) -> tuple[float, float]:
        """The loads of both, median over runs."""
        return median_low(self.loads), median_low(self.other_loads)

    @property
    def is_on_ladder(self) -> bool:
        """Whether neither load is at an end of the ladder, so that their ratio is known."""
        return all(0 < load < math.inf for load in self.medians)


@cache
def predictions() -> tuple[Prediction, ...]:
    """All predictions, in the order of the data."""
    return tuple(
        Prediction(line["task"], more, less, float(line["ratio"]), line["source"], line["place"])
        for line in lines_of("load_ratios.csv")
        for more in get_args(Class)
        for less in get_args(Class)
        if more in line["more"].split() and less in line["less"].split()
    )


def ratio_between(ladder: Ladder, load: float, other: float) -> tuple[float, float]:
    """The least and the greatest that the ratio of two loads can be; where both are at one end, 0 and ``inf``.

    >>> pairs = Ladder("pairs", (2.0, 4.0, 8.0))
    >>> ratio_between(pairs, 6.0, 3.0), ratio_between(pairs, math.inf, 4.0), ratio_between(pairs, 4.0, math.inf)
    ((2.0, 2.0), (2.0, inf), (0.0, 0.5))
    """
    (low, high), (other_low, other_high) = (_range(ladder, one) for one in (load, other))
    return low / other_high, high / other_low if other_low else math.inf


def judge(ladder: Ladder, ratio: float, loads: Sequence[float], other_loads: Sequence[float]) -> Outcome:
    """Whether some runs cope with at least a multiple of the load of others.

    Args:
        ladder: Of the task.
        ratio: The multiple.
        loads: At half of the skill, of every run that should cope with more.
        other_loads: Of every other run.

    Returns:
        ``undecided`` unless ``CLEAR`` of the pairs of runs say the same, and where one side has a single run.
    """
    pairs = [ratio_between(ladder, load, other) for load in loads for other in other_loads]
    least, clear = ratio * (1 - TOLERANCE), CLEAR * len(pairs) - TOLERANCE
    if min(len(loads), len(other_loads)) < 2:
        return "undecided"
    if sum(low >= least for low, _high in pairs) >= clear:
        return "agrees"
    return "disagrees" if sum(high < least for _low, high in pairs) >= clear else "undecided"


def compare(cells: Cells) -> list[Comparison]:
    """Every prediction on a task with a ladder and two mechanisms that the rows have."""
    loads = {keys: tuple(map(load_at_half, cell.rungs.values())) for keys, cell in cells.cells.items()}
    return [
        Comparison(prediction, task, task.ladder, more, less, *own)
        for prediction in predictions()
        for task in cells.tasks
        if task.ladder and task.name == prediction.task
        for more in cells.mechanisms
        if class_of(more) == prediction.more
        for less in cells.mechanisms
        if class_of(less) == prediction.less
        for own in [(loads.get((task.key, more.key), ()), loads.get((task.key, less.key), ()))]
        if all(own)
    ]


def summary(compared: Sequence[Comparison]) -> str:
    """The outcome in a sentence or two, apart for what is on the ladder and what is at an end of it."""
    places = {
        "With both loads on the ladder": [one for one in compared if one.is_on_ladder],
        "With a load at an end of it": [one for one in compared if not one.is_on_ladder],
    }
    return " ".join(f"{words}, {_count(own)}." for words, own in places.items() if own)


def ratio_table(cells: Cells) -> Table | None:
    """What was predicted and what was measured, one line a pair of mechanisms; None if nothing was predicted."""
    compared = sorted(compare(cells), key=lambda one: not one.is_on_ladder)
    if not compared:
        return None
    return Table(
        name="predictions",
        title="Predictions of the literature",
        caption=(
            "Predicted: the first mechanism copes with at least this multiple of the load of the second; where a paper "
            "says only which copes with more, 1.4, about a rung. Loads at half of the skill, median over seeds, and "
            f"their ratio. It agrees or disagrees if {100 * CLEAR:.0f} % of the pairs of runs, one of each mechanism, "
            "do; it is undecided if neither, as where the ends of the ladder leave it open, and with a single run. "
            "The literature speaks of models that were trained longer, at larger sizes."
        ),
        headings=("Task", "Mechanisms"),
        columns=(
            Column("Predicted"),
            Column("Loads"),
            Column("Ratio"),
            Column("Agreement", "word"),
            Column("Source", "word"),
        ),
        lines=grouped(
            Line(
                (one.task.label, f"{one.more.label}, {one.less.label}"),
                (
                    Cell(f"≥ {one.prediction.ratio:g}×"),
                    Cell(", ".join(load_text(one.task, load) for load in one.medians)),
                    Cell(_ratio_text(one)),
                    Cell(one.outcome),
                    Cell(f"{one.prediction.source}, {one.prediction.place}"),
                ),
            )
            for one in compared
        ),
        sources=sources_of(
            dict.fromkeys(one.task for one in compared), (), (one.prediction.source for one in compared)
        ),
        outcome=summary(compared),
    )


def _range(ladder: Ladder, load: float) -> tuple[float, float]:
    """The ends of what a load can be: at the top of the ladder and below its first rung it is not known."""
    if math.isinf(load):
        return ladder.loads[-1], math.inf
    return (load, load) if load else (0.0, ladder.loads[0])


def _ratio_text(one: Comparison) -> str:
    low, high = ratio_between(one.ladder, *one.medians)
    if math.isinf(high):
        return f"≥ {fixed(low, 1)}" if low else NOTHING
    return fixed(low, 1) if low else f"≤ {fixed(high, 1)}"


def _count(compared: Sequence[Comparison]) -> str:
    found = Counter(one.outcome for one in compared)
    by_chance = (found["agrees"] + sum(one.if_reversed == "agrees" for one in compared)) / 2
    return (
        f"{found['agrees']} of {len(compared)} agree, {found['disagrees']} disagree, {found['undecided']} undecided; "
        f"naming at random which of two copes with more would agree with {by_chance:g}"
    )
