"""The rankings of a page: of the whole suite, and of each category."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import DIGITS, Cells, Key, MechanismFacts, TaskFacts
from synthbench.reports.leaderboard import Entry, Leaderboard, leaderboard, tasks_words
from synthbench.reports.render.page import charts
from synthbench.reports.render.page.results import Result
from synthbench.reports.report import Report
from synthbench.reports.verdicts import is_ranked

_PartOf = Callable[[str, MechanismFacts, Entry | None], Interval]
"""Mean skill of one part of a board, by its label; a run without a score counts as 0, NaN if some task has no run."""


class Facet(NamedTuple):
    """One value of a filter."""

    id: str
    label: str


def boards(
    report: Report, results: Mapping[tuple[Key, Key], Result], categories: Mapping[str, Facet]
) -> list[SimpleNamespace]:
    """The ranking of the suite, then one of each category."""
    cells = report.cells
    return [_of_suite(report), *(_of_category(cells, facet, results) for facet in categories.values())]


def _of_suite(report: Report) -> SimpleNamespace:
    cells = report.cells
    parts = {category: cells.tasks_of(category) for category in cells.categories}

    def part(category: str, mechanism: MechanismFacts, entry: Entry | None) -> Interval:
        return entry.categories[category] if entry else _alone(cells, filter(is_ranked, parts[category]), mechanism)

    return _board(cells, report.board, None, parts, part)


def _of_category(whole: Cells, facet: Facet, results: Mapping[tuple[Key, Key], Result]) -> SimpleNamespace:
    cells = whole.among(whole.tasks_of(facet.label))
    tasks = {task.label: task for task in cells.tasks}

    def part(label: str, mechanism: MechanismFacts, _entry: Entry | None) -> Interval:
        task = tasks[label]
        mean = _alone(cells, [task], mechanism)
        # Intervals are of the runs with a score: where one failed they are of another mean.
        if cells.cell(task, mechanism).num_failed or math.isnan(mean.value):
            return mean
        return Interval(mean.value, *results[task.key, mechanism.key].interval)

    return _board(cells, leaderboard(cells), facet, {label: (task,) for label, task in tasks.items()}, part)


def _board(
    cells: Cells,
    ranking: Leaderboard | None,
    facet: Facet | None,
    parts: Mapping[str, Sequence[TaskFacts]],
    part_of: _PartOf,
) -> SimpleNamespace:
    """A ranking of the whole suite by category (without a facet), or of one category by task."""
    counting = {label: [task for task in of_part if is_ranked(task)] for label, of_part in parts.items()}
    shown = {label: tasks for label, tasks in counting.items() if tasks}
    tasks = [task for of_part in shown.values() for task in of_part]
    entries = {entry.mechanism.key: entry for entry in ranking.entries} if ranking else {}
    # Where a part is one task on a ladder, its skill is printed in rungs.
    ladders = [of_part[0].ladder if facet else None for of_part in shown.values()]

    def line_of(mechanism: MechanismFacts) -> SimpleNamespace:
        entry = entries.get(mechanism.key)
        of_parts = [part_of(label, mechanism, entry) for label in shown]
        mean = float(np.mean([interval.value for interval in of_parts])) if of_parts else math.nan
        return SimpleNamespace(
            mechanism=mechanism,
            entry=entry,
            reason="" if entry or not ranking else tasks_words(ranking.partial[mechanism], len(tasks)),
            rank_bar=charts.rank_bar(*entry.rank, len(entries)) if entry else None,
            skill_bar=charts.bar(*entry.skill) if entry else None,
            skill=entry.skill.value if entry else mean,
            parts=of_parts,
        )

    lines = sorted(
        map(line_of, cells.mechanisms),
        key=lambda line: math.inf if math.isnan(line.skill) else -round(line.skill, DIGITS),
    )
    return SimpleNamespace(
        facet=facet,
        parts=shown,
        tasks=tasks,
        rungs=[ladder and ladder.num_rungs for ladder in ladders],
        left_out=[task for task in cells.tasks if task not in tasks],
        best=ranking.best if ranking else None,
        verdict=ranking.verdict() if ranking else "",
        ranked=[line for line in lines if line.entry],
        unranked=[line for line in lines if not line.entry],
    )


def _alone(cells: Cells, tasks: Iterable[TaskFacts], mechanism: MechanismFacts) -> Interval:
    """Mean skill over tasks without an interval, a failed run counted as 0; NaN if some task has no run."""
    skills = [cells.cell(task, mechanism).skill_of_all for task in tasks]
    return Interval(float(np.mean(skills)) if skills else math.nan, math.nan, math.nan)
