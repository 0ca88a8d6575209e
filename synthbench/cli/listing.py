"""``synthbench list`` and ``synthbench show``: what is registered."""

import json
from typing import Annotated

import typer

from synthbench.cli.options import AsJson
from synthbench.cli.output import print_facts
from synthbench.errors import UnknownName

list_app = typer.Typer(help="List what is registered.", no_args_is_help=True)


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
    print_facts(chosen, ["name", "category", "length", "vocab_size", "floor", "ceiling", "version"], as_json=as_json)


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
    print_facts(chosen, ["name", "label", "family", "complexity", "state", "parameters"], as_json=as_json)


@list_app.command("polynomials")
def list_polynomials(as_json: AsJson = False) -> None:
    """List how the SLAY variants make the factor x² of their kernel: table 1 of the paper, read off the units."""
    from synthbench.mechanisms.slay._polynomials import table_1

    facts = [row._asdict() for row in table_1()]
    print_facts(facts, list(facts[0]), as_json=as_json)


@list_app.command("positions")
def list_positions(as_json: AsJson = False) -> None:
    """List the position encodings: name, hyper-parameters, whether they rotate queries and keys."""
    from synthbench.positions import POSITIONS
    from synthbench.terminal.facts import position_facts

    print_facts(list(map(position_facts, POSITIONS)), ["name", "rotates", "parameters", "source"], as_json=as_json)


@list_app.command("blocks")
def list_blocks(as_json: AsJson = False) -> None:
    """List the blocks: name and hyper-parameters."""
    from synthbench.blocks import BLOCKS
    from synthbench.terminal.facts import block_facts

    print_facts(list(map(block_facts, BLOCKS)), ["name", "parameters", "source"], as_json=as_json)


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
    print_facts(facts, list(facts[0]), as_json=as_json)


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
