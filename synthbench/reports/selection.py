"""Select the rows of a store that a report shows.

A row is the result of one run. A report shows one version of one suite (a set of tasks with a training protocol). A
column of the report's tables is a mechanism in one setting, inside one block (the layers around the mechanism) and with
one position encoding. A setting is what the user requested: the arguments and, if the mechanism was rescaled, the
target number of parameters or state size. All rows of a cell (a mechanism on a task) have the same version of the task
and of the mechanism.

If a task or mechanism has rows of several versions or model widths, only the version or width of the newest row is
shown. All other rows are counted but not shown. If a suite's file changed but its version did not, rows of the older
training protocol are not shown either. If a suite tries several learning rates, only one run is shown for each seed of
a cell: the run whose rate did best on validation sequences.

A setting is a variant if it was run on only some of the tasks of another setting of its mechanism. For this purpose, a
mechanism in another block or with another position encoding counts as another setting. Leaderboards do not show
variants. Suites without stock (published) and bare (stripped) layers add a condition for variants. The other setting
must have been run on every task, or must differ only in block or position encoding.

Rows with a score are left out if their mechanism did not pass the check of causality (no output may depend on later
inputs).
"""

import json
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import pandas as pd

from synthbench.bits import BITS, choice_in
from synthbench.errors import UnknownName, UsageError
from synthbench.options import MAIN_SUITE, MOVED, STUDIED

K = TypeVar("K")

EXTRA = ".extra"
"""Suffix of the suite name under which rows of tasks outside the suite are stored."""
TASK_KEY = ["task_category", "task", "task_args", "seq_len"]
"""The columns that identify a task at one size."""
AROUND = ["mech", "block", "positions"]
"""The columns that identify a mechanism with its block and positions, without its setting."""
SETTING = ["match", "mech_args"]
"""The first of these columns that is not null is the setting. ``AROUND`` and the setting identify a table column."""


def settings(rows: pd.DataFrame) -> "pd.Series[str]":
    """Return the setting of each row's mechanism as text.

    The setting is the value of column ``match`` if the mechanism was rescaled to a given size, and the mechanism's
    options otherwise.
    """
    return rows["match"].fillna(rows["mech_args"])


_COLUMN = [*AROUND, "setting"]

Terms = Mapping[str, Mapping[str, str]]
"""Names of tasks or mechanisms, each with the arguments that its rows must have, as text."""


@dataclass(frozen=True)
class Selection:
    """The rows of one report, and the numbers of rows that were left out."""

    suite: str
    suite_version: str
    rows: pd.DataFrame
    """The selected rows, oldest first: one for each task, size, mechanism and seed."""
    left_out: dict[str, int]
    """Number of rows left out, by the reason in words; reasons without a row are not listed."""
    variants: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The rows of variants, which :meth:`without_variants` moves here."""

    def without_variants(self) -> "Selection":
        """Return a copy in which rows of variants are in ``variants`` instead of ``rows``.

        A variant is a setting that was run on only some of the tasks of its mechanism's main setting. Rows that
        :mod:`synthbench.trust.view` marks as variants are moved too. Tables of all tasks do not show variants, and
        :mod:`synthbench.reports.variants` compares each variant with its main setting.
        """
        # Tasks in bits do not make variants: their suites choose settings per task, and no mean is over all of them.
        # In a suite with conditions, each condition of a mechanism has a main setting of its own. In other suites, two
        # settings that each have some of the tasks may both be intended.
        has_conditions = "sees_places" in self.rows and self.rows["sees_places"].notna().any()
        conditions = self.rows["condition"].fillna("") if has_conditions else [""] * len(self.rows)
        columns = pd.MultiIndex.from_arrays([*(self.rows[name] for name in AROUND), settings(self.rows), conditions])
        has_skill = (self.rows["metric_name"] != BITS).to_numpy()
        tasks = self.rows[has_skill].groupby(TASK_KEY).ngroup()
        tasks_of = {column: set(of_column) for column, of_column in tasks.groupby(columns[has_skill])}
        every = set().union(*tasks_of.values())

        def is_rival(column: tuple[Hashable, ...], other: tuple[Hashable, ...]) -> bool:
            has_all = has_conditions or tasks_of[other] == every or other[-2] == column[-2]
            return has_all and (other[0], other[-1]) == (column[0], column[-1])

        variants = partial(tasks_of, is_rival)
        is_variant = columns.isin(variants)
        if "is_variant" in self.rows:  # set by :mod:`synthbench.trust.view`, as for other conditions
            is_variant |= self.rows["is_variant"].to_numpy(dtype=bool)
        main, others = (self.rows[part].reset_index(drop=True) for part in (~is_variant, is_variant))
        return replace(self, rows=main, variants=others)


def partial(tasks_of: Mapping[K, set[Any]], is_rival: Callable[[K, K], bool] = lambda *_: True) -> list[K]:
    """Return the settings that were run on only some of the tasks of another setting, and on no other tasks.

    Args:
        tasks_of: The tasks of each setting.
        is_rival: Function that returns True for two settings that may be compared. Default: each setting is compared
            with all others.
    """
    return [
        one
        for one, some in tasks_of.items()
        if any(some < others and is_rival(one, other) for other, others in tasks_of.items())
    ]


def select(
    rows: pd.DataFrame,
    suite: str,
    suite_version: str | None = None,
    *,
    mechanisms: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
) -> Selection:
    """Select the rows (results of runs) that a report shows: one row for each task, mechanism and seed.

    Only full runs are selected: runs that were not shortened, and that were not made only to choose a learning rate.
    All rows are of one version of the suite, and of one version of each task and mechanism.

    If there are several rows for a seed, for example from several devices, the newest successful row is used, or the
    newest row if all failed.

    ``rows`` may contain other suites, and may be in any order. By default, the newest version of the suite is selected,
    with all mechanisms and seeds.

    Raises:
        UnknownName: If the suite has no row, or if the given version has no full run. The message lists the suites or
            versions with full runs.
        UsageError: If the suite has rows, but no full run with these mechanisms and seeds. It is also raised if all of
            these runs are of mechanisms that failed the check of causality.
    """
    suite_version = version_shown(rows, suite, suite_version)
    full = full_runs(rows)
    for column, wanted in (("mech", mechanisms), ("seed", seeds)):
        if wanted is not None:
            full = full[full[column].isin(list(wanted))]
    of_suite = full[full["suite"] == suite]
    of_version = of_suite[of_suite["suite_version"] == suite_version].sort_values(["finished_at", "run_id"])
    if of_version.empty:
        raise UsageError(f"the store has no full row of suite {suite!r} with these mechanisms and seeds")

    protocols = of_version["config_json"].map(protocol_of) + of_version["tuning_trials"].astype(str)
    of_protocol = of_version[protocols == protocols.iloc[-1]]
    is_unchecked = (of_protocol["status"] == "ok") & ~of_protocol["causal_checked"].astype(bool)
    checked = of_protocol[~is_unchecked]
    if checked.empty:
        raise UsageError(f"no row of suite {suite!r} is of a mechanism that passed the check of causality")

    current = _newest_only(_newest_only(checked, ["task"], ["task_version"]), AROUND, ["mech_version"])
    current = current.assign(setting=settings(current))
    is_matched = current["match"].notna()
    widths = [
        _newest_only(current[~is_matched], _COLUMN, ["d_model"]),
        # A matched mechanism has other arguments and another width on each task.
        _newest_only(current[is_matched], [*_COLUMN, *TASK_KEY], ["mech_args", "d_model"]),
    ]
    current = pd.concat(widths).sort_values(["finished_at", "run_id"])
    best = _best_rate_only(current)
    ranked = best.assign(is_ok=best["status"] == "ok").sort_values(["is_ok", "finished_at", "run_id"])
    chosen = ranked.drop_duplicates([*TASK_KEY, *_COLUMN, "seed"], keep="last")
    left_out = {
        "of another protocol under the same suite and version": len(of_version) - len(of_protocol),
        "of older versions": len(checked) - len(current),
        "of mechanisms that did not pass the check of causality": len(of_protocol) - len(checked),
        "whose seed has a newer or a successful row": len(best) - len(chosen),
        "of learning rates that did worse in validation": len(current) - len(best),
    }
    return Selection(
        suite=suite,
        suite_version=suite_version,
        rows=chosen.drop(columns=["is_ok", "setting"]).sort_values(["finished_at", "run_id"]).reset_index(drop=True),
        left_out={reason: count for reason, count in left_out.items() if count},
    )


def full_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of runs that were neither shortened nor made only to choose a learning rate."""
    return rows[rows["is_full"].astype(bool) & rows["role"].isna()]


def version_shown(rows: pd.DataFrame, suite: str, suite_version: str | None = None) -> str:
    """Return the version of a suite that a report shows: the given version or, by default, the newest.

    Only full runs count: runs that were not shortened, and that were not made only to choose a learning rate.

    Raises:
        UnknownName: If the suite has no row, or if the given version has no full run. The message lists the suites or
            versions with full runs.
        UsageError: If the suite has rows, but no full run.
    """
    full = full_runs(rows)
    of_suite = full[full["suite"] == suite]
    if of_suite.empty:
        if num_others := int((rows["suite"] == suite).sum()):
            raise UsageError(
                f"the store has {num_others} rows of suite {suite!r}, all of runs that --steps or --limit shortened or "
                "that chose learning rates; a report shows full runs only"
            )
        raise UnknownName("suite with full rows in the store", suite, set(map(_now, full["suite"])) - STUDIED)
    newest = {
        str(version): group["finished_at"].max() for version, group in of_suite.groupby("suite_version", observed=True)
    }
    if suite_version is None:
        suite_version = max(newest, key=lambda version: (_version_order(version), newest[version], version))
    elif suite_version not in newest:
        raise UnknownName(f"version of suite {suite!r} with full rows in the store", suite_version, newest)
    return suite_version


def suites_in(rows: pd.DataFrame) -> list[str]:
    """List the names of the suites in some rows, beginning with the suite of the newest row.

    Rows of shortened runs are ignored, unless all runs were shortened. A name with the suffix ``EXTRA`` stands for
    tasks that a suite does not list; such names are returned only if there are no others. Suites in ``STUDIED``, whose
    tasks now belong to a study, are never listed.
    """
    full = rows[rows["is_full"].astype(bool)]
    newest = (full if len(full) else rows).sort_values(["finished_at", "run_id"], ascending=False)
    suites = [suite for suite in dict.fromkeys(map(str, newest["suite"])) if suite not in STUDIED]
    return [suite for suite in suites if not suite.endswith(EXTRA)] or suites


def default_suite(rows: pd.DataFrame, is_own: "pd.Series[bool]") -> str:
    """Choose the suite that a report shows if the user does not name one.

    It is the suite of the user's newest row; ``is_own`` is True for the user's rows. If the user has no rows, it is the
    main suite or, if there are no rows of the main suite, the suite of the newest row. If the suite was renamed, the
    new name is returned.
    """
    own, present = ([_now(name) for name in suites_in(some)] for some in (rows[is_own], rows))
    return (own or [MAIN_SUITE] * (MAIN_SUITE in present or not present) or present)[0]


def _now(suite: str) -> str:
    """Return the present name of a suite, which may have been renamed."""
    return MOVED[suite][0] if suite in MOVED else suite


def having(rows: pd.DataFrame, unit: Literal["task", "mech"], terms: Terms) -> pd.DataFrame:
    """Return the rows of the tasks or mechanisms in ``terms`` that were run with the option values given there.

    Raises:
        UsageError: If no row of a task or mechanism has the given option values. The message lists the values in its
            rows.
    """
    kept = []
    for name, arguments in terms.items():
        named = rows[rows[unit] == name]
        given = {text: json.loads(text) for text in named[f"{unit}_args"].unique()}
        agreeing = [
            text
            for text, values in given.items()
            if all(key in values and _reads_as(values[key], wanted) for key, wanted in arguments.items())
        ]
        matching = named[named[f"{unit}_args"].isin(agreeing)]
        if matching.empty:
            kind = "task" if unit == "task" else "mechanism"
            stated = ",".join(f"{key}={value}" for key, value in arguments.items())
            have = "; ".join(sorted(given)) or "none"
            raise UsageError(f"no row of {kind} {name!r} with {stated or 'any arguments'}; rows have: {have}")
        kept.append(matching)
    return rows.loc[pd.concat(kept).index.sort_values()] if kept else rows


def protocol_of(config: str) -> str:
    """Return a run's protocol as text: the settings in its ``config_json`` that the suite fixes, such as steps.

    The width of the model is left out, since it may change if a mechanism is rescaled to a given size.
    """
    try:
        given = json.loads(config)
        return json.dumps(
            [
                {**given["model"], "model_dim": None},
                *(given.get(part) for part in ("training", "evaluation", "tuning", "ladder")),
            ],
            sort_keys=True,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # not written by a run
        return config


def _newest_only(rows: pd.DataFrame, unit: Sequence[str], version: Sequence[str]) -> pd.DataFrame:
    """Group rows by the ``unit`` columns; keep those that have the ``version`` columns of their group's newest row.

    The given rows must be sorted, the oldest first.
    """
    last = rows.groupby(list(unit), sort=False, observed=True)[list(version)].transform("last")
    return rows[(rows[list(version)] == last).all(axis=1)]


def _best_rate_only(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep, for each seed of a cell (task × mechanism), the rows with the learning rate that did best in validation.

    A failed run counts as 0 in validation. The rate is chosen separately for each seed, so the noise of the choice is
    part of the spread over seeds. Of equally good rates, the smallest is kept. Runs that failed before they had a rate
    are kept too.
    """
    run = [*TASK_KEY, *_COLUMN, "seed"]
    rates = rows.groupby(run, observed=True)["lr"]
    if (rates.min().fillna(0.0) == rates.max().fillna(0.0)).all():
        return rows
    chosen_by = rows["metrics"].map(lambda text: choice_in(json.loads(text))).astype(float).fillna(0.0)
    reached = chosen_by.where(rows["status"] == "ok", 0.0)
    of_run = [rows[key] for key in run]
    is_best = reached == reached.groupby(of_run).transform("max")
    smallest = rows["lr"].where(is_best).groupby(of_run).transform("min")
    return rows[(rows["lr"] == smallest) | rows["lr"].isna()]


def _version_order(version: str) -> list[tuple[int, int, str]]:
    """Return a sort key of a version, which puts ``2026.10`` after ``2026.9``; a hash after ``+`` is ignored."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version.partition("+")[0])
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _reads_as(value: object, text: str) -> bool:
    """Return whether a JSON value equals the text that a user wrote: ``1e-3`` is 0.001, ``true`` is True."""
    if isinstance(value, bool | str) or value is None:
        return str(value).lower() == text.lower()
    try:
        return float(text) == value
    except ValueError:
        return False
