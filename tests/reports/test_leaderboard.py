"""The ranking of a suite, and how far its mechanisms reach out of range."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthbench.reports.grid import grid
from synthbench.reports.leaderboard import improvement_table, leaderboard, leaderboard_table, reach_table


def frame(make_frame: Any, tasks: Mapping[str, Mapping[str, list[float | None]]], **bounds: float) -> pd.DataFrame:
    """Rows of some tasks with floor 0 and ceiling 1, or the bounds that are given."""
    made = [make_frame(scores, task=task, **bounds) for task, scores in tasks.items()]
    whole: pd.DataFrame = pd.concat(made, ignore_index=True)
    return whole.assign(run_id=whole["run_id"] + whole["task"])


@pytest.fixture
def rows(make_frame: Any) -> pd.DataFrame:
    return frame(
        make_frame,
        {
            "sort": {"softmax": [0.9, 1.0, 0.95], "linear": [0.2, 0.3, 0.25], "slay": [0.9, 0.9, 0.9]},
            "copy": {"softmax": [1.0, 1.0, 1.0], "linear": [0.5, 0.5, None], "slay": [1.0, 1.0]},
        },
    )


def test_mechanisms_with_all_runs_are_ranked_and_a_failure_counts_as_the_floor(rows: pd.DataFrame) -> None:
    board = leaderboard(grid(rows))

    assert [entry.mechanism.name for entry in board.entries] == ["softmax", "linear"]
    best, worst = board.entries
    assert (best.rank.value, best.rank.low, best.rank.high, best.rank.p_first) == (1, 1, 1, 1.0)
    assert best.skill == pytest.approx((0.95 + 1) / 2)
    assert best.solved.value == 1
    assert worst.skill == pytest.approx((0.25 + 1 / 3) / 2)
    assert worst.middle.value == pytest.approx(np.mean([0.2, 0.25, 0.3, 0.5]))
    assert worst.middle.low < worst.middle.value < worst.middle.high
    assert {mechanism.name: count for mechanism, count in board.partial.items()} == {"slay": 1}


def test_skill_is_between_floor_and_ceiling(make_frame: Any) -> None:
    made = frame(make_frame, {"sort": {"softmax": [0.6, 0.6], "linear": [0.5, 0.7]}}, floor=0.5, ceiling=0.75)

    assert [entry.skill for entry in leaderboard(grid(made)).entries] == pytest.approx([0.4, 0.4])


def test_a_task_whose_bounds_are_too_close_does_not_count(make_frame: Any, rows: pd.DataFrame) -> None:
    close = frame(
        make_frame, {"histogram": {"softmax": [0.871] * 3, "linear": [0.872] * 3}}, floor=0.871, ceiling=0.872
    )
    board = leaderboard(grid(pd.concat([rows, close], ignore_index=True)))

    assert [task.name for task in board.tasks] == ["copy", "sort"]
    assert len(board.entries) == 2


def test_the_table_has_the_partial_ones_last_and_without_a_rank(rows: pd.DataFrame) -> None:
    table = leaderboard_table(leaderboard(grid(rows)))
    columns = [column.label for column in table.columns]
    lines = {line.labels[0]: dict(zip(columns, line.cells, strict=True)) for line in table.lines}

    assert list(lines) == ["Standard", "Linear", "SLAY"]
    assert lines["Standard"]["Rank"].value == "1"
    assert lines["Standard"]["basic"].value == "0.97"
    assert lines["SLAY"]["Rank"].value == "1 of 2 tasks"
    assert lines["SLAY"]["Skill"].value == "--"
    assert lines["SLAY"]["State"].value == "1088"
    assert table.lines[2].is_first_of_group


def test_one_seed_is_refused(make_frame: Any) -> None:
    with pytest.raises(ValueError, match="at least two; there is 1"):
        leaderboard(grid(frame(make_frame, {"sort": {"softmax": [0.9]}})))


def test_the_reach_is_the_largest_multiple_up_to_which_all_are_solved(make_frame: Any) -> None:
    def stretched(x2: float, x4: float) -> str:
        return json.dumps({"x2.skill": x2, "x2.score": 0.0, "x4.skill": x4})

    made = [
        make_frame({mech: [score] * 2}, metrics=stretched(*skills))
        for mech, score, skills in [
            ("softmax", 1.0, (0.95, 0.9)),
            ("linear", 0.5, (0.95, 0.95)),
            ("slay", 0.93, (0.2, 0.95)),
            ("performer", 0.9, (0.9, 0.1)),
        ]
    ]
    table = reach_table(grid(pd.concat(made, ignore_index=True)))

    assert table is not None
    cells = {line.labels[0]: (line.cells[0].value, line.cells[0].remarks) for line in table.lines}
    assert cells == {
        "Standard": ("4×", ("0.90",)),
        "Linear": ("--", ("0.95",)),
        "SLAY": ("1×", ("0.95",)),
        "Performer": ("2×", ("0.10",)),
    }


def test_there_is_no_reach_where_nothing_was_tested_out_of_range(rows: pd.DataFrame) -> None:
    assert reach_table(grid(rows)) is None


def test_improvement_is_told_for_every_pair_of_ranked_mechanisms(rows: pd.DataFrame) -> None:
    table = improvement_table(leaderboard(grid(rows)))

    assert table is not None
    assert [column.label for column in table.columns] == ["Standard", "Linear"]
    assert [[cell.value for cell in line.cells] for line in table.lines] == [["--", "100.0"], ["0.0", "--"]]
    assert improvement_table(leaderboard(grid(rows[rows["mech"] == "softmax"]))) is None
