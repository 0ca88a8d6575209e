"""Compare two mechanisms, two stores of results or two commits of the code, run by run.

The two things compared are called the *sides*. Each run of the first side is paired with the second side's run on the
same sequences: the same task, size, task version and seed. Both runs have the same block (the layers around the
mechanism). They also have the same position encoding, unless all layers are stock (as published) or bare (stripped).
Each layer then has an encoding of its own. If stores or commits are compared, both runs also have the same mechanism
and setting (arguments or matched size). A difference is the skill of the second side minus the skill of the first side,
each clipped to [0, 1]. A run without a score has skill 0, which is chance level. If there are more than two mechanisms,
every pair is compared.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from synthbench.errors import UnknownName, UsageError
from synthbench.options import parse_term, resolve
from synthbench.reports.aggregates import (
    TIE,
    UNKNOWN,
    Interval,
    balanced,
    over_seeds,
    p_over_seeds,
    probability_of_improvement,
    t_interval,
)
from synthbench.reports.cells import arguments_in
from synthbench.reports.interim import share_at
from synthbench.reports.ladder import LEAST, ladder_in
from synthbench.reports.selection import TASK_KEY, Terms, default_suite, having, partial, select, settings
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE, holm, p_of_pairs, pair_tests, shares_seeds
from synthbench.reports.verdicts import MARGIN, SMALLEST_GAP

_COMMIT = re.compile(r"[0-9a-f]{7,40}")

Kind = Literal["mechanism", "store", "commit"]
"""The kind of things that are compared; stores and commits are compared mechanism by mechanism."""


@dataclass(frozen=True)
class PairedTask:
    """The comparison of two sides on one task; a side is a mechanism, a store or a commit.

    Both sides have the same block (the layers around the mechanism) and, in general, the same position encoding. Stock
    layers (as published) and bare layers (stripped) are the exception: each has an encoding of its own. If the sides
    are stores or commits, both also have the same mechanism.
    """

    task: str
    length: int
    mechanism: str
    """The mechanism that both sides ran; empty if the sides are two mechanisms."""
    block: str
    positions: str
    first: float
    """Mean skill of the first side."""
    second: float
    difference: float
    """Difference of the mean skills, second − first."""
    low: float
    """Lower end of the 95 % interval over seeds of the difference; NaN below two seeds."""
    high: float
    p: float
    """P value of a moderated t test over seeds; NaN below two seeds.

    It is adjusted for the number of tasks (Holm) and, on a ladder, for interim analyses
    (:mod:`synthbench.reports.interim`).
    """
    num_seeds: int
    num_failed: int
    """Number of runs without a score, both sides together."""
    levels: int | None
    """The number of levels of the task; None without a ladder."""

    @property
    def is_apart(self) -> bool:
        """True if the difference is significant and relevant.

        A relevant difference is at least half a level or, on a task without levels, at least ``MARGIN``.
        """
        least = LEAST / self.levels if self.levels else MARGIN
        return self.p < SIGNIFICANCE and abs(self.difference) >= least - TOLERANCE


@dataclass(frozen=True)
class Comparison:
    """The comparison of two sides on all their common tasks; a side is a mechanism, a results store or a commit.

    Skill is 0 at the floor (chance level) and 1 at the ceiling (the best possible score).
    """

    first: str
    second: str
    suite: str
    suite_version: str
    tasks: tuple[PairedTask, ...]
    mean_difference: Interval | None
    """Mean difference of skill, with equal weight for all categories and an interval over seeds (tasks are fixed).

    It is None below two common seeds.
    """
    p: float
    """P value of the mean difference, from the t test that matches its interval; NaN below two common seeds."""
    improvement: Interval
    """Chance that a run of the second side beats a run of the first on a random task.

    The interval treats tasks as a sample.
    """
    is_paired: bool
    """True if the tests of single tasks compare runs seed by seed, as the mean difference always does."""
    num_seeds: int
    """Number of seeds that every task has on both sides; the mean difference is taken over these seeds."""
    num_unpaired: int
    """Number of rows, of either side, without a partner on the other side."""
    num_left_out: int
    """Number of tasks whose floor and ceiling are too close for a skill."""
    num_variants: int = 0
    """Number of pairs of runs left out because their block and position encoding were run on too few tasks.

    Another block or position encoding was run on all of these tasks and on further tasks.
    """

    def is_below(self, limit: float) -> bool:
        """Return True if the 95 % interval of the mean difference, second minus first, lies completely below a limit.

        With the limit -0.02, for example, True means that the second side is significantly worse than the first, by
        more than 0.02.

        Raises:
            UsageError: If there is no interval, because fewer than two seeds are common to all tasks.
        """
        if self.mean_difference is None:
            raise UsageError(f"no interval: {self.num_seeds} seeds are common to all tasks; needed: 2 and more")
        return self.mean_difference.high < limit

    def as_facts(self) -> dict[str, Any]:
        """Return all fields as a dictionary, for JSON."""
        interval = None if self.mean_difference is None else self.mean_difference._asdict()
        return {**asdict(self), "mean_difference": interval, "improvement": self.improvement._asdict()}

    def in_brief(self, p: float) -> dict[str, Any]:
        """Return the facts about this comparison for its line in the table of all pairs of mechanisms.

        The interval of the mean difference is not adjusted for other pairs. ``p`` is the p value of the difference,
        Holm-adjusted over all pairs.
        """
        difference, low, high = self.mean_difference or UNKNOWN
        return {
            "first": self.first,
            "second": self.second,
            "difference": difference,
            "low": low,
            "high": high,
            "p": p,
            "improvement": self.improvement.value,
            "num_tasks": len(self.tasks),
            "num_seeds": self.num_seeds,
        }

    def summary(self) -> str:
        """Summarise the comparison in a few sentences."""
        subject = f"{self.second} − {self.first}, suite {self.suite} {self.suite_version}"
        left_out = (
            f"{self.num_unpaired} rows have no partner; {self.num_left_out} tasks have too small a gap between floor "
            "and ceiling for a skill."
        )
        if self.num_variants:
            left_out += (
                f" {self.num_variants} pairs in a block or with positions that both have on some of the tasks only are "
                "left out."
            )
        if self.mean_difference is None:
            return (
                f"{subject}: seeds common to all tasks: {self.num_seeds}; an interval of the difference needs two. "
                f"{left_out}"
            )
        value, low, high = self.mean_difference
        num_apart = sum(task.is_apart for task in self.tasks)
        margin = f"{LEAST:g} levels" if self.has_ladder else f"{MARGIN:g}"
        chance, *ends = self.improvement
        of_tasks = "" if math.isnan(ends[0]) else f" ({ends[0]:.3f} to {ends[1]:.3f} for tasks like these)"
        return (
            f"{subject}: mean difference of {self.skill} {value:+.4f} ({low:+.4f} to {high:+.4f}, 95 % CI "
            f"over seeds) over {len(self.tasks)} tasks and {self.num_seeds} seeds; they differ by {margin} or more on "
            f"{num_apart} of the tasks; probability of improvement {chance:.3f}{of_tasks}. {left_out}"
        )

    @property
    def has_ladder(self) -> bool:
        """True if every task has levels (difficulties).

        On a task with levels, the compared skill is the score, a mean over all levels.
        """
        return all(task.levels for task in self.tasks)

    @property
    def skill(self) -> str:
        """Name of the compared quantity: ``score`` if tasks have levels, otherwise ``skill``."""
        return "score" if self.has_ladder else "skill"


class Side(NamedTuple):
    """One side of a comparison: a mechanism, a store or a commit, with the rows of its runs."""

    name: str
    kind: Kind
    rows: pd.DataFrame


def sides(names: Sequence[str], known: Callable[[], pd.DataFrame], read: Callable[[Path], pd.DataFrame]) -> list[Side]:
    """Find out whether each name is a results store, a mechanism or the prefix of a commit hash, and collect its rows.

    Args:
        names: Two or more names: all folders of stores, all mechanisms, or all prefixes of commit hashes. Add options
            to a mechanism's name, as in ``slay:P=8``, if its rows have several settings of the options.
        known: Function that returns the rows (one per run) of all known mechanisms and commits.
        read: Function that reads the rows of the store in a given folder.

    Raises:
        UnknownName: If a name is not a store, and no row has a mechanism or commit of this name.
        UsageError: If there are fewer than two names, if a name is repeated, or if names are of different kinds. It is
            also raised for three or more stores or commits, for options that no row has, and for an ambiguous prefix.
        StoreError: If a store cannot be read.
    """
    if len(names) < 2:
        raise UsageError(f"only {', '.join(map(repr, names))} is named; allowed: two or more to compare")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"{twice[0]!r} is named twice; name two that differ")
    are_stores = [(Path(name) / "store.json").is_file() for name in names]
    rows = pd.DataFrame() if all(are_stores) else known()
    first, *others = named = [
        Side(name, "store", read(Path(name))) if is_store else _in_store(name, rows)
        for name, is_store in zip(names, are_stores, strict=True)
    ]
    for other in others:
        if first.kind != other.kind:
            raise UsageError(
                f"{first.name!r} is a {first.kind} and {other.name!r} a {other.kind}; compare mechanisms, two stores "
                "or two commits"
            )
    if len(named) > 2 and first.kind != "mechanism":
        raise UsageError(f"{len(named)} {first.kind}s are named; allowed: two, or any number of mechanisms")
    return named


def common_suite(named: Sequence[Side], own: Collection[str]) -> str:
    """Choose the suite in which mechanisms, stores or commits are compared if the user does not name a suite.

    Of the suites in which every side of the comparison has rows (one per run),
    :func:`~synthbench.reports.selection.default_suite` chooses one.

    Args:
        named: The sides to compare: mechanisms, stores or commits.
        own: Run ids of the user's own rows; the newest of these rows, if there are any, decides.
    """
    common = set.intersection(*(set(side.rows["suite"]) for side in named))
    rows = pd.concat([side.rows[side.rows["suite"].isin(common)] for side in named], ignore_index=True)
    return default_suite(rows, rows["run_id"].isin(own))


def compare(
    first: Side, second: Side, suite: str, suite_version: str | None = None, *, mechanisms: Terms | None = None
) -> Comparison:
    """Compare the skills of two sides (mechanisms, stores or commits), with runs of the same task and seed as pairs.

    The default ``suite_version`` is the newest version for which the first side has rows. If ``mechanisms`` is given,
    only rows of these mechanisms are used.

    Raises:
        UnknownName: If a side has no row of the suite, or if all its full (not shortened) runs are of other versions.
        UsageError: If all of a side's runs were shortened, if a selected mechanism has no row, or if a mechanism's rows
            have several settings. It is also raised if no two runs form a pair, or if floor and ceiling are too close
            on every common task.
    """
    if mechanisms is not None:
        first, second = (side._replace(rows=having(side.rows, "mech", mechanisms)) for side in (first, second))
    chosen = select(first.rows, suite, suite_version)
    ours = _in_settings(first, chosen.rows)
    theirs = _in_settings(second, select(second.rows, suite, chosen.suite_version).rows)
    if first.kind == "mechanism" and all(map(_has_own_positions, (ours, theirs))):
        ours, theirs = (rows.assign(positions="own") for rows in (ours, theirs))
    component = [] if first.kind == "mechanism" else ["mech", "setting"]
    task_columns = [*component, "block", "positions", *TASK_KEY, "task_version"]
    by = [*task_columns, "seed"]
    columns = [*by, "status", "skill", "floor", "ceiling"]
    paired = ours[columns].merge(theirs[columns], on=by, suffixes=("", "_other"))
    if paired.empty:
        raise UsageError(_nothing_pairs(ours, theirs, first.name, second.name, by))
    num_paired = len(paired)
    if first.kind == "mechanism":
        paired = _without_variants(paired)
    has_skill = (paired["ceiling"] - paired["floor"]) >= SMALLEST_GAP - TOLERANCE
    measured = paired[has_skill]
    if measured.empty:
        raise UsageError("floor and ceiling are too near to each other in every task that both sides have")
    groups = measured.groupby(task_columns, observed=True)
    tasks: list[dict[str, Any]] = [dict(zip(task_columns, key, strict=True)) for key, _runs in groups]
    task, (seed, seeds) = groups.ngroup().to_numpy(), measured["seed"].factorize(sort=True)
    is_failed = (measured[["status", "status_other"]] != "ok").to_numpy()
    # A run without a score is one at the floor.
    skills = np.where(is_failed, 0.0, measured[["skill", "skill_other"]].fillna(0.0).to_numpy(dtype=float))
    scores = np.full((len(tasks), 2, len(seeds)), math.nan)
    scores[task, :, seed] = np.clip(skills, 0, 1)
    is_paired = shares_seeds(scores)
    tests = pair_tests(scores, is_paired=is_paired)
    ladders = [ladder_in(arguments_in(facts["task_args"])) for facts in tasks]
    num_runs = (~np.isnan(scores)).sum(axis=2).tolist()
    # On a ladder, seeds may have been added because the first ones did not decide, and p is adjusted for the analyses.
    shares = [share_at(min(counts)) if ladder else 1.0 for counts, ladder in zip(num_runs, ladders, strict=True)]
    adjusted = holm(np.minimum(p_of_pairs(tests, num_runs, is_paired=is_paired) / shares, 1.0))
    common = scores[:, :, ~np.isnan(scores).any(axis=(0, 1))]
    num_seeds, differences = common.shape[2], common[:, 1] - common[:, 0]
    categories = [facts["task_category"] for facts in tasks]
    ties = np.array([ladder.margin if ladder else TIE for ladder in ladders])
    found = []
    for index, (facts, ladder) in enumerate(zip(tasks, ladders, strict=True)):
        before, after = np.nanmean(scores[index], axis=1).tolist()
        error, dof = float(tests.error[index, 0]), float(tests.dof[index, 0])
        found.append(
            PairedTask(
                facts["task"],
                facts["seq_len"],
                facts.get("mech", ""),
                facts["block"],
                facts["positions"],
                before,
                after,
                *t_interval(after - before, error, dof, low=-1.0),
                p=float(adjusted[index]),
                num_seeds=int((task == index).sum()),
                num_failed=int(is_failed[task == index].sum()),
                levels=ladder.num_levels if ladder else None,
            )
        )
    return Comparison(
        first=first.name,
        second=second.name,
        suite=suite,
        suite_version=chosen.suite_version,
        tasks=tuple(found),
        p=p_over_seeds(differences, balanced(categories)),
        mean_difference=over_seeds(differences[None], balanced(categories), low=-1.0)[0] if num_seeds > 1 else None,
        improvement=probability_of_improvement(common[:, 1], common[:, 0], categories, ties) if num_seeds else UNKNOWN,
        is_paired=is_paired,
        num_seeds=num_seeds,
        num_unpaired=len(ours) + len(theirs) - 2 * num_paired,
        num_variants=num_paired - len(paired),
        num_left_out=paired[~has_skill].groupby(task_columns, observed=True).ngroups,
    )


def pairwise(
    mechanisms: Sequence[Side], suite: str, suite_version: str | None = None
) -> tuple[list[Comparison], list[dict[str, Any]]]:
    """Compare every pair of mechanisms by :func:`compare`; within a pair, the mechanisms keep the given order.

    Returns:
        The comparisons, and a brief form of each, with a p value adjusted for the number of pairs (Holm).
    """
    comparisons = [compare(first, second, suite, suite_version) for first, second in combinations(mechanisms, 2)]
    adjusted = holm(np.array([comparison.p for comparison in comparisons]))
    return comparisons, [one.in_brief(p) for one, p in zip(comparisons, adjusted.tolist(), strict=True)]


def _without_variants(paired: pd.DataFrame) -> pd.DataFrame:
    """Drop runs whose combination of block and position encoding has only some of the tasks of another combination."""
    around = pd.MultiIndex.from_frame(paired[["block", "positions"]])
    tasks = {one: set(part) for one, part in paired.groupby(TASK_KEY, observed=True).ngroup().groupby(around)}
    variants = partial(tasks)
    return paired[~around.isin(variants)]


def _has_own_positions(rows: pd.DataFrame) -> bool:
    """Return whether all layers are stock (as published) or bare (stripped), and so have their own positions."""
    return "condition" in rows and bool(rows["condition"].isin(["stock", "bare"]).all())


def _in_settings(side: Side, rows: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``setting`` to the rows of a side of the comparison; if it is a mechanism, keep a single setting.

    A setting is a mechanism's arguments or, if it was rescaled to a given size, that size. Rows of a rescaled mechanism
    are used only if there are no other rows. If the side's name has no arguments, rows of the stock layer (as
    published) are preferred. In this case, a setting is also left out if it was run on only some of the tasks of
    another setting.

    Raises:
        UsageError: If the mechanism still has several settings.
    """
    if side.kind == "mechanism" and ":" not in side.name and "is_variant" in rows:
        main = rows[~rows["is_variant"].astype(bool)]
        rows = next(filter(len, (main[main["condition"] == "stock"], main)), rows)
    if side.kind == "mechanism" and rows["match"].isna().any():
        rows = rows[rows["match"].isna()]
    rows = rows.assign(setting=settings(rows))
    names = sorted(set(rows["setting"]))
    if side.kind == "mechanism" and ":" not in side.name and len(names) > 1:
        task = rows.groupby(TASK_KEY, observed=True).ngroup()
        some = partial({name: set(task[rows["setting"] == name]) for name in names})
        names = [name for name in names if name not in some]
        rows = rows[rows["setting"].isin(names)]
    if side.kind == "mechanism" and len(names) > 1:
        raise UsageError(
            f"{side.name!r} has rows of {len(names)} settings: {', '.join(names)}; name one with its arguments, as in "
            "slay:P=8"
        )
    return rows


def _in_store(name: str, rows: pd.DataFrame) -> Side:
    mechanism, arguments = parse_term(name)
    mechanism = resolve("mechanism", mechanism, dict(zip(rows["mech"], rows["mech_label"], strict=True)))
    named = rows[rows["mech"] == mechanism]
    if len(named):
        return Side(name, "mechanism", having(named, "mech", {mechanism: arguments}))
    commits = {sha for sha in rows["git_sha"].dropna().unique() if _COMMIT.fullmatch(name) and sha.startswith(name)}
    if len(commits) > 1:
        raise UsageError(f"commit {name!r} begins the hashes {', '.join(sorted(commits))}; write more of it")
    if commits:
        return Side(name, "commit", rows[rows["git_sha"].isin(commits)])
    raise UnknownName(
        "store, or mechanism or commit with rows", name, {*rows["mech"], *rows["git_sha"].dropna().str[:10]}
    )


def _nothing_pairs(
    first: pd.DataFrame, second: pd.DataFrame, first_name: str, second_name: str, by: Sequence[str]
) -> str:
    """Write the error message for two sides without any pair of runs.

    It names the first column in which the sides have no value in common, if there is one.
    """
    for column in by:
        values, others = set(first[column]), set(second[column])
        if not values & others:
            shown = [", ".join(sorted(map(str, some))[:5]) for some in (values, others)]
            return f"nothing pairs: {column} is {shown[0]} in {first_name!r} and {shown[1]} in {second_name!r}"
    return f"nothing pairs: no run of {first_name!r} and {second_name!r} agrees in all of {', '.join(by)}"
