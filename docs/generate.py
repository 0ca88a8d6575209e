"""Generate files from the registries: ``python docs/generate.py``; with ``--check``, only compare them.

The script writes tables in pages of this folder, the bounds of tasks and levels, and the conditions of layers. Recorded
bounds of a task's version are kept; ``--all`` measures all bounds again. ``--levels [TASK ...]`` measures the shortcut
baselines of all or some tasks again, after a change of the rules. The text about a component is its docstring.
"""

import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from synthbench import sources
from synthbench.blocks import BLOCKS
from synthbench.cli.facts import STATE_LENGTHS, mechanism_facts, part_facts, task_facts
from synthbench.cli.show import draw
from synthbench.mechanisms import MECHANISMS
from synthbench.options import MAIN_SUITE
from synthbench.plugins import SWITCH
from synthbench.positions import POSITIONS
from synthbench.registry import CONTROL
from synthbench.reports.render.markdown import escape
from synthbench.results.schema import CURVE_COLUMNS, RUN_COLUMNS, SCHEMA_VERSION, VERIFICATION_COLUMNS
from synthbench.suites import Suite, load_suite, suite_names
from synthbench.tasks import (
    TASKS,
    Bound,
    Level,
    Task,
    _recorded,
    level_bounds,
    local_ceiling,
    references,
    shortcut_accuracies,
    sized,
)
from synthbench.tasks._measured import MOST_SEARCHED, measured_bases
from synthbench.tasks.base import LENGTHS
from synthbench.trust.view import conditions_of, recorded_layers

FOLDER = Path(__file__).parent
TABLES = FOLDER.parent / "studies" / "papers" / "differences"
EXAMPLE_SEED = 0


def pages() -> dict[str, str]:
    """Return the text of each file, by its path relative to this folder."""
    return {
        "../synthbench/tasks/bounds.json": bounds(),
        "../synthbench/trust/layers.json": layers(),
        "tasks.md": _with_block(_content("tasks.md"), "tasks", _tasks()),
        "mechanisms.md": _with_block(_content("mechanisms.md"), "mechanisms", _mechanisms()),
        "suites.md": with_suites(_content("suites.md")),
        "../README.md": with_board(counted(_content("../README.md"))),
        "../results/README.md": with_columns(_content("../results/README.md")),
    }


def layers() -> str:
    """Return, as JSON, the conditions of built-in mechanisms in the main suite; recorded layers are not measured."""
    known = recorded_layers()
    names = [name for name in MECHANISMS if MECHANISMS.is_built_in(name)]
    found = {name: conditions_of(load_suite(MAIN_SUITE), name, known.get(name, {})) for name in names}
    return json.dumps(found, indent=1) + "\n"


def with_columns(page: str) -> str:
    """Update the tables of columns in a page; a question mark marks a column that may be null."""
    for name, columns in (("runs", RUN_COLUMNS), ("curves", CURVE_COLUMNS), ("verified", VERIFICATION_COLUMNS)):
        lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in columns:
            meaning = ": ".join(filter(None, [column.meaning, ", ".join(f"`{choice}`" for choice in column.choices)]))
            mark = "?" if column.is_nullable else ""
            lines.append(f"| `{column.name}`{mark} | {column.type} | {column.unit} | {meaning} |")
        page = _with_block(page, name, "\n".join(lines))
    return re.sub(r"Schema version \d+", f"Schema version {SCHEMA_VERSION}", page)


def _with_block(page: str, name: str, text: str) -> str:
    """Replace the text between the two marks of a name in a page."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}"


def with_board(page: str) -> str:
    """Put the verdict of the main suite and the table of its ranked mechanisms into a page."""
    board = json.loads((FOLDER.parent / "reports" / MAIN_SUITE / "leaderboard.json").read_text(encoding="utf-8"))
    orders = [line for line in board["verdict"].splitlines() if re.match(r"[A-Z][a-z ]+: ", line)]
    (reading,) = board["verdict"].splitlines()[len(orders) :]
    lines = [f"- **{name}**: {escape(order)}" for name, _, order in (line.partition(": ") for line in orders)]
    ranked = [
        one
        for one in board["mechanisms"]
        if one["rank"] is not None and one["family"] != CONTROL and one["condition"] != "bare"
    ]
    table = _table(
        ("mechanism", "venue", "convolution", "positions", *ranked[0]["categories"]),
        [
            (
                escape(one["label"]),
                _venue(one["source"]),
                one["convolution"] or "no",
                one["positions"],
                *(f"{mean['skill']:.2f}" for mean in one["categories"].values()),
            )
            for one in ranked
        ],
    )
    verdict = "\n".join([*lines, "", escape(reading), escape(board["setting"])])
    return _with_block(_with_block(page, "verdict", verdict), "mechanisms", table)


_VENUES = {
    "Advances in Neural Information Processing Systems": "NeurIPS",
    "International Conference on Machine Learning": "ICML",
    "International Conference on Learning Representations": "ICLR",
    "Conference on Language Modeling": "COLM",
}


def _venue(source: str) -> str:
    """Name venue and year of a paper: ``NeurIPS 2024``."""
    entry = sources.describe(source)
    venue = next(iter(re.findall(r"(?:booktitle|journal)\s*= \{(arXiv|[^}]*)", entry)), "preprint")
    year = re.search(r"year\s*= \{(\d+)", entry)
    return f"{_VENUES.get(venue, venue)} {year[1]}" if year else source


def counted(page: str) -> str:
    """Update the counts of components and of published cells in the phrases of a page.

    Raises:
        ValueError: If a phrase is missing or appears twice.
    """
    ladders = sum(bool(TASKS[name].levels) for name in TASKS)
    table8, table3 = (pd.read_csv(TABLES / f"table{number}.csv") for number in (8, 3))
    cells = table8.dropna()
    in_paper = int(cells["mechanism"].isin(table3["mechanism"]).sum())
    for phrase, count in {
        r"\*\*{} tasks\*\*": len(TASKS),
        r"{} with a \[ladder\]": ladders,
        r"and {} without": len(TASKS) - ladders,
        r"Of those without, {} are from the SLAY paper": len(load_suite("paper").tasks),
        r"\*\*{} mechanisms\*\*": len(MECHANISMS),
        r"all {} results in": in_paper,
        r"and {} more from its authors": len(cells) - in_paper,
    }.items():
        before, after = phrase.split("{}")
        page, found = re.subn(rf"({before})\d+({after})", rf"\g<1>{count}\g<2>", page)
        if found != 1:
            raise ValueError(f"the page has {found} phrases like {phrase!r}; allowed: 1")
    return page


def markdown_of(docstring: str) -> str:
    """Convert a docstring to Markdown: literal blocks are fenced, and formulas are put between dollar signs."""
    text = re.sub(r":math:`([^`]+)`", r"$\1$", docstring)
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    blocks: list[str] = []
    fence = ""
    for block in text.split("\n\n"):
        if block.startswith(".. math::"):
            formula = inspect.cleandoc(block.removeprefix(".. math::"))
            blocks.append(f"$$\n{formula}\n$$")
        elif fence and block.startswith("    "):
            blocks.append(f"```{fence}\n{inspect.cleandoc(block)}\n```")
        else:
            blocks.append(block.removesuffix(":") if block.endswith("::") else block)
        fence = "text" if block.endswith("::") else ""
    return "\n\n".join(blocks)


def _tasks() -> str:
    return "\n\n".join(
        f"## {category}\n\n"
        + _table(
            ("task", "question", "load of its levels"),
            [(name, _first_line(TASKS[name]), TASKS[name].load if TASKS[name].levels else "--") for name in names],
        )
        for category, names in groupby(sorted(TASKS, key=_category), _category)
    )


def _category(name: str) -> str:
    return TASKS[name].category()


def _first_line(unit: type) -> str:
    """Return the first line of a docstring, for a table."""
    return markdown_of((inspect.getdoc(unit) or "").partition("\n")[0]).replace("``", "`").replace("|", "\\|")


def full_task_facts(name: str) -> dict[str, Any]:
    """Return the content of a task's page as plain values: bounds, options, baselines of its levels, an example."""
    unit = TASKS[name]
    task, length = unit(), unit.length
    facts = {**task_facts(name), "description": inspect.getdoc(unit) or "", "example": _drawn(task, length)}
    if task.measure == "bits":
        return {**facts, "references": references(task, length)}
    return {
        **facts,
        "local_ceiling": local_ceiling(task, length).value,
        "shortcuts": {rule: found.value for rule, found in shortcut_accuracies(task, length).items()},
        "load": unit.load,
        "levels": _levels(unit),
    }


def full_mechanism_facts(name: str) -> dict[str, Any]:
    """Return the content of a mechanism's page that does not come from rows, as plain values."""
    return {**mechanism_facts(name), "description": inspect.getdoc(MECHANISMS[name]) or ""}


def task_text(facts: dict[str, Any]) -> str:
    """Describe a task in Markdown, from its full facts."""
    return _join(_task(facts))


def _task(facts: dict[str, Any]) -> Iterator[str]:
    yield component_text(facts)
    if facts["not_tested"]:
        yield f"**Not tested:** {facts['not_tested']}"
    sizes = facts["length"], facts["vocab_size"]
    if lines := facts.get("references"):
        yield "Reference lines, in bits per token on the test split:"
        yield _table(("tokens", "ids", *lines), [(*sizes, *(f"{bits:.3f}" for bits in lines.values()))])
    else:
        floor, ceiling = (
            _bound(Bound(facts[name], facts[f"{name}_kind"], facts[f"{name}_standard_error"]))
            for name in ("floor", "ceiling")
        )
        local = f"{facts['local_ceiling']:.3f}"
        yield _table(("tokens", "ids", "floor", "local ceiling", "ceiling"), [(*sizes, floor, local, ceiling)])
        if reached := facts["shortcuts"]:
            yield "Accuracy of shortcuts that avoid what it tests:"
            yield _table(("shortcut", "accuracy"), [(rule, f"{value:.3f}") for rule, value in reached.items()])
        if levels := facts["levels"]:
            yield f"The levels of its ladder in suite `{MAIN_SUITE}`, with the accuracy of the shortcut baseline:"
            yield _table(
                (facts["load"], "tokens", "baseline", "by"),
                [(level["load"], level["length"], f"{level['baseline']:.2f}", level["rule"]) for level in levels],
            )
    yield f"Drawn at {facts['length']} tokens, seed {EXAMPLE_SEED}:"
    yield f"```text\n{facts['example']}\n```"


def _levels(unit: type[Task]) -> list[dict[str, Any]]:
    """Return the levels of a task in the main suite, with their shortcut baselines."""
    ladder = load_suite(MAIN_SUITE).ladder
    levels = unit.ladder(ladder.longest) if ladder else []
    return [
        {"load": level.load, "length": level.length, "baseline": bound.base, "rule": bound.rule}
        for level, bound in ((level, level_bounds(level)) for level in levels)
    ]


def _drawn(task: Task, length: int) -> str:
    lines = draw(task.sample(np.random.default_rng(EXAMPLE_SEED), 1, length)).plain.splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _bound(bound: Bound) -> str:
    if bound.kind != "exact":
        return f"{bound.value:.3f} (bound)"
    return f"{bound.value:.3f}" + (f" ± {bound.standard_error:.1g}" if bound.standard_error else "")


def _mechanisms() -> str:
    lengths = [f"state at {length}" for length in STATE_LENGTHS]
    mechanisms = _table(
        ("mechanism", "computes", "family", "cost", *lengths, "positions", "places", "bare"),
        [
            (
                facts["name"],
                _first_line(MECHANISMS[facts["name"]]),
                facts["family"],
                facts["complexity"],
                *facts["state"].values(),
                facts["conditions"]["stock"]["positions"],
                "seen" if facts["sees_places"] else "not seen",
                " ".join(f"{name}={value}" for name, value in facts["conditions"]["bare"]["options"].items()) or "--",
            )
            for facts in sorted(map(mechanism_facts, MECHANISMS), key=lambda facts: str(facts["family"]))
        ],
    )
    parts = [
        f"## {title}\n\n" + _table(("name", "effect"), [(name, _first_line(registry[name])) for name in registry])
        for title, registry in (("Position encodings", POSITIONS), ("Blocks", BLOCKS))
    ]
    return "\n\n".join([mechanisms, *parts])


def component_text(facts: dict[str, Any]) -> str:
    """Describe a component in Markdown: its docstring and its options."""
    described = markdown_of(facts["description"])
    if not facts["parameters"]:
        return f"{described}\n"
    options = [
        (f"`{name}`", escape(str(of["default"])), escape(of["allowed"]), escape(of["meaning"]))
        for name, of in facts["parameters"].items()
    ]
    return _join([described, _table(("option", "default", "allowed", "meaning"), options)])


def index_text(kind: str) -> str:
    """Return the introduction and tables of ``tasks.md`` or ``mechanisms.md``, and describe encodings and blocks."""
    written, _, _ = _content(f"{kind}.md").partition(f"\n<!-- end {kind} -->")
    text = written.partition("\n\n")[2].replace(f"<!-- begin {kind} -->\n", "")
    if kind == "tasks":
        return _join([text])
    described = (
        f"## {name}\n\n{component_text({**part_facts(unit), 'description': inspect.getdoc(unit) or ''})}"
        for registry in (POSITIONS, BLOCKS)
        for name, unit in registry.items()
    )
    return _join([text, *described])


def with_suites(page: str) -> str:
    """Update the tables of suites and of their protocols in a page."""
    suites = [load_suite(name) for name in suite_names()]
    listed = _table(
        ("suite", "version", "description", "tasks", "mechanisms", "seeds", "studies"),
        [
            (
                f"[{suite.name}](../synthbench/suites/{suite.name}.toml)",
                suite.version,
                suite.description,
                len(suite.tasks),
                len(suite.mechanisms),
                len(suite.seeds),
                " ".join(f"[{study}](../studies/{study}/README.md)" for study in suite.studies),
            )
            for suite in suites
        ],
    )
    protocols = _table(("suite", *SETTINGS), [(suite.name, *_settings(suite)) for suite in suites])
    return _with_block(_with_block(page, "suites", listed), "protocols", protocols)


SETTINGS = (
    *("block", "positions", "width", "layers", "steps", "batch", "rates", "schedule"),
    *("test sequences", "longest level"),
)


def _settings(suite: Suite) -> tuple[object, ...]:
    model, training = suite.model, suite.training
    return (
        *(model.block, model.positions, model.model_dim, model.num_layers, training.steps, training.batch_size),
        *(" ".join(map(str, training.learning_rates)), training.schedule, suite.evaluation.test_sequences),
        suite.ladder.longest if suite.ladder else "--",
    )


def suite_tasks() -> dict[str, tuple[Task, int, bool]]:
    """Return the tasks of all suites with lengths, and True for a stretched test, by name in the file of bounds."""
    found: dict[str, tuple[Task, int, bool]] = {}
    for suite in map(load_suite, suite_names()):
        for name, arguments in suite.tasks.items():
            length, options = sized(name, arguments)
            task = TASKS[name](**options)
            found[_recorded.key_of(task, length)] = task, length, False
            for factor in suite.evaluation.stretches or ():
                stretched = task.stretched(length, factor)
                found.setdefault(_recorded.key_of(*stretched), (*stretched, True))
    return found


def levels() -> dict[str, Level]:
    """Return the levels of every task's ladder, by their names in the file of bounds."""
    return {
        _recorded.level_key(level): level
        for name in TASKS
        for is_extended in (False, True)
        for level in TASKS[name].ladder(max(LENGTHS), is_extended=is_extended)
    }


def bounds(*, is_all: bool = False) -> str:
    """Write the file of bounds; recorded bounds are measured again only if ``is_all``."""
    known = {} if is_all else _recorded.entries()
    entries = {key: known.get(key) or _recorded.measured_level(level) for key, level in levels().items()}
    for key, (task, length, is_stretched) in suite_tasks().items():
        entry = known.get(key, {})
        if not (entry if is_stretched else {"shortcuts", "references"} & set(entry)):
            entry = _recorded.measured(task, length, is_stretched=is_stretched)
        entries[key] = entry
    return _text_of(entries)


def _text_of(entries: Mapping[str, object]) -> str:
    """Format the file of bounds, with one entry per line."""
    lines = [f"{json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _measured_again(level: Level, entry: _recorded.Entry | None) -> dict[str, Any]:
    """Measure the shortcut baselines of a level by the present rules; all else in a recorded entry is kept."""
    if entry is None:
        return _recorded.measured_level(level)
    few = level.task.sample(np.random.default_rng(0), 2, level.length).inputs
    is_complete = level.length > MOST_SEARCHED and level.task.level_shortcuts(few).keys() <= entry["bases"].keys()
    return {**entry, "bases": entry["bases"] if is_complete else measured_bases(level)}


def measure_levels(names: Sequence[str]) -> None:
    """Measure the levels of the named tasks, or of all tasks, and write the file of bounds after each task."""
    known = dict(_recorded.entries())
    of_task: dict[str, dict[str, Level]] = {}
    for key, level in levels().items():
        of_task.setdefault(level.task.name, {})[key] = level
    if unknown := set(names) - of_task.keys():
        sys.exit(f"no ladder: {', '.join(sorted(unknown))}")
    for name in names or sorted(of_task):
        known = {key: entry for key, entry in known.items() if not (key.startswith(f"{name} ") and " from " in key)}
        known |= {key: _measured_again(level, _recorded.entries().get(key)) for key, level in of_task[name].items()}
        _recorded.FILE.write_text(_text_of(known), encoding="utf-8")
        sys.stdout.write(f"{name}: {len(of_task[name])} levels\n")
        sys.stdout.flush()


def _table(headings: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    return tabulate(list(lines), headers=list(headings), tablefmt="github", disable_numparse=True)


def _join(blocks: Iterable[str]) -> str:
    return "\n\n".join(blocks) + "\n"


def main() -> int:
    """Write the pages, or print which differ; return the exit code."""
    os.environ[SWITCH] = "off"  # the pages describe what comes with synthbench, whatever else is installed
    if "--levels" in sys.argv[1:]:
        measure_levels([name for name in sys.argv[1:] if name != "--levels"])
        return 0
    if "--all" in sys.argv[1:]:  # first, as a page has them too
        _recorded.FILE.write_text(bounds(is_all=True), encoding="utf-8")
        _recorded.entries.cache_clear()
    differing = {name: text for name, text in pages().items() if _content(name) != text}
    if "--check" in sys.argv[1:]:
        for name in differing:
            sys.stdout.write(f"stale: docs/{name}\n")
        return 1 if differing else 0
    for name, text in differing.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/{name}\n")
    return 0


def _content(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
