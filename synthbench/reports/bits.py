"""Tables of tasks in bits: bits per token with intervals over seeds, apart for kinds of positions, and references."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from synthbench.registry import CONTROL
from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import Cells, Key, MechanismFacts, Runs, TaskFacts, is_known
from synthbench.reports.statistics import SIGNIFICANCE, holm, pair_tests, shares_seeds
from synthbench.reports.table import NOTHING, Cell, Column, Line, Mark, Table, fixed, interval_cell, sources_of

CAPTION = (
    "Bits per token on the test split, lower is better: mean over {seeds}, with its 95 % interval over seeds. Bold: "
    "fewest; underlined: second; †: not shown to differ from the fewest (moderated t test, Holm within the task, 5 %). "
    "Controls are never marked. Below the mechanisms: references, which mix nothing and learned from the same training "
    "split. Calibration error: how far the probability of the likeliest token is from the share of times that it is "
    "right, mean over 15 bins. State: numbers that one layer keeps."
)


def bits_tables(cells: Cells, runs: Runs) -> tuple[Table, ...]:
    """A table for each task: a row for each mechanism, fewest bits first, then one for each reference.

    Args:
        cells: Of tasks in bits only.
        runs: The rows of all cells.
    """
    return tuple(
        replace(_table(cells.among([task]), task, runs), name=f"bits-{number}")
        for number, task in enumerate(cells.tasks, start=1)
    )


def bits_verdict(cells: Cells) -> str:
    """Which mechanism needs the fewest bits on each task, and which are not shown to need more, in sentences."""
    return " ".join(_verdict(cells.among([task]), task) for task in cells.tasks)


def _verdict(cells: Cells, task: TaskFacts) -> str:
    ranked = [mechanism for mechanism in cells.ranked(task) if _can_win(cells, task, mechanism)]
    if not ranked:
        return f"No mechanism has a score on {task.label}."
    best, *others = ranked
    fewest = f"On {task.label}, {best.label} needs the fewest bits per token, {fixed(-cells.cell(task, best).mean, 3)}"
    if len(cells.seeds) < 2:
        return f"{fewest}; one seed does not show how certain a difference is."
    tied = [mechanism.label for mechanism in others if mechanism.key in _tied(cells, task, best)]
    return f"{fewest}; not shown to need more: {', '.join(tied) or 'none'}."


def _table(cells: Cells, task: TaskFacts, runs: Runs) -> Table:
    newest = max(
        (row for (of_task, _), of_cell in runs.items() if of_task == task.key for row in of_cell),
        key=lambda row: row["finished_at"],
    )
    names = json.loads(newest["metrics"])
    kinds = [name.removesuffix(".bits") for name in names if name.endswith(".bits") and not name.startswith("x")]
    shown = [cells, *(of_kind(cells, runs, kind) for kind in kinds)]
    ranked = cells.ranked(task)
    candidates = [mechanism for mechanism in ranked if _can_win(cells, task, mechanism)]
    tied = _tied(cells, task, candidates[0]) if candidates else frozenset()
    marks: dict[Key, Mark] = {}
    if len(candidates) > 1:
        marks = {candidates[0].key: "best", candidates[1].key: "second"}
    counts = {cells.cell(task, mechanism).n for mechanism in ranked} - {0}
    lines = []
    for mechanism in ranked:
        estimate = cells.cell(task, mechanism)
        numbers = [_bits_cell(some, task, mechanism) for some in shown]
        remarks = [*numbers[0].remarks, *([f"n = {estimate.n}"] if len(counts) > 1 and estimate.n else [])]
        remarks += [f"{estimate.num_failed} failed"] if estimate.num_failed else []
        numbers[0] = replace(
            numbers[0],
            remarks=tuple(remarks),
            mark=marks.get(mechanism.key, ""),
            is_tied=mechanism.key in tied,
        )
        of_runs = [json.loads(row["metrics"]) for row in runs.get((task.key, mechanism.key), ())]
        shares = [_mean_share(of_runs, metric) for metric in ("accuracy", "calibration_error")]
        sizes = [fixed(number, 0) for number in (mechanism.num_parameters, mechanism.state)]
        lines.append(Line((mechanism.label,), (*numbers, *map(Cell, (*shares, *sizes)))))
    width = len(shown) + 4
    references = {name.removeprefix("reference."): names[name] for name in names if name.startswith("reference.")}
    for position, name in enumerate(sorted(references, key=lambda name: references[name])):
        cell = Cell(fixed(references[name], 3))
        lines.append(Line((name,), (cell, *[Cell("")] * (width - 1)), is_first_of_group=position == 0))
    parts = {kind: names.get(f"{kind}.share") for kind in kinds}
    columns = [f"{kind} ({100 * part:.0f} %)" if is_known(part := parts[kind]) else kind for kind in kinds]
    seeds = f"{max(counts, default=0)} seed" + ("s" if max(counts, default=0) != 1 else "")
    return Table(
        name="bits",
        title=task.label,
        caption=CAPTION.format(seeds=seeds if len(counts) < 2 else "n seeds"),
        headings=("Mechanism",),
        columns=tuple(
            map(
                Column,
                ("bits per token", *columns, "right, %", "calibration error, %", "parameters of mixers", "state"),
            )
        ),
        lines=tuple(lines),
        sources=sources_of([task], cells.mechanisms),
    )


def _mean_share(of_runs: Sequence[Mapping[str, float | None]], metric: str) -> str:
    values = [value for named in of_runs if (value := named.get(metric)) is not None]
    return fixed(100 * fmean(values), 1) if values else NOTHING


def of_kind(cells: Cells, runs: Runs, kind: str) -> Cells:
    """The same cells with the bits of one kind of positions for their scores; a run without has none."""
    estimates = {}
    for key, estimate in cells.estimates.items():
        bits = {int(row["seed"]): json.loads(row["metrics"]).get(f"{kind}.bits") for row in runs[key]}
        scores = {seed: -bits[seed] for seed in estimate.scores if bits[seed] is not None}
        estimates[key] = replace(estimate, scores=scores)
    return replace(cells, estimates=estimates)


def _bits_cell(cells: Cells, task: TaskFacts, mechanism: MechanismFacts) -> Cell:
    low, high = cells.interval(task, mechanism)
    return interval_cell(Interval(-cells.cell(task, mechanism).mean, -high, -low), lambda bits: fixed(bits, 3))


def _can_win(cells: Cells, task: TaskFacts, mechanism: MechanismFacts) -> bool:
    return mechanism.family != CONTROL and cells.cell(task, mechanism).n > 0


def _tied(cells: Cells, task: TaskFacts, best: MechanismFacts) -> frozenset[Key]:
    """The keys of the mechanisms that are not shown to differ from the best; none below two seeds."""
    if len(cells.seeds) < 2:
        return frozenset()
    scores = cells.scores
    p = holm(pair_tests(scores, is_paired=shares_seeds(scores)).p[0])
    keys = [mechanism.key for mechanism in cells.mechanisms]
    pairs = zip(*np.triu_indices(len(keys), 1), strict=True)
    tied = {
        keys[second if keys[first] == best.key else first]
        for (first, second), chance in zip(pairs, p, strict=True)
        if best.key in (keys[first], keys[second]) and not chance < SIGNIFICANCE
    }
    return frozenset(
        mechanism.key for mechanism in cells.mechanisms if mechanism.key in tied and _can_win(cells, task, mechanism)
    )
