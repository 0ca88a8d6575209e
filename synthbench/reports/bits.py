"""Tables of tasks that are scored in bits per token (fewer are better), with intervals over seeds.

Each table has a column per kind of predicted token, a row per mechanism, and a row per reference (a predictor without a
mechanism).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from synthbench.registry import CONTROL
from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import Cells, Key, MechanismFacts, TaskFacts, is_known, mean_of
from synthbench.reports.statistics import SIGNIFICANCE, holm, pair_tests, shares_seeds
from synthbench.reports.table import (
    Cell,
    Column,
    Line,
    Mark,
    Table,
    common_n_of,
    counted,
    fixed,
    interval_cell,
    percent,
    run_remarks,
    sources_of,
    table_of,
)

CAPTION = (
    "Bits per token on the test split, lower is better: mean over {seeds}, with its 95 % interval over seeds. Bold: "
    "fewest; underlined: second; †: not shown to differ from the fewest (moderated t test, Holm within the task, 5 %). "
    "Controls are never marked. Below the mechanisms: references, which mix nothing and learned from the same training "
    "split. Calibration error: how far the probability of the likeliest token is from the share of times that it is "
    "right, mean over 15 bins. State: numbers that one layer keeps."
)


def bits_tables(cells: Cells) -> tuple[Table, ...]:
    """Make one table of bits per token for each task: the mechanisms, lowest first, then the references.

    A reference is a simple predictor, such as a bigram model.
    """
    return tuple(
        _table(cells.among([task]), task, f"bits-{number}") for number, task in enumerate(cells.tasks, start=1)
    )


def bits_verdict(cells: Cells) -> str:
    """Return one sentence per task that names the mechanism with the fewest bits per token.

    With several seeds, the sentence also names the mechanisms that do not need significantly more bits than this one.
    """
    return " ".join(_verdict(cells.among([task]), task) for task in cells.tasks)


def _verdict(cells: Cells, task: TaskFacts) -> str:
    candidates = _candidates(cells, task)
    if not candidates:
        return f"No mechanism has a score on {task.label}."
    best, *others = candidates
    fewest = f"On {task.label}, {best.label} needs the fewest bits per token, {fixed(-cells.cell(task, best).mean, 3)}"
    if len(cells.seeds) < 2:
        return f"{fewest}; one seed does not show how certain a difference is."
    tied = _tied(cells, best, others)
    return f"{fewest}; not shown to need more: {', '.join(one.label for one in others if one.key in tied) or 'none'}."


def _table(cells: Cells, task: TaskFacts, name: str) -> Table:
    newest = max((row for cell in cells.cells_of(task) for row in cell.rows), key=lambda row: row["finished_at"])
    metrics = json.loads(newest["metrics"])
    candidates = _candidates(cells, task)
    tied = _tied(cells, candidates[0], candidates[1:]) if candidates else frozenset()
    names: tuple[Mark, Mark] = ("best", "second")
    marks = {one.key: mark for one, mark in zip(candidates, names, strict=False) if len(candidates) > 1}

    common_n = common_n_of(cells)

    def whole(mechanism: MechanismFacts) -> Cell:
        cell = _bits_cell(cells, task, mechanism)
        remarks = (*cell.remarks, *run_remarks(cells.cell(task, mechanism), common_n))
        return Cell(cell.value, "", remarks, marks.get(mechanism.key, ""), is_tied=mechanism.key in tied)

    def share(metric: str, mechanism: MechanismFacts) -> str:
        return percent(mean_of([json.loads(row["metrics"]).get(metric) for row in cells.cell(task, mechanism).rows]))

    columns: dict[Column | str, Callable[[MechanismFacts], Cell | str]] = {"bits per token": whole}
    for kind in [each.removesuffix(".bits") for each in metrics if each.endswith(".bits") and not each.startswith("x")]:
        part = metrics.get(f"{kind}.share")
        columns[f"{kind} ({100 * part:.0f} %)" if is_known(part) else kind] = partial(
            _bits_cell, of_kind(cells, kind), task
        )
    columns |= {
        "right, %": partial(share, "accuracy"),
        "calibration error, %": partial(share, "calibration_error"),
        "parameters of mixers": lambda mechanism: fixed(mechanism.num_parameters, 0),
        "state": lambda mechanism: fixed(mechanism.state, 0),
    }
    seeds = "n seeds" if common_n is None else counted(common_n, "seed")
    table = table_of(
        *(name, task.label, CAPTION.format(seeds=seeds), ("Mechanism",), cells.ranked(task)),
        lambda mechanism: (mechanism.label,),
        columns,
        sources=sources_of([task], cells.mechanisms),
    )
    references = {each.removeprefix("reference."): metrics[each] for each in metrics if each.startswith("reference.")}
    empty = (Cell(""),) * (len(columns) - 1)
    below = [
        Line((label,), (Cell(fixed(bits, 3)), *empty), is_first_of_group=place == 0)
        for place, (label, bits) in enumerate(sorted(references.items(), key=lambda item: item[1]))
    ]
    return replace(table, lines=(*table.lines, *below))


def of_kind(cells: Cells, kind: str) -> Cells:
    """Return a copy of ``cells`` whose scores are minus the bits per token, measured on one kind of tokens.

    ``kind`` is a kind of tokens for which runs record the bits separately. A run without such a record has no score in
    the copy.
    """
    estimates = {}
    for key, estimate in cells.estimates.items():
        bits = {seed: metrics.get(f"{kind}.bits") for seed, metrics in estimate.metrics.items()}
        scores = {seed: -number for seed, number in bits.items() if number is not None}
        estimates[key] = replace(estimate, scores=scores)
    return replace(cells, estimates=estimates)


def bits_on(cells: Cells, task: TaskFacts, mechanism: MechanismFacts) -> Interval:
    """Return the mean bits per token of a mechanism on a task, with its 95 % interval over seeds."""
    low, high = cells.interval(task, mechanism)
    return Interval(-cells.cell(task, mechanism).mean, -high, -low)


def _bits_cell(cells: Cells, task: TaskFacts, mechanism: MechanismFacts) -> Cell:
    return interval_cell(bits_on(cells, task, mechanism), lambda bits: fixed(bits, 3))


def _candidates(cells: Cells, task: TaskFacts) -> list[MechanismFacts]:
    """Return the mechanisms that can be called the best on a task, the one with the fewest bits first.

    All mechanisms with a score are returned, except controls (references that do not learn to mix tokens).
    """
    return [one for one in cells.ranked(task) if one.family != CONTROL and cells.cell(task, one).n]


def _tied(cells: Cells, best: MechanismFacts, others: Sequence[MechanismFacts]) -> frozenset[Key]:
    """Return the keys of ``others`` that no test shows to differ from ``best``; empty with fewer than two seeds."""
    if len(cells.seeds) < 2:
        return frozenset()
    scores = replace(cells, mechanisms=(best, *others)).scores  # no control is tested, as in other verdicts
    p = holm(pair_tests(scores, is_paired=shares_seeds(scores)).p[0])
    # The first pairs are those with the best.
    return frozenset(one.key for one, of_pair in zip(others, p, strict=False) if not of_pair < SIGNIFICANCE)
