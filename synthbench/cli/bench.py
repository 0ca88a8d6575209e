"""``synthbench bench``: the cost of attention, the error of approximations, and reports of both."""

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from synthbench.cli import options
from synthbench.cli.output import print_facts, say
from synthbench.errors import UnknownName, UsageError
from synthbench.options import LARGEST, RUN_SUITE, parse_seeds

if TYPE_CHECKING:
    from synthbench.bench.rows import Table
    from synthbench.options import Selection

bench_app = typer.Typer(
    name="bench", help="Measure speed and fidelity; trains no model to completion.", no_args_is_help=True
)

Out = Annotated[
    Path | None,
    options.printing(help="Parquet file for the rows, one per measurement; measurements that it has are skipped."),
]
Dtype = Annotated[str, options.executing(help="float32, bfloat16, float16 or float64.")]
BatchSize = Annotated[int, options.executing(help="Sequences per call.", min=1, max=LARGEST)]
limit = partial(options.executing, min=1e-3, max=2**20)
"""Declare an option that limits seconds or GiB."""


def _table(bench: ModuleType, device: str, out: Path | None) -> "Table":
    """Create a benchmark's table of measurements, filled with the rows already in the file ``out``."""
    from synthbench.bench.rows import Table
    from synthbench.runner.environment import resolve_device

    return Table(bench.IDENTITY, resolve_device(device), out)


def _mechanisms(mech: list[str] | None) -> "Selection":
    from synthbench.runner.plan import select_mechanisms
    from synthbench.suites import load_suite

    return select_mechanisms(load_suite(RUN_SUITE), mech or ["all"])


def _print_rows(bench: ModuleType, table: "Table", *, as_json: bool) -> None:
    from synthbench.bench.rows import SHOWN_AS

    names = {name: name if as_json else SHOWN_AS.get(name, name) for name in bench.SHOWN}
    facts = [{shown: row[name] for name, shown in names.items()} for row in table.rows]
    print_facts(facts, list(names.values()), as_json=as_json)


@bench_app.command()
def fidelity(
    mech: options.MechanismTerms = None,
    budget: Annotated[
        str, options.selecting(help="Budgets of the SLAY paper's table 6: small, medium, large.")
    ] = "small",
    seeds: Annotated[str, options.selecting(help="Each seed draws new inputs, projections and features.")] = "0-4",
    repeats: Annotated[int, options.executing(help="Timings per estimator; their median is reported.", min=1)] = 5,
    bias: Annotated[bool, options.executing(help="Projections with biases, as in the paper.")] = True,
    sweep: Annotated[
        bool,
        options.selecting(
            "--sweep", help="Change the small budget in one respect at a time: what beats the running mean?"
        ),
    ] = False,
    device: options.Device = "cpu",
    out: Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure how well linear attention approximates SLAY's spherical Yat kernel.

    The errors are compared with the error of a running mean of the values, which ignores queries and keys.
    """
    from synthbench.bench import fidelity as bench

    if mech and sweep:
        raise UsageError("--sweep varies slay; allowed with it: no --mech")
    table = _table(bench, device, out)
    drawn = parse_seeds(seeds)
    if sweep:
        measured = bench.sweep(drawn, table, num_repeats=repeats, bias=bias)
    else:
        chosen, budgets = _mechanisms(mech) if mech else None, options.parse_names("--budget", budget)
        measured = bench.measure(budgets, drawn, table, num_repeats=repeats, bias=bias, mechanisms=chosen)
    for row in measured:
        say(f"{row['budget']} seed {row['seed']} {row['estimator']}: {row['rel_l2']:.3f}", err=True)
    facts = bench.summary([row for row in table.rows if row["bias"] == bias])
    print_facts(facts, list(facts[0]) if facts else [], as_json=as_json)


@bench_app.command()
def scaling(
    mech: options.MechanismTerms = None,
    lengths: Annotated[
        str, options.selecting(help="Sequence lengths, comma-separated.")
    ] = "128,256,512,1024,2048,4096",
    forms: Annotated[
        str, options.selecting(help="Forms of each mechanism, comma-separated, such as layer,streamed,kernel.")
    ] = "all",
    batch_size: BatchSize = 1,
    repeats: Annotated[int, options.executing(help="Timings; their median is reported.", min=1)] = 5,
    dtype: Dtype = "float32",
    max_seconds: Annotated[float, limit(help="Skip lengths at which a form may take longer.")] = 10.0,
    max_gigabytes: Annotated[float, limit(help="The same for peak memory.")] = 4.0,
    device: options.Device = "auto",
    out: Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure time and peak memory of attention by sequence length, and fit the exponents of their growth.

    Every form (implementation) of attention is measured, with 8 heads of width 32.
    """
    from synthbench.bench import scaling as bench
    from synthbench.bench.forms import FORMS
    from synthbench.forms import kernels
    from synthbench.runner.environment import resolve_device

    chosen = FORMS if forms == "all" else options.parse_names("--forms", forms)
    for form in chosen:
        if form not in FORMS:
            raise UnknownName("form", form, FORMS)
    table = _table(bench, device, out)
    if not kernels.runs_on(target := resolve_device(device)):
        say(f"Triton kernels are left out: they do not run on {target}", err=True)
    for row in bench.measure(
        _mechanisms(mech),
        options.parse_sizes("--lengths", lengths),
        table,
        forms=chosen,
        batch_size=batch_size,
        num_repeats=repeats,
        dtype=dtype,
        limits=bench.Limits(max_seconds, max_gigabytes),
        on_begin=lambda mechanism, direction: say(f"{mechanism} {direction}: lengths take turns", err=True),
    ):
        say(f"{row['mechanism']} {row['form']} {row['direction']} {row['length']}: {row['status']}", err=True)
    facts = bench.summary([row for row in table.rows if (row["batch_size"], row["dtype"]) == (batch_size, dtype)])
    print_facts(facts, list(facts[0]) if facts else [], as_json=as_json)


@bench_app.command()
def context(
    mech: options.MechanismTerms = None,
    gigabytes: Annotated[float, limit(help="Memory limit for tensors, in GiB.")] = 1.0,
    longest: Annotated[int, options.executing(help="Longest length to try.", min=128)] = 2**20,
    max_seconds: Annotated[float, limit(help="Stop at a length whose call takes longer.")] = 20.0,
    batch_size: BatchSize = 1,
    dtype: Dtype = "float32",
    device: options.Device = "auto",
    out: Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Find the longest sequence that each mechanism can process within a memory limit.

    The lengths are tried out, not computed by a formula.
    """
    from synthbench.bench import context as bench

    table = _table(bench, device, out)
    for row in bench.measure(
        _mechanisms(mech),
        table,
        gigabytes=gigabytes,
        longest=longest,
        max_seconds=max_seconds,
        batch_size=batch_size,
        dtype=dtype,
    ):
        say(f"{row['mechanism']} {row['direction']}: {row['length']}", err=True)
    _print_rows(bench, table, as_json=as_json)


@bench_app.command()
def report(
    rows: Annotated[Path, options.reading(help="Folder with one folder of rows per device.")] = Path("results/bench"),
    out: Annotated[Path, options.printing(help="Folder for the reports, one per device.")] = Path("reports/bench"),
    check: Annotated[
        bool, options.printing("--check", help="Write nothing; exit 1 if a report is not up to date.")
    ] = False,
    figures: Annotated[bool, options.printing("--figures/--no-figures", help="Draw figures beside the tables.")] = True,
) -> None:
    """Write tables and figures of benchmark measurements, one folder per device; print the files that changed."""
    from synthbench.bench import report as bench
    from synthbench.reports import folder as reports

    changed = [
        str(out / device.name / name)
        for device in bench.devices(rows)
        for name in (reports.stale if check else reports.write)(
            bench.build(device, has_figures=figures), out / device.name
        )
    ]
    for name in changed:
        say(name)
    if check and changed:
        raise typer.Exit(1)


@bench_app.command("suite")
def bench_suite(
    mech: options.MechanismTerms = None,
    lengths: Annotated[str, options.selecting(help="Sequence lengths, comma-separated.")] = "32,64,256",
    runs: Annotated[str, options.selecting("--batched", help="Numbers of batched runs, comma-separated.")] = "4",
    rates: Annotated[int, options.executing(help="Learning rates per seed in a batched program.", min=1)] = 1,
    steps: Annotated[int, options.executing(help="Steps per timing.", min=1)] = 5,
    repeats: Annotated[int, options.executing(help="Timings; their median is reported.", min=1)] = 5,
    device: options.Device = "auto",
    out: Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Time training steps: of single runs, of batched runs, replayed from a CUDA graph, and in worker processes."""
    from synthbench.bench import suite as bench

    table = _table(bench, device, out)
    for row in bench.measure(
        mech or [],
        options.parse_sizes("--lengths", lengths),
        table,
        num_runs=options.parse_sizes("--batched", runs),
        num_rates=rates,
        num_steps=steps,
        num_repeats=repeats,
    ):
        say(f"{row['mechanism']} {row['length']}, {row['members']} batched: timed", err=True)
    _print_rows(bench, table, as_json=as_json)
