"""Skill over rungs on a page: a panel per task, a line per mechanism."""

from collections.abc import Sequence
from typing import NamedTuple

from synthbench.reports.cells import Cells, MechanismFacts, TaskFacts
from synthbench.reports.ladder import mean_profile
from synthbench.reports.render.page import charts
from synthbench.reports.render.page.facets import Facet, facets

NUM_COLOURS = 7
"""Of ``rungs.css``."""


class RungLine(NamedTuple):
    """A mechanism in a panel."""

    path: str
    look: str
    """Its class in the style sheet."""


class Panel(NamedTuple):
    """The drawing of one task."""

    task: TaskFacts
    ticks: tuple[tuple[str, str], ...]
    """Marked loads, each with its distance from the left end in per cent."""
    lines: tuple[RungLine, ...]
    """Coloured lines come last, so that they are on top."""


def coloured(cells: Cells, best_first: Sequence[MechanismFacts]) -> list[MechanismFacts]:
    """The mechanisms with a colour, in printed order: the best ones, one per colour, as in the figures."""
    return [mechanism for mechanism in cells.mechanisms if mechanism in best_first[:NUM_COLOURS]]


def panels(cells: Cells, with_colour: Sequence[MechanismFacts]) -> dict[Facet, tuple[Panel, ...]]:
    """The panels by category; none without a ladder. Mechanisms without a colour are pale."""
    categories = facets(cells)["category"]
    by_category: dict[Facet, tuple[Panel, ...]] = {}
    for task in cells.tasks:
        if panel := _panel(cells, task, with_colour):
            facet = categories[task.category]
            by_category[facet] = (*by_category.get(facet, ()), panel)
    return by_category


def _panel(cells: Cells, task: TaskFacts, with_colour: Sequence[MechanismFacts]) -> Panel | None:
    if task.ladder is None:
        return None
    lines, loads = [], task.ladder.loads
    for mechanism in sorted(cells.mechanisms, key=with_colour.__contains__):
        if drawn := mean_profile(task.ladder, cells.cell(task, mechanism).rungs.values()):
            look = f"l{with_colour.index(mechanism)}" if mechanism in with_colour else "pale"
            lines.append(RungLine(charts.over_loads(loads, drawn.mean), look))
    ticks = tuple((f"{load:g}", f"{100 * charts.along(loads, load):.1f}") for load in task.ladder.ticks)
    return Panel(task, ticks, tuple(lines)) if lines else None
