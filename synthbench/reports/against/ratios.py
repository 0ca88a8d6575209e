"""Predictions of the literature on a ladder: a mechanism copes with a multiple of the load of another."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from statistics import median_low
from typing import Literal, NamedTuple, get_args

from synthbench.heights import load_at_half
from synthbench.reports.against.published import lines_of
from synthbench.reports.cells import Cells, MechanismFacts, TaskFacts
from synthbench.reports.ladder import Ladder
from synthbench.reports.statistics import TOLERANCE
from synthbench.reports.table import NOTHING, Column, Table, fixed, sources_of, table_of

Class = Literal["softmax", "additive", "gated", "delta", "signed", "nonlinear"]
Outcome = Literal["agrees", "disagrees", "undecided"]

CLASSES: dict[str, Class] = {
    "softmax": "softmax",
    "linear": "additive",
    "performer": "additive",
    "performer-exp": "additive",
    "slay": "additive",
    "retention": "gated",
    "gla": "gated",
    "mamba2": "gated",
    "deltanet": "delta",
    "lstm": "nonlinear",
}
"""The class of mechanisms in the literature: softmax attention, a state that is only added to, one that decays by gates
from 0 to 1, one that a delta rule overwrites, and a nonlinear recurrence. A delta rule whose eigenvalues reach -1 is a
class of its own (``signed``). For other mechanisms nothing is predicted."""

CLEAR = 0.9
"""Share of the pairs of runs that must agree: all nine of three runs against three."""


class Prediction(NamedTuple):
    """One class copes with at least a multiple of the load of another."""

    task: str
    more: Class
    less: Class
    ratio: float
    source: str
    place: str
    """Where in the source it says so."""


class Comparison(NamedTuple):
    """A prediction and the loads at half of the skill that were measured."""

    prediction: Prediction
    task: TaskFacts
    ladder: Ladder
    more: MechanismFacts
    less: MechanismFacts
    loads: tuple[float, ...]
    """Of each run of the mechanism that should cope with more."""
    other_loads: tuple[float, ...]
    """Of each run of the other."""

    @property
    def outcome(self) -> Outcome:
        """Whether the loads agree with the prediction."""
        return judge(self.ladder, self.prediction.ratio, self.loads, self.other_loads)

    @property
    def medians(self) -> tuple[float, float]:
        """The loads of both, median over runs."""
        return median_low(self.loads), median_low(self.other_loads)

    @property
    def is_on_ladder(self) -> bool:
        """Whether both loads are on the ladder, so that their ratio is known."""
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


def class_of(mechanism: MechanismFacts) -> Class | None:
    """The class of a mechanism in the literature; None if it is in none of them."""
    name = CLASSES.get(mechanism.name)
    is_signed = json.loads(mechanism.arguments).get("eigenvalues") == "signed"
    return "signed" if name == "delta" and is_signed else name


def ratio_between(ladder: Ladder, load: float, other: float) -> tuple[float, float]:
    """The smallest and the largest possible ratio of two loads; 0 and ``inf`` if both are at one end of the ladder.

    >>> pairs = Ladder("pairs", (2.0, 4.0, 8.0))
    >>> ratio_between(pairs, 6.0, 3.0), ratio_between(pairs, math.inf, 4.0), ratio_between(pairs, 4.0, math.inf)
    ((2.0, 2.0), (2.0, inf), (0.0, 0.5))
    """
    (low, high), (other_low, other_high) = (_range(ladder, each) for each in (load, other))
    return low / other_high, high / other_low if other_low else math.inf


def judge(ladder: Ladder, ratio: float, loads: Sequence[float], other_loads: Sequence[float]) -> Outcome:
    """Whether some runs cope with at least a multiple (``ratio``) of the load of others.

    The outcome is ``undecided`` unless ``CLEAR`` of the pairs of runs agree, and if one side has a single run.
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
    loads = {keys: tuple(map(load_at_half, cell.rungs.values())) for keys, cell in cells.estimates.items()}
    return [
        Comparison(prediction, task, task.ladder, more, less, *both)
        for prediction in predictions()
        for task in cells.tasks
        if task.ladder and task.name == prediction.task
        for more in cells.mechanisms
        if class_of(more) == prediction.more
        for less in cells.mechanisms
        if class_of(less) == prediction.less
        for both in [(loads.get((task.key, more.key), ()), loads.get((task.key, less.key), ()))]
        if all(both)
    ]


def summary(compared: Sequence[Comparison]) -> str:
    """The outcome in a sentence or two: first with both loads on the ladder, then with a load at an end of it."""
    places = {"With both loads on the ladder": True, "With a load at an end of it": False}
    groups = {words: [one for one in compared if one.is_on_ladder == is_on] for words, is_on in places.items()}
    return " ".join(f"{words}, {_count(group)}." for words, group in groups.items() if group)


def ratio_table(cells: Cells) -> Table | None:
    """Predicted and measured ratios, a row per pair of mechanisms; None if nothing was predicted."""
    compared = sorted(compare(cells), key=lambda comparison: not comparison.is_on_ladder)
    if not compared:
        return None
    return table_of(
        "predictions",
        "Predictions of the literature",
        "Predicted: the first mechanism copes with at least this multiple of the load of the second (1.4, about a "
        "rung, if a paper says only which copes with more). Loads at half of the skill, median over seeds, and "
        f"their ratio. A prediction agrees or disagrees if {100 * CLEAR:.0f} % of the pairs of runs, one of each "
        "mechanism, do; otherwise, and with a single run, it is undecided, for example if the ends of the ladder "
        "leave it open. The literature is about larger models that were trained longer.",
        ("Task", "Mechanisms"),
        compared,
        lambda one: (one.task.label, f"{one.more.label}, {one.less.label}"),
        {
            "Predicted": lambda one: f"≥ {one.prediction.ratio:g}×",
            "Loads": lambda one: ", ".join(map(one.task.ladder.load_text, one.medians)) if one.task.ladder else "",
            "Ratio": _ratio_text,
            Column("Agreement", "word"): lambda one: one.outcome,
            Column("Source", "word"): lambda one: f"{one.prediction.source}, {one.prediction.place}",
        },
        sources=sources_of({one.task for one in compared}, (), (one.prediction.source for one in compared)),
        outcome=summary(compared),
        is_grouped=True,
    )


def _range(ladder: Ladder, load: float) -> tuple[float, float]:
    """The range of a load: at the top of the ladder and below its first rung it is not known exactly."""
    if math.isinf(load):
        return ladder.loads[-1], math.inf
    return (load, load) if load else (0.0, ladder.loads[0])


def _ratio_text(comparison: Comparison) -> str:
    low, high = ratio_between(comparison.ladder, *comparison.medians)
    if math.isinf(high):
        return f"≥ {fixed(low, 1)}" if low else NOTHING
    return fixed(low, 1) if low else f"≤ {fixed(high, 1)}"


def _count(compared: Sequence[Comparison]) -> str:
    counts = Counter(one.outcome for one in compared)
    reversed_ones = [judge(one.ladder, one.prediction.ratio, one.other_loads, one.loads) for one in compared]
    by_chance = (counts["agrees"] + reversed_ones.count("agrees")) / 2
    return (
        f"{counts['agrees']} of {len(compared)} agree, {counts['disagrees']} disagree, {counts['undecided']} "
        f"undecided; random guesses at which of the two copes with more would agree with {by_chance:g}"
    )
