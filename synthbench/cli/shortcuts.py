"""``synthbench shortcuts``: search the levels of tasks for rules that beat their baselines."""

import json
from typing import Annotated

import typer

from synthbench.cli.options import AsJson, Plugins, load_what_loads


def shortcuts(
    task: Annotated[list[str] | None, typer.Argument(help="Tasks with levels; all of them by default.")] = None,
    longest: Annotated[int, typer.Option(help="Only levels of up to so many tokens.", min=1)] = 256,
    forest: Annotated[bool, typer.Option("--forest", help="Try a random forest on hand features as well.")] = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Search levels for rules that beat their shortcut baselines; `!` marks those by more than .05 of skill."""
    from synthbench.tasks import TASKS
    from synthbench.tasks._search import search_tasks

    load_what_loads(plugin)
    names = list(task or (name for name in TASKS.usable() if TASKS[name].rungs))
    found = search_tasks([TASKS[name] for name in names], longest, has_forest=forest)
    if as_json:
        typer.echo(json.dumps([level.facts() for level in found], indent=2))
        return
    for level in found:
        typer.echo(
            f"{'!' if level.is_beaten else ' '} {level.task:<20}{level.load:>5}{level.length:>5} tokens  "
            f"baseline {level.baseline:.3f} {level.baseline_by}; found {level.best:.3f} {level.best_by}: "
            f"skill {level.skill:+.3f}"
        )
