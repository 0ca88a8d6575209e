"""The rankings of a page: of the whole suite, and of each category."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synthbench.reports.contents import Report
from synthbench.reports.grid import Grid, MechanismFacts, TaskFacts
from synthbench.reports.leaderboard import Entry, Leaderboard, leaderboard
from synthbench.reports.page import charts
from synthbench.reports.page.facets import Facet, categories
from synthbench.reports.separation import SMALLEST_GAP


@dataclass(frozen=True)
class BoardLine:
    """A mechanism in a ranking."""

    mechanism: MechanismFacts
    entry: Entry | None
    """Rank and intervals; None where it is not ranked."""
    reason: str
    """Why it is not ranked; empty where it is."""
    rank_bar: charts.Bar | None
    skill_bar: charts.Bar | None
    skill: float
    """Mean over tasks and seeds, runs without a score counted as 0; NaN where some task has no run."""
    parts: tuple[float, ...]
    """Mean skill of each part of the board; NaN where some task of the part has no run."""


@dataclass(frozen=True)
class Board:
    """A ranking: of the whole suite by category, or of one category by task."""

    facet: Facet | None
    """The category; None for the whole suite."""
    parts: tuple[str, ...]
    num_tasks: int
    num_left_out: int
    """Tasks whose gap between floor and ceiling is below the noise."""
    num_seeds: int
    ranked: tuple[BoardLine, ...]
    unranked: tuple[BoardLine, ...]


def boards(report: Report) -> tuple[Board, ...]:
    """The ranking of the suite, then one of each category."""
    of = report.of
    parts = [(category, of.tasks_of(category)) for category in of.categories]
    return (
        _board(of, report.board, None, parts, num_seeds=len(of.seeds)),
        *(_of_category(of, facet) for facet in categories(of).values()),
    )


def _of_category(of: Grid, facet: Facet) -> Board:
    own = of.only(facet.label)
    parts = [(task.label, (task,)) for task in own.tasks]
    return _board(of, leaderboard(own) if len(own.seeds) > 1 else None, facet, parts, num_seeds=len(own.seeds))


def _board(
    of: Grid,
    found: Leaderboard | None,
    facet: Facet | None,
    parts: Sequence[tuple[str, tuple[TaskFacts, ...]]],
    *,
    num_seeds: int,
) -> Board:
    counting = {name: [task for task in tasks if task.gap >= SMALLEST_GAP] for name, tasks in parts}
    shown = {name: tasks for name, tasks in counting.items() if tasks}
    tasks = [task for part in shown.values() for task in part]
    entries = {entry.mechanism.key: entry for entry in found.entries} if found else {}

    def line(mechanism: MechanismFacts) -> BoardLine:
        entry = entries.get(mechanism.key)
        return BoardLine(
            mechanism=mechanism,
            entry=entry,
            reason="" if entry else _reason(of, found, mechanism, tasks),
            rank_bar=charts.rank_bar(*entry.rank[:3], len(entries)) if entry else None,
            skill_bar=charts.bar(*entry.middle) if entry else None,
            skill=entry.skill if entry else _mean_skill(of, tasks, mechanism),
            parts=tuple(_mean_skill(of, part, mechanism) for part in shown.values()),
        )

    lines = sorted(map(line, of.mechanisms), key=_best_first)
    return Board(
        facet=facet,
        parts=tuple(shown),
        num_tasks=len(tasks),
        num_left_out=sum(len(part) for _, part in parts) - len(tasks),
        num_seeds=num_seeds,
        ranked=tuple(one for one in lines if one.entry),
        unranked=tuple(one for one in lines if not one.entry),
    )


def _reason(of: Grid, found: Leaderboard | None, mechanism: MechanismFacts, tasks: Sequence[TaskFacts]) -> str:
    if not tasks:
        return "no task counts"
    if found is None:
        return "one seed"
    cells = [of.cell(task, mechanism) for task in tasks]
    num_runs = sum(cell.n + cell.num_failed for cell in cells)
    return f"{num_runs} of {len(tasks) * len(found.seeds)} runs"


def _mean_skill(of: Grid, tasks: Sequence[TaskFacts], mechanism: MechanismFacts) -> float:
    """Mean skill over tasks, runs without a score counted as 0; NaN where some task has no run."""
    means = []
    for task in tasks:
        cell = of.cell(task, mechanism)
        num_runs = cell.n + cell.num_failed
        means.append((cell.skill * cell.n if cell.n else 0.0) / num_runs if num_runs else math.nan)
    return float(np.mean(means)) if means else math.nan


def _best_first(line: BoardLine) -> float:
    return math.inf if math.isnan(line.skill) else -line.skill
