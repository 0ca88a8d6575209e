"""``synthbench bench``: speed and memory."""

from pathlib import Path
from typing import Annotated

import typer

from synthbench.cli import measuring, scheduling, whole
from synthbench.cli.options import AsJson, Device, MechanismTerms, TaskTerms, parse_lengths, parse_names
from synthbench.cli.output import print_facts

bench_app = typer.Typer(help="Measure speed; trains nothing to an end.", no_args_is_help=True)
for command in (
    *(measuring.fidelity, measuring.scaling, measuring.context),
    *(scheduling.plan, scheduling.packing, whole.report),
):
    bench_app.command()(command)
bench_app.command("all")(whole.everything)


@bench_app.command("suite")
def bench_suite(
    mech: MechanismTerms = None,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, a comma list.")] = "32,64,256",
    members: Annotated[str, typer.Option(help="Members of the batched program, a comma list.")] = "4",
    rates: Annotated[int, typer.Option(help="Learning rates of the members; each seed has all of them.", min=1)] = 1,
    steps: Annotated[int, typer.Option(help="Steps of one timing.", min=1)] = 5,
    repeats: Annotated[int, typer.Option(help="Timings; the median counts.", min=1)] = 5,
    device: Device = "auto",
    out: measuring.Out = None,
    as_json: AsJson = False,
) -> None:
    """Time training steps: a plain loop, the batched program, replayed from a CUDA graph, worker processes."""
    from synthbench.bench import suite as bench
    from synthbench.bench.rows import Table
    from synthbench.runner.environment import resolve_device

    with Table(bench.IDENTITY, resolve_device(device), out) as table:
        for row in bench.measure(
            mech or [],
            parse_lengths(lengths),
            table,
            num_members=parse_lengths(members),
            num_rates=rates,
            num_steps=steps,
            num_repeats=repeats,
        ):
            typer.echo(f"{row['mechanism']} {row['length']} members {row['members']}: timed", err=True)
    facts = [{name: row[name] for name in bench.SHOWN} for row in table.rows]
    print_facts(facts, list(bench.SHOWN), as_json=as_json)


@bench_app.command("executors")
def bench_executors(
    executor: Annotated[list[str] | None, typer.Option(help="inline, pool or ray; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(help="Jobs of one run.", min=3)] = 100,
    workers: Annotated[int | None, typer.Option(help="Jobs at once; one a core if left out.", min=1)] = None,
    repeats: Annotated[int, typer.Option(help="Runs with each executor; the median counts.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Time tiny jobs with every executor: until the first begins, jobs a second, and what each costs beyond itself."""
    from synthbench.bench import executors as bench

    facts = bench.measure(executor or [], num_jobs=jobs, num_workers=workers, num_repeats=repeats)
    print_facts(facts, list(facts[0]), as_json=as_json)


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
    print_facts(facts, list(facts[0]), as_json=as_json)


@bench_app.command("store")
def bench_store(
    rows: Annotated[int, typer.Option(help="Rows of the store.", min=1)] = 100_000,
    singles: Annotated[int, typer.Option(help="Rows that are written one by one.", min=1)] = 1000,
    points: Annotated[int, typer.Option(help="Points of each of the three learning curves of a row.", min=1)] = 10,
    as_json: AsJson = False,
) -> None:
    """Time a store of rows that nothing trained: writing, compaction, loading everything, a whole report."""
    import tempfile

    from synthbench.bench import store as bench

    with tempfile.TemporaryDirectory(prefix="synthbench-store-") as folder:
        facts = bench.measure(Path(folder), num_rows=rows, num_singles=singles, num_points=points)
    print_facts(facts, list(facts[0]), as_json=as_json)


@bench_app.command("anatomy")
def bench_anatomy(
    figure: Annotated[
        list[str] | None, typer.Option(help="Names or globs, as in 'slay-0*'; repeatable. All if left out.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures, each with its numbers as CSV.")] = Path("anatomy"),
    formats: Annotated[str, typer.Option("--format", help="Pictures to write, a comma list: svg, pdf.")] = "svg,pdf",
) -> None:
    """Draw the figures of the SLAY and Neural Matter Networks papers from the units themselves; print the files."""
    from synthbench import gallery as bench

    for chosen in bench.select(figure or []):
        for name in bench.save(chosen, out, parse_names(formats)):
            typer.echo(str(out / name))
