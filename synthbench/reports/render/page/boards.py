"""The rankings of a page: of the whole suite, and of each category."""

from types import SimpleNamespace

from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import MechanismFacts
from synthbench.reports.leaderboard import Leaderboard, Placed, quoted, tasks_words
from synthbench.reports.report import Report


def boards(report: Report) -> list[SimpleNamespace]:
    """Make the ranking of the suite, with a column per category, and then the ranking of each category.

    The ranking of a category has a column per task.
    """
    whole = report.board
    return [_board(report, whole, category) for category in (None, *report.cells.categories)] if whole else []


def _board(report: Report, whole: Leaderboard, category: str | None) -> SimpleNamespace:
    """Make the ranking of one category, with a column per task, or of the suite (None), with a column per category."""
    cells, ranking = report.cells, whole if category is None else whole.parts[category]
    if category is None:
        parts = {name: part.tasks for name, part in whole.parts.items() if part.tasks}
    else:
        parts = {task.label: (task,) for task in ranking.tasks}
    capacities = quoted(cells) if category is None else []

    def mean_on(part: str, mechanism: MechanismFacts) -> Interval:
        if category is None:
            return whole.parts[part].skill_of(mechanism)
        return cells.skill_on(parts[part][0], mechanism)

    def line_of(placed: Placed) -> SimpleNamespace:
        mechanism, entry, _ = placed
        loads = [(task.ladder, cells.cell(task, mechanism).load_at_half) for task in capacities]
        return SimpleNamespace(
            mechanism=mechanism,
            entry=entry,
            reason="" if entry else tasks_words(ranking.partial[mechanism], len(ranking.tasks)),
            skill=ranking.skill_of(mechanism),
            parts=[mean_on(part, mechanism) for part in parts],
            capacities=[(ladder.sortable(load), ladder.load_text(load)) for ladder, load in loads if ladder],
        )

    bodies: dict[str, list[SimpleNamespace]] = {"own": [], "ranked": [], "unranked": []}
    for line in map(line_of, ranking.placed):
        bodies["own" if line.mechanism.key in report.own else "ranked" if line.entry else "unranked"].append(line)
    return SimpleNamespace(
        category=category,
        parts=parts,
        capacities=capacities,
        tasks=ranking.tasks,
        left_out=ranking.left_out,
        order="" if category is None else ranking.order,
        has_rank_intervals=ranking.has_rank_intervals,
        bodies={name: body for name, body in bodies.items() if body},
    )
