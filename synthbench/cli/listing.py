"""``synthbench list`` and ``synthbench show``: the registered components and the suites."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from synthbench import plugins
from synthbench.cli.options import AsJson, Plugins, load_what_loads, selecting
from synthbench.cli.output import print_facts, say
from synthbench.errors import SynthbenchError, UnknownName, UsageError
from synthbench.registry import Registry
from synthbench.sources import describe

T = TypeVar("T")

list_app = typer.Typer(name="list", help="List the components and the suites.", no_args_is_help=True)


@list_app.command("tasks")
def list_tasks(
    category: Annotated[str | None, selecting(help="Only tasks of this category.")] = None,
    suite: Annotated[str | None, selecting(help="Only tasks of this suite, with its options.")] = None,
    search: Annotated[
        str | None, selecting(help="Only tasks whose name, description or source has all of these words: 'depo'.")
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks: name, category, floor, ceiling."""
    from synthbench.cli.facts import task_bounds, task_facts
    from synthbench.suites import load_suite
    from synthbench.tasks import TASKS

    broken = load_what_loads(plugin) | TASKS.broken()
    tasks = {name: {} for name in TASKS.usable()} if suite is None else load_suite(suite).tasks
    names = _of_group("category", attempted(tasks, lambda name: TASKS[name].category(), broken), category)
    if search is not None:
        names = [name for name in names if _mentions(TASKS[name], search)]
        if not names:
            raise UsageError(f"no task has {search!r} in its name, description or source")
    facts_of = task_facts if as_json else task_bounds
    columns = ["name", "category", "length", "vocab_size", "floor", "ceiling", "version"]
    facts = attempted(names, lambda name: facts_of(name, tasks[name]), broken)
    print_facts(list(facts.values()), columns, broken=broken, as_json=as_json)


@list_app.command("mechanisms")
def list_mechanisms(
    family: Annotated[str | None, selecting(help="Only mechanisms of this family.")] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the mechanisms: name, family, options, cost, state."""
    from synthbench.cli.facts import mechanism_facts
    from synthbench.mechanisms import MECHANISMS

    broken = load_what_loads(plugin) | MECHANISMS.broken()
    names = _of_group("family", attempted(MECHANISMS.usable(), lambda name: MECHANISMS[name].family, broken), family)
    columns = ["name", "label", "family", "complexity", "state", "parameters"]
    facts = attempted(names, mechanism_facts, broken)
    print_facts(list(facts.values()), columns, broken=broken, as_json=as_json)


def _of_group(kind: str, groups: Mapping[str, str], wanted: str | None) -> list[str]:
    """Return the names whose category or family is ``wanted``, or all names if ``wanted`` is None."""
    if wanted is not None and wanted not in groups.values():
        raise UnknownName(kind, wanted, set(groups.values()))
    return [name for name, group in groups.items() if wanted in (None, group)]


def attempted(names: Iterable[str], function: Callable[[str], T], broken: dict[str, str]) -> dict[str, T]:
    """Call a function for each name; return its results, and add the reasons of its failures to ``broken``."""
    found = {}
    for name in names:
        try:
            found[name] = function(name)
        except BaseException as problem:  # noqa: BLE001 - foreign code may raise anything
            plugins.raise_interrupt(problem)
            broken[name] = str(problem) if isinstance(problem, SynthbenchError) else plugins.reason(problem)
    return found


def _mentions(unit: type[Any], words: str) -> bool:
    """Tell whether each of the given words is the start of some word in a component's name, docstring or source."""
    text = f"{unit.name} {inspect.getdoc(unit)} {describe(unit.source)}"
    return all(re.search(rf"(?<![^\W_]){re.escape(word)}", text, re.IGNORECASE) for word in words.split())


@list_app.command("polynomials")
def list_polynomials(as_json: AsJson = False) -> None:
    """List how variants of SLAY compute the factor x² of their kernel, as in table 1 of the SLAY paper.

    The table is computed from the code.
    """
    from synthbench.mechanisms.slay._polynomials import table_1

    facts = [row._asdict() for row in table_1()]
    print_facts(facts, list(facts[0]), as_json=as_json)


@list_app.command("positions")
def list_positions(plugin: Plugins = None, as_json: AsJson = False) -> None:
    """List the position encodings: name, options, whether they rotate queries and keys."""
    from synthbench.positions import POSITIONS

    _print_parts(POSITIONS, ["name", "rotates", "parameters", "source"], plugin, as_json=as_json)


@list_app.command("blocks")
def list_blocks(plugin: Plugins = None, as_json: AsJson = False) -> None:
    """List the blocks: name and options."""
    from synthbench.blocks import BLOCKS

    _print_parts(BLOCKS, ["name", "parameters", "source"], plugin, as_json=as_json)


def _print_parts(registry: Registry[Any], columns: list[str], plugin: list[str] | None, *, as_json: bool) -> None:
    from synthbench.cli.facts import part_facts

    broken = load_what_loads(plugin) | registry.broken()
    facts = attempted(registry.usable(), lambda name: part_facts(registry[name]), broken)
    print_facts(list(facts.values()), columns, broken=broken, as_json=as_json)


@list_app.command("suites")
def list_suites(as_json: AsJson = False) -> None:
    """List the suites: name, version, size, description."""
    from synthbench.suites import load_suite, suite_names

    facts: list[dict[str, Any]] = []
    broken: dict[str, str] = {}
    for suite in attempted(suite_names(), load_suite, broken).values():
        sizes = {kind: len(getattr(suite, kind)) for kind in ("tasks", "mechanisms", "seeds")}
        facts.append({"name": suite.name, "version": suite.version, **sizes, "description": suite.description})
    print_facts(facts, list(facts[0]), broken=broken, as_json=as_json)


def show(
    name: Annotated[str, typer.Argument(help="A task, a mechanism, a position encoding, a block or a suite.")],
    seed: Annotated[int, typer.Option(help="Seed of the drawn example.", min=0)] = 0,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Show a task, mechanism, position encoding, block or suite: options, bounds and source; for a task, an example."""
    from rich.console import Console

    from synthbench.cli.show import facts_of, print_page

    plugins.load(plugins.named(plugin))
    if as_json:
        say(json.dumps(facts_of(name), indent=1))
    else:
        print_page(name, seed=seed, console=Console(highlight=False))
