"""Figures of a report as SVG and PDF, each with its numbers as CSV; nothing is written to disk."""

from synthbench.reports.render.figures.drawing import PICTURES, Drawing, files_of, render
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import frontier, learning_curves, levels, profiles
from synthbench.reports.render.figures.matrix import heat_map
from synthbench.reports.render.figures.scatter import skill_state

__all__ = ["PICTURES", "Drawing", "Facts", "drawings", "files_of", "render"]


def drawings(facts: Facts) -> list[Drawing]:
    """Make all figures for which the rows have data."""
    single = (levels, profiles, skill_state, frontier, heat_map)
    return [*(drawing for draw in single if (drawing := draw(facts)) is not None), *learning_curves(facts)]
