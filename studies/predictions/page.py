"""Compare predictions of the literature with the loads that mechanisms cope with.

``python -m studies.predictions.page`` writes the tables of README.md; ``--check`` compares them. A prediction says that
one class of mechanisms copes with a multiple of the load of another class.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any, Literal, NamedTuple

import pandas as pd

from studies.pages import each, fill, selected
from synthbench.levels import load_at_half
from synthbench.reports.cells import shown_label
from synthbench.reports.ladder import scored_levels
from synthbench.reports.render.markdown import escape, plain_table
from synthbench.reports.table import NOTHING, fixed
from synthbench.suites import EXTRA, load_suite

HERE = Path(__file__).parent
SUITE = load_suite("core")
CLASSES = {
    "softmax": "softmax",
    **dict.fromkeys(["linear", "performer", "performer-exp", "slay"], "additive"),
    **dict.fromkeys(["retention", "gla", "mamba2"], "gated"),
    "deltanet": "delta",
    "lstm": "nonlinear",
}
"""The classes of mechanisms in the literature: softmax attention, additive states, states that decay by gates from 0 to
1, states that a delta rule overwrites, and nonlinear recurrences. A delta rule whose eigenvalues reach -1 is a
class of its own (``signed``). For other mechanisms nothing is predicted."""
CLEAR = 0.9
"""Share of the pairs of runs that must agree for a verdict: all nine pairs for three runs on each side."""
TOLERANCE = 1e-9
Outcome = Literal["agrees", "disagrees", "undecided"]


class Ladder(NamedTuple):
    """The loads of the first and of the last level."""

    first: float
    last: float

    def span(self, load: float) -> tuple[float, float]:
        """Return the range of a load, which is not known exactly above the last level and below the first."""
        return (self.last, math.inf) if math.isinf(load) else (load, load) if load else (0.0, self.first)

    def text(self, load: float) -> str:
        """Format a load."""
        if math.isinf(load):
            return f"≥ {self.last:g}"
        return fixed(load, 1 if load < 10 else 0) if load else f"< {self.first:g}"


class Comparison(NamedTuple):
    """A prediction, the cells of both mechanisms and the loads of their runs."""

    prediction: Any
    more: Any
    less: Any
    ladder: Ladder

    @property
    def outcome(self) -> Outcome:
        """The verdict on the prediction from the loads of both mechanisms."""
        return judge(self.ladder, self.prediction.ratio, self.more.loads, self.less.loads)

    @property
    def medians(self) -> tuple[float, float]:
        """Median loads over runs, of both mechanisms."""
        return median_low(self.more.loads), median_low(self.less.loads)

    @property
    def is_on_ladder(self) -> bool:
        """True if both loads are on the ladder, so that their ratio is known."""
        return all(0 < load < math.inf for load in self.medians)


def ratio_between(ladder: Ladder, load: float, other: float) -> tuple[float, float]:
    """Return the smallest and the largest possible ratio of two loads; 0 and ``inf`` if both are at one end."""
    (low, high), (other_low, other_high) = ladder.span(load), ladder.span(other)
    return low / other_high, high / other_low if other_low else math.inf


def judge(ladder: Ladder, ratio: float, loads: Sequence[float], other_loads: Sequence[float]) -> Outcome:
    """Judge whether some runs cope with at least ``ratio`` times the load of other runs.

    The outcome is ``undecided`` if less than the share ``CLEAR`` of all pairs of runs agree, or one side has a single
    run.
    """
    pairs = [ratio_between(ladder, load, other) for load in loads for other in other_loads]
    least, clear = ratio * (1 - TOLERANCE), CLEAR * len(pairs) - TOLERANCE
    if min(len(loads), len(other_loads)) < 2:
        return "undecided"
    if sum(low >= least for low, _ in pairs) >= clear:
        return "agrees"
    return "disagrees" if sum(high < least for _, high in pairs) >= clear else "undecided"


def cells_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line per task and mechanism: its class, its label, and the loads at half skill of its runs."""
    levels = rows["metrics"].map(lambda text: scored_levels(json.loads(text)))
    rows = rows.assign(levels=levels)[(rows["status"] == "ok") & levels.astype(bool)]
    is_signed = rows["mech_args"].map(lambda text: json.loads(text).get("eigenvalues") == "signed")
    kinds = rows["mech"].map(CLASSES).mask(is_signed & (rows["mech"] == "deltanet"), "signed")
    labels = rows["mech_label"].map(shown_label) + rows["condition"].map({"bare": " (bare)"}).fillna("")
    loads = rows["levels"].map(load_at_half)
    ladders = rows["levels"].map(lambda levels: Ladder(levels[0].load, levels[-1].load))
    runs = rows.assign(kind=kinds, label=labels, loads=loads, ladder=ladders).dropna(subset="kind")
    cell = ["task", "label", "block", "positions", "mech_args"]
    return runs.groupby(cell, as_index=False).agg({"kind": "first", "ladder": "first", "loads": list})


def compare(cells: pd.DataFrame) -> list[Comparison]:
    """Compare all pairs of mechanisms to which a prediction applies; pairs with both loads on the ladder come first."""
    compared = [
        Comparison(prediction, more, less, more.ladder)
        for prediction in each(pd.read_csv(HERE / "ratios.csv"))
        for more in each(cells[cells["kind"].isin(prediction.more.split()) & (cells["task"] == prediction.task)])
        for less in each(cells[cells["kind"].isin(prediction.less.split()) & (cells["task"] == prediction.task)])
    ]
    return sorted(compared, key=lambda one: not one.is_on_ladder)


def counts(compared: Sequence[Comparison]) -> str:
    """Count the outcomes, and the comparisons that would agree by chance."""
    of = Counter(one.outcome for one in compared)
    reversed_ones = [judge(one.ladder, one.prediction.ratio, one.less.loads, one.more.loads) for one in compared]
    by_chance = (of["agrees"] + reversed_ones.count("agrees")) / 2
    return (
        f"{of['agrees']} of {len(compared)} agree, {of['disagrees']} disagree, {of['undecided']} undecided; random "
        f"guesses at the one with more capacity would agree with {by_chance:g}."
    )


def line_of(one: Comparison) -> list[str]:
    """Format a comparison as a line of the table."""
    low, high = ratio_between(one.ladder, *one.medians)
    known = fixed(low, 1) if low else f"≤ {fixed(high, 1)}"
    ratio = known if math.isfinite(high) else f"≥ {known}" if low else NOTHING
    loads = escape(", ".join(map(one.ladder.text, one.medians)))
    of = one.prediction
    names = of.task, f"{one.more.label}, {one.less.label}"
    return [*names, f"≥ {of.ratio:g}×", loads, ratio, one.outcome, f"{of.source}, {of.place}"]


def tables() -> Iterator[str]:
    """Yield outcomes and a table, first for tasks of the suite, then for tasks that it does not list."""
    for title, name in (("Tasks of the suite", SUITE.name), ("Other tasks", SUITE.name + EXTRA)):
        compared = compare(cells_of(selected(name, SUITE.mechanisms).without_variants().rows))
        yield f"## {title}"
        for words, is_on in {"With both loads on the ladder": True, "With a load at an end of it": False}.items():
            if group := [one for one in compared if one.is_on_ladder == is_on]:
                yield f"{words}, {counts(group)}"
        headings = ["task", "mechanisms", "predicted", "loads", "ratio", "outcome", "source"]
        yield plain_table(map(line_of, compared), headings)


if __name__ == "__main__":
    fill(__file__, tables())
