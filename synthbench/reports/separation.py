"""Which tasks tell mechanisms apart, and where the others sit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from synthbench.registry import CONTROL
from synthbench.reports.aggregates import variance_share
from synthbench.reports.grid import Estimate, Grid, Key, TaskFacts
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE, Pair, holm, pairs, pairs_of
from synthbench.reports.table import (
    BOUNDS,
    NOTHING,
    Cell,
    Column,
    Line,
    Table,
    ceiling_cell,
    fixed,
    floor_cell,
    percent,
    sources_of,
)

Place = Literal["floor = ceiling", "gap below noise", "at floor", "at ceiling", "between", "no score"]

SMALLEST_GAP = 0.01
"""Between floor and ceiling, a fraction; some thousand test sequences do not resolve less."""
MARGIN = 0.05
"""Skill that counts for nothing: still the floor, still the ceiling, no difference between two mechanisms."""
LOCAL = " Local: best rule that sees its own token and position only, measured; the rest needs mixing of positions."
SHORTCUT = " Shortcut: the best of the rules, n-grams among them, that get by without what the task tests."
FARTHER = " Does at 2×: at twice the length or load of the training, adjusted over the pairs of all its multiples."
NOISE = 3.0
"""Standard errors of the evaluation that count as noise."""


@dataclass(frozen=True)
class Separation:
    """What one task says about the mechanisms that were run on it."""

    task: TaskFacts
    means: tuple[float, float] | None
    """Lowest and highest mean over the mechanisms; None without a score."""
    skills: tuple[float, float] | None
    """Lowest and highest mean skill; None without one, as where floor and ceiling are equal."""
    num_pairs: int
    num_separated: int
    """Pairs that differ: by a skill that counts, and after Holm over the pairs of this task, 5 %."""
    num_certain: int
    """Of these, the pairs that differ after Holm over all pairs of all tasks too."""
    smallest_p: float
    """Smallest p value of the paired t tests, Holm-adjusted over the pairs of this task; NaN without a pair."""
    between: float
    """Share of the variance that lies between mechanisms, not between seeds; NaN without two seeds of two."""
    place: Place
    separates_at: int | None
    """Where no pair differs: the smallest multiple of the training's length or load at which one does, if any."""

    @property
    def separates(self) -> bool:
        """Whether some pair of mechanisms differs."""
        return self.num_separated > 0

    @property
    def differs(self) -> bool:
        """Whether some pair of mechanisms differs significantly, by however little."""
        return self.smallest_p < SIGNIFICANCE

    @property
    def verdict(self) -> str:
        """In words: whether the task separates, and where its scores sit."""
        if not self.num_pairs:
            return f"nothing to compare; {self.place}"
        if self.separates:
            return f"separates; {self.place}"
        farther = f"; does at {self.separates_at}×" if self.separates_at else ""
        return f"does not separate; {self.place}{farther}"


def separation(of: Grid) -> list[Separation]:
    """Judge every task by the pairs of its mechanisms, their p values Holm-adjusted within the task.

    So a task on which nothing differs is said to separate in at most 5 % of all reports, and whether it separates does
    not depend on what else is in one. A difference in skill below ``MARGIN`` is none, however certain it is. Controls
    are left out: most tasks tell them from any mechanism.

    Args:
        of: The cells of a report.

    Returns:
        One judgement for each task, in printed order.
    """
    of = replace(of, mechanisms=tuple(one for one in of.mechanisms if one.family != CONTROL))
    tested = pairs(of)
    over_all = holm(np.array([pair.p for pair in tested], dtype=float))
    tests: dict[Key, list[tuple[Pair, float]]] = {task.key: [] for task in of.tasks}
    for pair, adjusted in zip(tested, over_all.tolist(), strict=True):
        tests[pair.task.key].append((pair, adjusted))
    judged = []
    for task in of.tasks:
        p = holm(np.array([pair.p for pair, _adjusted in tests[task.key]], dtype=float)).tolist()
        # What was adjusted over more tests is never smaller: the certain pairs are among the separated ones.
        apart = [
            (own, adjusted) for own, (pair, adjusted) in zip(p, tests[task.key], strict=True) if _differs(of, pair)
        ]
        cells = [cell for cell in of.cells_of(task) if cell.n]
        num_separated = sum(own < SIGNIFICANCE for own, _adjusted in apart)
        judged.append(
            Separation(
                task=task,
                means=_range([cell.mean for cell in cells]),
                skills=_range([cell.skill for cell in cells]),
                num_pairs=len(p),
                num_separated=num_separated,
                num_certain=sum(adjusted < SIGNIFICANCE for _own, adjusted in apart),
                smallest_p=min(p, default=math.nan),
                between=_between(cells),
                place=_place(of, task),
                separates_at=None if num_separated else _separating_multiple(of, task),
            )
        )
    return judged


def summary(judged: list[Separation]) -> str:
    """The outcome in one sentence, every count computed."""
    counts = {place: sum(one.place == place for one in judged) for place in _PHRASES}
    phrases = [f"{count} {_PHRASES[place]}" for place, count in counts.items() if count]
    num_differing = sum(one.differs for one in judged)
    num_separating = sum(one.separates for one in judged)
    num_certain = sum(one.num_certain > 0 for one in judged)
    num_farther = sum(one.separates_at is not None for one in judged)
    separated = (
        f"At least one pair of mechanisms differs significantly on {num_differing} of {len(judged)} tasks. "
        f"By a skill of {MARGIN:g} or more, which separates it, one differs on {num_separating}, on {num_certain} if "
        "the p values are adjusted over all tasks together"
        + (f", and on {num_farther} of the others out of range" if num_farther else "")
        if any(one.num_pairs for one in judged)
        else "There are no two mechanisms to compare, controls left out"
    )
    return f"{separated}; where the scores sit: {', '.join(phrases)}."


def separation_table(of: Grid, judged: Sequence[Separation]) -> Table:
    """One line a task: the range of the mechanisms' means and skills, the pairs that differ, and a verdict.

    Args:
        of: The cells of a report.
        judged: What :func:`separation` says of them.
    """
    has_local = not all(math.isnan(task.local_ceiling) for task in of.tasks)
    has_shortcut = any(task.shortcut for task in of.tasks)
    farther = FARTHER if any(one.separates_at for one in judged) else ""
    return Table(
        name="separation",
        title="What separates mechanisms",
        caption=(
            "Lowest and highest mean accuracy in per cent and mean skill over the mechanisms, controls left out; pairs "
            f"of them that differ: by a skill of {MARGIN:g} or more, and by a paired t test over common seeds, 5 %, "
            "Holm-adjusted over the pairs of the task, in brackets those left after Holm over all pairs of all tasks; "
            "smallest p adjusted within the task. Between: share of the scores' variance that lies between mechanisms, "
            "not between seeds, in per cent. Skill: (accuracy − floor) / (ceiling − floor). At floor or at ceiling: "
            f"all mechanisms are within a skill of {MARGIN:g} of it, or within 3 standard errors of the evaluation. "
            f"Gap below noise: floor and ceiling differ by less than a point.{farther} {BOUNDS}"
            f"{LOCAL if has_local else ''}{SHORTCUT if has_shortcut else ''}"
        ),
        headings=("Category", "Task"),
        columns=(
            Column("Floor"),
            *([Column("Local")] if has_local else []),
            *([Column("Shortcut")] if has_shortcut else []),
            Column("Ceiling"),
            Column("Accuracy"),
            Column("Skill"),
            Column("Pairs"),
            Column("p"),
            Column("Between"),
            Column("Verdict", "word"),
        ),
        lines=tuple(
            Line(
                (one.task.category, one.task.label),
                (
                    floor_cell(one.task),
                    *([Cell(percent(one.task.local_ceiling))] if has_local else []),
                    *([_shortcut_cell(one.task)] if has_shortcut else []),
                    ceiling_cell(one.task),
                    Cell(" to ".join(map(percent, one.means)) if one.means else NOTHING),
                    Cell(" to ".join(fixed(skill, 2) for skill in one.skills) if one.skills else NOTHING),
                    Cell(f"{one.num_separated} of {one.num_pairs}", remarks=(str(one.num_certain),)),
                    Cell(_p(one.smallest_p)),
                    Cell(percent(one.between)),
                    Cell(one.verdict),
                ),
                is_first_of_group=one.task.key == of.tasks_of(one.task.category)[0].key,
            )
            for one in judged
        ),
        sources=sources_of(of.tasks, of.mechanisms),
    )


def _separating_multiple(of: Grid, task: TaskFacts) -> int | None:
    """The smallest multiple of the training at which two mechanisms differ; adjusted over the pairs of all of them."""
    cells = {mechanism: of.cell(task, mechanism) for mechanism in of.mechanisms}
    tests = [
        (factor, pair.p, abs(cells[pair.first].stretched[factor] - cells[pair.second].stretched[factor]))
        for factor in sorted({factor for cell in cells.values() for factor in cell.stretched})
        for pair in pairs_of(task, {one: cell.stretched_skills.get(factor, {}) for one, cell in cells.items()})
    ]
    adjusted = holm(np.array([p for _factor, p, _distance in tests], dtype=float))
    return next(
        (
            factor
            for (factor, _p, distance), p in zip(tests, adjusted, strict=True)
            if p < SIGNIFICANCE and distance >= MARGIN - TOLERANCE
        ),
        None,
    )


def _differs(of: Grid, pair: Pair) -> bool:
    """Whether the mean skills of two mechanisms are as far apart as counts for anything."""
    distance = abs(of.cell(pair.task, pair.first).mean - of.cell(pair.task, pair.second).mean)
    return pair.task.gap > TOLERANCE and distance >= MARGIN * pair.task.gap - TOLERANCE


def _shortcut_cell(task: TaskFacts) -> Cell:
    return Cell(percent(task.shortcut[1]), remarks=(task.shortcut[0],)) if task.shortcut else Cell()


_PHRASES: dict[Place, str] = {
    "at floor": "at the floor",
    "at ceiling": "at the ceiling",
    "between": "between",
    "gap below noise": "with a gap below noise",
    "floor = ceiling": "with floor = ceiling",
    "no score": "without a score",
}


def _place(of: Grid, task: TaskFacts) -> Place:
    cells = [cell for cell in of.cells_of(task) if cell.n]
    if not cells:
        return "no score"
    if abs(task.gap) < TOLERANCE:
        return "floor = ceiling"
    if task.gap < SMALLEST_GAP:
        return "gap below noise"
    if all(_is_near(cell, cell.mean - task.floor, task.gap) for cell in cells):
        return "at floor"
    if all(_is_near(cell, task.ceiling - cell.mean, task.gap) for cell in cells):
        return "at ceiling"
    return "between"


def _is_near(cell: Estimate, distance: float, gap: float) -> bool:
    """Tell whether a mean lies so near to a bound that skill or evaluation noise covers the distance.

    The spread between seeds is no excuse: a task that half of the seeds solve has a large one and is not at its floor.
    """
    noise = 0.0 if math.isnan(cell.evaluation_error) else NOISE * cell.evaluation_error
    # A skill of exactly 0.95 is at the ceiling, whatever its last bit.
    return distance <= max(MARGIN * gap, noise) + TOLERANCE


def _between(cells: Sequence[Estimate]) -> float:
    """The share over the seeds that all mechanisms have, as a mechanism with more of them must not count for more."""
    if len(cells) < 2:
        return math.nan
    common = sorted(set.intersection(*(set(cell.scores) for cell in cells)))
    if len(common) < 2:
        return math.nan
    return variance_share(np.array([[cell.scores[seed] for seed in common] for cell in cells]))


def _range(values: list[float]) -> tuple[float, float] | None:
    known = [value for value in values if not math.isnan(value)]
    return (min(known), max(known)) if known else None


def _p(p: float) -> str:
    if math.isnan(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
