"""One table of any selected tasks, mechanisms and columns, with the runs behind every number."""

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from synthbench.errors import UnknownName, UsageError
from synthbench.reports.cells import CellStats, MechanismFacts, Row, TaskFacts, clipped
from synthbench.reports.render import latex, markdown
from synthbench.reports.render.spreadsheet import Value, csv_text, json_text
from synthbench.reports.report import Report, cite
from synthbench.reports.selection import Selection, Terms, having, select
from synthbench.reports.table import (
    MARKS,
    MINUS,
    NOTHING,
    Cell,
    Column,
    Table,
    fixed,
    marked,
    percent,
    pivot,
    sources_of,
    table_of,
)
from synthbench.results.schema import RUN_COLUMNS
from synthbench.sources import of_suite

ACROSS = ("columns", "tasks", "mechanisms")

_NUMBERS = ("int32", "int64", "float32", "float64")
_Printed = dict[tuple[TaskFacts, MechanismFacts], Cell]
_SPREAD = "in per cent, skills cut to 0 to 1: mean ± sample standard deviation over the successful runs,"
_BETTER_HIGHER = ("score", "score_ood", "skill")
_MARKED = ("score", "skill")
"""Columns in which a report marks the best values."""


class Measure(NamedTuple):
    """A column of an exported table: a column of the store's rows, or a metric recorded in these rows."""

    name: str
    is_number: bool
    unit: str
    meaning: str
    is_metric: bool = False

    @property
    def is_skill(self) -> bool:
        """True if the column is printed as a skill, with two decimals."""
        return self.name == "skill" or self.name.endswith(".skill")

    @property
    def is_result(self) -> bool:
        """True if the column measures how good a mechanism is.

        The standard deviation of such a column is printed even if it is 0.
        """
        return self.name in _BETTER_HIGHER or (self.is_metric and self.name.endswith((".skill", ".score")))

    def value(self, run: Row) -> Any:
        """Return the column's value for one run; None if the value is missing."""
        found = json.loads(run["metrics"]).get(self.name) if self.is_metric else run[self.name]
        return None if pd.isna(found) else found

    def words(self, runs: Sequence[Row]) -> str:
        """Join the column's distinct values in ``runs`` into one text, separated by commas."""
        values = (value for run in runs if (value := self.value(run)) is not None)
        words = (str(value).lower() if isinstance(value, bool) else str(value) for value in values)
        return ", ".join(dict.fromkeys(words))

    def moments(self, runs: Sequence[Row]) -> tuple[float, float]:
        """Return mean and sample standard deviation of the column over successful runs; NaN for too few runs.

        Skills are clipped to [0, 1].
        """
        known = [float(value) for run in runs if run["status"] == "ok" and (value := self.value(run)) is not None]
        if self.is_skill:
            known = [clipped(value) for value in known]
        mean = float(np.mean(known)) if known else math.nan
        return mean, float(np.std(known, ddof=1)) if len(known) > 1 else math.nan


@dataclass(frozen=True)
class Export:
    """Selected results (by task and mechanism) and columns, with methods that write them in several formats."""

    report: Report
    measures: tuple[Measure, ...]
    across: str = "columns"
    num_left_out: int = 0
    """Number of rows left out on these tasks because they are of variants (settings run on only some tasks)."""

    @cached_property
    def cells(self) -> list[tuple[TaskFacts, MechanismFacts, CellStats]]:
        """Triples of a task, a mechanism that was run on this task, and the results of these runs.

        They are in the order in which tables print tasks and mechanisms.
        """
        return [(task, mechanism, cell) for task, mechanism, cell in self.report.cells if cell.rows]

    def markdown(self) -> str:
        """Render the table as GitHub-flavoured Markdown, under its caption."""
        return f"{markdown.escape(self.table.caption)}\n\n{markdown.table(self.table)}\n"

    def latex(self) -> str:
        r"""Render the table as a LaTeX float that needs only ``\usepackage{booktabs}``."""
        return latex.document([self.table], self.report.selection.suite)

    def csv(self) -> str:
        """Return CSV text with one line per task and mechanism: the selected columns, and the ids of the runs.

        Means and standard deviations have six significant digits.
        """
        header = ["category", "task", "mechanism", "n", "failed", *["rungs"] * self.report.cells.has_ladder]
        for measure in self.measures:
            header += [measure.name, f"{measure.name}_std"] if measure.is_number else [measure.name]
        lines: list[list[Value]] = []
        for task, mechanism, cell in self.cells:
            line: list[Value] = [task.category, task.label, mechanism.label, cell.n, cell.num_failed]
            line += [task.ladder.num_levels] if task.ladder else []
            for measure in self.measures:
                line += measure.moments(cell.rows) if measure.is_number else [measure.words(cell.rows)]
            lines.append([*line, " ".join(str(run["run_id"]) for run in cell.rows)])
        return csv_text([*header, "run_ids"], lines)

    def json(self) -> str:
        """Write one JSON object per task and mechanism: a summary of each column, and the values of every run."""
        cells = [
            {
                "category": task.category,
                "task": task.label,
                "mechanism": mechanism.label,
                **({"rungs": task.ladder.num_levels} if task.ladder else {}),
                "values": {
                    measure.name: dict(zip(("mean", "std"), measure.moments(cell.rows), strict=True))
                    if measure.is_number
                    else measure.words(cell.rows)
                    for measure in self.measures
                },
                "runs": [
                    {name: run[name] for name in ("run_id", "seed", "status")}
                    | {measure.name: _plain(measure.value(run)) for measure in self.measures}
                    for run in cell.rows
                ],
            }
            for task, mechanism, cell in self.cells
        ]
        selection = self.report.selection
        return json_text({"suite": selection.suite, "suite_version": selection.suite_version, "cells": cells})

    def bibtex(self) -> str:
        """Return BibTeX entries of synthbench and of the sources of the table.

        Sources without an entry are named in comments.
        """
        entries, unknown = cite(self.table.sources)
        selection = self.report.selection
        return f"{of_suite(selection.suite, selection.suite_version)}\n{entries}" + "".join(
            f"% no entry for {' '.join(key.split())}\n" for key in unknown
        )

    @cached_property
    def table(self) -> Table:
        """The selected values as a table, before it is rendered in a format."""
        selection = self.report.selection
        names = ", ".join(measure.name for measure in self.measures)
        meanings = [f"{each.name}: {each.meaning.partition(';')[0].replace('`', '')}." for each in self.measures]
        notes = [MARKS] if any(each.name in _MARKED for each in self.measures) else []
        fractions = "Scores from 0 to 1, other fractions" if self.report.cells.has_ladder else "Fractions"
        counts = {cell.n for *_, cell in self.cells if cell.n} or {0}
        num_seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
        title = f"{names} of suite {selection.suite}, version {selection.suite_version}"
        caption = " ".join([fractions, _SPREAD, f"n = {num_seeds}.", *meanings, *notes])
        kinds = [Column(measure.name, "number" if measure.is_number else "word") for measure in self.measures]
        printed = [self._printed(measure) for measure in self.measures]
        if self.across == "columns":
            return table_of(
                *("export", title, caption, ("Task", "Mechanism"), [cell[:2] for cell in self.cells]),
                lambda cell: (cell[0].label, cell[1].label),
                [(kind, cells.__getitem__) for kind, cells in zip(kinds, printed, strict=True)],
                sources=sources_of(self.report.cells.tasks, self.report.cells.mechanisms),
                is_grouped=True,
            )
        table = pivot(
            self.report.cells,
            lambda mechanism, task: printed[0][task, mechanism],
            *("export", title, caption),
            rows="tasks" if self.across == "mechanisms" else "mechanisms",
        )
        columns = tuple(column._replace(kind=kinds[0].kind) for column in table.columns)
        return replace(table, columns=columns, is_of_tasks=False)

    def _printed(self, measure: Measure) -> _Printed:
        """Format one column's values for all tasks and mechanisms; mark the best scores and skills as a report does."""
        printed: _Printed = {}
        for task in self.report.cells.tasks:
            runs = [cell.rows for cell in self.report.cells.cells_of(task)]
            if measure.is_number:
                moments = [measure.moments(of_cell) for of_cell in runs]
                cells = [_number_cell(measure, *of_cell, task) for of_cell in moments]
            else:
                cells = [Cell(measure.words(of_cell) or NOTHING) for of_cell in runs]
            if measure.name in _MARKED:
                means = [mean for mean, _std in moments]
                cells = marked(self.report.cells, self.report.verdicts[task.key], cells, means)
            printed |= {(task, one): cell for one, cell in zip(self.report.cells.mechanisms, cells, strict=True)}
        return printed


EXPORTS: dict[str, Callable[[Export], str]] = {
    "md": Export.markdown,
    "tex": Export.latex,
    "csv": Export.csv,
    "json": Export.json,
}
"""Functions that print an export in each format."""


def export(
    rows: pd.DataFrame,
    suite: str,
    suite_version: str | None = None,
    *,
    tasks: Terms | None = None,
    mechanisms: Terms | None = None,
    seeds: Collection[int] | None = None,
    columns: Sequence[str] = ("score",),
    across: str = "columns",
    has_variants: bool = False,
) -> Export:
    """Build a table to export: selected tasks, mechanisms and columns of one suite version.

    Args:
        rows: Rows (one per run) of a results store; other suites may be among them.
        suite: Name of the suite.
        suite_version: Version of the suite. Default: the newest.
        tasks: Names of tasks to show, each with option values that its rows must have. Default: all.
        mechanisms: Names of mechanisms to show, each with option values that its rows must have. Default: all.
        seeds: Seeds of the runs. Default: all.
        columns: Names of columns of the store, or of metrics such as ``x2.skill``.
        across: Content of the table's columns. ``columns``: one for each entry of the argument ``columns``. ``tasks``
            or ``mechanisms``: one for each task or mechanism, if ``columns`` has a single entry.
        has_variants: True to include variants. A variant is a setting of a mechanism (its options or size) that was run
            on fewer tasks than the mechanism's main setting.

    Raises:
        UnknownName: If the rows lack the suite, its version or a column, or if ``across`` has another value.
        UsageError: If no row is selected, or if several columns are named and ``across`` is not ``columns``.
    """
    if across not in ACROSS:
        raise UnknownName("thing to stand across", across, ACROSS)
    wanted = rows if mechanisms is None else having(rows, "mech", mechanisms)
    everything = select(wanted, suite, suite_version, mechanisms=mechanisms, seeds=seeds)
    selection = everything if has_variants else everything.without_variants()
    is_main = everything.rows["run_id"].isin(selection.rows["run_id"])
    if tasks is not None:
        # A glob or a category may select tasks of which only other suites have rows.
        present = {name: arguments for name, arguments in tasks.items() if name in set(selection.rows["task"])}
        chosen = having(selection.rows, "task", present or tasks)
        selection = replace(selection, rows=chosen.reset_index(drop=True))
    measures = _measures(selection, columns)
    if across != "columns" and len(measures) > 1:
        names = ",".join(measure.name for measure in measures)
        raise UsageError(f"{across} stand across and the columns are {names!r}; allowed: a single column")
    is_left_out = ~is_main & everything.rows["task"].isin(selection.rows["task"])
    return Export(Report(selection, None), measures, across, int(is_left_out.sum()))


def _measures(selection: Selection, names: Sequence[str]) -> tuple[Measure, ...]:
    """Find the columns or metrics with these names; a repeated name counts once.

    Raises:
        UnknownName: If a name is neither a column nor a metric of the rows.
    """
    known = {
        column.name: Measure(column.name, column.type in _NUMBERS, column.unit, column.meaning)
        for column in RUN_COLUMNS
        if column.name in selection.rows
    }
    metrics = {name for text in selection.rows["metrics"] for name in json.loads(text)}
    for name in sorted(metrics - known.keys()):
        unit = "fraction" if name.endswith((".score", ".floor", ".ceiling")) or "accuracy" in name else ""
        known[name] = Measure(name, is_number=True, unit=unit, meaning="a metric of the run", is_metric=True)
    for name in names:
        if name not in known:
            raise UnknownName("column or metric of the rows", name, known)
    return tuple(known[name] for name in dict.fromkeys(names))


def _plain(value: Any) -> object:
    """Convert a value of a row to a type that JSON has; values of other types become text."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _number_cell(measure: Measure, mean: float, std: float, task: TaskFacts) -> Cell:
    if measure.is_skill or (measure.name == "score" and task.ladder):
        printed: Callable[[float], str] = partial(fixed, decimals=2)
    else:
        is_share = measure.unit in ("fraction", "fraction or bits", "as the score") and not task.is_in_bits
        printed = percent if is_share else _significant
    # A value that is the same for all runs, like a floor, is a fact and has no spread.
    has_std = not math.isnan(std) and (measure.is_result or std > 0)
    return Cell(printed(mean), printed(std) if has_std else "")


def _significant(value: float) -> str:
    """Format a number with four significant digits or, from 1000 on, as a whole number."""
    if math.isnan(value):
        return NOTHING
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", MINUS)
