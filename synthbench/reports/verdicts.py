"""The verdict on each task: whether its mechanisms differ significantly, and which pairs of mechanisms differ."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from synthbench.registry import CONTROL
from synthbench.reports.cells import Cells, CellStats, Key, MechanismFacts, TaskFacts, by_seed
from synthbench.reports.interim import ONCE, Findings, InterimAnalysis, analyses_for, examine
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE, omega_squared, pooled_std

ScoreRange = Literal["floor = ceiling", "gap too narrow to rank", "at floor", "at ceiling", "between", "no score"]

SMALLEST_GAP = 0.2
"""Smallest gap between floor and ceiling of a ranked task; tasks with a smaller gap are shown but not ranked.

A score over 2,048 sequences with one answer each has a standard error of up to 0.011. With a gap of 0.2, that is 0.055
in skill. The narrower the gap, the more of the differences in skill is noise of the test set.
"""
MARGIN = 0.05
"""Smallest relevant difference of skill: between two mechanisms, or between a score and the floor or ceiling."""
NOISE = 3.0
"""Differences up to this many standard errors of the evaluation are treated as noise."""
FAR = 3.0
"""A mean can be marked as near the best only if it is at most this many standard deviations of a run below the best
mean.

The standard deviation is estimated from all mechanisms of a task.
"""


@dataclass(frozen=True)
class Verdict:
    """The result of testing whether mechanisms differ on one task; :func:`compared` chooses the mechanisms."""

    task: TaskFacts
    means: tuple[float, float] | None
    """Lowest and highest mean score of any mechanism; None without a score."""
    skills: tuple[float, float] | None
    """Lowest and highest mean skill of any mechanism; None without a score, or if floor and ceiling are equal."""
    p: float
    """P value of the task's test, adjusted for all tasks and, on a ladder, for interim analyses; NaN without a test."""
    least_p: float
    """The smallest p value that the runs of this task allow, not adjusted for other tasks; NaN without a test."""
    has_differences: bool
    """True if mechanisms differ significantly and by a relevant amount."""
    num_pairs: int
    named: frozenset[frozenset[Key]]
    """Pairs of mechanisms, by their keys, that are shown to differ; empty unless ``has_differences``."""
    num_within: int
    """Number of pairs whose difference is shown to be smaller than any relevant amount."""
    outlier: MechanismFacts | None
    """The mechanism that stands out significantly from all others; None if there is none, or if a pair differs."""
    p_outlier: float
    """P value of the permutation test for the outlier; NaN without an outlier."""
    between: float
    """Share of the variance that lies between mechanisms, ω²; NaN below two mechanisms, or if none has two seeds."""
    score_range: ScoreRange
    best: MechanismFacts | None
    """The mechanism with the highest mean; None if mechanisms do not differ, or fewer than two ran all ranked tasks."""
    near_best: frozenset[Key]
    """Keys of the mechanisms whose mean is at most ``FAR`` below the best and, in a t test, not significantly different
    from the best."""

    def is_apart(self, first: MechanismFacts, second: MechanismFacts) -> bool:
        """Return True if this pair of mechanisms was shown to differ.

        If a mechanism was only shown to differ from all others together (an outlier), the result is False.
        """
        return frozenset((first.key, second.key)) in self.named

    @property
    def words(self) -> str:
        """The verdict in words, such as ``significant differences`` or ``no significant difference; at floor``."""
        outcome = "significant differences" if self.has_differences else "no significant difference"
        if not self.num_pairs or math.isnan(self.p):
            outcome = "nothing to compare"
        stands_out = f"{self.outlier.label} stands out" if self.has_differences and self.outlier else ""
        return "; ".join(filter(None, [outcome, stands_out, self.score_range * (self.score_range != "between")]))


Verdicts = Mapping[Key, Verdict]
"""Verdicts by the key of the task, in printed order."""


def judge(cells: Cells) -> Verdicts:
    """Decide for each task whether mechanisms differ, and which pairs of mechanisms differ.

    Mechanisms differ on a task if their means differ significantly and by a relevant amount. Significance is tested by
    permutation (5 % after Benjamini & Hochberg's (1995) correction over the tasks). With only two mechanisms, it is
    tested by a t test (5 % after Holm's correction over the tasks). A difference is relevant if it is at least
    ``MARGIN`` of the gap between floor and ceiling or, on a task with levels, half a level.

    If mechanisms differ, each pair is tested too. A pair differs if its difference is relevant, and significant in a t
    test with moderated variances (5 % after Holm's correction over the task's pairs). If no pair differs, the verdict
    names a mechanism that stands out significantly from all others, if there is one.

    Runs are paired by seed only if runs with the same seed are correlated over the suite. If tasks have levels, seeds
    may be added after a first test, and p values are adjusted for such interim analyses
    (:mod:`synthbench.reports.interim`). Mechanisms with a single run take part in all tests; their variance is
    estimated from the other runs of the task.

    Returns:
        The verdict on each task by the task's key, in the order in which tasks are printed.
    """
    ranked, cells = with_all_tasks(cells), replace(cells, mechanisms=compared(cells))
    findings = _examine(cells, analyses_for(len(cells.seeds)) if cells.has_ladder else ONCE)
    pairs = [frozenset(pair) for pair in combinations([mechanism.key for mechanism in cells.mechanisms], 2)]
    verdicts: dict[Key, Verdict] = {}
    for index, (task, scores) in enumerate(zip(cells.tasks, cells.scores, strict=True)):
        estimates = cells.cells_of(task)
        has_differences, p_outlier = bool(findings.has_differences[index]), float(findings.p_outlier[index])
        named, not_told = (
            frozenset(pair for pair, is_one in zip(pairs, of_pairs[index], strict=True) if is_one)
            for of_pairs in (findings.apart, findings.alike)
        )
        stands_out = has_differences and not named and p_outlier < SIGNIFICANCE
        best = cells.ranked(task)[0] if has_differences and set(cells.mechanisms) <= set(ranked) else None
        verdicts[task.key] = Verdict(
            task=task,
            means=_range([estimate.mean for estimate in estimates]),
            skills=_range([estimate.skill for estimate in estimates]),
            p=float(findings.p[index]),
            least_p=float(findings.least_p[index]),
            has_differences=has_differences,
            num_pairs=math.comb(sum(estimate.n > 0 for estimate in estimates), 2),
            named=named,
            num_within=int(findings.within[index].sum()),
            outlier=cells.mechanisms[findings.outlier[index]] if stands_out else None,
            p_outlier=p_outlier if stands_out else math.nan,
            between=omega_squared(scores),
            score_range=_score_range(task, estimates),
            best=best,
            near_best=_near(cells, task, best, not_told, pooled_std(scores)) if best else frozenset(),
        )
    return verdicts


def _near(
    cells: Cells, task: TaskFacts, best: MechanismFacts, not_told: frozenset[frozenset[Key]], std: float
) -> frozenset[Key]:
    reach = cells.cell(task, best).mean - FAR * std - TOLERANCE
    return frozenset(
        mechanism.key
        for mechanism in cells.mechanisms
        if frozenset((best.key, mechanism.key)) in not_told and cells.cell(task, mechanism).mean >= reach
    )


class SeedPlan(NamedTuple):
    """Numbers of pairs of mechanisms that are decided and undecided so far, summed over all tasks with levels.

    A pair is decided if tests show that its scores differ, or that they lie within half a level of each other. Pairs
    with controls (references that do not learn to mix tokens) are left out.
    """

    num_apart: int
    num_within: int
    num_open: int
    undecided: frozenset[tuple[str, str]]
    """Name of the task and name of the mechanism, for each mechanism in an undecided pair on a task."""


def seed_plan(cells: Cells, analyses: Sequence[InterimAnalysis]) -> SeedPlan:
    """Count the pairs of mechanisms that differ, the pairs within half a level, and the pairs that need more seeds.

    Args:
        cells: Results on tasks with levels, with a single setting of each mechanism.
        analyses: The interim analyses so far (tests before all seeds have run): the first entries of
            :data:`synthbench.reports.interim.ANALYSES`.
    """
    cells = replace(cells, mechanisms=tuple(one for one in cells.mechanisms if one.family != CONTROL))
    findings = _examine(cells, analyses)
    first, second = np.triu_indices(len(cells.mechanisms), 1)
    has_score = ~np.isnan(cells.scores).all(axis=2)
    # If every run of a mechanism failed, more seeds would decide nothing.
    is_open = ~(findings.apart | findings.within) & has_score[:, first] & has_score[:, second]
    pairs = list(combinations([mechanism.name for mechanism in cells.mechanisms], 2))
    return SeedPlan(
        num_apart=int(findings.apart.sum()),
        num_within=int(findings.within.sum()),
        num_open=int(is_open.sum()),
        undecided=frozenset(
            (cells.tasks[row].name, name) for row, pair in np.argwhere(is_open) for name in pairs[pair]
        ),
    )


def with_all_tasks(cells: Cells) -> tuple[MechanismFacts, ...]:
    """Return the mechanisms that have a run of every ranked task, which are those that a leaderboard ranks.

    Controls (references that do not learn to mix tokens) are included.
    """
    tasks = ranked_tasks(cells)
    return tuple(mechanism for mechanism in cells.mechanisms if all(cells.cell(task, mechanism).runs for task in tasks))


def ranked_tasks(cells: Cells) -> tuple[TaskFacts, ...]:
    """Return the tasks that a leaderboard ranks, in printed order."""
    return tuple(task for task in cells.tasks if is_ranked(task))


def compared(cells: Cells) -> tuple[MechanismFacts, ...]:
    """Return the mechanisms that tests compare: those with a run of every ranked task, except controls.

    Controls are references that do not learn to mix tokens. They are left out because they differ from all mechanisms
    on most tasks. If fewer than two mechanisms other than controls have runs of all ranked tasks, all mechanisms except
    controls are compared, and none is called the best.
    """
    complete = [mechanism for mechanism in with_all_tasks(cells) if mechanism.family != CONTROL]
    every = [mechanism for mechanism in cells.mechanisms if mechanism.family != CONTROL]
    return tuple(complete if len(complete) > 1 else every)


def _examine(cells: Cells, analyses: Sequence[InterimAnalysis]) -> Findings:
    has_run = ~np.isnan(by_seed([cell.runs for *_, cell in cells], cells.seeds))
    margins = np.array([_margin(task) if task.gap > TOLERANCE else math.inf for task in cells.tasks])
    return examine(cells.scores, margins, analyses, has_run.reshape(cells.scores.shape))


def _margin(task: TaskFacts) -> float:
    """Return the smallest relevant difference of mean scores on a task.

    On a task with levels, it is half a level. On any other task, it is ``MARGIN`` of the gap between floor and ceiling,
    but at least 0.01.
    """
    return task.ladder.margin if task.ladder else MARGIN * max(task.gap, SMALLEST_GAP)


def is_ranked(task: TaskFacts) -> bool:
    """Return whether floor and ceiling are far enough apart for a ranking."""
    return task.gap >= SMALLEST_GAP - TOLERANCE


def _score_range(task: TaskFacts, cells: Sequence[CellStats]) -> ScoreRange:
    scored = [cell for cell in cells if cell.n]
    if not scored:
        return "no score"
    if abs(task.gap) < TOLERANCE:
        return "floor = ceiling"
    if not is_ranked(task):
        return "gap too narrow to rank"
    if all(_is_near(cell, cell.mean - task.floor, _margin(task)) for cell in scored):
        return "at floor"
    if all(_is_near(cell, task.ceiling - cell.mean, _margin(task)) for cell in scored):
        return "at ceiling"
    return "between"


def _is_near(cell: CellStats, distance: float, margin: float) -> bool:
    """Return whether a mean score is at the floor or ceiling, given its distance from it.

    The distance must not exceed the margin, or the noise of a finite test set if the noise is larger. The spread
    between seeds does not count as noise: it is large if half of the seeds solve a task, but the scores are then not at
    the floor.
    """
    noise = 0.0 if math.isnan(cell.evaluation_error) else NOISE * cell.evaluation_error
    # A skill of exactly 0.95 is at the ceiling, whatever its last bit.
    return distance <= max(margin, noise) + TOLERANCE


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    known = [value for value in values if not math.isnan(value)]
    return (min(known), max(known)) if known else None
