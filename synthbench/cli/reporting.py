"""``synthbench report``, ``leaderboard`` and ``export``: from rows (results of runs) to tables and figures."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthbench.cli import options
from synthbench.cli.output import is_verbose, note, say
from synthbench.cli.rows import read_rows, selected
from synthbench.errors import UnknownName, UsageError
from synthbench.options import parse_seeds, resolve
from synthbench.plugins import BUILT_IN

if TYPE_CHECKING:
    import pandas as pd

    from synthbench.reports.report import Report
    from synthbench.reports.selection import Selection, Terms
    from synthbench.trust.beside import Joined

ENTRIES = ("index.html", "README.md", "report.json")
"""Entry pages of a report, the most readable first."""


@dataclass(frozen=True)
class Shown:
    """Command-line options that select the rows to show, in the order of the help."""

    suite: options.ReportedSuite = None
    suite_version: options.SuiteVersion = None
    mech: options.MechanismTerms = None
    seeds: options.Seeds = None
    results: options.Results = Path("results")
    beside: options.Beside = None
    packaged: options.Packaged = True

    def read(self, *, curves: bool = False) -> tuple["Joined", str, str]:
        """Return the rows of results, and the name and version of the suite to show."""
        read = read_rows(self.results, self.beside, suite=self.suite, packaged=self.packaged, curves=curves)
        return read, *read.shown(self.suite, self.suite_version)

    @property
    def root_seeds(self) -> tuple[int, ...] | None:
        """Root seeds to show; None for all seeds that have rows."""
        return None if self.seeds is None else parse_seeds(self.seeds)

    def selection(self, read: "Joined", suite: str, suite_version: str) -> "Selection":
        """Select the rows that the report shows: those of the mechanisms that the user names with ``--mech``.

        Without ``--mech``, rows of the suite's mechanisms, of the user's own mechanisms and of mechanisms from plugins
        are selected. Rows of variants (settings that were run on only some tasks) are in the field ``variants`` of the
        result.
        """
        from synthbench.reports.selection import having, select
        from synthbench.suites import load_suite, suite_names

        rows = read.rows
        shown: Terms | None = None
        if self.mech:
            shown = selected(rows, "mechanism", self.mech)
            rows = having(rows, "mech", shown)
        elif suite in suite_names():
            is_foreign = (rows["suite"] == suite) & (rows["mech_origin"] != BUILT_IN)
            others = rows.loc[read.is_own | is_foreign, "mech"].unique()
            shown = {name: {} for name in (*load_suite(suite).mechanisms, *others)}
        selection = select(rows, suite, suite_version, mechanisms=shown, seeds=self.root_seeds)
        if read.origins is not None:
            own = read.rows[read.is_own]
            is_wanted = own["mech"].isin(shown or own["mech"]) & own["seed"].isin(self.root_seeds or own["seed"])
            _name_hidden(own[is_wanted], selection)
        return selection.without_variants()


@options.takes(Shown)
def report(
    asked: Shown,
    out: Annotated[Path | None, options.printing(help="Folder of the report. Default: reports/SUITE.")] = None,
    formats: Annotated[
        str | None,
        options.printing(
            "--format",
            help="Formats to write, comma-separated: md, tex, pages, csv (a line per cell), runs (and learning curves, "
            "as CSV), json, html, figures (SVG, PDF, CSV). Both md and tex write the tables of the categories, and md "
            "also a README. All other tables are pages, as md and tex. Default: all. An earlier report's files in "
            "other formats are removed.",
        ),
    ] = None,
    check: Annotated[
        bool,
        options.printing(
            "--check",
            help="Write nothing; fail if the existing report differs. Pictures are compared by their numbers, since "
            "their bytes depend on the version of matplotlib.",
        ),
    ] = False,
) -> None:
    """Regenerate the tables and figures of a suite from your rows and the rows that come with synthbench.

    The report shows the suite's mechanisms and all mechanisms in your rows, or only the mechanisms that --mech selects.
    With --mech all, it shows every mechanism that has rows (results of runs). The command prints the verdict, the top
    of the ranking and the path of the report. To print the ranking alone, use synthbench leaderboard; to print a single
    table, synthbench export.
    """
    from synthbench.cli.board import lines_of, lines_of_table
    from synthbench.cli.example import describe
    from synthbench.reports.build import WITH_CURVES, files_of
    from synthbench.reports.folder import stale, write
    from synthbench.reports.report import Report

    wanted = None if formats is None else options.parse_names("--format", formats)
    has_curves = wanted is None or not WITH_CURVES.isdisjoint(wanted)
    read, suite, suite_version = asked.read(curves=has_curves)
    made = Report(asked.selection(read, suite, suite_version), read.curves, origins=read.origins, describe=describe)
    files = files_of(made, wanted)
    folder = out or Path("reports") / suite
    if check:
        differing = stale(files, folder)
        for name in differing:
            say(f"stale: {folder / name}")
        if differing:
            raise typer.Exit(1)
        note(f"{folder} is up to date")
        return
    write(files, folder)
    for name in sorted(files) if is_verbose() else ():
        say(folder / name)
    say(made.verdict)
    tables = [table for page in made.pages_apart.values() for table in page.tables]
    for line in (*lines_of(made.board), *(line for table in tables for line in lines_of_table(table))):
        say(line)
    say(folder / next((name for name in ENTRIES if name in files), ""))


@options.takes(Shown)
def leaderboard(
    asked: Shown,
    category: Annotated[
        str | None, options.selecting(help="Rank by the tasks of this category alone, and show each of them.")
    ] = None,
    as_json: options.AsJson = False,
    as_csv: Annotated[bool, options.printing("--csv", help="Print CSV to stdout: a line for each mean.")] = False,
) -> None:
    """Print the ranking of a suite, from your rows and the rows that come with synthbench.

    A row is the result of one run. The ranking shows the suite's mechanisms and all mechanisms in your rows, or only
    the mechanisms that --mech selects. Mechanisms that lack rows for some tasks are listed below the ranking. To write
    all tables and figures, use synthbench report.
    """
    from synthbench.cli.board import csv_of_standings, lines_of_standings
    from synthbench.reports.render.spreadsheet import json_text
    from synthbench.reports.report import Report
    from synthbench.reports.standings import standings

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; allowed: one of them")
    read, suite, suite_version = asked.read()
    selection = asked.selection(read, suite, suite_version)
    if category is not None:
        of_rows = selection.rows["task_category"]
        known = sorted(of_rows.unique())
        category = resolve("category", category, dict(zip(known, known, strict=True)))
        if category not in known:
            raise UnknownName(f"category of suite {suite!r}", category, known)
        selection = replace(selection, rows=selection.rows[of_rows == category].reset_index(drop=True))
    facts = standings(Report(selection, None, origins=read.origins), category)
    if as_json or as_csv:
        say(json_text(facts) if as_json else csv_of_standings(facts), nl=False)
        return
    for line in lines_of_standings(facts):
        say(line)


@options.takes(Shown)
def export(
    asked: Shown,
    task: options.TaskTerms = None,
    columns: Annotated[
        str,
        options.printing(
            help="Columns of the store (see results/README.md) and metrics, comma-separated: "
            "score,skill,n_params,x2.skill."
        ),
    ] = "score",
    across: Annotated[
        str,
        options.printing(
            help="Show columns side by side in md and tex; or, for a single column, tasks or mechanisms. csv and "
            "json have one entry per cell."
        ),
    ] = "columns",
    format_: Annotated[
        str | None,
        options.printing(
            "--format",
            help="md (default), tex (needs booktabs), csv or json; the last two with run ids. Formats of others: eee "
            "(Every Eval Ever, a JSON line for each mechanism), croissant (JSON-LD, describes the Parquet files of the "
            "store).",
        ),
    ] = None,
    cite: Annotated[
        bool,
        options.printing(
            "--cite", help="Instead print the BibTeX of synthbench, and of the tasks and mechanisms in the table."
        ),
    ] = False,
    card: Annotated[
        str | None,
        options.printing(help="Instead print half a page of Markdown on this mechanism: scores, capacities, BibTeX."),
    ] = None,
    compact: Annotated[
        bool,
        options.printing(
            "--compact", help="Instead print a LaTeX table for one column of a paper: scores and capacities."
        ),
    ] = False,
    url: Annotated[
        str | None,
        options.printing(help="With croissant: address of the store. Default: paths from the folder of the store."),
    ] = None,
    variants: Annotated[
        bool,
        options.selecting(
            "--variants", help="Also variants that ran some tasks only: with a convolution, of another state."
        ),
    ] = False,
) -> None:
    """Print a table with the tasks, mechanisms and columns of your choice, as Markdown, LaTeX, CSV or JSON.

    Each number is a mean over the runs of one mechanism on one task; runs without a score are left out. --task and
    --mech select results, with the syntax of synthbench run. Default: all results. Example for a table in a paper:
    synthbench export --task @memory --across tasks --format tex > memory.tex
    """
    from synthbench.reports.export import EXPORTS
    from synthbench.reports.export import export as make_export
    from synthbench.reports.report import Report

    option, written = ("--compact", "tex") if compact else ("--card", "md") if card is not None else ("", "md")
    if option and format_ not in (None, written):
        raise UsageError(f"--format is {format_!r}, while {option} prints {written}; allowed: without --format")
    if cite and format_ is not None:
        raise UsageError(f"--format is {format_!r}, while --cite prints BibTeX; allowed: without --format")
    format_ = format_ or "md"
    if format_ not in (known := [*EXPORTS, *_OF_OTHERS]):
        raise UnknownName("format of an export", format_, known)
    if url is not None and format_ != "croissant":
        raise UsageError(f"--url {url} says where the files of a dataset lie; allowed: with --format croissant")
    texts = {"--card": card is not None, "--compact": compact, f"--format {format_}": format_ in _OF_OTHERS}
    asked_for = [option for option, is_asked in texts.items() if is_asked]
    if len(asked_for) > 1 or (asked_for and (task or variants or cite or columns != "score" or across != "columns")):
        raise UsageError(
            f"{' and '.join(asked_for)}: that is a text of its own; allowed: one of them, without --task, --columns, "
            "--across, --cite and --variants"
        )
    if format_ == "croissant" and (asked.mech or asked.seeds):
        raise UsageError("--format croissant describes all rows of a store; allowed: without --mech and --seeds")
    read, suite, suite_version = asked.read()
    if asked_for:
        made = Report(asked.selection(read, suite, suite_version), None, origins=read.origins)
        if format_ in _OF_OTHERS:
            text = _OF_OTHERS[format_](made, asked.results, url)
        else:
            from synthbench.reports import card as cards

            text = cards.compact(made) if card is None else cards.card(made, card)
        say(text, nl=False)
        return
    rows = read.rows
    table = make_export(
        rows,
        suite,
        suite_version,
        tasks=selected(rows, "task", task) if task else None,
        mechanisms=selected(rows, "mechanism", asked.mech) if asked.mech else None,
        seeds=asked.root_seeds,
        columns=options.parse_names("--columns", columns),
        across=across,
        has_variants=variants,
    )
    if table.num_left_out:
        note(f"{table.num_left_out} rows of variants are left out; --variants shows them")
    say(table.bibtex() if cite else EXPORTS[format_](table), nl=False)


def _eee(made: "Report", _results: Path, _url: str | None) -> str:
    from synthbench.reports.exchange import every_eval_ever

    return "".join(json.dumps(record) + "\n" for record in every_eval_ever(made, time.time()))


def _croissant(made: "Report", results: Path, url: str | None) -> str:
    """Describe the files of the user's store in the Croissant format; without a store, those of the packaged rows."""
    from synthbench.reports.exchange import croissant, row_data
    from synthbench.reports.render.spreadsheet import json_text
    from synthbench.results import Store, published

    store = Store.open(results if (results / "store.json").exists() else published(), create=False)
    what = "Runs of sequence mixers on synthetic tasks, a row each, of all suites in a store."
    return json_text(croissant("synthbench-rows", what, made, row_data(store), url=url))


_OF_OTHERS = {"eee": _eee, "croissant": _croissant}
"""Functions that write formats of other projects, by their name in --format."""


def _name_hidden(own: "pd.DataFrame", selection: "Selection") -> None:
    """Print to stderr each mechanism and task for which the user has rows in the suite, but none is shown."""
    from synthbench.reports.selection import full_runs

    full = full_runs(own[own["causal_checked"].isin([True])])
    of_suite = full[(full["suite"] == selection.suite) & (full["suite_version"] == selection.suite_version)]
    is_seen = of_suite["run_id"].isin(selection.rows["run_id"])
    cells, seen = (set(zip(some["mech"], some["task"], strict=True)) for some in (of_suite, of_suite[is_seen]))
    for mech, task in sorted(cells - seen):
        note(
            f"not shown: your rows of {mech} on {task}: packaged ones of a newer version, another protocol or a better "
            "learning rate take their place; --no-packaged shows them"
        )
