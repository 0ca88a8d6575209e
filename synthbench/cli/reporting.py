"""``synthbench report``, ``export`` and ``validity``: from rows to tables and figures."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthbench.cli.options import MechanismTerms, Results, TaskTerms, parse_names
from synthbench.cli.output import inert, is_verbose, note
from synthbench.cli.rows import (
    Beside,
    ReportedSuite,
    SuiteVersion,
    read_beside,
    read_rows_and_curves,
    selected,
    suite_of,
)
from synthbench.errors import UnknownName
from synthbench.knobs import parse_seeds

if TYPE_CHECKING:
    import pandas as pd

    from synthbench.reports.folder import Files
    from synthbench.reports.report import Report
    from synthbench.terms import Selection

ENTRIES = ("index.html", "README.md", "report.json")
"""Entry pages of a report, the most readable first."""

ReportedSeeds = Annotated[
    str | None, typer.Option("--seeds", help="Root seeds to show: 42-44. Default: all with rows.")
]


def report(
    suite: ReportedSuite = None,
    suite_version: SuiteVersion = None,
    mech: MechanismTerms = None,
    seeds: ReportedSeeds = None,
    results: Results = Path("results"),
    beside: Beside = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the report. Default: reports/SUITE.")] = None,
    formats: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Formats to write, comma-separated: md, tex, csv, json, html (a page), figures (SVG and PDF, with "
            "their numbers as CSV). Default: all but json. An earlier report's files in other formats are removed.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Write nothing; fail if the existing report differs. Pictures are compared by their numbers, since "
            "their bytes depend on the version of matplotlib.",
        ),
    ] = False,
) -> None:
    """Regenerate the tables and figures of a suite from the rows of a store.

    It shows the suite's mechanisms and plugins, or those that --mech selects: --mech all is everything in the store.
    With --beside published it shows all of your mechanisms beside the rows that come with synthbench. It prints the
    verdict, the top of the ranking and the path of the page. For a single table on stdout: synthbench export.
    """
    from synthbench.reports.build import DEFAULT_FORMATS, files_of
    from synthbench.reports.report import Report
    from synthbench.reports.selection import having, select
    from synthbench.terminal.example import describe

    read = read_beside(results, beside, suite, suite_version)
    rows = read.rows
    suite = suite_of(rows[read.is_own], suite)
    shown = _reported(rows, suite, mech, rows.loc[read.is_own, "mech"].unique() if beside else ())
    selection = select(
        having(rows, "mech", shown) if mech and shown else rows,
        suite,
        read.suite_version,
        mechanisms=shown,
        seeds=parse_seeds(seeds) if seeds is not None else None,
    ).without_variants()
    made = Report(selection, read.curves, origins=read.origins, describe=describe)
    files = files_of(made, DEFAULT_FORMATS if formats is None else parse_names(formats))
    folder = out or Path("reports") / suite
    if not _in_step(files, folder, is_checked=check):
        return
    for name in sorted(files) if is_verbose() else ():
        typer.echo(folder / name)
    _print_outcome(made)
    typer.echo(folder / next((name for name in ENTRIES if name in files), ""))


def validity(
    results: Results = Path("results"),
    out: Annotated[Path, typer.Option(help="Folder of the page.")] = Path("reports/validity"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if the existing page differs.")] = False,
) -> None:
    """Compute whether the scores of suite climb predict the loss of a language model, as docs/validity.md plans.

    It needs rows of climb and of text --match params=84500, for the same mechanisms; rows of paper are used too if they
    are there. It prints the predictions that were made before the rows, and what came of them.
    """
    from synthbench.reports.validity import files_of, predictions_of, study_of, tables_of

    study = study_of(*read_rows_and_curves(results))
    files = files_of(study, tables_of(study))
    if not _in_step(files, out, is_checked=check):
        return
    words = {True: "true", False: "false", None: "rows are missing"}
    for prediction in predictions_of(study):
        typer.echo(f"{words[prediction.came_true]}: {prediction.words} ({prediction.found})")
    typer.echo(out / "README.md")


def _in_step(files: "Files", folder: Path, *, is_checked: bool) -> bool:
    """Whether the files were written; with ``is_checked`` only compare them.

    Raises:
        Exit: If one differs.
    """
    from synthbench.reports.folder import stale, write

    if not is_checked:
        write(files, folder)
        return True
    differing = stale(files, folder)
    for name in differing:
        typer.echo(f"stale: {folder / name}")
    if differing:
        raise typer.Exit(1)
    note(f"{folder} is up to date")
    return False


def _print_outcome(made: "Report") -> None:
    from synthbench.terminal.board import lines_of, lines_of_table

    typer.echo(inert(made.verdict))
    tables = [table for page in made.pages_apart.values() for table in page.tables]
    for line in (*lines_of(made.board), *(line for table in tables for line in lines_of_table(table))):
        typer.echo(inert(line))


def export(
    suite: ReportedSuite = None,
    suite_version: SuiteVersion = None,
    task: TaskTerms = None,
    mech: MechanismTerms = None,
    seeds: ReportedSeeds = None,
    columns: Annotated[
        str,
        typer.Option(
            help="Columns of the store (see results/README.md) and metrics, comma-separated: "
            "score,skill,n_params,x2.skill."
        ),
    ] = "score",
    across: Annotated[
        str,
        typer.Option(
            help="What md and tex show side by side: columns; or tasks or mechanisms, for a single column. csv and "
            "json have one entry per cell."
        ),
    ] = "columns",
    format_: Annotated[
        str, typer.Option("--format", help="md, tex (needs booktabs), csv or json; the last two with run ids.")
    ] = "md",
    cite: Annotated[
        bool, typer.Option("--cite", help="Instead print the BibTeX of the tasks and mechanisms in the table.")
    ] = False,
    results: Results = Path("results"),
    beside: Beside = None,
) -> None:
    """Print any selection of cells and columns as one table: Markdown, LaTeX, CSV or JSON.

    Numbers are means over the runs of a cell that have a score. --task and --mech select from the rows, as in
    synthbench run. Default: all. For a paper: synthbench export --task @memory --across tasks --format tex > memory.tex
    """
    from synthbench.reports.export import EXPORTS
    from synthbench.reports.export import export as make_export

    if format_ not in EXPORTS:
        raise UnknownName("format of an export", format_, EXPORTS)
    read = read_beside(results, beside, suite, suite_version)
    rows = read.rows
    made = make_export(
        rows,
        suite_of(rows[read.is_own], suite),
        read.suite_version,
        tasks=selected(rows, "task", task) if task else None,
        mechanisms=selected(rows, "mechanism", mech) if mech else None,
        seeds=parse_seeds(seeds) if seeds is not None else None,
        columns=parse_names(columns),
        across=across,
    )
    typer.echo(made.bibtex() if cite else EXPORTS[format_](made), nl=False)


def _reported(rows: "pd.DataFrame", suite: str, terms: list[str] | None, own: Iterable[str]) -> "Selection | None":
    """The mechanisms of a report: the selected ones, or the suite's, your own and foreign ones; None is all."""
    from synthbench.suites import load_suite, suite_names

    if terms:
        return selected(rows, "mechanism", terms)
    if suite not in suite_names():
        return None
    foreign = rows.loc[(rows["suite"] == suite) & (rows["mech_origin"] != "builtin"), "mech"]
    return {name: {} for name in (*load_suite(suite).mechanisms, *own, *foreign.unique())}
