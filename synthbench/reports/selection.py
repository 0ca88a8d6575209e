"""Which rows of a store enter a report.

A report shows one version of one suite. In it, a column is a mechanism in one setting, under one block and one position
encoding, and every cell holds rows of one version. A setting is what was asked for: arguments, or the size that they
were matched to. Where the store has several versions of a task or of a mechanism, or several widths, the one with the
newest row is shown and the rows of the others are counted, never mixed in. So are rows of another protocol, where
a suite's file was changed and its version was not.
Where a suite tries several learning rates, each seed of a cell shows the one that did best on its validation stream.
A score without a passed check of causality is no score: such a row is left out. So is a row of a task's version that
was withdrawn, because it does not test what it says: ``reference/withdrawn.csv`` lists those versions.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from synthbench.errors import UnknownName, UsageError
from synthbench.reports.against.published import lines_of

EXTRA = ".extra"
"""Ends the name under which a suite's rows of tasks that it does not list are stored."""
TASK_KEY = ["task_category", "task", "task_args", "seq_len"]
"""Columns that make a task at one size."""
AROUND = ["mech", "block", "positions"]
"""Columns that make a mechanism and what is around it; it may have several settings."""
SETTING = ["match", "mech_args"]
"""The first of these that is known is the setting; with ``AROUND`` it makes a column of a table."""


def settings(rows: pd.DataFrame) -> "pd.Series[str]":
    """The setting of each row: the size that its mechanism was matched to, and of what, or else its arguments."""
    return rows["match"].fillna(rows["mech_args"])


_COLUMN = [*AROUND, "setting"]

Terms = Mapping[str, Mapping[str, str]]
"""Names of units, each with the arguments that its rows must have, as text."""


class Withdrawal(NamedTuple):
    """A version of a task whose rows no report shows."""

    task: str
    version: str
    """As in a row's ``task_version``."""
    reason: str

    @property
    def in_words(self) -> str:
        """Which version it is, and why it was withdrawn."""
        return f"{self.task} version {self.version}, withdrawn: {self.reason}"


@cache
def withdrawals() -> tuple[Withdrawal, ...]:
    """All withdrawn versions of tasks, in the order of the data."""
    return tuple(Withdrawal(line["task"], line["version"], line["reason"]) for line in lines_of("withdrawn.csv"))


@dataclass(frozen=True)
class Selection:
    """The rows of one report and what was left out."""

    suite: str
    suite_version: str
    rows: pd.DataFrame
    """Oldest first; one row for each task, size, mechanism and seed."""
    num_withdrawn: dict[Withdrawal, int]
    """Rows of each withdrawn version of a task that has some."""
    num_other_protocols: int
    """Rows whose protocol is not that of the newest row, though suite and version have the same name."""
    num_outdated: int
    """Rows of other versions of a task, or of other versions or widths of a mechanism."""
    num_repeated: int
    """Rows whose seed has a newer row, or one that ended well, in the same cell."""
    num_unchecked: int
    """Rows with a score whose mechanism did not pass the check of causality."""
    num_other_rates: int
    """Rows of learning rates that did worse on the validation stream of their seed."""

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows no cell shows, by the reason in words; reasons without a row are not named."""
        counts = {
            **{f"of {withdrawal.in_words}": count for withdrawal, count in self.num_withdrawn.items()},
            "of another protocol under the same suite and version": self.num_other_protocols,
            "of older versions": self.num_outdated,
            "of mechanisms that did not pass the check of causality": self.num_unchecked,
            "whose seed has a newer or a successful row": self.num_repeated,
            "of learning rates that did worse in validation": self.num_other_rates,
        }
        return {reason: count for reason, count in counts.items() if count}


def select(
    rows: pd.DataFrame,
    suite: str,
    suite_version: str | None = None,
    *,
    mechanisms: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
) -> Selection:
    """The rows of a report: full runs of one suite version, one version of every unit, one row a seed.

    Rows that only helped to choose a learning rate are no part of it.

    Of several rows of one seed in one cell the newest counts; a row that ended well counts before one that did not,
    because a failure that another device does not share says nothing of the mechanism.

    Args:
        rows: Rows of a store, any suites, in any order.
        suite: Name of the suite.
        suite_version: Its version; the newest if None.
        mechanisms: Those to show; all if None.
        seeds: Root seeds to show; all if None.

    Raises:
        UnknownName: If the store has no full row of the suite or of its version; the message names what it has.
        UsageError: If no row of the suite is full or of the mechanisms and seeds, or all that are lack a check of
            causality or are of withdrawn versions of tasks.
    """
    suite_version = version_shown(rows, suite, suite_version)
    full = full_runs(rows)
    of_suite = full[full["suite"] == suite]
    of_version = of_suite[of_suite["suite_version"] == suite_version].sort_values(["finished_at", "run_id"])
    for column, wanted in (("mech", mechanisms), ("seed", seeds)):
        if wanted is not None:
            of_version = of_version[of_version[column].isin(list(wanted))]
    if of_version.empty:
        raise UsageError(f"the store has no full row of suite {suite!r} with these mechanisms and seeds")

    standing, num_withdrawn = _without_withdrawn(of_version)
    if standing.empty:
        versions = "; ".join(withdrawal.in_words for withdrawal in num_withdrawn)
        raise UsageError(
            f"the store has {len(of_version)} full rows of suite {suite!r} with these mechanisms and seeds, all of "
            f"{versions}"
        )

    protocols = standing["config_json"].map(_protocol) + standing["tuning_trials"].astype(str)
    of_protocol = standing[protocols == protocols.iloc[-1]]
    is_unchecked = (of_protocol["status"] == "ok") & ~of_protocol["causal_checked"].astype(bool)
    checked = of_protocol[~is_unchecked]
    if checked.empty:
        raise UsageError(f"no row of suite {suite!r} is of a mechanism that passed the check of causality")

    current = _newest_only(_newest_only(checked, ["task"], ["task_version"]), AROUND, ["mech_version"])
    current = current.assign(setting=settings(current))
    is_matched = current["match"].notna()
    widths = [
        _newest_only(current[~is_matched], _COLUMN, ["d_model"]),
        # What was matched has the arguments and the width that its task asked for.
        _newest_only(current[is_matched], [*_COLUMN, *TASK_KEY], ["mech_args", "d_model"]),
    ]
    current = pd.concat(widths).sort_values(["finished_at", "run_id"])
    best = _best_rate_only(current)
    is_ok = (best["status"] == "ok").rename("is_ok")
    ranked = best.assign(is_ok=is_ok).sort_values(["is_ok", "finished_at", "run_id"])
    chosen = ranked.drop_duplicates([*TASK_KEY, *_COLUMN, "seed"], keep="last")
    return Selection(
        suite=suite,
        suite_version=suite_version,
        rows=chosen.drop(columns=["is_ok", "setting"]).sort_values(["finished_at", "run_id"]).reset_index(drop=True),
        num_withdrawn=num_withdrawn,
        num_other_protocols=len(standing) - len(of_protocol),
        num_outdated=len(checked) - len(current),
        num_unchecked=len(of_protocol) - len(checked),
        num_repeated=len(best) - len(chosen),
        num_other_rates=len(current) - len(best),
    )


def full_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of runs that nothing shortened and that did not only help to choose a learning rate."""
    return rows[rows["is_full"].astype(bool) & rows["role"].isna()]


def version_shown(rows: pd.DataFrame, suite: str, suite_version: str | None = None) -> str:
    """The version of a suite that a report of some rows shows: the one that is asked for, or else the newest.

    Raises:
        UnknownName: If there is no full run of the suite or of its version; the message names what there is.
        UsageError: If the suite has rows, but none of a full run.
    """
    full = full_runs(rows)
    of_suite = full[full["suite"] == suite]
    if of_suite.empty:
        if num_others := int((rows["suite"] == suite).sum()):
            raise UsageError(
                f"the store has {num_others} rows of suite {suite!r}, all of runs that --steps or --limit shortened or "
                "that chose learning rates; a report shows full runs only"
            )
        raise UnknownName("suite with full rows in the store", suite, set(full["suite"]))
    newest = {
        str(version): group["finished_at"].max() for version, group in of_suite.groupby("suite_version", observed=True)
    }
    if suite_version is None:
        suite_version = max(newest, key=lambda version: (_version_order(version), newest[version], version))
    elif suite_version not in newest:
        raise UnknownName(f"version of suite {suite!r} with full rows in the store", suite_version, newest)
    return suite_version


def only_suite(rows: pd.DataFrame) -> str | None:
    """The one suite that some rows are of, where any is full that of the full ones; None if there are several or none.

    Rows of tasks that a suite does not list count only where there are no others.
    """
    suites = set(rows.loc[rows["is_full"].astype(bool), "suite"]) or set(rows["suite"])
    suites = {suite for suite in suites if not suite.endswith(EXTRA)} or suites
    return str(suites.pop()) if len(suites) == 1 else None


def having(rows: pd.DataFrame, unit: Literal["task", "mech"], terms: Terms) -> pd.DataFrame:
    """The rows of some tasks or mechanisms, of those with arguments only the rows that have them.

    Raises:
        UsageError: If no row is left of one of them; the message names the arguments that its rows have.
    """
    kept = []
    for name, arguments in terms.items():
        named = rows[rows[unit] == name]
        given = {text: json.loads(text) for text in named[f"{unit}_args"].unique()}
        agreeing = [text for text, values in given.items() if _agrees(values, arguments)]
        matching = named[named[f"{unit}_args"].isin(agreeing)]
        if matching.empty:
            kind = "task" if unit == "task" else "mechanism"
            stated = ",".join(f"{key}={value}" for key, value in arguments.items())
            have = "; ".join(sorted(given)) or "none"
            raise UsageError(f"no row of {kind} {name!r} with {stated or 'any arguments'}; rows have: {have}")
        kept.append(matching)
    return rows.loc[pd.concat(kept).index.sort_values()] if kept else rows


def _without_withdrawn(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[Withdrawal, int]]:
    """The rows of versions that stand, and how many are of each of the others."""
    is_withdrawn = np.zeros(len(rows), dtype=bool)
    counts = {}
    for withdrawal in withdrawals():
        is_of_it = ((rows["task"] == withdrawal.task) & (rows["task_version"] == withdrawal.version)).to_numpy()
        is_withdrawn |= is_of_it
        if is_of_it.any():
            counts[withdrawal] = int(is_of_it.sum())
    return rows[~is_withdrawn], counts


def _protocol(config: str) -> str:
    """The part of a run's configuration that its suite decides; the width may be that of a matched size."""
    try:
        given = json.loads(config)
        return json.dumps(
            [
                {**given["model"], "model_dim": None},
                *(given.get(part) for part in ("training", "evaluation", "tuning", "ladder")),
            ],
            sort_keys=True,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # not as a run writes it
        return config


def _newest_only(rows: pd.DataFrame, unit: Sequence[str], version: Sequence[str]) -> pd.DataFrame:
    """Of every unit keep the rows whose version is that of the unit's last row."""
    last = rows.groupby(list(unit), sort=False, observed=True)[list(version)].transform("last")
    return rows[(rows[list(version)] == last).all(axis=1)]


def _best_rate_only(rows: pd.DataFrame) -> pd.DataFrame:
    """Of every seed of a cell keep the learning rate with the highest validation accuracy; a failure counts as 0.

    Each seed chooses by itself, so that the noise of the choice is part of how seeds scatter. Of equal ones the
    smallest is kept, and what failed before it had a rate stays.
    """
    run = [*TASK_KEY, *_COLUMN, "seed"]
    rates = rows.groupby(run, observed=True)["lr"]
    if (rates.min().fillna(0.0) == rates.max().fillna(0.0)).all():
        return rows
    accuracy = rows["metrics"].map(lambda text: json.loads(text).get("validation_accuracy")).astype(float).fillna(0.0)
    reached = accuracy.where(rows["status"] == "ok", 0.0)
    of_run = [rows[key] for key in run]
    is_best = reached == reached.groupby(of_run).transform("max")
    smallest = rows["lr"].where(is_best).groupby(of_run).transform("min")
    return rows[(rows["lr"] == smallest) | rows["lr"].isna()]


def _version_order(version: str) -> list[tuple[int, int, str]]:
    """Order ``2026.10`` after ``2026.9``; a hash after ``+`` has no order."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version.partition("+")[0])
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _agrees(given: Mapping[str, Any], arguments: Mapping[str, str]) -> bool:
    return all(name in given and _reads_as(given[name], text) for name, text in arguments.items())


def _reads_as(value: object, text: str) -> bool:
    """Tell whether a value of JSON is what a user wrote: ``1e-3`` is 0.001, ``true`` is True."""
    if isinstance(value, bool | str) or value is None:
        return str(value).lower() == text.lower()
    try:
        return float(text) == value
    except ValueError:
        return False
