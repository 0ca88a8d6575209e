"""Estimates of a run's time: the time of rows of the nearest kind, else a guess."""

from typing import Any

import pandas as pd
import pytest

from synthbench.runner.estimates import TIMED, Estimates, cost_columns, work
from synthbench.runner.plan import make_plan
from synthbench.training.cell import Cell
from tests.results.rows import make_row
from tests.training.cells import make_cell


def timed(cell: Cell, wall_s: float, **changes: Any) -> dict[str, Any]:
    """Time of a cell's row."""
    return {**cost_columns(cell), "status": "ok", "ensemble_size": 1, "wall_s": wall_s, **changes}


def estimates(*rows: dict[str, Any]) -> Estimates:
    return Estimates(pd.DataFrame(rows, columns=list(TIMED)))


def test_the_nearest_rows_count_and_of_these_the_median() -> None:
    cell = make_cell("reverse", "slay", length=16)
    further: tuple[dict[str, Any], ...] = (
        {"task": "other"},
        {"seq_len": 32},
        {"task_category": "other"},
        {"mech_family": "other"},
    )
    rows: list[dict[str, Any]] = [timed(cell, 1.0)]
    for rate, changes in enumerate(further, start=2):
        kin = {**rows[-1], **changes}
        rows.append({**kin, "wall_s": rate * work(kin) / work(rows[0])})

    assert [estimates(*rows[first:]).seconds(cell) for first in range(5)] == pytest.approx([1, 2, 3, 4, 5])
    assert estimates(rows[0], timed(cell, 2.0), timed(cell, 9.0), *[rows[1]] * 9).seconds(cell) == pytest.approx(2.0)
    assert set(TIMED) <= set(make_row())


def test_batched_runs_share_the_time_and_steps_and_length_scale_it() -> None:
    short, long = make_cell("reverse", steps=10, length=8), make_cell("reverse", steps=40, length=16)

    assert estimates(timed(short, 6.0, ensemble_size=3)).cost(short) == pytest.approx(2.0)
    assert estimates(timed(short, 1.0)).cost(long) == pytest.approx(4 * 2 * (1 + 16 / 64) / (1 + 8 / 64))


def test_what_was_not_trained_or_elsewhere_says_nothing() -> None:
    cell = make_cell()
    known = estimates(timed(cell, 0.01, status="error"), timed(cell, 0.02, device_type="cuda"))

    assert known.seconds(cell) is None
    assert known.cost(cell) == work(cost_columns(cell)) == Estimates().cost(cell)


def test_a_plan_begins_with_what_was_measured_to_take_longest() -> None:
    cells = [make_cell("copy"), make_cell("first_token", length=9), make_cell("reverse", length=9)]
    known = estimates(*(timed(cell, seconds) for cell, seconds in zip(cells, (2.0, 0.5, 7.0), strict=True)))

    guessed = make_plan(cells, range(1), {}, 1)
    measured = make_plan(cells, range(1), {}, 1, estimates=known)

    assert [job.cells[0].task_name for job in guessed.jobs] == ["copy", "first_token", "reverse"]
    assert [job.cells[0].task_name for job in measured.jobs] == ["reverse", "copy", "first_token"]
