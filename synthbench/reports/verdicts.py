"""What each task says about the mechanisms that were run on it: whether it separates them, and which."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from synthbench.registry import CONTROL
from synthbench.reports.cells import Cells, Estimate, Key, MechanismFacts, TaskFacts, by_seed
from synthbench.reports.looks import LOOKS, ONCE, Findings, Look, examine, looks_for
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE, omega_squared

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
    """Of the permutation test, adjusted over the tasks of the report, on a ladder over the looks too; NaN without."""
    least_p: float
    """What p would be, unadjusted, if the runs of this task differed as clearly as they can; NaN without a test."""
    separates: bool
    """Whether some two mechanisms differ, and by as much as counts."""
    num_pairs: int
    named: frozenset[frozenset[Key]]
    """Pairs of mechanisms, by their keys, that are shown to differ; none where the task does not separate."""
    num_within: int
    """Pairs that are shown to differ by less than counts for anything."""
    outlier: MechanismFacts | None
    """Where the task separates and no pair is named: the mechanism that is farthest from all others."""
    p_outlier: float
    """Of a permutation test for that mechanism; NaN without one."""
    between: float
    """Share of the variance that lies between mechanisms, ω²; NaN without two seeds of two."""
    place: Place

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
        return f"does not separate; {self.place}"


Verdicts = Mapping[Key, Verdict]
"""By the key of the task, in printed order."""


def judge(of: Cells) -> Verdicts:
    """Judge every task: does it separate mechanisms, and which pairs of them?

    A task separates if its runs, shuffled among its mechanisms, seldom have means as far apart as they have: 5 % after
    Benjamini & Hochberg (1995) over the tasks, and the farthest differ by ``MARGIN`` of the gap between floor and
    ceiling or more, on a ladder by half a rung. Within such a task the pairs are named that differ by as much and by a
    moderated t test, 5 % after Holm over its pairs; where none is left, the mechanism that is farthest from the others.
    Runs are paired by seed only if seeds are correlated over the suite. On a ladder, p values count all looks at it:
    :mod:`synthbench.reports.looks`.
    Left out are controls, as most tasks tell them from any mechanism, and single runs of a mechanism.

    Returns:
        The verdict on each task by its key, in printed order.
    """
    of = _compared(of)
    found = _examine(of, looks_for(len(of.seeds)) if of.has_ladder else ONCE)
    pairs = list(combinations([one.key for one in of.mechanisms], 2))
    verdicts = []
    for index, (task, own) in enumerate(zip(of.tasks, of.scores, strict=True)):
        cells = of.cells_of(task)
        separates, p_outlier = bool(found.separates[index]), float(found.p_outlier[index])
        named = frozenset(frozenset(pair) for pair, is_apart in zip(pairs, found.apart[index], strict=True) if is_apart)
        stands_out = separates and not named and p_outlier < SIGNIFICANCE
        verdicts.append(
            Verdict(
                task=task,
                means=_range([cell.mean for cell in cells]),
                skills=_range([cell.skill for cell in cells]),
                p=float(found.p[index]),
                least_p=float(found.least_p[index]),
                separates=separates,
                num_pairs=math.comb(sum(cell.n > 0 for cell in cells), 2),
                named=named,
                num_within=int(found.within[index].sum()),
                outlier=of.mechanisms[found.outlier[index]] if stands_out else None,
                p_outlier=p_outlier if stands_out else math.nan,
                between=omega_squared(own),
                place=_place(task, cells),
            )
        )
    return {one.task.key: one for one in verdicts}


class Standing(NamedTuple):
    """What some looks at a ladder have decided, pairs counted over all tasks, controls left out."""

    num_apart: int
    num_within: int
    num_open: int
    undecided: frozenset[tuple[str, str]]
    """Names of a task and a mechanism that is in a pair that is not decided there."""


def standing(of: Cells, looks: Sequence[Look]) -> Standing:
    """Which pairs of mechanisms are apart, which are within half a rung, and which need more seeds to say so.

    Args:
        of: Cells with one setting of each mechanism, on tasks with a ladder.
        looks: The first ones of :data:`synthbench.reports.looks.LOOKS`.
    """
    of = _compared(of)
    found = _examine(of, looks)
    first, second = np.triu_indices(len(of.mechanisms), 1)
    has_score = ~np.isnan(of.scores).all(axis=2)
    # Where every run of a mechanism failed, more seeds would decide nothing.
    is_open = ~(found.apart | found.within) & has_score[:, first] & has_score[:, second]
    pairs = list(combinations([one.name for one in of.mechanisms], 2))
    return Standing(
        num_apart=int(found.apart.sum()),
        num_within=int(found.within.sum()),
        num_open=int(is_open.sum()),
        undecided=frozenset((of.tasks[row].name, name) for row, pair in np.argwhere(is_open) for name in pairs[pair]),
    )


def needed_seeds(of: Cells) -> tuple[int, ...]:
    """The seeds that a mechanism must have runs of to be ranked; on a ladder, only undecided pairs have more."""
    return of.seeds[: LOOKS[0].num_seeds] if of.has_ladder else of.seeds


def _compared(of: Cells) -> Cells:
    """What is compared: no controls, and no single run of a mechanism where another has more."""
    single = _single_runs(of)
    return replace(
        of,
        mechanisms=tuple(one for one in of.mechanisms if one.family != CONTROL),
        cells={key: cell for key, cell in of.cells.items() if key not in single},
    )


def with_single_runs(of: Cells) -> list[MechanismFacts]:
    """The mechanisms of which a single run is left out on some task, controls not counted."""
    keys = {mechanism for _task, mechanism in _single_runs(of)}
    return [one for one in of.mechanisms if one.key in keys and one.family != CONTROL]


def _single_runs(of: Cells) -> set[tuple[Key, Key]]:
    """The cells with one run where another mechanism has more.

    One run says nothing about chance, but its mean would take part in every shuffle and hide what the others show.
    """
    num_runs = {key: cell.n + cell.num_failed for key, cell in of.cells.items()}
    most: dict[Key, int] = {}
    for (task, _mechanism), count in num_runs.items():
        most[task] = max(most.get(task, 0), count)
    return {(task, mechanism) for (task, mechanism), count in num_runs.items() if count == 1 < most[task]}


def _examine(of: Cells, looks: Sequence[Look]) -> Findings:
    cells = [cell for task in of.tasks for cell in of.cells_of(task)]
    has_run = ~np.isnan(by_seed([dict.fromkeys(cell.failed_seeds, 0.0) | cell.scores for cell in cells], of.seeds))
    margins = np.array([_margin(task) if task.gap > TOLERANCE else math.inf for task in of.tasks])
    return examine(of.scores, margins, looks, has_run.reshape(of.scores.shape))


def best_of(of: Cells, verdict: Verdict) -> MechanismFacts | None:
    """The mechanism with the highest mean on a task, controls left out; None where nothing can be called the best."""
    scored = [one for one in of.mechanisms if one.family != CONTROL and of.cell(verdict.task, one).n]
    if not (verdict.separates and scored):
        return None
    return max(scored, key=lambda one: of.cell(verdict.task, one).mean)


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
