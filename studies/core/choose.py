"""Choose the tasks of suite core by a rule, from seed 1 of a few mechanisms, with reasons against the other tasks.

``python -m studies.core.choose`` writes the table of README.md in this folder. ``--check`` compares the table, and
fails if the file of the suite lists other tasks.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from studies import pages
from studies.climb import page as climb
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.table import fixed
from synthbench.suites import EXTRA, load_suite
from synthbench.tasks import TASKS
from synthbench.training.ladder import ladder_schedule

PAGE = Path(__file__).with_name("README.md")
MARKERS = "<!-- table -->", "<!-- end of table -->"
SUITE = "core"
MECHANISMS = ("softmax", "linear", "lstm", "mamba2", "deltanet", "gla")
"""The mechanisms whose scores choose the tasks, each as its authors build it."""
CONTROL = "mean"
"""The control mechanism, which averages all tokens read so far."""
SEED, OTHER_SEEDS = 1, (2, 3)
END = 0.1
"""Distance in levels; a run closer than this to an end of the ladder counts as being at that end."""
MOST_AT_FLOOR, MOST_AT_TOP = 1 / 2, 1 / 5
MARGIN = 1.0
"""Least distance in levels from the best mechanism to the worst, to the control, and to the shortcut baseline."""
MOST_TASKS = 24
FEWEST_OF_CATEGORY = 4
NUM_QUICK = 14
"""Number of tasks, the first of every category, on which ``synthbench quick`` runs a new mechanism."""
MOST_COST = 1.2
"""Largest ratio of the suite's training tokens to those of the 24 tasks of climb 2026.1."""


class Judged(NamedTuple):
    """A task, the levels that mechanisms reach on it, and the reasons against choosing it."""

    task: str
    num_levels: int
    levels: dict[str, float]
    """Levels reached by each mechanism; NaN without a row."""
    control: float
    apart: float
    """Levels between the highest and the lowest mechanism on seeds 2 and 3, which do not choose; NaN without rows."""
    against: tuple[str, ...]

    @property
    def category(self) -> str:
        """The category of the task, as the suite shows it."""
        own = TASKS[self.task].category()
        return load_suite(SUITE).merged.get(own, own)

    @property
    def spread(self) -> float:
        """Distance between the highest and the lowest mechanism, as a fraction of the ladder."""
        return (max(self.levels.values()) - min(self.levels.values())) / self.num_levels


def rows_of_protocol() -> pd.DataFrame:
    """Read the stock rows of all tasks under the protocol of the suite, each seed at its chosen rate."""
    rows = pd.concat([pages.selected(suite).without_variants().rows for suite in (SUITE, SUITE + EXTRA)])
    rows = rows[(rows["block"] == "transformer") & rows["match"].isna() & (rows["condition"] == "stock")]
    count = rows["task_args"].map(lambda text: len(json.loads(text)["rungs"]))
    return rows.assign(num_levels=count, levels=rows["score"].fillna(0.0) * count)


def judge(task: str, rows: pd.DataFrame) -> Judged:
    """Judge a task by its rows."""
    reached = rows[rows["seed"] == SEED].set_index("mech")["levels"]
    levels = {name: float(reached.get(name, math.nan)) for name in MECHANISMS}
    control, count = float(reached.get(CONTROL, math.nan)), int(rows["num_levels"].iloc[0])
    others = rows[rows["seed"].isin(OTHER_SEEDS) & rows["mech"].isin(MECHANISMS)].groupby("mech")["levels"].mean()
    known = [level for level in levels.values() if not math.isnan(level)]
    at_floor, at_top = sum(level <= END for level in known), sum(level >= count - END for level in known)
    # What missing rows cannot change is said first.
    if at_floor > MOST_AT_FLOOR * len(levels) or at_top >= MOST_AT_TOP * len(levels):
        against = [f"{at_floor} of {len(levels)} at the baseline, {at_top} at the top"]
    elif count < control + MARGIN:
        against = ["the control is less than a level below the top"]
    elif missing := [name for name, level in {**levels, CONTROL: control}.items() if math.isnan(level)]:
        against = [f"no row of {', '.join(missing)}"]
    else:
        low, high = min(known), max(known)
        reasons = {
            "the best is less than a level above the shortcut baseline": high < MARGIN,
            "the best is less than a level above the control": high < control + MARGIN,
            "all within a level": high < low + MARGIN,
        }
        against = [words for words, is_against in reasons.items() if is_against]
    apart = float(others.max() - others.min()) if len(others) > 1 else math.nan
    return Judged(task, count, levels, control, apart, tuple(against))


def chosen(judged: Sequence[Judged]) -> list[Judged]:
    """Choose tasks without a reason against them, those with the widest spread first, about equally many per category.

    A category with fewer than ``FEWEST_OF_CATEGORY`` such tasks is left out, since its mean would say little.
    """
    fit = sorted((one for one in judged if not one.against), key=lambda one: (-round(one.spread, 9), one.task))
    places: Counter[str] = Counter()
    ranked = []
    for one in fit:
        ranked.append((places[one.category], -round(one.spread, 9), one.task, one))
        places[one.category] += 1
    kept = [entry[-1] for entry in sorted(ranked) if places[entry[-1].category] >= FEWEST_OF_CATEGORY]
    return kept[:MOST_TASKS]


def relative_cost(tasks: Sequence[str]) -> float:
    """Divide the training tokens of the given tasks by those of the 24 tasks of suite ``climb``."""
    now, before = (
        sum(ladder_schedule(suite, task).tokens(suite.training.steps) for task in names)
        for suite, names in ((load_suite(SUITE), tasks), (climb.SUITE, climb.SUITE.tasks))
    )
    return now / before


def table_of(judged: Sequence[Judged], suite: Sequence[Judged]) -> str:
    """Write one line per task: the tasks of the suite first, by category."""
    names = {one.task for one in suite}
    lines = [
        [
            one.category,
            one.task,
            str(one.num_levels),
            *(fixed(level, 1) for level in (*one.levels.values(), one.control, one.apart)),
            "yes" if one.task in names else "; ".join(one.against) or "others of its category lie further apart",
        ]
        for one in sorted(judged, key=lambda one: (one.task not in names, one.category, one.task))
    ]
    headings = ["category", "task", "levels", *MECHANISMS, CONTROL, "apart on seeds 2 and 3", "in core"]
    return plain_table(lines, headings)


def main() -> int:
    """Write the table of the page, or check the table and the suite; return the exit code."""
    judged = [judge(str(task), of_task) for task, of_task in rows_of_protocol().groupby("task")]
    suite, listed = chosen(judged), load_suite(SUITE)
    names = [one.task for one in suite]
    cost = relative_cost(names)
    words = f"{len(suite)} of {len(judged)} tasks; {cost:.2f} times the training tokens of climb 2026.1."
    is_stale = pages.main({PAGE: pages.filled(PAGE, [words, table_of(judged, suite)], MARKERS)})
    if pages.asks_to_check():
        is_as_listed = set(names) == set(listed.tasks) and set(names[:NUM_QUICK]) == set(listed.quick or ())
        return int(is_stale or not is_as_listed or cost > MOST_COST)
    lines = [f"quick = {json.dumps(names[:NUM_QUICK])}", *(f"{name} = {{}}" for name in names)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
