"""One run per task of a mechanism, beside the runs of others: from rows to the numbers of a first verdict."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from synthbench.errors import UnknownName, UsageError
from synthbench.knobs import parse_term
from synthbench.registry import CONTROL
from synthbench.reports.aggregates import PerTask, Rank, balanced
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
from synthbench.reports.quick import rank_interval, sign_flip_p
from synthbench.reports.selection import having, select


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


class Signs(NamedTuple):
    """The one-sided p values of a comparison of two mechanisms."""

    better: float
    worse: float


def rows_against(rows: pd.DataFrame, against: str) -> pd.DataFrame:
    """The rows of a mechanism that is named with or without options.

    Raises:
        UnknownName: If there are none.
        UsageError: If there are none with these options.
    """
    name, options = parse_term(against)
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
        cells = self._cells.estimates
        return [
            task
            for task in self._cells.tasks
            if self._suite.seeds[0] in cells.get((task.key, self._key), NO_ROWS).scores
        ]

    @cached_property
    def ranked(self) -> list[MechanismFacts]:
        """The committed mechanisms (no controls) that have a run of every task and seed of the suite."""
        return [
            mechanism
            for mechanism in self._cells.mechanisms
            if mechanism.key in self._committed
            and mechanism.family != CONTROL
            and len(self._full_tasks) == len(self._suite.tasks)
            and not np.isnan(self._suite_runs(mechanism.key, self._full_tasks)).any()
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
        first_scores = self._runs(named[0].key)[:, 0]
        for task, score in zip(self.tasks, first_scores.tolist(), strict=True):
            if np.isnan(score):
                raise UsageError(
                    f"against is {against!r}, which has no run of {task.name} with seed {self._suite.seeds[0]}; "
                    f"synthbench quick --mech {against} makes it"
                )
        return named[0]

    def run_ids(self, mechanism: MechanismFacts) -> list[str]:
        """The ids of the rows of a mechanism."""
        return [row["run_id"] for row in self._rows if mechanism_key(row) == mechanism.key]

    def signs(self, incumbent: MechanismFacts) -> Signs:
        """Whether the mechanism is better or worse than another: runs of the first seed, task by task."""
        return Signs(*sign_flip_p(self._scores - self._runs(incumbent.key)[:, 0], self._categories))

    @property
    def rank(self) -> Rank | None:
        """The rank that the mechanism will have among the ranked ones in the full suite; None if none is ranked."""
        if not self.ranked:
            return None
        weights, full_weights = balanced(self._categories), balanced([task.category for task in self._full_tasks])
        quick = np.array([weights @ self._suite_runs(rival.key, self.tasks) for rival in self.ranked])
        full = [full_weights @ self._suite_runs(rival.key, self._full_tasks).mean(axis=1) for rival in self.ranked]
        return rank_interval(float(weights @ self._scores), quick, np.array(full))

    def profile(self, incumbent: MechanismFacts | None) -> tuple[Heights, ...]:
        """Mean heights by category."""
        return tuple(
            self._heights(name, np.array([category == name for category in self._categories]), incumbent)
            for name in dict.fromkeys(self._categories)
        )

    def overall(self, incumbent: MechanismFacts | None) -> Heights:
        """Mean heights over the categories."""
        return self._heights("mean", np.ones(len(self.tasks), dtype=bool), incumbent)

    def _heights(self, name: str, is_in: Bool[np.ndarray, " tasks"], incumbent: MechanismFacts | None) -> Heights:
        weights = balanced(list(compress(self._categories, is_in)))

        def mean(mechanism: MechanismFacts | None) -> float | None:
            return mechanism and float(np.nanmean(self._runs(mechanism.key)[is_in], axis=1) @ weights)

        best = max(self.ranked, key=lambda rival: mean(rival) or 0.0, default=None)
        return Heights(
            category=name,
            num_tasks=int(is_in.sum()),
            mine=float(self._scores[is_in] @ weights),
            incumbent=mean(incumbent),
            best=mean(best),
            best_mechanism=best and best.name,
        )

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
        return self._runs(mechanism, tasks)[:, : len(self._suite.seeds)]

    def _runs(self, mechanism: Key, tasks: list[TaskFacts] | None = None) -> Float[np.ndarray, "tasks seeds"]:
        """Scores, the seeds of the suite first; NaN where there is no run, 0 where one failed."""
        chosen = self.tasks if tasks is None else tasks
        runs = [self._cells.estimates.get((task.key, mechanism), NO_ROWS).runs for task in chosen]
        seeds = (*self._suite.seeds, *(seed for seed in self._cells.seeds if seed not in self._suite.seeds))
        return by_seed(runs, seeds)
