"""The ranking of a report as a few lines."""

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from synthbench.cli.output import aligned
from synthbench.options import resolve
from synthbench.reports.aggregates import UNKNOWN, Interval
from synthbench.reports.cells import MechanismFacts, TaskFacts, clipped, skills_of
from synthbench.reports.ladder import mean_profile
from synthbench.reports.leaderboard import Leaderboard, Placed, tasks_words
from synthbench.reports.render.spreadsheet import csv_text
from synthbench.reports.report import Report
from synthbench.reports.table import NOTHING, Cell, Table, fixed, in_words

MOST_LINES = 10
"""Mechanisms that are shown."""


def lines_of(board: Leaderboard | None) -> Iterator[str]:
    """Rank, mechanism and skill of the best, then how many more there are; nothing where nothing is ranked.

    Args:
        board: A ranking; None where nothing can be ranked.
    """
    if board is None or not board.entries:
        return
    best = board.entries[:MOST_LINES]
    body = [[str(entry.rank.value), entry.label, in_words(entry.skill)] for entry in best]
    yield from aligned([["rank", "mechanism", "mean"], *body])
    if num_more := len(board.entries) - len(best):
        yield f"and {num_more} more"
    if board.partial:
        num_tasks = len(board.tasks)
        named = (f"{one.label} ({tasks_words(count, num_tasks)})" for one, count in board.partial.items())
        yield f"not ranked, as tasks are missing: {', '.join(named)}"


def lines_of_table(table: Table) -> Iterator[str]:
    """A table of a report: its title, its columns, and a line for each of its lines; without marks."""
    yield table.title
    body = [[*line.labels, *(_cell_text(cell) for cell in line.cells)] for line in table.lines]
    yield from aligned([[*table.headings, *(column.label for column in table.columns)], *body])


def _cell_text(cell: Cell) -> str:
    return f"{cell.value} ({', '.join(cell.remarks)})" if cell.remarks else cell.value


def standings(made: Report, category: str | None = None) -> dict[str, Any]:
    """The ranking of a report as facts for other programs; docs/usage.md explains every key.

    Args:
        made: A report on the rows of a suite, or of one of its categories.
        category: The name of that category: then the parts of a mean are its tasks and not the categories.
    """
    cells, board = made.cells, made.board
    tasks = board.tasks if board else cells.tasks
    placed = board.placed if board else [Placed(one, None, one.label) for one in cells.mechanisms]
    parts = board.parts if board and category is None else {}
    mechanisms = []
    for mechanism, entry, _ in sorted(placed, key=lambda each: each.mechanism.key not in made.own):
        runs = {task: cells.cell(task, mechanism) for task in tasks if cells.cell(task, mechanism).runs}
        if not runs:  # of tasks only that are not ranked
            continue
        means = {name: part.skill_of(mechanism) for name, part in parts.items()}
        mechanisms.append(
            {
                "rank": entry.rank.value if entry else None,
                "name": mechanism.name,
                "label": mechanism.label,
                "is_own": mechanism.key in made.own,
                "condition": mechanism.condition,
                "convolution": mechanism.convolution,
                "positions": mechanism.positions,
                "sees_places": mechanism.sees_places,
                "num_params": mechanism.num_parameters,
                "state": mechanism.state,
                "step_ms": mechanism.step_ms,
                **_as_facts(entry.skill if entry else UNKNOWN),
                "num_seeds": min(len(cell.runs) for cell in runs.values()),
                "num_tasks": len(runs),
                **({"categories": {name: _as_facts(mean) for name, mean in means.items()}} if parts else {}),
                "tasks": {task.label: _of_task(made, task, mechanism) for task in runs},
            }
        )
    return {
        "suite": made.selection.suite,
        "suite_version": made.selection.suite_version,
        "category": category,
        "is_ranked": board is not None,
        "verdict": board.verdict() if board else made.verdict,
        "setting": made.setting,
        "tasks": [task.label for task in tasks],
        "mechanisms": mechanisms,
    }


def _of_task(made: Report, task: TaskFacts, mechanism: MechanismFacts) -> dict[str, Any]:
    """The mean skill on a task with its interval, the number of runs and, on a ladder, capacity and skill by load."""
    cell = made.cells.cell(task, mechanism)
    mean = fmean(skills_of(cell, task, sorted(cell.runs)))
    # An interval is of the runs with a score.
    ends = [math.nan, math.nan]
    if task.gap and not cell.num_failed:
        found = made.cells.interval(task, mechanism)
        ends = [math.nan if math.isnan(end) else clipped((end - task.floor) / task.gap) for end in found]
    facts: dict[str, Any] = {**_as_facts(Interval(mean, *ends)), "num_seeds": len(cell.runs)}
    if ladder := task.ladder:
        facts["capacity"] = f"{ladder.load_text(cell.load_at_half)} {ladder.unit}"
        if drawn := mean_profile(ladder, cell.levels.values()):
            facts["levels"] = dict(zip(map("{:g}".format, ladder.loads), drawn.mean, strict=True))
    return facts


def lines_of_standings(facts: dict[str, Any]) -> Iterator[str]:
    """The ranking for a reader: the verdict, a line for each ranked mechanism, then those that lack a run."""
    ranked = [one for one in facts["mechanisms"] if one["rank"] is not None]
    others = [one for one in facts["mechanisms"] if one["rank"] is None]
    num_tasks = f"{len(facts['tasks'])} task{'s' * (len(facts['tasks']) != 1)}"
    yield facts["verdict"]
    if facts["setting"]:
        yield facts["setting"]
    if ranked:
        where = f"suite {facts['suite']} {facts['suite_version']}" + f", {facts['category']}" * bool(facts["category"])
        has_ends = any(not math.isnan(one["low"]) for one in ranked)
        yield f"Mean, {where}, {num_tasks}{', with its 95 % interval over seeds' * has_ends}:"
        of = _part_of(facts["category"])
        parts = list(ranked[0][of])
        has_conditions = any(one["condition"] for one in ranked)
        body = [
            [
                str(one["rank"]),
                _called(one),
                _skill(one),
                str(one["num_seeds"]),
                *([one["condition"] or NOTHING, one["convolution"] or NOTHING, one["positions"]] * has_conditions),
                *(fixed(one[of][part]["skill"], 2) for part in parts),
            ]
            for one in ranked
        ]
        conditions = ["condition", "convolution", "positions"] * has_conditions
        yield from aligned([["rank", "mechanism", "skill", "seeds", *conditions, *parts], *body])
    if others:
        yield "Not ranked, as tasks are missing:" if facts["is_ranked"] else "With rows, in tables of their own:"
        body = [[_called(one), f"{one['num_tasks']} of {num_tasks}", _seeds(one["num_seeds"])] for one in others]
        yield from aligned(body)


def csv_of_standings(facts: dict[str, Any]) -> str:
    """The ranking in tidy form: a line for the mean of each mechanism, and one for each of its parts."""
    of, kind = _part_of(facts["category"]), "category" if facts["category"] is None else "task"
    keys = ("name", "label", "condition", "positions", "sees_places", "rank", "num_seeds", "num_tasks")
    ends = ("skill", "low", "high")
    lines = [
        [facts["suite"], facts["suite_version"], *(one[key] for key in keys), each, part, *(mean[end] for end in ends)]
        for one in facts["mechanisms"]
        for each, part, mean in (("mean", "", one), *((kind, *entry) for entry in one[of].items()))
        if part == "" or mean["skill"] == mean["skill"]
    ]
    return csv_text(["suite", "suite_version", *keys, "of", "part", *ends], lines)


def _part_of(category: str | None) -> str:
    return "categories" if category is None else "tasks"


def _as_facts(interval: Interval) -> dict[str, float]:
    return dict(zip(("skill", "low", "high"), interval, strict=True))


def _seeds(number: int) -> str:
    return f"{number} seed{'s' * (number != 1)}"


def _called(one: dict[str, Any]) -> str:
    """The label, with the name if no command takes the label for it; a star before a mechanism of one's own."""
    label = one["label"].removesuffix(" (bare)")
    is_taken = resolve("mechanism", label, {one["name"]: one["name"]}) == one["name"]
    name = "" if is_taken else f" ({one['name']})"
    return f"{'* ' if one['is_own'] else ''}{one['label']}{name}"


def _skill(one: dict[str, Any]) -> str:
    interval = Interval(one["skill"], one["low"], one["high"])
    return fixed(interval.value, 2) if math.isnan(interval.low) else in_words(interval)
