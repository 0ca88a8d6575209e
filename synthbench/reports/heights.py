"""The load at which a mechanism falls to half of the skill: a height in the unit of its task."""

import math
from collections.abc import Sequence
from statistics import median_low

from synthbench.heights import load_at_half
from synthbench.reports.cells import Cells, Estimate, TaskFacts
from synthbench.reports.table import NOTHING, Cell, Column, Table, fixed, task_table


def load_table(cells: Cells, tasks: Sequence[TaskFacts], name: str) -> Table | None:
    """The loads at half of the skill, a row per task and a column per mechanism; None without a ladder."""
    if not cells.has_ladder:
        return None

    def row(task: TaskFacts) -> list[Cell]:
        unit = Cell(task.ladder.unit if task.ladder else NOTHING)
        return [unit, *(_load_cell(task, cell) for cell in cells.cells_of(task))]

    caption = (
        "Load at which the skill falls to one half, interpolated over the logarithm of the load: median over seeds "
        "(the lower middle one if their number is even); in brackets, the lowest and the highest seed. ≥: the skill "
        "does not fall to one half; <: it is below one half on the first rung."
    )
    return task_table(name, "Load at half of the skill", caption, cells, tasks, row, [Column("Load in", "word")])


def load_of(cell: Estimate) -> float:
    """Median over seeds of the load at half of the skill: ``inf`` at the top, 0 below the first rung, NaN without runs.

    If the number of seeds is even, it is the lower middle one: no mean with ``inf`` would be a load.
    """
    return median_low(map(load_at_half, cell.rungs.values())) if cell.rungs else math.nan


def load_text(task: TaskFacts, load: float) -> str:
    """A load as printed: ``23``; ``≥ 64`` at the top of the ladder, ``< 2`` below its first rung."""
    if task.ladder is None or math.isnan(load):
        return NOTHING
    if math.isinf(load):
        return f"≥ {task.ladder.loads[-1]:g}"
    return fixed(load, 1 if load < 10 else 0) if load else f"< {task.ladder.loads[0]:g}"


def _load_cell(task: TaskFacts, cell: Estimate) -> Cell:
    loads = sorted(map(load_at_half, cell.rungs.values()))
    ends = dict.fromkeys(load_text(task, load) for load in (*loads[:1], *loads[-1:]))
    return Cell(load_text(task, load_of(cell)), remarks=(" to ".join(ends),) if len(ends) > 1 else ())
