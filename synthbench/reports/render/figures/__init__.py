"""Figures of a report as SVG and PDF, each with its numbers as CSV; nothing is written to disk."""

from synthbench.reports.render.figures.drawing import PICTURES, Drawing, files_of, render
from synthbench.reports.render.figures.lines import frontier, learning_curves, levels, profiles
from synthbench.reports.render.figures.matrix import heat_map
from synthbench.reports.render.figures.scatter import skill_state
from synthbench.reports.report import Report

__all__ = ["PICTURES", "Drawing", "drawings", "files_of", "render"]


def drawings(report: Report) -> list[Drawing]:
    """Make all figures for which the rows have data."""
    single = (levels, profiles, skill_state, frontier, heat_map)
    return [*(drawing for draw in single if (drawing := draw(report)) is not None), *learning_curves(report)]
