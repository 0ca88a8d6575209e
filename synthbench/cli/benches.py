"""``synthbench bench``: speed and memory."""

from pathlib import Path
from typing import Annotated

import typer

from synthbench.cli.options import AsJson, Device, MechanismTerms, TaskTerms, parse_lengths, parse_names, parse_seeds
from synthbench.cli.output import print_facts

Out = Annotated[Path | None, typer.Option(help="Parquet file for the rows, one a measurement.")]

bench_app = typer.Typer(help="Measure speed; trains nothing to an end.", no_args_is_help=True)


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


@bench_app.command("fidelity")
def bench_fidelity(
    budget: Annotated[str, typer.Option(help="Budgets of the SLAY paper's table 6: small, medium, large.")] = "small",
    seeds: Annotated[str, typer.Option(help="Each draws inputs, projections and features anew.")] = "0-4",
    repeats: Annotated[int, typer.Option(help="Timings of an estimator; the median counts.", min=1)] = 5,
    bias: Annotated[bool, typer.Option(help="Projections with biases, as the paper's.")] = True,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="From the small budget, one change at a time: what beats the running mean.")
    ] = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Measure how close linear attention comes to the spherical Yat kernel, beside a content-blind running mean."""
    import torch

    from synthbench.bench import fidelity as bench
    from synthbench.bench.rows import save

    rows = (
        bench.sweep(parse_seeds(seeds), num_repeats=repeats, bias=bias)
        if sweep
        else bench.measure(budget.split(","), parse_seeds(seeds), num_repeats=repeats, bias=bias)
    )
    if out is not None:
        save(rows, out, torch.device("cpu"))
    facts = bench.summary(rows)
    print_facts(facts, list(facts[0]), as_json=as_json)


@bench_app.command("scaling")
def bench_scaling(
    mech: MechanismTerms = None,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, a comma list.")] = "128,256,512,1024,2048,4096",
    batch_size: Annotated[int, typer.Option(help="Sequences a call.", min=1)] = 1,
    repeats: Annotated[int, typer.Option(help="Timings; the median counts.", min=1)] = 5,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    max_seconds: Annotated[float, typer.Option(help="A form that may exceed this is measured no further.")] = 10.0,
    max_gigabytes: Annotated[float, typer.Option(help="The same for its peak memory.")] = 4.0,
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Measure time and peak memory of every form of attention as sequences grow, 8 heads of 32; fit the exponents."""
    from synthbench.bench import scaling as bench
    from synthbench.bench.rows import save
    from synthbench.runner.environment import resolve_device
    from synthbench.runner.plan import select_mechanisms
    from synthbench.suites import load_suite

    measured = bench.measure(
        select_mechanisms(load_suite("paper"), mech or ["all"]),
        parse_lengths(lengths),
        batch_size=batch_size,
        num_repeats=repeats,
        device=device,
        dtype=dtype,
        limits=bench.Limits(max_seconds, max_gigabytes),
    )
    rows = []
    for row in measured:
        rows.append(row)
        typer.echo(f"{row['mechanism']} {row['form']} {row['direction']} {row['length']}: {row['status']}", err=True)
    if out is not None:
        save(rows, out, resolve_device(device))
    facts = bench.summary(rows)
    print_facts(facts, list(facts[0]), as_json=as_json)


@bench_app.command("context")
def bench_context(
    mech: MechanismTerms = None,
    gigabytes: Annotated[float, typer.Option(help="Memory that tensors may hold, in GiB.")] = 1.0,
    longest: Annotated[int, typer.Option(help="No length beyond it is tried.", min=128)] = 2**20,
    max_seconds: Annotated[float, typer.Option(help="No length beyond one whose call takes longer.")] = 20.0,
    batch_size: Annotated[int, typer.Option(help="Sequences a call.", min=1)] = 1,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    device: Device = "auto",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Find the longest sequence that each mechanism can take in so much memory, by trying."""
    from synthbench.bench import context as bench
    from synthbench.bench.rows import save
    from synthbench.runner.environment import resolve_device
    from synthbench.runner.plan import select_mechanisms
    from synthbench.suites import load_suite

    facts = list(
        bench.measure(
            select_mechanisms(load_suite("paper"), mech or ["all"]),
            gigabytes=gigabytes,
            longest=longest,
            max_seconds=max_seconds,
            batch_size=batch_size,
            device=device,
            dtype=dtype,
        )
    )
    if out is not None:
        save(facts, out, resolve_device(device))
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
    from synthbench.bench import anatomy as bench

    for chosen in bench.select(figure or []):
        for name in bench.save(chosen, out, parse_names(formats)):
            typer.echo(str(out / name))
