"""The result of ``synthbench run`` at a glance: a table of tasks by mechanisms, and the command for a full report."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from synthbench.bits import BITS, choice_in
from synthbench.cli.output import aligned
from synthbench.options import command_line
from synthbench.plugins import origin_of
from synthbench.reports.cells import clipped
from synthbench.reports.table import NOTHING
from synthbench.results import Store
from synthbench.suites import load_suite, suite_names
from synthbench.training.cell import Cell, Run

Runs = Mapping[str, Run]
"""The planned runs by their ids."""


class Scored(NamedTuple):
    """The outcome of one run."""

    status: str
    skill: float | None
    bits: float | None = None
    """Bits per token of a task that is measured in bits and has no skill; None for other tasks."""
    validation: float | None = None
    """The number by which the learning rates of a seed are compared; None if the suite does not compare them."""


def skill_table(results: Path, runs: Runs, width: int | None) -> str:
    """Tabulate the mean skill of each mechanism on each task; a line below explains how to read the table.

    Args:
        results: Folder of the store.
        runs: The runs to show, by run id; they need not be finished.
        width: Width of the terminal in characters. If the table does not fit, standard deviations are left out first,
            then the last mechanisms. None: no limit.
    """
    mechanisms = list(dict.fromkeys(run.cell.mechanism_name for run in runs.values()))
    cells = _cells(runs, _runs(results))
    lines = _lines(cells, mechanisms, has_spread=True)
    if num_fitting(lines, width) < len(lines[0]):
        lines = _lines(cells, mechanisms, has_spread=False)
    num_shown = num_fitting(lines, width)
    shown = [line[:num_shown] for line in lines]
    is_spread = any("±" in text for line in shown for text in line)
    mean = "mean ± standard deviation over seeds" if is_spread else "mean over seeds"
    has_bits = any("bits" in text for line in shown for text in line[1:])
    in_bits = "bits: per token, fewer are better; " if has_bits else ""
    notes = [f"Skill: 0 at the floor, 1 at the ceiling; {in_bits}{mean}."]
    if num_left_out := len(mechanisms) + 1 - num_shown:
        columns = "1 column does" if num_left_out == 1 else f"{num_left_out} columns do"
        options = {"mech": ",".join(mechanisms), "columns": "skill", "across": "mechanisms"}
        for_all = _command("export", results, runs, options) or "the same command again, with its output into a file"
        notes.append(f"{columns} not fit into {width} characters; for all: {for_all}")
    return "\n".join([*aligned(shown), *notes])


def report_command(results: Path, runs: Runs) -> str | None:
    """Return the command line that makes a report on the results of the given runs.

    The result is None if any of these runs is shortened (fewer steps or test sequences), since reports omit such runs.
    """
    cells = {run.cell.mechanism_name: run.cell for run in runs.values()}
    suite = next(iter(runs.values())).cell.suite.name
    listed = load_suite(suite).mechanisms if suite in suite_names() else cells
    others = [name for name, cell in cells.items() if name not in listed and origin_of(cell.mechanism) == "builtin"]
    return _command("report", results, runs, {"mech": ",".join(cells)} if others else {})


def skill_text(scored: Sequence[Scored | None], *, has_spread: bool) -> str:
    """Format the mean skill in a table cell: ``0.93 ±0.02``, or ``0.93 (2 of 3)`` if one of three runs has no score.

    If no run has a score, the text is the most frequent status of the failed runs, such as ``error``. If no run has
    ended yet, the text is ``--``.

    Args:
        scored: Outcomes of the runs of one mechanism on one task; None for a run that has no stored result.
        has_spread: True to add the standard deviation over seeds.
    """
    failures = Counter(run.status for run in scored if run is not None and run.status != "ok")
    done = [run for run in scored if run is not None and run.status == "ok"]
    if not done:
        return failures.most_common(1)[0][0] if failures else NOTHING
    skills = [clipped(run.skill) for run in done if run.skill is not None]
    bits = [run.bits for run in done if run.bits is not None]
    skills = skills or bits
    if not skills:
        return "no skill"  # floor and ceiling are equal
    text = f"{fmean(skills):.2f}" + (" bits" if bits else "")
    if has_spread and len(skills) > 1:
        text += f" ±{stdev(skills):.2f}"
    missing = f" ({len(done)} of {len(scored)})" if len(done) < len(scored) else ""
    return text + missing + "".join(f" {status}" for status in failures)


def num_fitting(lines: Sequence[Sequence[str]], width: int | None) -> int:
    """Return how many of a table's columns, from the left, fit into a width in characters (None: no limit).

    The result is at least 2: the column of task names and the column of one mechanism.
    """
    widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
    return max(2, sum(width is None or sum(widths[: num + 1]) - 2 <= width for num in range(len(widths))))


def _runs(results: Path) -> dict[str, Scored]:
    known = Store.open(results, create=False).columns(("run_id", "status", "skill", "score", "metric_name", "metrics"))
    found = {}
    for row in known.to_pylist():
        bits = -row["score"] if row["score"] is not None and row["metric_name"] == BITS else None
        found[row["run_id"]] = Scored(row["status"], row["skill"], bits, choice_in(json.loads(row["metrics"])))
    return found


def _cells(runs: Runs, scored: Mapping[str, Scored]) -> dict[str, dict[str, list[Scored | None]]]:
    """Group the outcomes of runs by line label, then by mechanism.

    Of the runs of a seed with different learning rates, only the one with the best validation result is kept.
    """
    tried: dict[tuple[str, Cell, int], list[Scored | None]] = {}
    for run_id, run in runs.items():
        tried.setdefault((_label(run), run.cell, run.seed), []).append(scored.get(run_id))
    cells: dict[str, dict[str, list[Scored | None]]] = {}
    for (label, cell, _), some in tried.items():
        cells.setdefault(label, {}).setdefault(cell.mechanism_name, []).append(max(some, key=_rank))
    return cells


def _rank(run: Scored | None) -> float:
    """Return a number by which runs of one seed with different learning rates are compared; the highest is best."""
    if run is None:
        return -2.0
    return -1.0 if run.status != "ok" else run.validation or 0.0


def _label(run: Run) -> str:
    """Return the task's name, with the learning rate if the suite has several and does not choose among them."""
    suite = run.cell.suite
    has_several = (
        run.learning_rate is not None
        and len(suite.training.learning_rates) > 1
        and suite.evaluation.validation_sequences is None
    )
    return f"{run.cell.task_name} lr={run.learning_rate:g}" if has_several else run.cell.task_name


def _lines(
    cells: Mapping[str, Mapping[str, Sequence[Scored | None]]], mechanisms: Sequence[str], *, has_spread: bool
) -> list[list[str]]:
    body = [
        [label, *(skill_text(of_task.get(name, ()), has_spread=has_spread) for name in mechanisms)]
        for label, of_task in cells.items()
    ]
    return [["skill", *mechanisms], *body]


def _command(command: str, results: Path, runs: Runs, options: Mapping[str, str]) -> str | None:
    """Return the command line of a ``synthbench`` command on the rows of some runs; None if the runs were shortened."""
    cells = [run.cell for run in runs.values()]
    if not all(cell.is_full for cell in cells):
        return None
    place = None if results == Path("results") else results
    return command_line(command, {"suite": cells[0].suite.name, **options, "results": place})
