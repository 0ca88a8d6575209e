"""Make all files of a report, text and pictures, from the results of runs (rows).

``report.py`` decides which tables the files contain.
"""

from collections.abc import Callable, Collection

import pandas as pd

from synthbench.errors import UnknownName
from synthbench.reports.cells import TaskFacts
from synthbench.reports.folder import Files
from synthbench.reports.render import figures, latex, markdown
from synthbench.reports.render.page import page
from synthbench.reports.render.readme import readme
from synthbench.reports.render.spreadsheet import csv_text, json_text
from synthbench.reports.report import RESERVED, Describe, Page, Report
from synthbench.reports.selection import select
from synthbench.reports.standings import standings


def build(
    rows: pd.DataFrame,
    curves: pd.DataFrame | None,
    suite: str,
    *,
    formats: Collection[str] | None = None,
    describe: Describe | None = None,
) -> dict[str, str | bytes]:
    """Return the contents of all files of a report on the newest version of a suite.

    The same rows (one per run), in any order, give the same texts at any time and on any machine. Pictures also depend
    on the version of matplotlib.

    Args:
        rows: Rows of a results store; rows of other suites are ignored.
        curves: Learning curves; curves of runs outside the report are ignored. None: the report shows no curves.
        suite: Name of the suite.
        formats: Names from ``FORMATS``. Default: all.
        describe: Function that returns the description of a task for the HTML page. None: the page has no descriptions.

    Returns:
        Content of each file by file name: bytes for a picture, text for any other file.
    """
    return files_of(Report(select(rows, suite).without_variants(), curves, describe=describe), formats)


def files_of(report: Report, formats: Collection[str] | None = None) -> dict[str, str | bytes]:
    """Return the content of each file of a report by file name: bytes for a picture, text for any other file.

    Raises:
        UnknownName: If a name in ``formats`` is not in ``FORMATS``.
    """
    formats = FORMATS if formats is None else formats
    for name in formats:
        if name not in FORMATS:
            raise UnknownName("format of a report", name, FORMATS)
    files: dict[str, str | bytes] = {}
    for name, make in FORMATS.items():
        if name in formats:
            files |= make(report, files)
    if not {"md", "tex", "pages"}.isdisjoint(formats):
        files["sources.bib"] = report.cited[0]
    if "md" in formats:
        files["README.md"] = readme(report, files)
    return files


def _csv_files(report: Report, _files: Files) -> Files:
    frame = report.cells.frame
    return {"cells.csv": csv_text([*frame], frame.itertuples(index=False, name=None))}


def _run_files(report: Report, _files: Files) -> Files:
    files = {
        "runs.csv": csv_text(
            ["category", "task", "mechanism", "seed", "run_id", "status", "score"],
            (
                [task.category, task.label, mechanism.label, *(run[name] for name in _RUN)]
                for task, mechanism, cell in report.cells
                for run in cell.rows
            ),
        )
    }
    if report.averages is not None:
        header = ["task", "mechanism", "split", "metric", "step", "mean", "std", "n"]
        files["curves.csv"] = csv_text(header, report.averages[header].itertuples(index=False, name=None))
    return files


_RUN = ("seed", "run_id", "status", "score")
"""Columns of a run that ``runs.csv`` and ``report.json`` show."""


def _json_files(report: Report, _files: Files) -> Files:
    facts = {
        "suite": report.selection.suite,
        "suite_version": report.selection.suite_version,
        "verdict": report.verdict,
        "setting": report.setting,
        "tasks": [_facts(task) for task in report.cells.tasks],
        "mechanisms": [
            mechanism._asdict() | {"positions": mechanism.positions, "convolution": mechanism.convolution}
            for mechanism in report.cells.mechanisms
        ],
        "cells": [
            {name: line[name] for name in ("category", "task", "mechanism", "mean", "std")}
            | {"interval": [line["low"], line["high"]], "skill": line["skill"]}
            | {"runs": [{name: run[name] for name in _RUN} for run in cell.rows]}
            for line, (_task, _mechanism, cell) in zip(report.cells.frame.to_dict("records"), report.cells, strict=True)
        ],
    }
    return {"report.json": json_text(facts), "leaderboard.json": json_text(standings(report))}


def _facts(task: TaskFacts) -> dict[str, object]:
    """Return the facts of a task as a dictionary for JSON; ``ladder`` has its levels (difficulties), if it has any."""
    facts = task._asdict()
    ladder, *_ = (facts.pop(name) for name in ("ladder", "is_in_bits"))
    return facts | ({"ladder": ladder._asdict()} if ladder else {})


def _tables(report: Report, kinds: Collection[str], *, of_categories: bool) -> Files:
    """Render pages of tables in the file formats ``kinds`` (``md``, ``tex``).

    If ``of_categories`` is True, these are the pages of the categories; otherwise, they are all other pages.
    """
    make: dict[str, Callable[[Page], str]] = {
        "md": lambda page: markdown.document(page.title, page.tables, page.introduction),
        "tex": lambda page: latex.document(page.tables, report.selection.suite),
    }
    chosen = {stem: page for stem, page in report.pages.items() if (stem not in RESERVED) == of_categories}
    return {f"{stem}.{kind}": make[kind](page) for kind in kinds for stem, page in chosen.items()}


FORMATS: dict[str, Callable[[Report, Files], Files]] = {
    "md": lambda report, _files: _tables(report, ["md"], of_categories=True),
    "tex": lambda report, _files: _tables(report, ["tex"], of_categories=True),
    "pages": lambda report, _files: _tables(report, ["md", "tex"], of_categories=False),
    "csv": _csv_files,
    "runs": _run_files,
    "json": _json_files,
    "figures": lambda report, _files: {
        name: file for one in report.drawings for name, file in figures.files_of(one).items()
    },
    "html": lambda report, files: {} if report.cells.is_apart else {"index.html": page(report, files)},
}
"""Functions that make the files of each format. There is no HTML page if all tasks are scored in bits per token."""

WITH_CURVES = frozenset({"runs", "figures", "html"})
"""Formats that show learning curves."""
