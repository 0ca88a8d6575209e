"""The contents of a report, before they are written to files."""

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from synthbench import sources
from synthbench.errors import UnknownName
from synthbench.reports.against.peers import SUITE as PEERS
from synthbench.reports.against.peers import peers_table
from synthbench.reports.against.published import causes
from synthbench.reports.against.ratios import ratio_table
from synthbench.reports.cells import (
    COLUMNS,
    Cells,
    Estimate,
    Key,
    MechanismFacts,
    Row,
    TaskFacts,
    grid,
    mechanism_key,
    records,
    task_key,
)
from synthbench.reports.curves import mean_curves
from synthbench.reports.descriptions import Describe
from synthbench.reports.difference import difference, difference_tables
from synthbench.reports.heights import load_table
from synthbench.reports.leaderboard import Leaderboard, leaderboard, leaderboard_tables
from synthbench.reports.selection import Selection
from synthbench.reports.separation import PAGE as SEPARATION
from synthbench.reports.separation import separation_table, summary
from synthbench.reports.table import Table, category_averages, category_table, full_table, steps_table
from synthbench.reports.verdicts import Verdicts, judge

if TYPE_CHECKING:
    from synthbench.reports.render.figures import Drawing

_RESERVED = (
    "averages",
    "cells",
    "curves",
    "difference",
    "full",
    "leaderboard",
    "peers",
    "predictions",
    "readme",
    "separation",
    "sources",
    "steps_to_threshold",
)

_MADE_BY = (
    *("error_type", "device_type", "device_name"),
    *("synthbench_version", "git_sha", "git_dirty", "verified_by"),
)
"""How rows were made; older stores have no column ``verified_by``."""


class Page(NamedTuple):
    """One page of a report: a Markdown and a LaTeX file with the same tables."""

    title: str
    tables: tuple[Table, ...]
    introduction: str = ""


@dataclass(frozen=True)
class Report:
    """The contents of one report; what several files need is computed once."""

    selection: Selection
    curves: pd.DataFrame | None
    """Of any runs; None leaves out what shows them."""
    measured: tuple[str, ...] = ()
    """Columns of rows that are read besides those that every report reads."""
    origins: "pd.Series[str] | None" = None
    """Which store a row is from, by ``run_id``; None if all are from one."""
    describe: Describe | None = None
    """What the code of a task says, for the page; None leaves out what shows it."""

    @cached_property
    def of(self) -> Cells:
        """The cells of the rows."""
        return grid(self.selection.rows, self.records)

    @cached_property
    def records(self) -> list[Row]:
        """The rows that are shown, oldest first, with the columns that are read."""
        rows = self.selection.rows
        return records(rows, [name for name in dict.fromkeys((*COLUMNS, *_MADE_BY, *self.measured)) if name in rows])

    @cached_property
    def stores(self) -> dict[str, int]:
        """How many of the rows are from each store; empty if all are from one."""
        if self.origins is None:
            return {}
        shown = self.origins.loc[self.selection.rows["run_id"]].value_counts()
        return {str(name): int(shown.get(name, 0)) for name in self.origins.unique()}

    @property
    def cells(self) -> Iterator[tuple[TaskFacts, MechanismFacts, Estimate]]:
        """Every task with every mechanism, in printed order."""
        for task in self.of.tasks:
            for mechanism in self.of.mechanisms:
                yield task, mechanism, self.of.cell(task, mechanism)

    def runs_of(self, task: TaskFacts, mechanism: MechanismFacts) -> list[Row]:
        """The rows of one cell by seed; none where it has no rows."""
        return self._runs.get((task.key, mechanism.key), [])

    @cached_property
    def _runs(self) -> dict[tuple[Key, Key], list[Row]]:
        runs: dict[tuple[Key, Key], list[Row]] = {}
        for row in sorted(self.records, key=lambda row: int(row["seed"])):
            runs.setdefault((task_key(row), mechanism_key(row)), []).append(row)
        return runs

    @cached_property
    def averages(self) -> pd.DataFrame | None:
        """Learning curves averaged over seeds."""
        return None if self.curves is None else mean_curves(self.of, self.records, self.curves)

    @cached_property
    def board(self) -> Leaderboard | None:
        """The ranking; None below two seeds."""
        return leaderboard(self.of) if len(self.of.seeds) > 1 else None

    @cached_property
    def verdicts(self) -> Verdicts:
        """What every task says about the mechanisms."""
        return judge(self.of)

    @cached_property
    def verdict(self) -> str:
        """The outcome of the whole report in a sentence or two: who can be the best, and how many tasks tell."""
        ranking = (
            "One seed says nothing of how sure a difference is, so nothing is ranked."
            if self.board is None
            else self.board.verdict()
        )
        return f"{ranking} {summary(self.verdicts)}"

    @cached_property
    def pages(self) -> dict[str, Page]:
        """The pages by the stem of their files."""
        return _pages(self)

    @cached_property
    def drawings(self) -> "list[Drawing]":
        """The figures that the rows have something for."""
        from synthbench.reports.render.figures import Facts, drawings  # noqa: PLC0415 - only here matplotlib is needed

        return drawings(Facts(self.records, self.of, self.averages, self.board))

    @cached_property
    def cited(self) -> tuple[str, list[str]]:
        """BibTeX of what the tables show, and the keys that have none."""
        return cite(key for page in self.pages.values() for one in page.tables for key in one.sources)


def _pages(report: Report) -> dict[str, Page]:
    of = report.of
    pages: dict[str, Page] = {}
    for category in of.categories:
        one = category_table(of, report.verdicts, category)
        loads = load_table(of, of.tasks_of(category), f"{category}-load")
        own = {task.key: report.verdicts[task.key] for task in of.tasks_of(category)}
        pages[stem_of(category, pages, _RESERVED)] = Page(one.title, (one, *([loads] if loads else [])), summary(own))
    full, loads = full_table(of, report.verdicts), load_table(of, of.tasks, "full-load")
    pages[full.name] = Page(full.title, (full, *([loads] if loads else [])), report.verdict)
    if not of.has_ladder:  # there the leaderboard has the means of the categories
        averages = category_averages(of)
        pages[averages.name] = Page(averages.title, (averages,), averages.outcome)
    separation = separation_table(of, report.verdicts)
    pages[SEPARATION] = Page(separation.title, (separation,), summary(report.verdicts))
    if report.selection.suite.startswith("paper"):
        found = difference(of)
        if any(one.ours for one in found.comparisons):
            tables = tuple(difference_tables(found, causes()))
            pages["difference"] = Page("Difference from the published table", tables, found.summary())
    if report.board is not None:
        pages["leaderboard"] = Page("Leaderboard", tuple(leaderboard_tables(report.board)), report.board.verdict())
    against_peers = peers_table(of, report.records) if report.selection.suite == PEERS else None
    predicted = ratio_table(of) if of.has_ladder else None
    for extra in (predicted, against_peers, steps_table(of)):
        if extra is not None:
            pages[extra.name] = Page(extra.title, (extra,), extra.outcome)
    return pages


def stem_of(category: str, taken: Container[str], reserved: Container[str] = ()) -> str:
    """A file name for a category, whatever a row calls it: no path, and neither a reserved nor a taken name."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", category.lower()).strip("-")[:64] or "category"
    stem = f"category-{plain}" if plain in reserved else plain
    number = 2
    while stem in taken:
        stem = f"{plain}-{number}"
        number += 1
    return stem


def cite(keys: Iterable[str]) -> tuple[str, list[str]]:
    """BibTeX of some sources, and the keys that have no entry (those of plugins), in alphabetical order."""
    all_keys = set(keys)
    known = set(filter(_has_entry, all_keys))
    return sources.bibtex(known), sorted(all_keys - known)


def _has_entry(key: str) -> bool:
    try:
        sources.bibtex([key])
    except UnknownName:
        return False
    return True
