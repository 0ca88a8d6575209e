"""The load at which mechanisms fall to half of the skill: what a height means in the unit of its task."""

import math
from collections.abc import Sequence

from synthbench.heights import load_at_half
from synthbench.reports.cells import Cells, Estimate, TaskFacts
from synthbench.reports.ladder import median_load
from synthbench.reports.table import NOTHING, Cell, Column, Line, Table, fixed, grouped, readable, sources_of


def load_table(cells: Cells, tasks: Sequence[TaskFacts], name: str) -> Table | None:
    """Tasks as lines, mechanisms as columns; None without a ladder.

    Args:
        cells: The cells of a report.
        tasks: Those to show.
        name: Of the table, unique within the report.
    """
    if not cells.has_ladder:
        return None
    return readable(
        Table(
            name=name,
            title="Load at half of the skill",
            caption=(
                "Load at which the skill falls to one half, interpolated over the logarithm of the load: median over "
                "seeds (of an even number of seeds, the lower of the two in the middle), in brackets the lowest and "
                "the highest seed. ≥: the skill does not fall to one half; <: it is below one half on the first rung."
            ),
            headings=("Category", "Task"),
            columns=(Column("Load in", "word"), *(Column(mechanism.label) for mechanism in cells.mechanisms)),
            lines=grouped(
                Line(
                    (task.category, task.label),
                    (Cell(task.ladder.unit if task.ladder else NOTHING), *_load_cells(cells, task)),
                )
                for task in tasks
            ),
            sources=sources_of(tasks, cells.mechanisms),
        )
    )


def load_of(cell: Estimate) -> float:
    """Median over seeds of the load at half of the skill, as :func:`~synthbench.reports.ladder.median_load` has it."""
    return median_load(list(cell.rungs.values()))


def load_text(task: TaskFacts, load: float) -> str:
    """A load as it is printed: ``23``, at the top of the ladder ``≥ 64``, below its first rung ``< 2``."""
    if task.ladder is None or math.isnan(load):
        return NOTHING
    if math.isinf(load):
        return f"≥ {task.ladder.loads[-1]:g}"
    return fixed(load, 1 if load < 10 else 0) if load else f"< {task.ladder.loads[0]:g}"


def _load_cells(cells: Cells, task: TaskFacts) -> list[Cell]:
    printed = []
    for cell in cells.cells_of(task):
        loads = sorted(map(load_at_half, cell.rungs.values()))
        ends = dict.fromkeys(load_text(task, load) for load in (*loads[:1], *loads[-1:]))
        printed.append(Cell(load_text(task, load_of(cell)), remarks=(" to ".join(ends),) if len(ends) > 1 else ()))
    return printed
