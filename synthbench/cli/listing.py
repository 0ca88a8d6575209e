"""``synthbench list`` and ``synthbench show``: the registered components."""

import inspect
import json
import re
from typing import Annotated, Any

import typer

from synthbench.cli.options import AsJson, Plugins, load_what_loads
from synthbench.cli.output import print_facts, say
from synthbench.errors import SynthbenchError, UnknownName, UsageError
from synthbench.sources import describe

list_app = typer.Typer(help="List the registered components and suites.", no_args_is_help=True)


@list_app.command("tasks")
def list_tasks(
    category: Annotated[str | None, typer.Option(help="Only tasks of this category.")] = None,
    suite: Annotated[str | None, typer.Option(help="Only tasks of this suite, with its options.")] = None,
    search: Annotated[
        str | None, typer.Option(help="Only tasks whose name, description or source has all of these words: 'depo'.")
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks: name, category, floor, ceiling."""
    from synthbench.suites import load_suite
    from synthbench.tasks import TASKS
    from synthbench.terminal.facts import task_bounds, task_facts

    broken = load_what_loads(plugin) | TASKS.broken()
    tasks = {name: {} for name in TASKS.usable()} if suite is None else load_suite(suite).tasks
    categories = {TASKS[name].category() for name in tasks}
    if category is not None and category not in categories:
        raise UnknownName("category", category, categories)
    if search is not None:
        tasks = {name: tasks[name] for name in tasks if _mentions(TASKS[name], search)}
        if not tasks:
            raise UsageError(f"no task has {search!r} in its name, description or source")
    facts_of = task_facts if as_json else task_bounds
    chosen = [
        facts_of(name, arguments) for name, arguments in tasks.items() if category in (None, TASKS[name].category())
    ]
    columns = ["name", "category", "length", "vocab_size", "floor", "ceiling", "version"]
    print_facts(chosen, columns, broken=broken, as_json=as_json)


def _mentions(unit: type[Any], words: str) -> bool:
    """Whether words of the name, the docstring or the source begin with each of these."""
    text = f"{unit.name} {inspect.getdoc(unit)} {describe(unit.source)}"
    return all(re.search(rf"(?<![^\W_]){re.escape(word)}", text, re.IGNORECASE) for word in words.split())


@list_app.command("mechanisms")
def list_mechanisms(
    family: Annotated[str | None, typer.Option(help="Only mechanisms of this family.")] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the mechanisms: name, family, options, cost, state."""
    from synthbench.mechanisms import MECHANISMS
    from synthbench.terminal.facts import mechanism_facts

    broken = load_what_loads(plugin) | MECHANISMS.broken()
    names = MECHANISMS.usable()
    families = {MECHANISMS[name].family for name in names}
    if family is not None and family not in families:
        raise UnknownName("family", family, families)
    chosen = [mechanism_facts(name) for name in names if family in (None, MECHANISMS[name].family)]
    columns = ["name", "label", "family", "complexity", "state", "parameters"]
    print_facts(chosen, columns, broken=broken, as_json=as_json)


@list_app.command("polynomials")
def list_polynomials(as_json: AsJson = False) -> None:
    """List how the SLAY variants compute the factor x² of their kernel: table 1 of the paper, from the code."""
    from synthbench.mechanisms.slay._polynomials import table_1

    facts = [row._asdict() for row in table_1()]
    print_facts(facts, list(facts[0]), as_json=as_json)


@list_app.command("positions")
def list_positions(plugin: Plugins = None, as_json: AsJson = False) -> None:
    """List the position encodings: name, options, whether they rotate queries and keys."""
    from synthbench.positions import POSITIONS
    from synthbench.terminal.facts import position_facts

    broken = load_what_loads(plugin) | POSITIONS.broken()
    facts = list(map(position_facts, POSITIONS.usable()))
    print_facts(facts, ["name", "rotates", "parameters", "source"], broken=broken, as_json=as_json)


@list_app.command("blocks")
def list_blocks(plugin: Plugins = None, as_json: AsJson = False) -> None:
    """List the blocks: name and options."""
    from synthbench.blocks import BLOCKS
    from synthbench.terminal.facts import block_facts

    broken = load_what_loads(plugin) | BLOCKS.broken()
    facts = list(map(block_facts, BLOCKS.usable()))
    print_facts(facts, ["name", "parameters", "source"], broken=broken, as_json=as_json)


@list_app.command("suites")
def list_suites(as_json: AsJson = False) -> None:
    """List the suites: name, version, size, description."""
    from synthbench.suites import load_suite, suite_names

    facts: list[dict[str, Any]] = []
    broken = {}
    for name in suite_names():
        try:
            suite = load_suite(name)
        except SynthbenchError as problem:
            broken[name] = str(problem)
            continue
        facts.append(
            {
                "name": suite.name,
                "version": suite.version,
                "tasks": len(suite.tasks),
                "mechanisms": len(suite.mechanisms),
                "seeds": len(suite.seeds),
                "description": suite.description,
            }
        )
    print_facts(facts, list(facts[0]), broken=broken, as_json=as_json)


def show(
    name: Annotated[str, typer.Argument(help="A task, a mechanism or a suite.")],
    seed: Annotated[int, typer.Option(help="Seed of the drawn example.", min=0)] = 0,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Show one task (with a drawn example), mechanism or suite: options, bounds, source."""
    from rich.console import Console

    from synthbench import plugins
    from synthbench.terminal import show as page

    plugins.load(plugins.named(plugin))
    if as_json:
        say(json.dumps(page.facts_of(name), indent=1))
    else:
        page.show(name, seed=seed, console=Console(highlight=False))
