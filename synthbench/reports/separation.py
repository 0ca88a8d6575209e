"""The page on what separates mechanisms: which tasks tell them apart, and where the others sit."""

import math
from collections.abc import Callable

from synthbench.reports.cells import Cells, TaskFacts
from synthbench.reports.ladder import LEAST
from synthbench.reports.looks import LOOKS
from synthbench.reports.statistics import SIGNIFICANCE
from synthbench.reports.table import (
    BOUNDS,
    HEIGHT,
    NOTHING,
    Cell,
    Column,
    Line,
    Table,
    ceiling_cell,
    fixed,
    floor_cell,
    grouped,
    on_added_seeds,
    p_text,
    percent,
    rungs_cell,
    score_text,
    sources_of,
)
from synthbench.reports.verdicts import MARGIN, SMALLEST_GAP, Place, Verdict, Verdicts, with_single_runs

LOCAL = " Local: best rule that sees its own token and position only, measured; the rest needs mixing of positions."
SHORTCUT = " Shortcut: the best of the rules, n-grams among them, that get by without what the task tests."
PAGE = "separation"


def summary(verdicts: Verdicts) -> str:
    """The outcome in one or two sentences, every count computed."""
    judged = list(verdicts.values())
    tested = [one for one in judged if not math.isnan(one.p)]
    if not tested:
        return (
            "Nothing can be said of what separates mechanisms: no task has two mechanisms of which one has two seeds, "
            "controls left out."
        )
    least = min(one.least_p for one in tested)
    if least >= SIGNIFICANCE:
        return (
            "No task can separate mechanisms: there are so few runs that the clearest difference has a p of "
            f"{p_text(least)}."
        )
    num_separating = sum(one.separates for one in judged)
    counts = {place: sum(one.place == place for one in judged) for place in _PHRASES}
    phrases = [f"{count} {_PHRASES[place]}" for place, count in counts.items() if count]
    separate = "separates" if num_separating == 1 else "separate"
    return f"{num_separating} of {len(judged)} tasks {separate} mechanisms. Where the scores sit: {', '.join(phrases)}."


def separation_table(of: Cells, verdicts: Verdicts) -> Table:
    """One line a task: the range of the mechanisms' means and skills, the pairs that differ, and a verdict."""
    judged = list(verdicts.values())
    columns = _columns(of)
    return Table(
        name=PAGE,
        title="What separates mechanisms",
        caption=_caption(of),
        headings=("Category", "Task"),
        columns=tuple(columns),
        lines=grouped(
            Line((one.task.category, one.task.label), tuple(cell_of(one) for cell_of in columns.values()))
            for one in judged
        ),
        sources=sources_of(of.tasks, of.mechanisms),
    )


def _has_local(of: Cells) -> bool:
    return not all(math.isnan(task.local_ceiling) for task in of.tasks)


def _has_shortcut(of: Cells) -> bool:
    return any(task.shortcut for task in of.tasks)


def _columns(of: Cells) -> dict[Column, Callable[[Verdict], Cell]]:
    """The columns, each with what it says of a task."""
    if of.has_ladder:
        scores: dict[Column, Callable[[Verdict], Cell]] = {
            Column("Rungs"): lambda one: rungs_cell(one.task),
            Column("Height"): _means_cell,
        }
    else:
        scores = {
            Column("Floor"): lambda one: floor_cell(one.task),
            **({Column("Local"): lambda one: Cell(percent(one.task.local_ceiling))} if _has_local(of) else {}),
            **({Column("Shortcut"): lambda one: _shortcut_cell(one.task)} if _has_shortcut(of) else {}),
            Column("Ceiling"): lambda one: ceiling_cell(one.task),
            Column("Accuracy"): _means_cell,
            Column("Skill"): lambda one: Cell(
                " to ".join(fixed(skill, 2) for skill in one.skills) if one.skills else NOTHING
            ),
        }
    return scores | {
        Column("p"): lambda one: Cell(p_text(one.p)),
        Column("Pairs"): _pairs_cell,
        Column("Between"): lambda one: Cell(percent(one.between)),
        Column("Verdict", "word"): lambda one: Cell(one.words),
    }


def _caption(of: Cells) -> str:
    if of.has_ladder:
        means, distance = "mean height in rungs", f"{LEAST:g} rungs or more,"
        looks = ", ".join(str(look.num_seeds) for look in LOOKS)
        terms = (
            f"Every p allows for looks at {looks} seeds. Within {LEAST:g} rungs: pairs that are shown to differ by "
            "less, by two one-sided t tests, each pair by itself. At floor or at ceiling: all mechanisms are within "
            f"{LEAST:g} rungs of none or of all. {HEIGHT}{on_added_seeds(of)}"
        )
    else:
        means = "mean accuracy in per cent and mean skill"
        distance = f"{100 * MARGIN:.0f} % of the gap between floor and ceiling or more, at least a point,"
        terms = (
            "Skill: (accuracy − floor) / (ceiling − floor), cut to 0 to 1. At floor or at ceiling: all mechanisms are "
            f"within a skill of {MARGIN:g} of it, or within 3 standard errors of the evaluation. Gap too narrow to "
            f"rank: less than {100 * SMALLEST_GAP:.0f} points between floor and ceiling. {BOUNDS}"
            f"{LOCAL * _has_local(of)}{SHORTCUT * _has_shortcut(of)}"
        )
    single = ", ".join(one.label for one in with_single_runs(of))
    left_out = f" So are single runs, where others have more: {single}." if single else ""
    return (
        f"Lowest and highest {means} over the mechanisms, controls left out.{left_out} A task separates if its "
        f"farthest means differ by {distance} and p is below 5 %: p is the share of shuffles of its runs among the "
        "mechanisms that put two means as far apart, adjusted over the tasks (Benjamini and Hochberg). Pairs: those "
        "that differ as much by a moderated t test, 5 %, Holm within the task; where none is left, the mechanism that "
        "stands out from all others together, with the share of shuffles. Between: share of the variance that lies "
        f"between mechanisms, ω², in per cent; about 0 is what chance gives. {terms}"
    )


def _means_cell(one: Verdict) -> Cell:
    return Cell(" to ".join(score_text(one.task, mean) for mean in one.means) if one.means else NOTHING)


def _pairs_cell(one: Verdict) -> Cell:
    if not one.num_pairs:
        return Cell()
    remarks = (f"{one.outlier.label}, p = {p_text(one.p_outlier)}",) if one.outlier else ()
    if one.task.ladder and one.num_within:
        remarks = (f"{one.num_within} within {LEAST:g} rungs", *remarks)
    return Cell(f"{len(one.named)} of {one.num_pairs}", remarks=remarks)


def _shortcut_cell(task: TaskFacts) -> Cell:
    return Cell(percent(task.shortcut[1]), remarks=(task.shortcut[0],)) if task.shortcut else Cell()


_PHRASES: dict[Place, str] = {
    "at floor": "at the floor",
    "at ceiling": "at the ceiling",
    "between": "between",
    "gap too narrow to rank": "with a gap too narrow to rank",
    "floor = ceiling": "with floor = ceiling",
    "no score": "without a score",
}
