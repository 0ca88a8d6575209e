from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from synthbench.runner.estimates import TIMED, Estimates, cost_columns, work
from synthbench.runner.plan import make_plan
from synthbench.training.cell import Cell


def timed(cell: Cell, wall_s: float, **changes: Any) -> dict[str, Any]:
    """What a row of a cell says of its time."""
    return {**cost_columns(cell), "status": "ok", "ensemble_size": 1, "wall_s": wall_s, **changes}


def estimates(*rows: dict[str, Any]) -> Estimates:
    return Estimates(pd.DataFrame(rows, columns=list(TIMED)))


def test_the_traits_of_a_cell_are_columns_of_its_rows(
    make_cell: Callable[..., Cell], make_row: Callable[..., dict[str, Any]]
) -> None:
    assert set(TIMED) <= set(make_row())
    assert set(cost_columns(make_cell())) < set(TIMED)


def test_the_median_of_the_same_cell_counts_before_its_family(make_cell: Callable[..., Cell]) -> None:
    cell, sibling = make_cell("reverse", "slay"), make_cell("copy", "slay")
    known = estimates(timed(cell, 1.0), timed(cell, 2.0), timed(cell, 9.0), *[timed(sibling, 50.0)] * 9)

    assert known.cost(cost_columns(cell)) == pytest.approx(2.0)


def test_the_nearest_kin_counts(make_cell: Callable[..., Cell]) -> None:
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

    assert [estimates(*rows[first:]).cost(cost_columns(cell)) for first in range(5)] == pytest.approx([1, 2, 3, 4, 5])


def test_members_that_train_together_share_the_time(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell()

    assert estimates(timed(cell, 6.0, ensemble_size=3)).cost(cost_columns(cell)) == pytest.approx(2.0)


def test_steps_and_length_scale_the_time_of_the_same_family(make_cell: Callable[..., Cell]) -> None:
    short, long = make_cell("reverse", steps=10, length=8), make_cell("reverse", steps=40, length=16)
    known = estimates(timed(short, 1.0))

    assert known.cost(cost_columns(long)) == pytest.approx(4 * 2 * (1 + 16 / 64) / (1 + 8 / 64))


def test_what_was_not_trained_or_elsewhere_says_nothing(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell()
    known = estimates(timed(cell, 0.01, status="error"), timed(cell, 0.02, device_type="cuda"))

    assert known.share_s(cost_columns(cell)) is None
    assert known.cost(cost_columns(cell)) == work(cost_columns(cell)) == Estimates().cost(cost_columns(cell))


def test_a_plan_begins_with_what_was_measured_to_take_longest(make_cell: Callable[..., Cell]) -> None:
    cells = [make_cell("copy"), make_cell("first_token", length=9), make_cell("reverse", length=9)]
    known = estimates(*(timed(cell, seconds) for cell, seconds in zip(cells, (2.0, 0.5, 7.0), strict=True)))

    guessed = make_plan(cells, range(1), {}, 1)
    measured = make_plan(cells, range(1), {}, 1, estimates=known)

    assert [job.cells[0].task_name for job in guessed.jobs] == ["copy", "first_token", "reverse"]
    assert [job.cells[0].task_name for job in measured.jobs] == ["reverse", "copy", "first_token"]
