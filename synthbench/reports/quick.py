"""A first verdict: one run per task of a new mechanism, beside the runs of others on the same tasks.

All scores are heights over rungs, in [0, 1]. All categories weigh the same, and so do the tasks of one.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.special import stdtrit

from synthbench.errors import UnknownName, UsageError
from synthbench.options import parse_term
from synthbench.registry import CONTROL
from synthbench.reports.aggregates import PerTask, Rank, balanced, by_category
from synthbench.reports.cells import (
    COLUMNS,
    NO_ROWS,
    Key,
    MechanismFacts,
    TaskFacts,
    by_seed,
    grid,
    mechanism_key,
    records,
)
from synthbench.reports.selection import having, mechanism_in, select
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE

RANK_CONFIDENCE = 0.9
NUM_STEPS = 1000
"""Steps into which the sum of all differences is divided to count the changes of sign."""

Decision = Literal["keep", "discard", "undecided"]


def level_of(query: int) -> float:
    """The part of ``SIGNIFICANCE`` that a query may spend; the parts of all queries, however many, add up to it.

    Queries against one incumbent are numbered from 1.

    >>> round(level_of(1), 4), round(level_of(50), 7)
    (0.0304, 1.22e-05)
    """
    return SIGNIFICANCE * 6 / (math.pi * query) ** 2


def least_p(num_tasks: int) -> float:
    """The p value of a mechanism that is better on every task: one of all changes of sign."""
    return 0.5**num_tasks


def sign_flip_p(differences: PerTask, categories: Sequence[str]) -> tuple[float, float]:
    """Chance of a balanced mean difference as high as this, if the difference on each task could have either sign.

    All ``2 ** tasks`` changes of sign are counted, so p can be as small as the tasks allow; sampling would need very
    many draws. For the count, the weighted differences are rounded to 1 / ``NUM_STEPS`` of the sum of their sizes.

    Two runs of one mechanism are as likely to differ by d as by -d, however they scatter, so p keeps its level for one
    run against one run. Against the mean of several runs it does not: if one run in ten climbs ten rungs higher on a
    sixth of the tasks, p is below .03 for 5 % of mechanisms that are no worse.

    Args:
        differences: Of each task, one run less one run; positive where the mechanism is better.
        categories: Of the tasks.

    Returns:
        The one-sided p values of being better and of being worse; both are 1 where nothing differs.

    Source: Fisher (1935), section 21.

    >>> sign_flip_p(np.array([0.25, 0.5, 0.125]), ["recall"] * 3)
    (0.125, 1.0)
    """
    weighted = balanced(categories) * differences
    total = float(np.abs(weighted).sum())
    if total <= TOLERANCE:
        return 1.0, 1.0
    steps = np.rint(weighted / total * NUM_STEPS).astype(int)
    sizes = np.abs(steps)
    half = int(sizes.sum())
    chances = np.zeros(2 * half + 1)  # of the sums from -half to half
    chances[half] = 1.0
    for size in sizes[sizes > 0].tolist():
        shifted = np.zeros_like(chances)
        shifted[size:] = chances[:-size]
        shifted[:-size] += chances[size:]
        chances = shifted / 2
    at = half + int(steps.sum())
    return float(chances[at:].sum()), float(chances[: at + 1].sum())


def decide(p_better: float, p_worse: float, query: int) -> Decision:
    """``keep`` what is better at the level of its query, ``discard`` what is worse; both p values are one-sided.

    Over all queries against one incumbent, the chance to ever keep a mechanism that is no better is at most
    ``SIGNIFICANCE``, and so is the chance to ever discard one that is no worse.
    """
    if p_better <= level_of(query):
        return "keep"
    return "discard" if p_worse <= level_of(query) else "undecided"


def rank_interval(
    score: float, quick: Float[np.ndarray, "mechanisms seeds"], full: Float[np.ndarray, " mechanisms"]
) -> Rank:
    """The rank that a mechanism will have among others once all tasks and seeds of the suite are run.

    The full results of the others are known, so only one number is uncertain: how much the mechanism's mean over the
    full suite will differ from the mean of its quick runs. These differences are known for the others, one for each
    seed, and the mechanism is assumed to be one more of their kind. Its full mean is predicted from theirs, with
    ``RANK_CONFIDENCE``, and its rank follows.

    Args:
        score: Mean of one run of the mechanism on each quick task, in [0, 1]; each category weighs the same.
        quick: The same mean of the others, of each seed.
        full: Means of the others over all tasks and seeds of the suite.

    Returns:
        The rank, 1 for the best; with fewer than two others the ends are those of all ranks.

    Source: Hahn & Meeker (1991), section 4.7, the prediction interval for one more observation. The degrees of freedom
    are those of the mechanisms, since the seeds of one are not independent.

    >>> rank_interval(0.5, np.array([[0.2, 0.22], [0.4, 0.42], [0.61, 0.6]]), np.array([0.21, 0.41, 0.6]))
    Rank(value=2, low=2, high=2)
    """
    changes = full[:, None] - quick
    dof = len(full) - 1
    if dof < 1:
        return Rank(1 + int((full > score).sum()), 1, 1 + len(full))
    variance = ((changes - changes.mean()) ** 2).mean() * len(full) / dof
    predicted = score + changes.mean()
    reach = float(stdtrit(dof, (1 + RANK_CONFIDENCE) / 2)) * math.sqrt(variance * (1 + 1 / len(full))) + TOLERANCE
    above, high, low = ((full > bound).sum() for bound in (predicted, predicted - reach, predicted + reach))
    return Rank(1 + int(above), 1 + int(low), 1 + int(high))


@dataclass(frozen=True)
class Heights:
    """Mean heights over rungs, in [0, 1]; None without runs."""

    category: str
    num_tasks: int
    mine: float | None
    incumbent: float | None = None
    """Mean over its seeds."""
    best: float | None = None
    """Of the best committed mechanism here, mean over its seeds."""
    best_mechanism: str | None = None


@runtime_checkable
class _Suite(Protocol):
    """The part of a suite that is used here: reports import no suites."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def tasks(self) -> Mapping[str, object]: ...

    @property
    def seeds(self) -> tuple[int, ...]: ...


def rows_against(rows: pd.DataFrame, against: str) -> pd.DataFrame:
    """The rows of a mechanism that is named with or without options.

    Raises:
        UnknownName: If there are none.
        UsageError: If there are none with these options.
    """
    name, options = parse_term(against)
    name = mechanism_in(rows, name)
    if name not in set(rows["mech"]):
        raise UnknownName("mechanism with rows to compare with", name, set(rows["mech"]))
    return having(rows, "mech", {name: options})


class Rivals:
    """A mechanism beside all others, on the tasks for which it has a run with the first seed of the suite."""

    def __init__(self, rows: pd.DataFrame, others: pd.DataFrame, suite: _Suite, committed: Collection[str]) -> None:
        """Choose the rows as a report does.

        The mechanism has the successful ``rows``; ``others`` may be of any mechanism, also of this one. Mechanisms with
        the ids of ``committed`` rows are ranked.
        """
        others = others[~others["run_id"].isin(rows["run_id"])]
        everything = pd.concat([rows, others], ignore_index=True) if len(others) else rows
        chosen = select(everything, suite.name, suite.version).without_variants()
        of_mine = chosen.variants[chosen.variants["run_id"].isin(rows["run_id"])] if len(chosen.variants) else None
        selected = pd.concat([chosen.rows, of_mine], ignore_index=True)
        self._cells, self._suite, self._rows = grid(selected), suite, records(selected, COLUMNS)
        self._key = mechanism_key(records(rows, COLUMNS)[0])
        self._committed = {mechanism_key(row) for row in self._rows if row["run_id"] in committed} - {self._key}

    @cached_property
    def tasks(self) -> list[TaskFacts]:
        """The tasks, except those for which others have rows of a newer version."""
        cells, first_seed = self._cells.estimates, self._suite.seeds[0]
        return [task for task in self._cells.tasks if first_seed in cells.get((task.key, self._key), NO_ROWS).scores]

    @cached_property
    def ranked(self) -> list[MechanismFacts]:
        """The committed mechanisms (no controls) that have a run of every task, and of every seed that counts."""
        return self._with_seeds(self._num_seeds)

    @cached_property
    def _num_seeds(self) -> int:
        """The seeds of the suite that count: as many of the first as two mechanisms have of every task, else all."""
        counts = range(len(self._suite.seeds), 0, -1)
        return next((count for count in counts if len(self._with_seeds(count)) > 1), len(self._suite.seeds))

    def _with_seeds(self, count: int) -> list[MechanismFacts]:
        return [
            mechanism
            for mechanism in self._cells.mechanisms
            if mechanism.key in self._committed
            and mechanism.family != CONTROL
            and len(self._full_tasks) == len(self._suite.tasks)
            and not np.isnan(self._runs(mechanism.key, self._full_tasks)[:, :count]).any()
        ]

    @property
    def best(self) -> MechanismFacts | None:
        """The ranked mechanism with the highest mean; None if none is ranked."""
        weights = balanced(self._categories)
        return max(
            self.ranked, key=lambda rival: float(np.nanmean(self._runs(rival.key), axis=1) @ weights), default=None
        )

    def named(self, against: str) -> MechanismFacts:
        """The mechanism that a user asks to compare with.

        Raises:
            UnknownName: If there are no rows of it.
            UsageError: If it lacks a run, is the mechanism itself, or is one of several with this name.
        """
        frame = pd.DataFrame(self._rows)
        keys = {mechanism_key(row) for row in rows_against(frame, against).to_dict("records")}
        named = [mechanism for mechanism in self._cells.mechanisms if mechanism.key in keys]
        if len(named) > 1:
            settings = "; ".join(" ".join(map(str, mechanism.key)) for mechanism in named)
            raise UsageError(f"against is {against!r}, which has several settings: {settings}; name one")
        if named[0].key == self._key:
            raise UsageError(f"against is {against!r}, the mechanism itself; allowed: another one")
        for task, score in zip(self.tasks, self._runs(named[0].key)[:, 0].tolist(), strict=True):
            if np.isnan(score):
                raise UsageError(
                    f"against is {against!r}, which has no run of {task.name} with seed {self._suite.seeds[0]}; "
                    f"synthbench quick --mech {against} makes it"
                )
        return named[0]

    def run_ids(self, mechanism: MechanismFacts) -> list[str]:
        """The ids of the rows of a mechanism."""
        return [row["run_id"] for row in self._rows if mechanism_key(row) == mechanism.key]

    def signs(self, incumbent: MechanismFacts) -> tuple[float, float]:
        """The one-sided p values of being better and worse than another: runs of the first seed, task by task."""
        return sign_flip_p(self._scores - self._runs(incumbent.key)[:, 0], self._categories)

    @property
    def rank(self) -> Rank | None:
        """The rank that the mechanism will have among the ranked ones in the full suite; None if none is ranked."""
        if not self.ranked:
            return None
        weights, full_weights = balanced(self._categories), balanced([task.category for task in self._full_tasks])
        quick = np.array([weights @ self._suite_runs(rival.key, self.tasks) for rival in self.ranked])
        full = [full_weights @ self._suite_runs(rival.key, self._full_tasks).mean(axis=1) for rival in self.ranked]
        return rank_interval(float(weights @ self._scores), quick, np.array(full))

    def profile(self, incumbent: MechanismFacts | None) -> list[Heights]:
        """Mean heights by category, and last the mean over the categories."""
        parts = by_category(self._categories) | {"mean": np.ones(len(self.tasks), dtype=bool)}
        return [self._heights(name, is_in, incumbent) for name, is_in in parts.items()]

    def _heights(self, name: str, is_in: Bool[np.ndarray, " tasks"], incumbent: MechanismFacts | None) -> Heights:
        weights = balanced(list(compress(self._categories, is_in)))

        def mean(mechanism: MechanismFacts | None) -> float | None:
            return mechanism and float(np.nanmean(self._runs(mechanism.key)[is_in], axis=1) @ weights)

        best = max(self.ranked, key=lambda rival: mean(rival) or 0.0, default=None)
        mine = float(self._scores[is_in] @ weights)
        return Heights(name, int(is_in.sum()), mine, mean(incumbent), mean(best), best and best.name)

    @property
    def _categories(self) -> list[str]:
        return [task.category for task in self.tasks]

    @property
    def _scores(self) -> PerTask:
        first: PerTask = self._runs(self._key)[:, 0]
        return first

    @property
    def _full_tasks(self) -> list[TaskFacts]:
        return [task for task in self._cells.tasks if task.name in self._suite.tasks]

    def _suite_runs(self, mechanism: Key, tasks: list[TaskFacts]) -> Float[np.ndarray, "tasks seeds"]:
        return self._runs(mechanism, tasks)[:, : self._num_seeds]

    def _runs(self, mechanism: Key, tasks: list[TaskFacts] | None = None) -> Float[np.ndarray, "tasks seeds"]:
        """Scores, the seeds of the suite first; NaN where there is no run, 0 where one failed."""
        chosen = self.tasks if tasks is None else tasks
        runs = [self._cells.estimates.get((task.key, mechanism), NO_ROWS).runs for task in chosen]
        seeds = (*self._suite.seeds, *(seed for seed in self._cells.seeds if seed not in self._suite.seeds))
        return by_seed(runs, seeds)
