"""Check how far the scores of ``climb`` can be trusted: ``python -m studies.climb.page``, or ``--check``.

The page shows from the rows in ``results`` which scores are at an end of their ladder, and whether seeds agree on the
order of the mechanisms.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import kendalltau

from studies.pages import store, write
from synthbench.registry import CONTROL
from synthbench.reports.aggregates import balanced
from synthbench.reports.cells import Cells, grid
from synthbench.reports.ladder import LEAST
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.selection import select
from synthbench.reports.statistics import CONFIDENCE
from synthbench.reports.table import counted
from synthbench.suites import load_suite

SUITE = load_suite(str(Path(__file__).parents[1] / "climb.toml"))
"""The protocol of the rows in question."""
END = 0.1
"""A run closer to the baseline or the top than this, in levels, is at an end."""
NUM_RESAMPLES = 2000


class Order(NamedTuple):
    """Agreement of seeds on the order of the mechanisms."""

    tau: float
    low: float
    high: float
    """Kendall's tau-b of the mean scores of two seeds, and its interval over other tasks."""
    num_untied: int
    """Number of pairs of mechanisms that neither of the two seeds ties, over all tasks."""
    num_agreeing: int
    """Number of these pairs that have the same order for both seeds."""
    num_far: int
    """Number of pairs with the same order for both seeds whose mean difference is at least ``LEAST`` levels."""
    num_repeated: int
    """Number of these pairs that the third seed repeats; a tie is no repetition."""


def read() -> pd.DataFrame:
    """Read the rows of the suite's tasks that a report shows, without controls."""
    shown = select(store().runs(), SUITE.name, SUITE.version).without_variants().rows
    return shown[shown["task"].isin(SUITE.tasks) & (shown["mech_family"] != CONTROL)]


def complete(rows: pd.DataFrame, seeds: tuple[int, ...]) -> pd.DataFrame:
    """Select rows with the given seeds, of mechanisms that have every seed on every task."""
    rows = rows[rows["seed"].isin(seeds)]
    counts = rows.groupby("mech")["run_id"].nunique()
    return rows[rows["mech"].isin(counts.index[counts == len(SUITE.tasks) * len(seeds)])]


class Place(NamedTuple):
    """Summary of the scores of a task's runs on its ladder."""

    category: str
    task: str
    num_levels: int
    lowest: float
    highest: float
    """Lowest and highest mean score of a mechanism, in levels."""
    at_baseline: float
    at_top: float
    """Shares of the runs at the baseline and at the top of the ladder."""

    @property
    def at_an_end(self) -> float:
        """Share of the runs at either end of the ladder."""
        return self.at_baseline + self.at_top


def places(of: Cells) -> Iterator[Place]:
    """Summarise the scores of the runs of each task."""
    for task in of.tasks:
        if task.ladder is not None:
            top = task.ladder.num_levels
            cells = [cell for cell in of.cells_of(task) if cell.n]
            means = [cell.mean * top for cell in cells]
            runs = np.array([score for cell in cells for score in cell.scores.values()]) * top
            at = float((runs < END).mean()), float((runs > top - END).mean())
            yield Place(task.category, task.name, top, min(means), max(means), *at)


def order(of: Cells) -> Order:
    """Compare the first two seeds in the order of the mean scores and of each pair, and the third with both."""
    first, second, third = np.moveaxis(of.scores[:, :, :3], 2, 0)
    categories = [task.category for task in of.tasks]
    weights = balanced(categories)
    rng = np.random.Generator(np.random.Philox(0))
    strata = [np.flatnonzero([one == category for one in categories]) for category in dict.fromkeys(categories)]
    taus = []
    for _ in range(NUM_RESAMPLES):
        drawn = np.concatenate([rng.choice(tasks, len(tasks)) for tasks in strata])
        taus.append(_tau(weights[drawn] @ first[drawn], weights[drawn] @ second[drawn]))
    low, high = np.nanquantile(taus, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    one, other = np.triu_indices(len(of.mechanisms), 1)
    leads = [scores[:, one] - scores[:, other] for scores in (first, second, third)]
    is_untied = (leads[0] != 0) & (leads[1] != 0)
    agrees = leads[0] * leads[1] > 0
    margins = np.array([task.ladder.margin if task.ladder else np.inf for task in of.tasks])
    is_far = agrees & (abs(leads[0] + leads[1]) / 2 >= margins[:, None])
    return Order(
        _tau(weights @ first, weights @ second), low, high,
        *(int(pairs.sum()) for pairs in (is_untied, agrees, is_far, is_far & (leads[0] * leads[2] > 0))),
    )  # fmt: skip


def page() -> Iterator[str]:
    """Yield the paragraphs of the page, except those with too few rows."""
    rows = read()
    at = list(places(grid(rows)))
    lines = [
        [
            one.category, one.task, one.num_levels, f"{one.lowest:.1f} to {one.highest:.1f}",
            f"{100 * one.at_baseline:.0f}", f"{100 * one.at_top:.0f}",
        ]
        for one in at
    ]  # fmt: skip
    yield "# Rows of climb: saturation and agreement of seeds"
    yield (
        f"{len(rows)} runs, {rows['mech'].nunique()} mechanisms, {counted(rows['seed'].nunique(), 'seed')}; controls "
        "are left out. [ladder.md](../../docs/ladder.md) defines levels and scores. Pages about these rows count "
        "scores from the baselines stored with them; reports count them from the committed ones."
    )
    yield "## Are the tasks saturated?"
    yield f"Scores are in levels. A run within {END:g} levels of the baseline or the top counts as being there."
    yield plain_table(lines, ["category", "task", "levels", "mean scores", "at the baseline, %", "at the top, %"])
    yield (
        f"{100 * np.mean([one.at_an_end for one in at]):.0f} % of the runs are at an end of the ladder; "
        f"{_tasks(sum(one.at_an_end > 0.5 for one in at))} more than half of their runs there. On "
        f"{sum(one.highest - one.lowest >= 1 for one in at)} of {len(at)} tasks the highest and the lowest mechanism "
        "are a level or more apart."
    )
    of_all = complete(rows, SUITE.seeds)
    if of_all["mech"].nunique() > 2:
        found, (first, second, third) = order(grid(of_all)), SUITE.seeds[:3]
        yield "## Do seeds agree?"
        yield (
            f"Order of {of_all['mech'].nunique()} mechanisms, seed {first} against seed {second}: "
            f"Kendall's tau {found.tau:.2f} ({found.low:.2f} to {found.high:.2f}). Seeds {first} and {second} agree on "
            f"{100 * found.num_agreeing / found.num_untied:.1f} % of {found.num_untied:,} untied pairs of mechanisms "
            f"on a task. Of the {found.num_far:,} pairs at least {LEAST:g} levels apart on which both agree, seed "
            f"{third} repeats {100 * found.num_repeated / found.num_far:.1f} %."
        )


def _tasks(number: int) -> str:
    return f"{number} task has" if number == 1 else f"{number or 'no'} tasks have"


def _tau(first: Float[np.ndarray, " mechanisms"], second: Float[np.ndarray, " mechanisms"]) -> float:
    return float(kendalltau(first, second).statistic)


if __name__ == "__main__":
    write(__file__, page())
