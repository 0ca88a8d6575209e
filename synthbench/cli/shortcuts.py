"""``synthbench shortcuts``: search the levels of tasks for rules that beat the shortcut baselines."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from synthbench.cli.options import AsJson, Plugins, load_what_loads
from synthbench.cli.output import say
from synthbench.errors import UsageError

if TYPE_CHECKING:
    from synthbench.tasks._search import Found


def shortcuts(
    task: Annotated[list[str] | None, typer.Argument(help="Tasks with levels; all of them by default.")] = None,
    longest: Annotated[int, typer.Option(help="Only levels of up to this many tokens.", min=1)] = 256,
    forest: Annotated[bool, typer.Option("--forest", help="Try a random forest on hand features as well.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the result to synthbench/tasks/shortcuts.csv, task by task.")
    ] = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Search, on each level of a task, for simple rules that score above the level's shortcut baseline.

    A shortcut baseline is the score of the best known rule that avoids what the task tests. In the output, `!` marks a
    rule with a skill above .05 (0 is the baseline, 1 the ceiling).
    """
    from synthbench.tasks import TASKS
    from synthbench.tasks._search import levels_of, search_level, write_found

    load_what_loads(plugin)
    names = list(task or (name for name in TASKS.usable() if TASKS[name].levels))
    without = [name for name in names if not levels_of(TASKS[name], longest)]
    if without and (task or without == names):
        raise UsageError(
            f"no level of {', '.join(without)} has up to {longest} tokens; allowed: tasks with levels, or a larger "
            "--longest"
        )
    found = []
    for name in names:
        levels = [search_level(level, has_forest=forest) for level in levels_of(TASKS[name], longest)]
        found += levels
        if write:
            write_found(levels)
        if not as_json:
            for level in levels:
                say(_line(level))
    if as_json:
        say(json.dumps([level.facts() for level in found], indent=2))


def _line(level: "Found") -> str:
    return (
        f"{'!' if level.is_beaten else ' '} {level.task:<20}{level.load:>5}{level.length:>5} tokens  "
        f"baseline {level.baseline:.3f} {level.baseline_by}; found {level.best:.3f} {level.best_by}: "
        f"skill {level.skill:+.3f}"
    )
