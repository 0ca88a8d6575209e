"""The ranking of a report as lines of text or CSV."""

import math
from collections.abc import Iterator
from typing import Any

from synthbench.cli.output import aligned
from synthbench.options import resolve
from synthbench.reports.aggregates import Interval
from synthbench.reports.leaderboard import Leaderboard
from synthbench.reports.render.spreadsheet import csv_text
from synthbench.reports.table import NOTHING, Cell, Table, counted, fixed, in_words

MOST_LINES = 10
"""Limit on the number of mechanisms shown."""


def lines_of(board: Leaderboard | None) -> Iterator[str]:
    """Yield a ranking as lines of text: the best mechanisms, the number of other ranked ones, and the unranked ones.

    Args:
        board: A ranking. If it is None or empty, no line is yielded.
    """
    if board is None or not board.entries:
        return
    best = board.entries[:MOST_LINES]
    body = [[str(entry.rank.value), entry.label, in_words(entry.skill)] for entry in best]
    yield from aligned([["rank", "mechanism", "mean"], *body])
    if num_more := len(board.entries) - len(best):
        yield f"and {num_more} more"
    if named := [f"{row.mechanism.label} ({row.reason})" for row in board.placed if row.entry is None]:
        yield f"not ranked, as tasks are missing: {', '.join(named)}"


def lines_of_table(table: Table) -> Iterator[str]:
    """Yield a table of a report as plain text: its title, column names and lines."""
    yield table.title
    body = [[*line.labels, *(_cell_text(cell) for cell in line.cells)] for line in table.lines]
    yield from aligned([[*table.headings, *(column.label for column in table.columns)], *body])


def _cell_text(cell: Cell) -> str:
    return f"{cell.value} ({', '.join(cell.remarks)})" if cell.remarks else cell.value


def lines_of_standings(facts: dict[str, Any]) -> Iterator[str]:
    """Yield a ranking as lines of text: the verdict, the ranked mechanisms, and the mechanisms that are not ranked.

    A mechanism without rows for some tasks, for example, is not ranked. ``facts`` is the result of
    :func:`synthbench.reports.standings.standings`.
    """
    ranked = [one for one in facts["mechanisms"] if one["rank"] is not None]
    others = [one for one in facts["mechanisms"] if one["rank"] is None]
    num_tasks = counted(len(facts["tasks"]), "task")
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
                in_words(Interval(one["skill"], one["low"], one["high"])),
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
        body = [
            [_called(one), f"{one['num_tasks']} of {num_tasks}", counted(one["num_seeds"], "seed")] for one in others
        ]
        yield from aligned(body)


def csv_of_standings(facts: dict[str, Any]) -> str:
    """Return a ranking as CSV: for each mechanism, one line with its overall mean, and one line for each category.

    If the ranking is on a single category, there is one line for each task instead. ``facts`` is the result of
    :func:`synthbench.reports.standings.standings`.
    """
    of, kind = _part_of(facts["category"]), "category" if facts["category"] is None else "task"
    keys = ("name", "label", "condition", "positions", "sees_places", "rank", "num_seeds", "num_tasks")
    ends = ("skill", "low", "high")
    lines = [
        [facts["suite"], facts["suite_version"], *(one[key] for key in keys), each, part, *(mean[end] for end in ends)]
        for one in facts["mechanisms"]
        for each, part, mean in (("mean", "", one), *((kind, *entry) for entry in one.get(of, {}).items()))
        if part == "" or mean["skill"] == mean["skill"]
    ]
    return csv_text(["suite", "suite_version", *keys, "of", "part", *ends], lines)


def _part_of(category: str | None) -> str:
    return "categories" if category is None else "tasks"


def _called(one: dict[str, Any]) -> str:
    """Return the label of a mechanism, with a star before it if the mechanism is the user's own.

    The registered name is added in brackets if commands would not accept the label.
    """
    label = one["label"].removesuffix(" (bare)")
    is_taken = resolve("mechanism", label, {one["name"]: one["name"]}) == one["name"]
    name = "" if is_taken else f" ({one['name']})"
    return f"{'* ' if one['is_own'] else ''}{one['label']}{name}"
