"""The rankings of a page: of the whole suite, and of each category."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import Cells, Key, MechanismFacts, TaskFacts
from synthbench.reports.leaderboard import Entry, Leaderboard, leaderboard
from synthbench.reports.render.page import charts
from synthbench.reports.render.page.facets import Facet, facets
from synthbench.reports.render.page.results import Result
from synthbench.reports.report import Report
from synthbench.reports.verdicts import is_ranked, needed_seeds

_PartOf = Callable[[str, MechanismFacts, Entry | None], Interval]
"""Mean skill of one part of a board, by its label."""


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
    """Mean over the parts; NaN if some task has no run."""
    parts: tuple[Interval, ...]
    """Mean skill of each part, a run without a score counted as 0; NaN if some task of it has no run."""


@dataclass(frozen=True)
class Board:
    """A ranking: of the whole suite by category, or of one category by task."""

    facet: Facet | None
    """The category; None for the whole suite."""
    parts: dict[str, tuple[TaskFacts, ...]]
    """The heat columns: their labels and the tasks that count."""
    left_out: tuple[TaskFacts, ...]
    """Tasks whose gap between floor and ceiling is below the noise."""
    best: MechanismFacts | None
    """The one mechanism that can be the best on tasks like these; None if there are several."""
    verdict: str
    """Which mechanisms can be the best, in a sentence; empty below two seeds."""
    ranked: tuple[BoardLine, ...]
    unranked: tuple[BoardLine, ...]

    @property
    def tasks(self) -> tuple[TaskFacts, ...]:
        """The tasks that count."""
        return tuple(task for tasks in self.parts.values() for task in tasks)

    @property
    def rungs(self) -> tuple[int | None, ...]:
        """The number of rungs in which the skill of each part is printed; None if it is a mean or no height."""
        ladders = [tasks[0].ladder if self.facet else None for tasks in self.parts.values()]
        return tuple(ladder and ladder.num_rungs for ladder in ladders)


def boards(report: Report, results: Mapping[tuple[Key, Key], Result]) -> tuple[Board, ...]:
    """The ranking of the suite, then one of each category."""
    cells = report.cells
    return (_of_suite(report), *(_of_category(cells, facet, results) for facet in facets(cells)["category"].values()))


def _of_suite(report: Report) -> Board:
    cells = report.cells
    parts = {category: _counting(cells.tasks_of(category)) for category in cells.categories}

    def part(category: str, mechanism: MechanismFacts, entry: Entry | None) -> Interval:
        return entry.categories[category] if entry else _alone(_mean_skill(cells, parts[category], mechanism))

    return _board(cells, report.board, None, parts, part)


def _of_category(whole: Cells, facet: Facet, results: Mapping[tuple[Key, Key], Result]) -> Board:
    cells = whole.only(facet.label)
    tasks = {task.label: task for task in cells.tasks}

    def part(label: str, mechanism: MechanismFacts, _entry: Entry | None) -> Interval:
        task = tasks[label]
        skill = _mean_skill(cells, [task], mechanism)
        # Intervals are of the runs with a score: where one failed they are of another mean.
        if cells.cell(task, mechanism).num_failed or math.isnan(skill):
            return _alone(skill)
        return Interval(skill, *results[task.key, mechanism.key].interval)

    ranking = leaderboard(cells) if len(cells.seeds) > 1 else None
    return _board(cells, ranking, facet, {label: _counting([task]) for label, task in tasks.items()}, part)


def _board(
    cells: Cells,
    ranking: Leaderboard | None,
    facet: Facet | None,
    parts: Mapping[str, tuple[TaskFacts, ...]],
    part_of: _PartOf,
) -> Board:
    shown = {label: tasks for label, tasks in parts.items() if tasks}
    tasks = [task for counting in shown.values() for task in counting]
    entries = {entry.mechanism.key: entry for entry in ranking.entries} if ranking else {}

    def line_of(mechanism: MechanismFacts) -> BoardLine:
        entry = entries.get(mechanism.key)
        of_parts = tuple(part_of(label, mechanism, entry) for label in shown)
        mean = float(np.mean([interval.value for interval in of_parts])) if of_parts else math.nan
        return BoardLine(
            mechanism=mechanism,
            entry=entry,
            reason="" if entry else _reason(cells, ranking, mechanism, tasks),
            rank_bar=charts.rank_bar(*entry.rank, len(entries)) if entry else None,
            skill_bar=charts.bar(*entry.skill) if entry else None,
            skill=entry.skill.value if entry else mean,
            parts=of_parts,
        )

    lines = sorted(map(line_of, cells.mechanisms), key=_best_first)
    return Board(
        facet=facet,
        parts=shown,
        left_out=tuple(task for task in cells.tasks if task not in tasks),
        best=ranking.best if ranking else None,
        verdict=ranking.verdict() if ranking else "",
        ranked=tuple(line for line in lines if line.entry),
        unranked=tuple(line for line in lines if not line.entry),
    )


def _counting(tasks: Sequence[TaskFacts]) -> tuple[TaskFacts, ...]:
    return tuple(task for task in tasks if is_ranked(task))


def _alone(skill: float) -> Interval:
    """A mean without an interval."""
    return Interval(skill, math.nan, math.nan)


def _reason(cells: Cells, ranking: Leaderboard | None, mechanism: MechanismFacts, tasks: Sequence[TaskFacts]) -> str:
    if not tasks:
        return "no task counts"
    if ranking is None:
        return "one seed"
    estimates = [cells.cell(task, mechanism) for task in tasks]
    seeds = set(needed_seeds(cells))
    num_runs = sum(len(seeds & cell.runs.keys()) for cell in estimates)
    return f"{num_runs} of {len(tasks) * len(seeds)} runs"


def _mean_skill(cells: Cells, tasks: Sequence[TaskFacts], mechanism: MechanismFacts) -> float:
    """Mean skill over tasks, a failed run counted as 0; NaN if some task has no run."""
    return float(np.mean([cells.cell(task, mechanism).skill_of_all for task in tasks])) if tasks else math.nan


def _best_first(line: BoardLine) -> float:
    return math.inf if math.isnan(line.skill) else -line.skill
