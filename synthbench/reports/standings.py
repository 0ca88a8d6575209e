"""The ranking of a report as data for other programs."""

import hashlib
import json
from typing import Any

from synthbench.errors import UsageError
from synthbench.reports.aggregates import UNKNOWN, Interval
from synthbench.reports.bits import bits_on
from synthbench.reports.cells import Cells, MechanismFacts, TaskFacts, is_known
from synthbench.reports.leaderboard import Leaderboard, Placed
from synthbench.reports.report import Report

SCHEMA = 1
"""Version of the set of keys that :func:`standings` returns."""


def standings(made: Report, category: str | None = None) -> dict[str, Any]:
    """Return the ranking of a report as a dictionary for other programs; docs/usage.md explains every key.

    Args:
        made: A report on the rows of a suite, or of one of its categories.
        category: Name of the category if the report is on a single category; means by category are then left out. None
            if the report is on a whole suite.
    """
    cells, board = made.cells, made.board
    tasks = board.tasks if board else cells.tasks
    placed = board.placed if board else [Placed(one, None) for one in cells.mechanisms]
    parts = board.parts if board and category is None else {}
    mechanisms = []
    for mechanism, entry, _ in sorted(placed, key=lambda each: each.mechanism.key not in made.own):
        runs = {task: cells.cell(task, mechanism) for task in tasks if cells.cell(task, mechanism).runs}
        if not runs:  # it ran only on tasks that are not ranked
            continue
        rows = [row for cell in runs.values() for row in cell.rows]
        means = {name: part.skill_of(mechanism) for name, part in parts.items()}
        mechanisms.append(
            {
                "rank": entry.rank.value if entry else None,
                "rank_ends": list(entry.rank[1:]) if entry and board and board.has_rank_intervals else None,
                **_named(mechanism, "name", "label", "family", "origin", "block", "match"),
                "options": json.loads(mechanism.arguments),
                "source": mechanism.source,
                "is_own": mechanism.key in made.own,
                **_named(mechanism, "condition", "convolution", "positions", "sees_places"),
                "num_params": mechanism.num_parameters,
                "state": mechanism.state,
                "step_ms": mechanism.step_ms,
                **_as_facts(entry.skill if entry else UNKNOWN),
                "num_seeds": min(len(cell.runs) for cell in runs.values()),
                "num_tasks": len(runs),
                "num_rows": len(rows),
                "num_verified": sum(is_known(row.get("verified_by")) for row in rows),
                **({"categories": {name: _as_facts(mean) for name, mean in means.items()}} if parts else {}),
                "tasks": {task.label: _of_task(cells, task, mechanism) for task in runs},
            }
        )
    shown = made.selection.rows
    checksums = "\n".join(sorted(shown.get("row_sha256", shown["run_id"])))
    return {
        "schema_version": SCHEMA,
        "rows_sha256": hashlib.sha256(checksums.encode()).hexdigest(),
        "suite": made.selection.suite,
        "suite_version": made.selection.suite_version,
        "category": category,
        "is_ranked": board is not None,
        "verdict": board.verdict() if board else made.verdict,
        "setting": made.setting,
        "tasks": [task.label for task in tasks],
        "mechanisms": mechanisms,
    }


def ranked_board(made: Report) -> Leaderboard:
    """Return the ranking of a report.

    Raises:
        UsageError: If the report has no ranking, since all its tasks are scored in bits per token.
    """
    if made.board is None:
        raise UsageError(
            f"suite {made.selection.suite!r} has no ranking: its tasks have tables of their own; "
            "allowed: a suite with scores"
        )
    return made.board


def _of_task(cells: Cells, task: TaskFacts, mechanism: MechanismFacts) -> dict[str, Any]:
    """Return a mechanism's mean skill on a task, with its interval and number of seeds.

    For a task that is scored in bits per token, the skill is unknown, and the bits are added. For a task with levels,
    the capacity (the load at half skill) and the mean skill at each load are added.
    """
    cell, ladder = cells.cell(task, mechanism), task.ladder
    skill = UNKNOWN if task.is_in_bits else cells.skill_on(task, mechanism)
    facts: dict[str, Any] = {**_as_facts(skill), "num_seeds": len(cell.runs)}
    if task.is_in_bits:
        facts["bits"] = _as_facts(bits_on(cells, task, mechanism), "mean")
    if ladder:
        facts["capacity"] = f"{ladder.load_text(cell.load_at_half)} {ladder.unit}"
        if drawn := cells.profile(task, mechanism):
            facts["levels"] = dict(zip(map("{:g}".format, ladder.loads), drawn.mean, strict=True))
    return facts


def _named(mechanism: MechanismFacts, *names: str) -> dict[str, Any]:
    """Return some facts of a mechanism by their names, which are those of the attributes."""
    return {name: getattr(mechanism, name) for name in names}


def _as_facts(interval: Interval, mean: str = "skill") -> dict[str, float]:
    return dict(zip((mean, "low", "high"), interval, strict=True))
