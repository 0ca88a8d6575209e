"""``synthbench bench plan`` and ``packing``: what a large sweep asks of the scheduler, and cells that share a GPU."""

from pathlib import Path
from typing import Annotated

import typer

from synthbench.cli.options import AsJson, Device, MechanismTerms, Results, parse_lengths
from synthbench.cli.output import print_facts


def plan(
    jobs: Annotated[int, typer.Option(help="Jobs of the sweep.", min=1)] = 100_000,
    workers: Annotated[str, typer.Option(help="Numbers of workers, a comma list.")] = "2,8,64,256,1024",
    seed: Annotated[int, typer.Option(help="Of the jobs that are drawn.", min=0)] = 0,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Plan and resume a large sweep, and simulate it with the seconds of a store's rows, in several orders."""
    from synthbench.bench import plan as bench
    from synthbench.results import Store

    store = Store.open(results, create=False)
    facts = list(bench.measure(store, num_jobs=jobs, num_workers=parse_lengths(workers), seed=seed))
    print_facts(facts, list(facts[0]), as_json=as_json)


def packing(
    mech: MechanismTerms = None,
    at_once: Annotated[str, typer.Option(help="Numbers of streams and of processes, a comma list.")] = "2,4,8",
    length: Annotated[int, typer.Option(help="Tokens of a sequence.", min=1)] = 32,
    members: Annotated[int, typer.Option(help="Members of a cell.", min=1)] = 5,
    steps: Annotated[int, typer.Option(help="Steps of one timing.", min=1)] = 50,
    repeats: Annotated[int, typer.Option(help="Timings; the median counts.", min=1)] = 5,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train small cells on one GPU: one after the other, in streams, in processes; member-steps a second of each."""
    from synthbench.bench import packing as bench

    measured = bench.measure(
        mech or [],
        device=device,
        at_once=parse_lengths(at_once),
        length=length,
        num_members=members,
        num_steps=steps,
        num_repeats=repeats,
    )
    facts = []
    for fact in measured:
        facts.append(fact)
        typer.echo(f"{fact['way']} {fact['at_once']}: {fact['ratio']:.2f}", err=True)
    print_facts(facts, list(facts[0]), as_json=as_json)
