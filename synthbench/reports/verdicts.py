"""What each task says about the mechanisms that were run on it: whether it separates them, and which."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from jaxtyping import Float

from synthbench.registry import CONTROL
from synthbench.reports.grid import Estimate, Grid, Key, MechanismFacts, TaskFacts, by_seed
from synthbench.reports.statistics import (
    SIGNIFICANCE,
    TOLERANCE,
    Permutation,
    benjamini_hochberg,
    holm,
    omega_squared,
    pair_tests,
    permutation_test,
    shares_seeds,
)

Place = Literal["floor = ceiling", "gap too narrow to rank", "at floor", "at ceiling", "between", "no score"]

SMALLEST_GAP = 0.2
"""Between floor and ceiling, a fraction: a task with less is shown, never ranked.

A score over 2,048 sequences with one answer each has a standard error of up to 0.011. Over a gap of 0.2 that is a skill
of 0.055: in a narrower one, the noise of a test set alone makes differences that count.
"""
MARGIN = 0.05
"""Skill that counts for nothing: still the floor, still the ceiling, no difference between two mechanisms."""
NOISE = 3.0
"""Standard errors of the evaluation that count as noise."""


@dataclass(frozen=True)
class Verdict:
    """What one task says about the mechanisms that were run on it, controls left out."""

    task: TaskFacts
    means: tuple[float, float] | None
    """Lowest and highest mean over the mechanisms; None without a score."""
    skills: tuple[float, float] | None
    """Lowest and highest mean skill; None without one, as where floor and ceiling are equal."""
    p: float
    """Of the permutation test, adjusted over the tasks of the report; NaN where nothing can be tested."""
    least_p: float
    """What p would be, unadjusted, if the runs of this task differed as clearly as they can; NaN without a test."""
    separates: bool
    """Whether some two mechanisms differ, and by as much as counts."""
    num_pairs: int
    named: frozenset[frozenset[Key]]
    """Pairs of mechanisms, by their keys, that are shown to differ; none where the task does not separate."""
    outlier: MechanismFacts | None
    """Where the task separates and no pair is named: the mechanism that is farthest from all others."""
    p_outlier: float
    """Of a permutation test for that mechanism; NaN without one."""
    between: float
    """Share of the variance that lies between mechanisms, ω²; NaN without two seeds of two."""
    place: Place
    separates_at: int | None
    """Where it does not separate: the smallest multiple of the training's length or load at which it does, if any."""

    def is_apart(self, first: MechanismFacts, second: MechanismFacts) -> bool:
        """Whether two mechanisms are shown to differ: they are a named pair. An outlier differs from all together."""
        return frozenset((first.key, second.key)) in self.named

    @property
    def words(self) -> str:
        """Whether the task separates, and where its scores sit."""
        if not self.num_pairs or math.isnan(self.p):
            return f"nothing to compare; {self.place}"
        if self.separates:
            stands_out = f"; {self.outlier.label} stands out" if self.outlier else ""
            return f"separates{stands_out}; {self.place}"
        farther = f"; does at {self.separates_at}×" if self.separates_at else ""
        return f"does not separate; {self.place}{farther}"


Verdicts = Mapping[Key, Verdict]
"""By the key of the task, in printed order."""


def judge(of: Grid) -> Verdicts:
    """Judge every task: does it separate mechanisms, and which pairs of them?

    A task separates if its runs, shuffled among its mechanisms, seldom have means as far apart as they have: 5 % after
    Benjamini & Hochberg (1995) over the tasks, and the farthest differ by ``MARGIN`` of the gap between floor and
    ceiling or more, on a ladder by half a rung. Within such a task the pairs are named that differ by as much and by a
    moderated t test, 5 % after Holm over its pairs; where none is left, the mechanism that is farthest from the others.
    Runs are paired by seed only if seeds are correlated over the suite.
    Controls are left out: most tasks tell them from any mechanism.

    Args:
        of: The cells of a report.

    Returns:
        The verdict on each task by its key, in printed order.
    """
    of = replace(of, mechanisms=tuple(one for one in of.mechanisms if one.family != CONTROL))
    scores = of.scores
    is_paired = shares_seeds(scores)
    tests = [_test(own, is_paired=is_paired) for own in scores]
    adjusted = _adjusted([test.p for test in tests])
    pairs = pair_tests(scores, is_paired=is_paired).p
    verdicts = []
    for task, own, p, test, of_pairs in zip(of.tasks, scores, adjusted, tests, pairs, strict=True):
        cells = of.cells_of(task)
        means = [cell.mean for cell in cells]
        lowest, highest = _range(means) or (0.0, 0.0)
        separates = p < SIGNIFICANCE and _counts(task, lowest, highest)
        named = (
            frozenset(
                frozenset((of.mechanisms[one].key, of.mechanisms[other].key))
                for (one, other), value in zip(combinations(range(len(cells)), 2), holm(of_pairs), strict=True)
                if value < SIGNIFICANCE and _counts(task, means[one], means[other])
            )
            if separates
            else frozenset()
        )
        stands_out = separates and not named and test.p_outlier < SIGNIFICANCE
        verdicts.append(
            Verdict(
                task=task,
                means=_range(means),
                skills=_range([cell.skill for cell in cells]),
                p=p,
                least_p=test.least_p,
                separates=separates,
                num_pairs=math.comb(sum(cell.n > 0 for cell in cells), 2),
                named=named,
                outlier=of.mechanisms[test.outlier] if stands_out else None,
                p_outlier=test.p_outlier if stands_out else math.nan,
                between=omega_squared(own),
                place=_place(task, cells),
                separates_at=None,
            )
        )
    at = _separating_multiples(of, [one.task for one in verdicts if not one.separates], is_paired=is_paired)
    return {one.task.key: replace(one, separates_at=at.get(one.task.key)) for one in verdicts}


def best_of(of: Grid, verdict: Verdict) -> MechanismFacts | None:
    """The mechanism with the highest mean on a task, controls left out; None where nothing can be called the best."""
    scored = [one for one in of.mechanisms if one.family != CONTROL and of.cell(verdict.task, one).n]
    if not (verdict.separates and scored):
        return None
    return max(scored, key=lambda one: of.cell(verdict.task, one).mean)


def _test(scores: Float[np.ndarray, "cells seeds"], *, is_paired: bool) -> Permutation:
    """The test of one task; NaN below two mechanisms of which one has two runs."""
    num_seeds = (~np.isnan(scores)).sum(axis=1)
    (scored,) = np.nonzero(num_seeds)
    if len(scored) < 2 or num_seeds.max() < 2:
        return Permutation(math.nan, math.nan, 0, math.nan)
    found = permutation_test(scores[scored], is_paired=is_paired)
    return found._replace(outlier=int(scored[found.outlier]))


def _adjusted(p: Sequence[float]) -> list[float]:
    """The p values after Benjamini and Hochberg; NaN is no test and stays."""
    return [float(value) for value in benjamini_hochberg(np.array(p, dtype=float))]


def _separating_multiples(of: Grid, tasks: Sequence[TaskFacts], *, is_paired: bool) -> dict[Key, int]:
    """The smallest multiple of the training at which each task separates; all tests are adjusted together."""
    tests = []
    for factor in sorted({factor for cell in of.cells.values() for factor in cell.stretched}):
        for task in tasks:
            cells = [of.cell(task, mechanism) for mechanism in of.mechanisms]
            lowest, highest = _range([cell.stretched.get(factor, math.nan) for cell in cells]) or (0.0, 0.0)
            skills = by_seed([cell.stretched_skills.get(factor, {}) for cell in cells], of.seeds)
            tests.append((factor, task, highest - lowest, _test(skills, is_paired=is_paired).p))
    adjusted = _adjusted([p for *_, p in tests])
    found: dict[Key, int] = {}
    for (factor, task, distance, _p), value in zip(tests, adjusted, strict=True):
        if value < SIGNIFICANCE and distance >= MARGIN - TOLERANCE:
            found.setdefault(task.key, factor)
    return found


def _counts(task: TaskFacts, one: float, other: float) -> bool:
    """Whether two means are as far apart as counts for anything."""
    return task.gap > TOLERANCE and abs(one - other) >= _margin(task) - TOLERANCE


def _margin(task: TaskFacts) -> float:
    """Distance of two means from which it counts: half a rung, or ``MARGIN``; over a narrow gap that is a point."""
    return task.ladder.margin if task.ladder else MARGIN * max(task.gap, SMALLEST_GAP)


def is_ranked(task: TaskFacts) -> bool:
    """Whether floor and ceiling are far enough apart for a ranking."""
    return task.gap >= SMALLEST_GAP - TOLERANCE


def _place(task: TaskFacts, cells: Sequence[Estimate]) -> Place:
    cells = [cell for cell in cells if cell.n]
    if not cells:
        return "no score"
    if abs(task.gap) < TOLERANCE:
        return "floor = ceiling"
    if not is_ranked(task):
        return "gap too narrow to rank"
    if all(_is_near(cell, cell.mean - task.floor, _margin(task)) for cell in cells):
        return "at floor"
    if all(_is_near(cell, task.ceiling - cell.mean, _margin(task)) for cell in cells):
        return "at ceiling"
    return "between"


def _is_near(cell: Estimate, distance: float, margin: float) -> bool:
    """Tell whether a mean lies so near to a bound that the margin or evaluation noise covers the distance.

    The spread between seeds is no excuse: a task that half of the seeds solve has a large one and is not at its floor.
    """
    noise = 0.0 if math.isnan(cell.evaluation_error) else NOISE * cell.evaluation_error
    # A skill of exactly 0.95 is at the ceiling, whatever its last bit.
    return distance <= max(margin, noise) + TOLERANCE


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    known = [value for value in values if not math.isnan(value)]
    return (min(known), max(known)) if known else None
