"""``synthbench store``: list, merge, export and maintain the rows (results of runs) in a store."""

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthbench.cli import options
from synthbench.cli.output import print_facts, say
from synthbench.cli.rows import name_what_is_left_out, selected
from synthbench.errors import StoreError, UnknownName, UsageError
from synthbench.options import parse_seeds

if TYPE_CHECKING:
    import pyarrow as pa

    from synthbench.results import Store

store_app = typer.Typer(name="store", help="Maintain a results store.", no_args_is_help=True)

_SELECTING = (
    *("suite", "suite_version", "status", "seed"),
    *("task", "task_category", "task_args", "mech", "mech_label", "mech_family", "mech_args"),
)
"""Columns by which rows are selected."""


@dataclass(frozen=True)
class Choice:
    """Command-line options that select rows of a store. Default: all rows."""

    suite: Annotated[str | None, options.selecting(help="Only rows of this suite.")] = None
    suite_version: Annotated[str | None, options.selecting(help="Only rows of this version of the suite.")] = None
    task: options.TaskTerms = None
    mech: options.MechanismTerms = None
    seeds: Annotated[str | None, options.selecting(help="Only these root seeds: 42-44, or 0,3,7.")] = None
    status: Annotated[str | None, options.selecting(help="Only rows with this status: ok, diverged, oom, ...")] = None

    def rows_of(self, store: "Store", columns: "Sequence[str] | None" = None) -> "pa.Table":
        """Return the rows that the options select, with at least the given columns (None: all columns).

        Raises:
            UnknownName: If an option such as ``--task`` names a value that no row has.
        """
        from synthbench.reports.selection import having
        from synthbench.results.schema import to_frame

        is_all = all(value is None for value in vars(self).values())
        wanted = None if columns is None else [*dict.fromkeys([*columns, "status", *(() if is_all else _SELECTING)])]
        rows = store.table() if wanted is None else store.table(columns=wanted)
        if is_all:  # a million rows take gigabytes in pandas
            return rows
        frame = to_frame(rows.select(_SELECTING))
        for column in ("suite", "suite_version", "status"):
            value = getattr(self, column)
            if value is not None:
                if value not in set(frame[column]):
                    raise UnknownName(f"{column.replace('_', ' ')} of a row", value, set(frame[column]))
                frame = frame[frame[column] == value]
        if self.task:
            frame = having(frame, "task", selected(frame, "task", self.task))
        if self.mech:
            frame = having(frame, "mech", selected(frame, "mechanism", self.mech))
        if self.seeds is not None:
            present = set(frame["seed"])
            frame = frame[frame["seed"].isin(parse_seeds(self.seeds))]
            if frame.empty:
                raise UnknownName("seed of a row", self.seeds, map(str, present))
        return rows if len(frame) == len(rows) else rows.take(frame.index.to_numpy())


@store_app.command("ls")
@options.takes(Choice)
def list_store(choice: Choice, results: options.Results = Path("results"), as_json: options.AsJson = False) -> None:
    """Count a store's rows by suite, task, mechanism, device and software, each with versions; list files and sizes."""
    from synthbench.results import Store
    from synthbench.results.maintenance import COUNTED, contents

    store = Store.open(results, create=False)
    held = contents(store, choice.rows_of(store, COUNTED))
    if as_json:
        say(json.dumps(held, indent=1))
        return
    print_facts(held["groups"], ["of", "name", "version", "rows", "statuses"], as_json=False)
    say()
    print_facts(held["places"], ["place", "files", "bytes"], as_json=False)
    name_what_is_left_out(store.quarantined)


@store_app.command("compact")
def compact_store(results: options.Results = Path("results")) -> None:
    """Merge the files of all jobs into one file of rows and one file of learning curves.

    Files that were merged before are not merged again. `run` merges automatically after 200 jobs.
    """
    say(f"{_existing(results).compact()} files merged", err=True)


@store_app.command("merge")
def merge_stores(
    others: Annotated[list[Path], typer.Argument(help="Folders of stores, .parquet files of rows or .tar.gz bundles.")],
    results: options.Results = Path("results"),
    as_json: options.AsJson = False,
) -> None:
    """Add the rows and learning curves of other stores to this store.

    If a run has the same row in both stores, one copy is kept. If the rows differ, this store's row is kept and the
    conflict is listed. Exit with code 1 if there is a conflict, or if anything was left out.
    """
    from synthbench.results import Store
    from synthbench.trust.bundle import opened
    from synthbench.trust.merge import merge

    for other in others:  # before anything is written: a refused store must leave no part of the others behind
        with opened(other) as (readable, _):
            readable.statuses()
    store = Store.open(results, create=True)
    merged = [merge(store, other) for other in others]
    facts = [conflict for one in merged for conflict in one.conflicts]
    if as_json:
        counts = [
            {"source": one.source, "new": one.num_new, "known": one.num_known, "left_out": one.left_out}
            for one in merged
        ]
        say(json.dumps({"stores": counts, "conflicts": facts}, indent=1, default=str))  # JSON has no type for times
    elif facts:
        columns = ["run_id", "task", "mech", "seed"]
        columns += ["our_status", "their_status", "our_score", "their_score", "theirs_in"]
        print_facts(facts, columns, as_json=False)
    for one in merged:
        for what, why in one.left_out.items():
            say(f"left out: {one.source}: {what}: {why}", err=True)
        say(
            f"{one.source}: {one.num_new} new rows, {one.num_known} already here, "
            f"{len(one.conflicts)} kept as they are here, {len(one.left_out)} left out",
            err=True,
        )
    if any(fact["is_outcome"] for fact in facts) or any(one.left_out for one in merged):
        raise typer.Exit(1)


@store_app.command("export")
@options.takes(Choice)
def export_store(
    choice: Choice,
    format_: Annotated[
        str | None, typer.Option("--format", help="csv, json or parquet. Default: the suffix of --out, else csv.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write. Default: stdout.")] = None,
    results: options.Results = Path("results"),
) -> None:
    """Write the stored rows unchanged, with every column. For tables of means, use synthbench export."""
    from synthbench.reports.dump import DUMPS
    from synthbench.results import Store

    kind = format_ or (out.suffix.removeprefix(".") if out is not None else "csv")
    if kind not in DUMPS:
        raise UnknownName("format of rows", kind, DUMPS)
    if out is None and kind == "parquet":
        raise UsageError("Parquet is not text; name a file with --out")
    store = Store.open(results, create=False)
    if out is not None and Path(os.path.realpath(out)).is_relative_to(os.path.realpath(results)):
        raise UsageError(f"--out is {str(out)!r}, inside the store that is read; allowed: a file outside {results}")
    content = DUMPS[kind](choice.rows_of(store))
    name_what_is_left_out(store.quarantined)
    if out is None:
        say(content, nl=False)
        return
    try:
        out.write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as problem:
        raise StoreError(f"{out} cannot be written: {problem.strerror}") from None


@store_app.command("gc")
def collect_garbage(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; list what would be deleted.")] = False,
    results: options.Results = Path("results"),
    as_json: options.AsJson = False,
) -> None:
    """Delete unfinished files of killed processes, files whose rows were all replaced, and curves without a row.

    Valid rows are never deleted, nor are files that a running process may still use.
    """
    from synthbench.results.maintenance import collect

    store = _existing(results, is_written=not dry_run)
    leftovers = collect(store, is_dry=dry_run)
    facts = [dataclasses.asdict(leftover) for leftover in leftovers]
    print_facts(facts, ["file", "bytes", "why"], as_json=as_json)
    name_what_is_left_out(store.quarantined)
    say(f"{len(facts)} files {'would be ' if dry_run else ''}deleted", err=True)


@store_app.command("doctor")
def store_doctor(
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Move damaged rows and files to quarantine/, so that the same run makes them again."
        ),
    ] = False,
    results: options.Results = Path("results"),
    as_json: options.AsJson = False,
) -> None:
    """Read every file of a store and check every row and curve; exit with code 1 if a fault is found and not mended."""
    from synthbench.results.maintenance import examine

    broken = examine(_existing(results, is_written=repair), is_repairing=repair)
    print_facts([dataclasses.asdict(one) for one in broken], ["what", "why", "is_repaired"], as_json=as_json)
    say(f"{len(broken)} things are broken" + (", and were moved to quarantine" if repair and broken else ""), err=True)
    if any(not one.is_repaired for one in broken):
        raise typer.Exit(1)


def _existing(results: Path, *, is_written: bool = True) -> "Store":
    """Open an existing store, without creating one.

    Raises:
        StoreError: If there is no store, or if ``is_written`` is set and the store cannot be written.
    """
    from synthbench.results import Store

    store = Store.open(results, create=False)
    return Store.open(results, create=True) if is_written else store
