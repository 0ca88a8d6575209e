"""The rankings of a page: of the whole suite, and of each category."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple

from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import Key, MechanismFacts, TaskFacts
from synthbench.reports.leaderboard import Leaderboard, Placed, quoted, tasks_words
from synthbench.reports.report import Report
from synthbench.reports.verdicts import is_ranked

PartOf = Callable[[str, MechanismFacts], Interval]
"""Function that returns the mean of a mechanism on one category or task, given its label.

A run without a score counts as 0; the mean is NaN if some task has no run.
"""


class Facet(NamedTuple):
    """One value of a filter."""

    id: str
    label: str


def boards(report: Report, categories: Mapping[str, Facet]) -> list[SimpleNamespace]:
    """Make the ranking of the suite with a column per category, then a ranking per category with a column per task."""
    whole, cells = report.board, report.cells
    if whole is None:
        return []
    tasks_of = {category: cells.tasks_of(category) for category in cells.categories}
    suite = _board(whole, report.own, None, tasks_of, lambda name, one: whole.parts[name].skill_of(one))
    tasks = {task.label: task for task in cells.tasks}
    by_category = (
        _board(
            *(whole.parts[name], report.own, facet, {task.label: (task,) for task in tasks_of[name]}),
            lambda label, one: cells.skill_on(tasks[label], one),
        )
        for name, facet in categories.items()
    )
    return [suite, *by_category]


def _board(
    ranking: Leaderboard,
    own: frozenset[Key],
    facet: Facet | None,
    parts: Mapping[str, Sequence[TaskFacts]],
    part_of: PartOf,
) -> SimpleNamespace:
    """Make a ranking of the whole suite by category (without a facet), or of one category by task."""
    counting = {label: [task for task in of_part if is_ranked(task)] for label, of_part in parts.items()}
    shown = {label: tasks for label, tasks in counting.items() if tasks}
    capacities = [] if facet else quoted(ranking.cells)

    def line_of(placed: Placed) -> SimpleNamespace:
        mechanism, entry, _ = placed
        cells = [(task.ladder, ranking.cells.cell(task, mechanism).load_at_half) for task in capacities]
        return SimpleNamespace(
            mechanism=mechanism,
            entry=entry,
            reason="" if entry else tasks_words(ranking.partial[mechanism], len(ranking.tasks)),
            skill=ranking.skill_of(mechanism),
            parts=[part_of(label, mechanism) for label in shown],
            capacities=[(ladder.sortable(load), ladder.load_text(load)) for ladder, load in cells if ladder],
        )

    bodies: dict[str, list[SimpleNamespace]] = {"own": [], "ranked": [], "unranked": []}
    for line in map(line_of, ranking.placed):
        bodies["own" if line.mechanism.key in own else "ranked" if line.entry else "unranked"].append(line)
    return SimpleNamespace(
        facet=facet,
        parts=shown,
        capacities=capacities,
        tasks=ranking.tasks,
        left_out=ranking.left_out,
        order=next(iter(ranking.orders.values())) if facet else "",
        has_rank_intervals=ranking.has_rank_intervals,
        bodies={name: body for name, body in bodies.items() if body},
    )
