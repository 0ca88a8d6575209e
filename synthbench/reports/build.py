"""All files of a report, from rows to text; and keeping a folder in step with them."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from synthbench import sources
from synthbench.errors import UnknownName
from synthbench.reports import latex, markdown
from synthbench.reports.difference import difference, difference_tables
from synthbench.reports.leaderboard import improvement_table, leaderboard, leaderboard_table, reach_table
from synthbench.reports.predictions import prediction_table
from synthbench.reports.published import causes
from synthbench.reports.selection import Selection, select
from synthbench.reports.separation import separation, separation_table, summary
from synthbench.reports.statistics import Grid, grid, mean_curves, mechanism_key, task_key
from synthbench.reports.table import (
    Cell,
    Column,
    Line,
    Table,
    category_averages,
    category_table,
    full_table,
    steps_table,
)

INDEX = ".generated"
"""Lists the files that a report wrote, so that the next one can remove those that it no longer has."""

_RESERVED = (
    "averages",
    "cells",
    "curves",
    "difference",
    "full",
    "leaderboard",
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


def build(
    rows: pd.DataFrame,
    curves: pd.DataFrame | None,
    suite: str,
    suite_version: str | None = None,
    *,
    mechanisms: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
) -> dict[str, str]:
    """All files of the report on one suite version.

    The text depends on the rows only: not on their order, the time, the time zone, the locale or the machine.

    Args:
        rows: Rows of a store, any suites.
        curves: Learning curves of any runs; None leaves ``curves.csv`` out.
        suite: Name of the suite.
        suite_version: Its version; the newest if None.
        mechanisms: Those to show; all that have rows if None.
        seeds: Root seeds to show; all that have rows if None.

    Returns:
        Text by file name.

    Raises:
        UnknownName: If the store has no full row of the suite or of its version.
        UsageError: If it has none of the mechanisms and seeds.
    """
    selection = select(rows, suite, suite_version, mechanisms=mechanisms, seeds=seeds)
    of = grid(selection.rows)
    pages = _pages(selection, of)
    files = {}
    for stem, page in pages.items():
        files[f"{stem}.md"] = markdown.document(page.title, page.tables, page.introduction)
        files[f"{stem}.tex"] = latex.document(page.tables, suite)
    files["cells.csv"] = _cells_csv(of)
    if curves is not None:
        files["curves.csv"] = _curves_csv(selection.rows, curves)
    keys = {key for page in pages.values() for one in page.tables for key in one.sources}
    known = [key for key in sorted(keys) if _is_known(key)]
    files["sources.bib"] = sources.bibtex(known)
    files["README.md"] = _readme(selection, of, pages, files, sorted(keys.difference(known)))
    return files


def write(files: Mapping[str, str], folder: Path) -> list[str]:
    """Bring a folder up to date: write what changed, remove what an earlier report wrote and this one does not.

    Files that no report wrote are left alone.

    Args:
        files: Text by file name, as :func:`build` returns it.
        folder: Created where it does not exist.

    Returns:
        Names of the files that were written or removed, in alphabetical order.
    """
    changed = stale(files, folder)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = _with_index(files)
    for name in changed:
        if name in wanted:
            (folder / name).write_bytes(wanted[name].encode())
        else:
            (folder / name).unlink()
    return changed


def stale(files: Mapping[str, str], folder: Path) -> list[str]:
    """Names of the files that :func:`write` would change: missing, different, or left by an earlier report."""
    wanted = _with_index(files)
    different = {name for name, text in wanted.items() if _content(folder / name) != text.encode()}
    left = {name for name in _indexed(folder) if name not in wanted and (folder / name).is_file()}
    return sorted(different | left)


def _pages(selection: Selection, of: Grid) -> dict[str, Page]:
    rows = selection.rows
    judged = separation(rows)
    pages: dict[str, Page] = {}
    for category in of.categories:
        one = category_table(rows, category)
        pages[_stem(category, pages)] = Page(one.title, (one,))
    for one in (full_table(rows), category_averages(rows)):
        pages[one.name] = Page(one.title, (one,))
    pages["separation"] = Page("What separates mechanisms", (separation_table(rows),), summary(judged))
    if selection.suite.startswith("paper"):
        found = difference(rows)
        if any(one.ours for one in found.comparisons):
            tables = tuple(difference_tables(found, causes()))
            pages["difference"] = Page("Difference from the published table", tables, found.summary())
    if rows["seed"].min() < rows["seed"].max():
        board = leaderboard(rows)
        ranking, improvement = leaderboard_table(board), improvement_table(board)
        pages[ranking.name] = Page(ranking.title, (ranking, improvement) if improvement else (ranking,))
    for extra in (reach_table(rows), prediction_table(rows), steps_table(rows)):
        if extra is not None:
            pages[extra.name] = Page(extra.title, (extra,))
    return pages


def _readme(
    selection: Selection, of: Grid, pages: Mapping[str, Page], files: Mapping[str, str], unknown_keys: list[str]
) -> str:
    statuses = Counter(str(status) for status in selection.rows["status"])
    num_ok = statuses.pop("ok", 0)
    failures = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())) or "none"
    counts = [of.cell(task, mechanism).n for task in of.tasks for mechanism in of.mechanisms]
    num_empty = counts.count(0)
    facts = [
        f"Rows: {len(selection.rows)}, of which {num_ok} have a score. Failures: {failures}.",
        f"Cells: {len(of.tasks)} tasks × {len(of.mechanisms)} mechanisms, {num_empty} without a score.",
        f"Seeds in a cell: {_span([count for count in counts if count])}.",
    ]
    if selection.num_outdated:
        facts.append(f"Left out: {_rows(selection.num_outdated)} of older versions or of other arguments.")
    if selection.num_repeated:
        facts.append(f"Left out: {_rows(selection.num_repeated)} whose seed has a newer or a successful row.")
    if selection.num_other_rates:
        facts.append(f"Left out: {_rows(selection.num_other_rates)} of learning rates that did worse in validation.")
    if unknown_keys:
        facts.append(f"Sources without a BibTeX entry: {', '.join(unknown_keys)}.")
    blocks = [
        f"# Suite {markdown.escape(selection.suite)}, version {markdown.escape(selection.suite_version)}",
        "Generated by `synthbench report` from the rows of the store; not edited by hand.",
        "\n".join(f"- {markdown.escape(fact)}" for fact in facts),
    ]
    for stem, title in (("separation", "What separates"), ("difference", "Against the published table")):
        if stem in pages:
            blocks += [f"## {title}", markdown.escape(pages[stem].introduction)]
    others = [name for name in ("cells.csv", "curves.csv", "sources.bib") if name in files]
    blocks += [
        "## Tables",
        "\n".join(
            [
                *(
                    f"- {markdown.escape(page.title)}: [{s}.md]({s}.md), [{s}.tex]({s}.tex)"
                    for s, page in pages.items()
                ),
                *(f"- {_CONTENT[name]}: [{name}]({name})" for name in others),
            ]
        ),
        "## Mechanisms",
        markdown.table(_mechanisms_table(of)),
    ]
    if statuses:
        blocks += ["## Failures", markdown.table(_failures_table(selection.rows, of))]
    return "\n\n".join(blocks) + "\n"


_CONTENT = {
    "cells.csv": "Every cell with its 95 % t-interval, as fractions",
    "curves.csv": "Learning curves, averaged over seeds",
    "sources.bib": "BibTeX of what the tables show",
}


def _mechanisms_table(of: Grid) -> Table:
    return Table(
        name="mechanisms",
        title="Mechanisms",
        caption="",
        headings=("Mechanism",),
        columns=tuple(Column(label, "word") for label in ("Name", "Version", "Arguments", "Family", "Origin")),
        lines=tuple(
            Line((one.label,), tuple(map(Cell, (one.name, one.version, one.arguments, one.family, one.origin))))
            for one in of.mechanisms
        ),
    )


def _failures_table(rows: pd.DataFrame, of: Grid) -> Table:
    failed = rows[rows["status"] != "ok"]
    task_labels = {task.key: task.label for task in of.tasks}
    mechanism_labels = {mechanism.key: mechanism.label for mechanism in of.mechanisms}
    lines: Counter[tuple[str, str, str, str]] = Counter()
    for row in failed.to_dict("records"):
        error = "" if pd.isna(row["error_type"]) else str(row["error_type"])
        task, mechanism = task_key(row), mechanism_key(row)
        lines[task_labels[task], mechanism_labels[mechanism], str(row["status"]), error] += 1
    return Table(
        name="failures",
        title="Failures",
        caption="",
        headings=("Task", "Mechanism"),
        columns=(Column("Status", "word"), Column("Error", "word"), Column("Seeds")),
        lines=tuple(
            Line((task, mechanism), (Cell(status), Cell(error), Cell(str(count))))
            for (task, mechanism, status, error), count in sorted(lines.items())
        ),
    )


def _cells_csv(of: Grid) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["category", "task", "mechanism", "n", "failed", "mean", "std", "low", "high", "floor", "ceiling", "skill"]
    )
    for task in of.tasks:
        for mechanism in of.mechanisms:
            cell = of.cell(task, mechanism)
            numbers = (cell.mean, cell.std, *cell.interval, task.floor, task.ceiling, cell.skill)
            names = map(_inert, (task.category, task.label, mechanism.label))
            writer.writerow([*names, cell.n, cell.num_failed, *map(_exact, numbers)])
    return text.getvalue()


def _curves_csv(rows: pd.DataFrame, curves: pd.DataFrame) -> str:
    averages = mean_curves(rows, curves)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["task", "mechanism", "split", "metric", "step", "mean", "std", "n"])
    for row in averages.to_dict("records"):
        names = (_inert(str(row[name])) for name in ("task", "mechanism", "split", "metric"))
        writer.writerow([*names, row["step"], _exact(row["mean"]), _exact(row["std"]), row["n"]])
    return text.getvalue()


def _inert(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _exact(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.6g}"


def _span(counts: list[int]) -> str:
    if not counts:
        return "none"
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _stem(category: str, taken: Iterable[str]) -> str:
    """A file name for a category, whatever a stranger's row calls it: no path, no reserved or taken name."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", category.lower()).strip("-") or "category"
    stem = f"category-{plain}" if plain in _RESERVED else plain
    number = 2
    while stem in taken:
        stem = f"{plain}-{number}"
        number += 1
    return stem


def _is_known(key: str) -> bool:
    try:
        sources.bibtex([key])
    except UnknownName:
        return False
    return True


def _with_index(files: Mapping[str, str]) -> dict[str, str]:
    return {**files, INDEX: "".join(f"{name}\n" for name in sorted(files))}


def _indexed(folder: Path) -> list[str]:
    """Names in the folder's index; a line that is no plain name is not followed out of the folder."""
    content = _content(folder / INDEX)
    names = content.decode(errors="replace").splitlines() if content else []
    return [name for name in names if name and Path(name).name == name and "\\" not in name]


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
