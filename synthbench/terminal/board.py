"""The ranking of a report as a few lines."""

from collections.abc import Iterator

from synthbench.reports.leaderboard import Leaderboard, tasks_words
from synthbench.reports.table import Cell, Table, in_words
from synthbench.terminal.layout import aligned

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
    body = [[entry.rank.ends, entry.label, in_words(entry.skill)] for entry in best]
    yield from aligned([["rank", "mechanism", "skill"], *body])
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
