"""The command line: parse, call one function, print.

Results go to stdout, progress and messages to stderr. Whatever is slow to import is imported inside a command, so that
``--help`` answers at once.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from synthbench import __version__
from synthbench.errors import SynthbenchError, UnknownName, UsageError

if TYPE_CHECKING:
    import pandas as pd

INTERRUPTED = 130

app = typer.Typer(
    name="synthbench",
    help="Synthetic sequence tasks for attention mechanisms: a benchmark suite and a leaderboard.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
store_app = typer.Typer(help="Care for a results store.", no_args_is_help=True)
list_app = typer.Typer(help="List what is registered.", no_args_is_help=True)
bench_app = typer.Typer(help="Measure speed; trains nothing to an end.", no_args_is_help=True)
app.add_typer(list_app, name="list")
app.add_typer(bench_app, name="bench")
app.add_typer(store_app, name="store")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
SuiteName = Annotated[str, typer.Option("--suite", help="A suite's name, or a TOML file.")]
Results = Annotated[Path, typer.Option("--results", envvar="SYNTHBENCH_RESULTS", help="Folder of the results store.")]
TaskTerms = Annotated[
    list[str] | None,
    typer.Option("--task", help="Names, comma lists, globs, @category, all, !name; name:length=64 sets arguments."),
]
MechanismTerms = Annotated[
    list[str] | None,
    typer.Option("--mech", help="Names, comma lists, globs, @family, all, !name; slay:R=3,P=8 sets arguments."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
BlockTerm = Annotated[
    str | None, typer.Option("--block", help="Another block than the suite's; aether:norm=pre sets arguments.")
]
PositionsTerm = Annotated[
    str | None, typer.Option("--positions", help="Another position encoding than the suite's: none, rope, espr, ...")
]
Match = Annotated[
    str | None,
    typer.Option(
        "--match",
        help="params or state: change counts or widths until all mechanisms have as many as the suite's first; "
        "state=4096 sets the number.",
    ),
]
Seeds = Annotated[str | None, typer.Option(help="Root seeds: 42-51, or 0,3,7; the suite's if left out.")]


def main() -> None:
    """Run the command line; a mistake of the user is one line on stderr and the documented exit code."""
    try:
        app()
    except SynthbenchError as problem:
        typer.echo(f"synthbench: {problem}", err=True)
        sys.exit(problem.exit_code)


@app.callback(invoke_without_command=True)
def version(
    is_asked: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Synthetic sequence tasks for attention mechanisms."""
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@list_app.command("tasks")
def list_tasks(
    category: Annotated[str | None, typer.Option(help="Only tasks of this category.")] = None,
    suite: Annotated[
        str | None, typer.Option(help="Only tasks of this suite, at the sizes that it gives them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks: name, category, floor, ceiling."""
    from synthbench.suites import load_suite
    from synthbench.tasks import TASKS
    from synthbench.terminal.facts import task_facts

    tasks = {name: {} for name in TASKS} if suite is None else load_suite(suite).tasks
    categories = {TASKS[name].category() for name in tasks}
    if category is not None and category not in categories:
        raise UnknownName("category", category, categories)
    chosen = [
        task_facts(name, arguments) for name, arguments in tasks.items() if category in (None, TASKS[name].category())
    ]
    _print_facts(chosen, ["name", "category", "length", "vocab_size", "floor", "ceiling", "version"], as_json=as_json)


@list_app.command("mechanisms")
def list_mechanisms(
    family: Annotated[str | None, typer.Option(help="Only mechanisms of this family.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the mechanisms: name, family, hyper-parameters, cost, state."""
    from synthbench.mechanisms import MECHANISMS
    from synthbench.terminal.facts import mechanism_facts

    families = {MECHANISMS[name].family for name in MECHANISMS}
    if family is not None and family not in families:
        raise UnknownName("family", family, families)
    chosen = [mechanism_facts(name) for name in MECHANISMS if family in (None, MECHANISMS[name].family)]
    _print_facts(chosen, ["name", "label", "family", "complexity", "state", "parameters"], as_json=as_json)


@list_app.command("polynomials")
def list_polynomials(as_json: AsJson = False) -> None:
    """List how the SLAY variants make the factor x² of their kernel: table 1 of the paper, read off the units."""
    from synthbench.mechanisms.slay._polynomials import table_1

    facts = [row._asdict() for row in table_1()]
    _print_facts(facts, list(facts[0]), as_json=as_json)


@list_app.command("positions")
def list_positions(as_json: AsJson = False) -> None:
    """List the position encodings: name, hyper-parameters, whether they rotate queries and keys."""
    from synthbench.positions import POSITIONS
    from synthbench.terminal.facts import position_facts

    _print_facts(list(map(position_facts, POSITIONS)), ["name", "rotates", "parameters", "source"], as_json=as_json)


@list_app.command("blocks")
def list_blocks(as_json: AsJson = False) -> None:
    """List the blocks: name and hyper-parameters."""
    from synthbench.blocks import BLOCKS
    from synthbench.terminal.facts import block_facts

    _print_facts(list(map(block_facts, BLOCKS)), ["name", "parameters", "source"], as_json=as_json)


@list_app.command("suites")
def list_suites(as_json: AsJson = False) -> None:
    """List the suites: name, version, what they are."""
    from synthbench.suites import load_suite, suite_names

    suites = map(load_suite, suite_names())
    facts = [
        {
            "name": suite.name,
            "version": suite.version,
            "tasks": len(suite.tasks),
            "mechanisms": len(suite.mechanisms),
            "seeds": len(suite.seeds),
            "description": suite.description,
        }
        for suite in suites
    ]
    _print_facts(facts, list(facts[0]), as_json=as_json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A task, a mechanism or a suite.")],
    seed: Annotated[int, typer.Option(help="Seed of the example that is drawn.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Show one task (with a drawn example), mechanism or suite: parameters, bounds, source."""
    from rich.console import Console

    from synthbench.terminal import show as page

    if as_json:
        typer.echo(json.dumps(page.facts_of(name), indent=1))
    else:
        page.show(name, seed=seed, console=Console(highlight=False))


@app.command()
def run(
    task: TaskTerms = None,
    mech: MechanismTerms = None,
    suite: SuiteName = "paper",
    seeds: Seeds = None,
    block: BlockTerm = None,
    positions: PositionsTerm = None,
    match: Match = None,
    device: Device = "auto",
    steps: Annotated[int | None, typer.Option(help="Train for fewer steps; marks the rows as not full.")] = None,
    limit: Annotated[int | None, typer.Option(help="Evaluate on fewer sequences; marks the rows as not full.")] = None,
    results: Results = Path("results"),
    executor: Annotated[str, typer.Option(help="auto, inline or pool.")] = "auto",
    workers: Annotated[int | None, typer.Option(help="Worker processes; one a core if left out.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which a job is killed.")] = None,
    members: Annotated[
        int | None, typer.Option(help="Members that train as one program; chosen by length and device if left out.")
    ] = None,
    rerun: Annotated[str, typer.Option(help="Run again what is there: none, failed or all.")] = "none",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and run nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run what is missing: every task with every mechanism over the seeds. The same command again resumes."""
    from synthbench.runner.run import Request

    request = Request(
        suite=suite,
        tasks=tuple(task or ["all"]),
        mechanisms=tuple(mech or ()),
        seeds=parse_seeds(seeds) if seeds is not None else (),
        block=block,
        positions=positions,
        match=match,
        device=device,
        steps=steps,
        limit=limit,
        results=results,
        executor=executor,
        workers=workers,
        timeout_s=timeout,
        group_size=members,
        rerun=rerun,
    )
    if dry_run:
        _print_plan(request, as_json=as_json)
    else:
        _run(request, as_json=as_json)


@app.command()
def status(
    suite: SuiteName = "paper",
    task: TaskTerms = None,
    mech: MechanismTerms = None,
    seeds: Seeds = None,
    block: BlockTerm = None,
    positions: PositionsTerm = None,
    match: Match = None,
    device: Device = "auto",
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Count what is done, failed and missing, by category."""
    from synthbench.runner.environment import resolve_device
    from synthbench.runner.run import Request, progress_of

    request = Request(
        suite=suite,
        tasks=tuple(task or ["all"]),
        mechanisms=tuple(mech or ()),
        seeds=parse_seeds(seeds) if seeds is not None else (),
        block=block,
        positions=positions,
        match=match,
        results=results,
    )
    facts = progress_of(request, resolve_device(device))
    _print_facts(facts, list(facts[0]), as_json=as_json)


@app.command()
def report(
    suite: Annotated[str, typer.Option("--suite", help="The suite whose rows are reported.")] = "paper",
    suite_version: Annotated[str | None, typer.Option(help="Its version; the newest in the store if left out.")] = None,
    mech: MechanismTerms = None,
    seeds: Annotated[
        str | None, typer.Option(help="Root seeds to show: 42-44; all that have rows if left out.")
    ] = None,
    results: Results = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Folder of the report; reports/SUITE if left out.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if what is there differs from what would be written.")
    ] = False,
) -> None:
    """Regenerate the tables of a suite as Markdown and LaTeX from the rows of a store.

    It shows the mechanisms that the suite names, or those that --mech selects: --mech all is everything in the store.
    """
    from synthbench.reports.build import build, stale, write

    rows, curves = _load(results)
    files = build(
        rows,
        curves,
        suite,
        suite_version,
        mechanisms=_reported(rows, suite, mech),
        seeds=parse_seeds(seeds) if seeds is not None else None,
    )
    folder = out or Path("reports") / suite
    if check:
        differing = stale(files, folder)
        for name in differing:
            typer.echo(f"stale: {folder / name}")
        if differing:
            raise typer.Exit(1)
        typer.echo(f"{folder} is what the rows say", err=True)
        return
    write(files, folder)
    for name in sorted(files):
        typer.echo(folder / name)


@app.command()
def doctor(results: Results = Path("results"), as_json: AsJson = False) -> None:
    """Check versions, devices, threads and the results folder; exit 1 if something is broken."""
    from synthbench.terminal import doctor as checks

    findings = checks.examine(results)
    _print_facts(findings, ["check", "state", "detail"], as_json=as_json)
    if any(finding["state"] == "broken" for finding in findings):
        raise typer.Exit(1)


@store_app.command("compact")
def compact_store(results: Results = Path("results")) -> None:
    """Merge the rows and curves of a store, one file each, into one file of each."""
    from synthbench.results import Store

    typer.echo(f"{Store.open(results, create=True).compact()} files merged", err=True)


@bench_app.command("suite")
def bench_suite(
    mech: MechanismTerms = None,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, a comma list.")] = "32,64,256",
    members: Annotated[int, typer.Option(help="Members of the batched program.", min=2)] = 4,
    steps: Annotated[int, typer.Option(help="Steps of one timing.", min=1)] = 5,
    repeats: Annotated[int, typer.Option(help="Timings; the median counts.", min=1)] = 5,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Time training steps of each mechanism: a plain loop, the batched program, worker processes."""
    from synthbench.bench import suite as bench

    facts = bench.measure(
        mech or [],
        parse_lengths(lengths),
        num_members=members,
        num_steps=steps,
        num_repeats=repeats,
        device=device,
    )
    _print_facts(facts, list(facts[0]), as_json=as_json)


@bench_app.command("generators")
def bench_generators(
    task: TaskTerms = None,
    batch_size: Annotated[int, typer.Option(help="Sequences a draw.", min=1)] = 4096,
    repeats: Annotated[int, typer.Option(help="Draws; the median counts.", min=1)] = 7,
    as_json: AsJson = False,
) -> None:
    """Time every task's generator on one core: tokens per second."""
    from synthbench.bench import generators as bench

    facts = bench.measure(task or ["all"], batch_size=batch_size, num_repeats=repeats)
    _print_facts(facts, list(facts[0]), as_json=as_json)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read ``42-44,50`` as 42, 43, 44, 50.

    Raises:
        UsageError: If it is malformed, empty, runs backwards or names a seed twice.
    """
    seeds: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise UsageError(f"seeds are {text!r}; allowed: ranges and numbers, as in 42-51 or 0,3,7")
        seeds += range(int(first), int(last or first) + 1)
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds are {text!r}; allowed: each seed once")
    return tuple(seeds)


def parse_lengths(text: str) -> list[int]:
    """Read ``32,64`` as 32, 64.

    Raises:
        UsageError: If a piece is not a positive whole number.
    """
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(piece.isdecimal() and int(piece) for piece in pieces):
        raise UsageError(f"lengths are {text!r}; allowed: whole numbers from 1, as in 32,64,256")
    return [int(piece) for piece in pieces]


def _reported(rows: "pd.DataFrame", suite: str, terms: list[str] | None) -> list[str] | None:
    """The mechanisms of a report: those that terms select, or the suite's; None is all, for a suite not at hand."""
    from synthbench.runner.selection import select
    from synthbench.suites import load_suite, suite_names

    if not terms:
        return list(load_suite(suite).mechanisms) if suite in suite_names() else None
    families = dict(zip(rows["mech"], rows["mech_family"], strict=True))
    return list(select("mechanism", terms, list(families), families.__getitem__))


def _load(results: Path) -> "tuple[pd.DataFrame, pd.DataFrame]":
    from synthbench.results import Store

    store = Store.open(results, create=False)
    rows, curves = store.runs(), store.curves()
    for file in store.quarantined:
        typer.echo(f"left out: {file.file}: {file.reason}", err=True)
    return rows, curves


def _print_plan(request: Any, *, as_json: bool) -> None:
    from synthbench.runner.environment import resolve_device
    from synthbench.runner.run import plan_request

    plan = plan_request(request, resolve_device(request.device))
    facts = [
        {
            "run_id": job.cell.run_id(member),
            "task": job.cell.task_name,
            "mechanism": job.cell.mechanism_name,
            "seed": member.seed,
            "learning_rate": member.learning_rate,
        }
        for job in plan.jobs
        for member in job.missing
    ]
    if as_json:
        suite = plan.jobs[0].cell.suite.model_dump(mode="json") if plan.jobs else None
        typer.echo(json.dumps({"planned": plan.num_planned, "done": plan.num_done, "missing": facts, "suite": suite}))
        return
    for fact in facts:
        typer.echo("  ".join("tuned" if value is None else str(value) for value in fact.values()))
    typer.echo(f"{plan.num_missing} of {plan.num_planned} rows are missing, {plan.num_done} are there", err=True)


def _run(request: Any, *, as_json: bool) -> NoReturn:
    from synthbench.runner.run import run as run_request
    from synthbench.terminal.progress import Progress

    stop = threading.Event()
    with _interruptible(stop), Progress() as progress:
        done = run_request(request, on_plan=progress.begin, on_outcome=progress.advance, stop=stop)
    if as_json:
        outcomes = [vars(outcome) for outcome in done.outcomes]
        typer.echo(json.dumps({"planned": done.num_planned, "done_before": done.num_done_before, "rows": outcomes}))
    for outcome in done.failed:
        typer.echo(
            f"{outcome.status}: {outcome.task} {outcome.mechanism} seed {outcome.seed}: {outcome.message}", err=True
        )
    typer.echo(
        f"{len(done.outcomes)} rows written to {request.results} in {done.wall_s:.1f} s, "
        f"{done.num_done_before} were there, {len(done.failed)} failed",
        err=True,
    )
    if done.is_interrupted:
        typer.echo("interrupted; what is done is kept, the same command runs the rest", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(1 if done.failed else 0)


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C finish the jobs that are running; the second stops at once."""

    def interrupt(_number: int, _frame: object) -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)
        stop.set()
        typer.echo("finishing the jobs that are running; Ctrl-C again stops at once", err=True)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_facts(facts: list[dict[str, Any]], columns: list[str], *, as_json: bool) -> None:
    """Print facts as JSON with all that is known, or as a table of some columns."""
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    from tabulate import tabulate

    rows = [[_cell(fact[column]) for column in columns] for fact in facts]
    typer.echo(tabulate(rows, headers=columns, tablefmt="plain", disable_numparse=True))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return " ".join(f"{name}={parameter['default']}" for name, parameter in value.items())
    return "" if value is None else str(value)
