"""The page on how mechanisms differ.

It shows tasks with significant differences, and tasks on which all scores are at the floor or ceiling.
"""

import math
from collections import Counter
from collections.abc import Callable

from synthbench.registry import CONTROL
from synthbench.reports.cells import Cells, TaskFacts
from synthbench.reports.interim import ANALYSES
from synthbench.reports.ladder import LEAST
from synthbench.reports.statistics import SIGNIFICANCE
from synthbench.reports.table import (
    BOUNDS,
    NOTHING,
    SCORE,
    Cell,
    Column,
    Table,
    bounds_of,
    fixed,
    on_added_seeds,
    p_text,
    percent,
    score_text,
    sources_of,
    table_of,
)
from synthbench.reports.verdicts import MARGIN, SMALLEST_GAP, ScoreRange, Verdict, Verdicts, compared

LOCAL = " Local: best rule that sees only its own token and position (measured); more needs mixing of positions."
SHORTCUT = " Shortcut: best rule, such as an n-gram, that avoids what the task tests."


def summary(verdicts: Verdicts) -> str:
    """Summarise all verdicts, as in ``22 of 24 tasks show significant differences; none is saturated``."""
    least_p = [verdict.least_p for verdict in verdicts.values() if not math.isnan(verdict.p)]
    if not least_p:
        return (
            "Nothing can be said about differences between mechanisms: no task has two of them, one with two seeds "
            "(controls left out)."
        )
    if min(least_p) >= SIGNIFICANCE:
        return (
            "No task can show a significant difference: with so few runs, even the clearest one has p = "
            f"{p_text(min(least_p))}."
        )
    num_differing = sum(verdict.has_differences for verdict in verdicts.values())
    counts = Counter(verdict.score_range for verdict in verdicts.values())
    phrases = [f"{counts[place]} {phrase}" for place, phrase in _PHRASES.items() if counts[place]]
    num = f"{num_differing} of {len(verdicts)} tasks {'shows' if num_differing == 1 else 'show'}"
    shown = f"{num} significant differences" if num_differing else "No task shows significant differences"
    return f"{shown}; {', '.join(phrases) or 'none is saturated'}."


def separation_table(cells: Cells, verdicts: Verdicts) -> Table:
    """Make a table of the tests of differences between mechanisms, with one row per task.

    A row shows the range of mean scores or skills, the p value, the number of pairs of mechanisms that differ, and the
    verdict.
    """

    def of(words: Callable[[Verdict], Cell | str]) -> Callable[[TaskFacts], Cell | str]:
        return lambda task: words(verdicts[task.key])

    columns: dict[Column | str, Callable[[TaskFacts], Cell | str]] = {}
    for name, bound in bounds_of(cells).items():
        if name == "Ceiling" and cells.has_local:
            columns["Local"] = lambda task: percent(task.local_ceiling)
        if name == "Ceiling" and _has_shortcut(cells):
            columns["Shortcut"] = _shortcut_cell
        columns[name] = bound
    columns["Score" if cells.has_ladder else "Accuracy"] = of(
        lambda one: " to ".join(score_text(one.task, mean) for mean in one.means or ()) or NOTHING
    )
    if not cells.has_ladder:
        columns["Skill"] = of(lambda one: " to ".join(fixed(skill, 2) for skill in one.skills or ()) or NOTHING)
    columns |= {
        "p": of(lambda one: p_text(one.p)),
        "Pairs": of(_pairs_cell),
        "Between": of(lambda one: percent(one.between)),
        Column("Verdict", "word"): of(lambda one: one.words),
    }
    return table_of(
        "separation",
        "Significant differences",
        _caption(cells),
        ("Category", "Task"),
        cells.tasks,
        lambda task: (task.category, task.label),
        columns,
        sources=sources_of(cells.tasks, cells.mechanisms),
        is_grouped=True,
    )


def _has_shortcut(cells: Cells) -> bool:
    return any(task.shortcut for task in cells.tasks)


def _caption(cells: Cells) -> str:
    if cells.has_ladder:
        means, distance = "mean score", f"at least {LEAST:g} levels"
        looks = ", ".join(str(one.num_seeds) for one in ANALYSES)
        terms = (
            f"Every p allows for looks at {looks} seeds. Within {LEAST:g} levels: pairs that are shown to differ by "
            "less (two one-sided t tests for each pair). At floor or at ceiling: all mechanisms are within "
            f"{LEAST:g} levels of none or of all. {SCORE}{on_added_seeds(cells)}"
        )
    else:
        means = "mean accuracy in per cent and mean skill"
        distance = f"at least {100 * MARGIN:.0f} % of the gap between floor and ceiling (and at least a point)"
        terms = (
            "Skill: (accuracy − floor) / (ceiling − floor), cut to 0 to 1. At floor or at ceiling: all mechanisms are "
            f"within a skill of {MARGIN:g} of it, or within 3 standard errors of the evaluation. Gap too narrow to "
            f"rank: less than {100 * SMALLEST_GAP:.0f} points between floor and ceiling. {BOUNDS}"
            f"{LOCAL * cells.has_local}{SHORTCUT * _has_shortcut(cells)}"
        )
    tested = compared(cells)
    partial = ", ".join(one.label for one in cells.mechanisms if one not in tested and one.family != CONTROL)
    left_out = f", and mechanisms that lack a task ({partial})" if partial else ""
    test = (
        "a moderated t test, adjusted over the tasks (Holm)"
        if len(tested) == 2
        else "share of shuffles of its runs among the mechanisms that put two means as far apart, in standard errors, "
        "adjusted over the tasks (Benjamini and Hochberg)"
    )
    return (
        f"Lowest and highest {means} of the mechanisms. Left out: controls{left_out}. A task shows significant "
        f"differences if its farthest means differ by {distance} and p is below 5 %. p: {test}. Pairs: those that "
        "differ by as much and by a moderated t test (5 %, Holm within the task); if there is none, the mechanism that "
        "stands out from all others, with its share of shuffles. Between: share of the variance that lies between "
        f"mechanisms (ω²), in per cent; about 0 by chance. {terms}"
    )


def _pairs_cell(verdict: Verdict) -> Cell:
    if not verdict.num_pairs:
        return Cell()
    remarks = (f"{verdict.outlier.label}, p = {p_text(verdict.p_outlier)}",) if verdict.outlier else ()
    if verdict.task.ladder and verdict.num_within:
        remarks = (f"{verdict.num_within} within {LEAST:g} levels", *remarks)
    return Cell(f"{len(verdict.named)} of {verdict.num_pairs}", remarks=remarks)


def _shortcut_cell(task: TaskFacts) -> Cell:
    return Cell(percent(task.shortcut[1]), remarks=(task.shortcut[0],)) if task.shortcut else Cell()


_PHRASES: dict[ScoreRange, str] = {
    "at floor": "at the floor",
    "at ceiling": "at the ceiling",
    "gap too narrow to rank": "with a gap too narrow to rank",
    "floor = ceiling": "with floor = ceiling",
    "no score": "without a score",
}
