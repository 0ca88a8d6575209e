"""Print one component or suite on one screen: description and options, and for a task also bounds and an example."""

import inspect
from itertools import groupby
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from synthbench.cli.facts import mechanism_facts, part_facts, task_facts
from synthbench.errors import UnknownName
from synthbench.options import require_current
from synthbench.registry import Registry, resolve_among
from synthbench.suites import load_suite, suite_names
from synthbench.tasks import IGNORE, TASKS, Batch, Task, local_ceiling, references, shortcut_accuracies
from synthbench.tasks._recorded import committed_bounds
from synthbench.tasks.base import LENGTHS


def facts_of(name: str) -> dict[str, Any]:
    """Return a dictionary of facts about a task, mechanism, position encoding, block or suite, including its ``kind``.

    Args:
        name: A registered name, or any other spelling that :func:`synthbench.options.resolve` accepts.

    Raises:
        UnknownName: If nothing has this name.
        UsageError: If ``name`` is a former name of a suite.
    """
    require_current(name)
    if name in suite_names() and name not in TASKS:
        return {"kind": "suite", **load_suite(name).model_dump(mode="json")}
    if TASKS.resolve(name) in TASKS:
        return {"kind": "task", **task_facts(TASKS.resolve(name))}
    parts = _parts_of_models()
    name = resolve_among(parts, name)
    for registry in parts:
        if name in registry:
            facts = mechanism_facts(name) if registry.kind == "mechanism" else part_facts(registry[name])
            return {"kind": registry.kind, **facts}
    known = [*TASKS, *(known for registry in parts for known in registry), *suite_names()]
    raise UnknownName("task, mechanism, position encoding, block or suite", name, known)


def print_page(name: str, *, seed: int, console: Console) -> None:
    """Print one component or suite on one screen."""
    facts = facts_of(name)
    name = facts["name"]
    parts: list[RenderableType] = [Text(f"{facts['kind']} {name}", style="bold")]
    if facts["kind"] == "task":
        parts += [_prose(TASKS[name]), _task_numbers(facts), _baselines(TASKS[name])]
        parts += [_option_table(facts), _example(name, seed)]
    elif facts["kind"] == "suite":
        parts += [Text(facts["description"]), _settings(facts)]
    else:
        unit = next(registry[name] for registry in _parts_of_models() if name in registry)
        parts += [_prose(unit), *_conditions(facts), _option_table(facts)]
    console.print(Group(*parts))


def _parts_of_models() -> list[Registry[Any]]:
    from synthbench.blocks import BLOCKS
    from synthbench.mechanisms import MECHANISMS
    from synthbench.positions import POSITIONS

    return [MECHANISMS, POSITIONS, BLOCKS]


def draw(batch: Batch) -> Text:
    """Draw the first sequence of a batch, inputs above targets; ``.`` marks positions that are not scored.

    A target is green if it equals the input above it, and magenta otherwise. An input at an unscored position is cyan
    if the same token is a target elsewhere in the sequence.
    """
    inputs, targets = batch.inputs[0], batch.targets[0]
    shown = ["." if target == IGNORE else str(target) for target in targets]
    width = max(len(token) for token in [*map(str, inputs), *shown])
    drawing = Text("inputs   ")
    for token, target in zip(inputs, targets, strict=True):
        is_source = target == IGNORE and token in targets
        drawing.append(f" {token:>{width}}", style="cyan" if is_source else "")
    drawing.append("\ntargets  ")
    for token, text in zip(inputs, shown, strict=True):
        is_local = text == str(token)
        drawing.append(f" {text:>{width}}", style="dim" if text == "." else "green" if is_local else "bold magenta")
    return drawing


def _prose(unit: type) -> Text:
    return Text(inspect.getdoc(unit) or "")


def _conditions(facts: dict[str, Any]) -> list[RenderableType]:
    """Describe a mechanism in the conditions stock (as published) and bare (recurrence or attention scores only).

    Each condition has one line with its options, position encoding, and sizes at width 64 with 4 heads.
    """
    if "conditions" not in facts:
        return []
    table = Table(
        "condition",
        "options",
        "positions",
        "parameters",
        "state",
        title="width 64, 4 heads, 64 tokens",
        box=None,
        pad_edge=False,
    )
    for name, fact in facts["conditions"].items():
        options = ", ".join(f"{option}={value}" for option, value in fact["options"].items())
        table.add_row(name, options or "--", fact["positions"], str(fact["parameters"]), str(fact["state"]))
    note = facts["rotation_note"]
    places = "yes" if facts["sees_places"] else "no"
    return [
        table,
        Text(f"Sees absolute places, with its own positions: {places}."),
        *([Text(f"Rotation means nothing here: {note}")] if note else []),
    ]


def _task_numbers(facts: dict[str, Any]) -> Text:
    floor, ceiling = facts["floor"], facts["ceiling"]
    text = Text(f"\n{facts['length']} tokens of {facts['vocab_size']}, category {facts['category']}\n")
    text.append(f"floor {floor:.6f} ({facts['floor_kind']})   ceiling {ceiling:.6f} ({facts['ceiling_kind']})\n")
    task = TASKS[facts["name"]]()
    unit = " bits per token" if task.measure == "bits" else ""
    for name, reached in references(task, facts["length"]).items():
        text.append(f"reference, {name}: {reached:.4f}{unit}\n")
    if task.measure == "accuracy":
        local = local_ceiling(task, facts["length"]).value
        text.append(f"local ceiling {local:.4f}: the rest needs mixing of positions\n")
        for name, rule in shortcut_accuracies(task, facts["length"]).items():
            text.append(f"shortcut, {name}: {rule.value:.4f}\n")
    if facts["not_tested"]:
        text.append("not tested: ", style="bold")
        text.append(facts["not_tested"] + "\n")
    return text


def _baselines(unit: type[Task]) -> Text:
    """Describe the rules behind the shortcut baselines of a task's levels, and rules that do not count as shortcuts."""
    text = Text()
    known = [(number, committed_bounds(level)) for number, level in enumerate(unit.ladder(max(LENGTHS)), start=1)]
    measured = [(number, bounds) for number, bounds in known if bounds]
    for rule, group in groupby(measured, key=lambda pair: pair[1].rule):
        numbers, bases = zip(*((number, bounds.base) for number, bounds in group), strict=True)
        span = "-".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
        reached = " to ".join(dict.fromkeys((f"{bases[0]:.2f}", f"{bases[-1]:.2f}")))
        text.append(f"shortcut baseline, level {span}: {reached}, {rule}\n")
    for pattern, reason in unit.no_shortcuts.items():
        text.append(f"not a shortcut, {pattern}: {reason}\n")
    return text


def _option_table(facts: dict[str, Any]) -> RenderableType:
    if not facts["parameters"]:
        return Text("no options")
    table = Table("option", "default", "allowed", "meaning", box=None, pad_edge=False)
    for name, parameter in facts["parameters"].items():
        table.add_row(name, str(parameter["default"]), parameter["allowed"], parameter["meaning"])
    return table


def _example(name: str, seed: int) -> Group:
    task = TASKS[name]()
    batch = task.sample(np.random.default_rng(seed), 1, task.length)
    return Group(
        Text(f"\nexample, seed {seed}: scored in colour, green where the answer is the token itself"), draw(batch)
    )


def _settings(facts: dict[str, Any]) -> Table:
    table = Table("setting", "value", box=None, pad_edge=False)
    for section, content in facts.items():
        if section in ("kind", "name", "description"):
            continue
        if isinstance(content, dict):
            for key, value in content.items():
                table.add_row(f"{section}.{key}", _plain(value))
        else:
            table.add_row(section, _plain(content))
    return table


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={entry}" for key, entry in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
