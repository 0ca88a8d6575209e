"""What a report is made of, whatever files it is written to."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pandas as pd

from synthbench.reports.cite import cite
from synthbench.reports.curves import mean_curves
from synthbench.reports.difference import difference, difference_tables
from synthbench.reports.figures import Drawing, Facts, drawings
from synthbench.reports.grid import Estimate, Grid, Key, MechanismFacts, Row, TaskFacts, grid, mechanism_key, task_key
from synthbench.reports.leaderboard import Leaderboard, improvement_table, leaderboard, leaderboard_table, reach_table
from synthbench.reports.peers import SUITE as PEERS
from synthbench.reports.peers import peers_table
from synthbench.reports.predictions import prediction_table
from synthbench.reports.published import causes
from synthbench.reports.selection import Selection
from synthbench.reports.separation import Separation, separation, separation_table, summary
from synthbench.reports.stems import stem_of
from synthbench.reports.table import Table, category_averages, category_table, full_table, steps_table

_RESERVED = (
    "averages",
    "cells",
    "curves",
    "difference",
    "full",
    "leaderboard",
    "peers",
    "predictions",
    "reach",
    "readme",
    "separation",
    "sources",
    "steps_to_threshold",
)


class Page(NamedTuple):
    """One page of a report: a Markdown and a LaTeX file with the same tables."""

    title: str
    tables: tuple[Table, ...]
    introduction: str = ""


@dataclass(frozen=True)
class Report:
    """What the files of one report are made of; what several of them need is worked out once."""

    selection: Selection
    curves: pd.DataFrame | None
    """Of any runs; None leaves out what shows them."""

    @property
    def rows(self) -> pd.DataFrame:
        """Those that are shown."""
        return self.selection.rows

    @cached_property
    def of(self) -> Grid:
        """The cells of the rows."""
        return grid(self.rows)

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
        for row in self.rows.sort_values("seed").to_dict("records"):
            runs.setdefault((task_key(row), mechanism_key(row)), []).append(row)
        return runs

    @cached_property
    def averages(self) -> pd.DataFrame | None:
        """Learning curves averaged over seeds."""
        return None if self.curves is None else mean_curves(self.rows, self.curves)

    @cached_property
    def board(self) -> Leaderboard | None:
        """The ranking; None below two seeds."""
        return leaderboard(self.rows) if self.rows["seed"].min() < self.rows["seed"].max() else None

    @cached_property
    def judged(self) -> list[Separation]:
        """What every task says about the mechanisms."""
        return separation(self.rows)

    @cached_property
    def pages(self) -> dict[str, Page]:
        """The pages by the stem of their files."""
        return _pages(self)

    @cached_property
    def drawings(self) -> list[Drawing]:
        """The figures that the rows have something for."""
        return drawings(Facts(self.rows, self.of, self.averages, self.board))

    @cached_property
    def cited(self) -> tuple[str, list[str]]:
        """BibTeX of what the tables show, and the keys that have none."""
        return cite(key for page in self.pages.values() for one in page.tables for key in one.sources)


def _pages(report: Report) -> dict[str, Page]:
    rows = report.rows
    pages: dict[str, Page] = {}
    for category in report.of.categories:
        one = category_table(rows, category)
        pages[stem_of(category, pages, _RESERVED)] = Page(one.title, (one,))
    for one in (full_table(rows), category_averages(rows)):
        pages[one.name] = Page(one.title, (one,))
    pages["separation"] = Page(
        "What separates mechanisms", (separation_table(report.of, report.judged),), summary(report.judged)
    )
    if report.selection.suite.startswith("paper"):
        found = difference(rows)
        if any(one.ours for one in found.comparisons):
            tables = tuple(difference_tables(found, causes()))
            pages["difference"] = Page("Difference from the published table", tables, found.summary())
    if report.board is not None:
        ranking, improvement = leaderboard_table(report.board), improvement_table(report.board)
        pages[ranking.name] = Page(ranking.title, (ranking, improvement) if improvement else (ranking,))
    against_peers = peers_table(rows) if report.selection.suite == PEERS else None
    for extra in (reach_table(rows), prediction_table(rows), against_peers, steps_table(rows)):
        if extra is not None:
            pages[extra.name] = Page(extra.title, (extra,))
    return pages
