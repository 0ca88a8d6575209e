"""Figures of lines: skill over load, performance profiles, skill over state size, and learning curves."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Num
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from synthbench.reports.aggregates import Interval, balanced, over_seeds, reached
from synthbench.reports.cells import DIGITS, MechanismFacts, TaskFacts
from synthbench.reports.ladder import Ladder, Profile
from synthbench.reports.leaderboard import Leaderboard
from synthbench.reports.render.figures.drawing import (
    COLOURS,
    COMPACT,
    DARK,
    PALE,
    PERCENT,
    PLAIN,
    SMALL,
    Drawing,
    Look,
    looks,
    panels,
    shown,
)
from synthbench.reports.report import Report, stem_of
from synthbench.reports.table import counted
from synthbench.reports.variants import of_sizes
from synthbench.reports.verdicts import ranked_tasks

_THRESHOLDS = np.arange(41) / 40

Points = Num[np.ndarray, " points"]


class Line(NamedTuple):
    """A line with a band around it; the ends of the band are NaN at points without a band."""

    at: Points
    values: Points
    low: Points
    high: Points


def draw_lines(axis: Axes, lines: Mapping[str, Line], looks: Mapping[str, Look]) -> None:
    """Draw the lines of one panel; the keys of ``lines`` are the labels of the lines.

    A line without a style in ``looks`` is pale and behind the others. Values outside the vertical axis are drawn at the
    end of the axis.
    """
    low, high = axis.get_ylim()
    pale = [line for label, line in lines.items() if label not in looks]
    if pale:
        # One path with gaps: separate lines would need more bytes in a file for their styles than for their points.
        at, values = (np.concatenate([[*line[part], np.nan] for line in pale]) for part in (0, 1))
        axis.plot(at, np.clip(values, low, high), color=PALE, linewidth=0.4, zorder=2)
    for label, look in looks.items():
        if label in lines:
            line = lines[label]
            if not np.isnan(line.low).all():
                ends = (np.clip(end, low, high) for end in line[2:])
                axis.fill_between(line.at, *ends, color=look.colour, alpha=0.15, linewidth=0, zorder=2)
            axis.plot(line.at, np.clip(line.values, low, high), color=look.colour, linestyle=look.dashes, zorder=3)


def legend_of(looks: Mapping[str, Look], *, has_pale: bool) -> list[tuple[str, Artist]]:
    """Make the entries of a legend; all pale lines share one entry."""
    entries: list[tuple[str, Artist]] = [
        (shown(label), Line2D([], [], color=look.colour, linestyle=look.dashes)) for label, look in looks.items()
    ]
    return [*entries, *([("others", Line2D([], [], color=PALE))] if has_pale else [])]


# Skill over the load of a ladder, one panel per task.


def best_first(report: Report) -> list[MechanismFacts]:
    """Sort mechanisms by mean skill, best first, with equal weight for all categories.

    A run without a score has skill 0.
    """
    tasks = ranked_tasks(report.cells)
    weights = balanced([task.category for task in tasks])

    def mean_skill(mechanism: MechanismFacts) -> float:
        skills = [report.cells.skill_on(task, mechanism).value for task in tasks]
        return round(float(weights @ np.nan_to_num(skills)), DIGITS)  # rounding errors must not order equal means

    return sorted(report.cells.mechanisms, key=mean_skill, reverse=True)


def looks_of(report: Report) -> dict[str, Look]:
    """Choose a colour and line style for each of the best mechanisms; all figures of a report share them.

    The keys are labels of mechanisms.
    """
    best = best_first(report)[: len(COLOURS)]
    return looks([mechanism.label for mechanism in report.cells.mechanisms if mechanism in best])


def pale_words(report: Report, drawn: Collection[str]) -> str:
    """Return the part of a caption that explains pale lines; empty if no label in ``drawn`` has a pale line."""
    num_pale = len(set(drawn) - set(looks_of(report)))
    num_coloured = len(set(drawn)) - num_pale
    return f" In colour: the {num_coloured} with the best mean skill; pale: the other {num_pale}." * bool(num_pale)


_Panels = dict[TaskFacts, tuple[Ladder, dict[str, Profile]]]
"""The ladder of each task, and the profile of each mechanism by its label."""


def levels(report: Report) -> Drawing | None:
    """Draw skill over load (such as a number of pairs to remember) for each mechanism.

    The result is None if no task with levels has a scored run.
    """
    lines: _Panels = {}
    for task, mechanism, _cell in report.cells:
        if task.ladder and (points := report.cells.profile(task, mechanism)):
            lines.setdefault(task, (task.ladder, {}))[1][mechanism.label] = points
    if not lines:
        return None
    drawn = {label for _ladder, profiles in lines.values() for label in profiles}
    return Drawing(
        name="levels",
        title="Skill over load",
        caption=(
            "Skill on each level of a task over its load: (accuracy − shortcut baseline) / (ceiling − shortcut "
            "baseline) on what is new on the level, made non-increasing and cut to 0 to 1. Line: mean over seeds; "
            f"band: lowest to highest. The area below a line is the score.{pale_words(report, drawn)}"
        ),
        header=("category", "task", "mechanism", "level", "load", "load_in", "mean", "low", "high", "n"),
        lines=tuple(
            (task.category, task.label, label, number, load, ladder.unit, mean, low, high, points.num_runs)
            for task, (ladder, profiles) in lines.items()
            for label, points in profiles.items()
            for number, (load, mean, low, high) in enumerate(
                zip(ladder.loads, points.mean, points.low, points.high, strict=True), start=1
            )
        ),
        draw=lambda: _draw_levels(report, lines, drawn),
    )


def _draw_levels(report: Report, lines: _Panels, drawn: set[str]) -> Figure:
    looks = {label: look for label, look in looks_of(report).items() if label in drawn}
    legend = legend_of(looks, has_pale=len(drawn) > len(looks))
    figure, axes = panels([task.label for task in lines], "skill", legend, height=1.7)
    category = ""
    for axis, (task, (ladder, profiles)) in zip(axes, lines.items(), strict=True):
        axis.set_ylim(0, 1.04)
        axis.set_xlim(np.log2(ladder.loads[0]) - 0.1, np.log2(ladder.loads[-1]) + 0.1)
        axis.set_xticks(np.log2(ladder.ticks), [f"{load:g}" for load in ladder.ticks])
        axis.yaxis.set_major_formatter(PLAIN)
        axis.set_xlabel(f"load, {shown(ladder.unit)}", labelpad=1)
        if task.category != category:
            # Above the first panel of a category stands its name.
            category = task.category
            axis.annotate(
                shown(category.replace("_", " ")), (0, 1), (0, 13), xycoords="axes fraction",
                textcoords="offset points", size=SMALL, color=DARK,
            )  # fmt: skip
        at = np.log2(ladder.loads)
        drawn_lines = {}
        for label, points in profiles.items():
            low, high = (np.array(end) if points.num_runs > 1 else np.nan * at for end in (points.low, points.high))
            drawn_lines[label] = Line(at, np.array(points.mean), low, high)
        draw_lines(axis, drawn_lines, looks)
    return figure


# Performance profiles: how many runs of a mechanism reach a skill.


def profiles(report: Report) -> Drawing | None:
    """Draw each mechanism's performance profile: the share of its runs that reach a skill, for every skill from 0 to 1.

    The result is None if fewer than two mechanisms are ranked.

    Source: Agarwal et al. (2021), section 4.2.
    """
    board = report.board
    if board is None or len(board.entries) < 2:
        return None
    lines = _profiles(board)
    return Drawing(
        name="profiles",
        title="Performance profiles",
        caption=(
            "Share of runs that reach at least a given skill, with equal weight for all categories: higher is better. "
            "Band: 95 % interval over seeds at each skill; the CSV file has the numbers of all "
            f"mechanisms.{pale_words(report, lines)}"
        ),
        header=("mechanism", "skill", "share", "low", "high"),
        lines=tuple((label, *map(float, point)) for label, line in lines.items() for point in zip(*line, strict=True)),
        draw=lambda: _draw_profiles(report, lines),
    )


def _profiles(board: Leaderboard) -> dict[str, Line]:
    """Return the performance profile of every ranked mechanism, by its label."""
    weights = balanced([task.category for task in board.tasks])
    skills = np.array([entry.skills for entry in board.entries])
    at = np.array([over_seeds(reached(skills, threshold), weights) for threshold in _THRESHOLDS])
    return {
        entry.mechanism.label: Line(_THRESHOLDS, *shares)
        for entry, shares in zip(board.entries, at.transpose(1, 2, 0), strict=True)
    }


def _draw_profiles(report: Report, lines: Mapping[str, Line]) -> Figure:
    looks = {label: look for label, look in looks_of(report).items() if label in lines}
    figure, axis = _panel_of_shares(looks, lines, "runs with that skill or more, %")
    axis.set_xlim(0, 1)
    draw_lines(axis, lines, looks)
    axis.set_xlabel("skill", labelpad=1)
    axis.xaxis.set_major_formatter(PLAIN)
    axis.yaxis.set_major_formatter(PERCENT)
    return figure


def _panel_of_shares(looks: Mapping[str, Look], lines: Mapping[str, Line], y_label: str) -> tuple[Figure, Axes]:
    """Make a figure of one panel whose vertical axis is from 0 to 1."""
    figure, (axis,) = panels([""], y_label, legend_of(looks, has_pale=len(lines) > len(looks)), height=2.4)
    axis.set_ylim(0, 1.02)
    return figure, axis


# The frontier: mean skill of some mechanisms at several sizes of their state.


def frontier(report: Report) -> Drawing | None:
    """Draw mean skill against state size, with one line for each mechanism that ran with several state sizes.

    All points are means over the same tasks and seeds. Settings with other tasks, seeds, blocks or position encodings
    are left out. The result is None if no mechanism ran with several state sizes.
    """
    sized = of_sizes(report.variants)
    if not sized:
        return None
    lines: dict[str, list[tuple[float, str, Interval]]] = {}
    for variant in sized:
        main, other = variant.intervals()
        points = lines.setdefault(variant.main.label, [(variant.main.state, variant.words[0], main)])
        points.append((variant.variant.state, variant.words[1], other))
    for points in lines.values():
        points.sort(key=lambda point: point[0])
    num_tasks, num_seeds = len(sized[0].tasks), len(sized[0].seeds)
    return Drawing(
        name="frontier",
        title="Skill at several sizes of the state",
        caption=(
            f"Mean skill over {num_tasks} tasks and {counted(num_seeds, 'seed')}, with equal "
            "weight for all categories, against the numbers that one layer keeps after a whole sequence, the largest "
            "over the tasks; a line for each mechanism. Where no option of a mechanism sets its state, the whole model "
            "is narrower or wider. Band: 95 % interval over seeds."
        ),
        header=("mechanism", "setting", "state", "skill", "low", "high"),
        lines=tuple((label, words, state, *skill) for label, points in lines.items() for state, words, skill in points),
        draw=lambda: _draw_frontier(lines),
    )


def _draw_frontier(points: Mapping[str, Sequence[tuple[float, str, Interval]]]) -> Figure:
    lines = {
        label: Line(*np.array([(state, *skill) for state, _words, skill in of_line]).T)
        for label, of_line in points.items()
    }
    of_lines = looks(list(lines))
    figure, axis = _panel_of_shares(of_lines, lines, "mean skill")
    axis.set_xscale("log")
    draw_lines(axis, lines, of_lines)
    axis.set_xlabel("state of a layer, numbers", labelpad=1)
    axis.xaxis.set_major_formatter(COMPACT)
    return figure


# Learning curves: a figure per category, a panel per task.


def learning_curves(report: Report) -> list[Drawing]:
    """Make one drawing for each category that has a task with learning curves of more than one point."""
    if report.averages is None or report.averages.empty:
        return []
    validation = report.averages[report.averages["split"] == "validation"]
    metric = "accuracy" if (validation["metric"] == "accuracy").any() else "loss"
    curves = validation[validation["metric"] == metric]
    curves = curves.assign(standard_error=curves["std"] / np.sqrt(curves["n"]))  # missing below two seeds
    drawings: list[Drawing] = []
    taken: set[str] = set()
    for category in report.cells.categories:
        tasks = report.cells.tasks_of(category)
        in_category = curves[curves["task"].isin([task.label for task in tasks])]
        drawn = [task for task in tasks if len(set(in_category.loc[in_category["task"] == task.label, "step"])) > 1]
        if drawn:
            stem = stem_of(category, taken)
            taken.add(stem)
            drawings.append(_curves_of(report, stem, category, drawn, in_category, metric))
    return drawings


def _curves_of(
    report: Report, stem: str, category: str, tasks: Sequence[TaskFacts], curves: pd.DataFrame, metric: str
) -> Drawing:
    columns = ["task", "mechanism", "step", "mean", "standard_error", "n"]
    bounds = " Dashed: floor and ceiling." if metric == "accuracy" else ""
    word = "accuracy in per cent" if metric == "accuracy" else "loss"
    return Drawing(
        name=f"learning-curves-{stem}",
        title=f"Learning curves, {category.replace('_', ' ')}",
        caption=(
            f"Validation {word} by training step: mean over seeds; band: one standard error to both sides, from two "
            f"seeds. A run that stopped early keeps its last value.{bounds}{pale_words(report, curves['mechanism'])}"
        ),
        header=tuple(columns),
        lines=tuple(
            curves[curves["task"].isin([task.label for task in tasks])][columns].itertuples(index=False, name=None)
        ),
        draw=lambda: _draw_curves(report, tasks, curves, is_accuracy=metric == "accuracy"),
    )


def _draw_curves(report: Report, tasks: Sequence[TaskFacts], curves: pd.DataFrame, *, is_accuracy: bool) -> Figure:
    looks = looks_of(report)
    legend = legend_of(looks, has_pale=len(report.cells.mechanisms) > len(looks))
    y_label = "accuracy, %" if is_accuracy else "loss"
    figure, axes = panels([task.label for task in tasks], y_label, legend, x_label="step")
    by_cell = dict(list(curves.groupby(["task", "mechanism"])))
    for task, axis in zip(tasks, axes, strict=True):
        axis.set_ylim(0, 1.04 * (1.0 if is_accuracy else float(curves["mean"].max())))
        if is_accuracy:
            axis.yaxis.set_major_formatter(PERCENT)
            for bound in (task.floor, task.ceiling):
                axis.axhline(bound, color=DARK, linewidth=0.5, linestyle=(0, (4, 3)), zorder=1)
        lines = {}
        for mechanism in report.cells.mechanisms:
            if (curve := by_cell.get((task.label, mechanism.label))) is not None:
                step, mean, error = (curve[name].to_numpy() for name in ("step", "mean", "standard_error"))
                lines[mechanism.label] = Line(step, mean, mean - error, mean + error)
        draw_lines(axis, lines, looks)
        axis.set_xlim(0, int(curves["step"].max()))
        axis.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        axis.xaxis.set_major_formatter(COMPACT)
    return figure
