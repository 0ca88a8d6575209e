"""Reports of a suite with a ladder: scores, capacities, skill over load, and what is left out."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthbench.levels import metrics_of_levels, profile
from synthbench.registry import CONTROL
from synthbench.reports.build import build
from synthbench.reports.cells import Cells, grid
from synthbench.reports.interim import ANALYSES
from synthbench.reports.ladder import Ladder, ladder_in, mean_profile, scored_levels
from synthbench.reports.leaderboard import leaderboard
from synthbench.reports.render.page.content import content
from synthbench.reports.table import Cell, load_table, score_table
from synthbench.reports.verdicts import SeedPlan, judge, seed_plan
from tests.reports._made import PAIRS, alternating, climbed, ladder_of, levels_at, make_frame, report_of


def column(cells: Cells, task: str, label: str) -> Cell:
    """Read a mechanism's cell on a task from the table of all tasks."""
    table = score_table(cells, judge(cells))
    place = [column.label for column in table.columns].index(label)
    return next(line.cells[place] for line in table.lines if line.labels[1] == task)


@pytest.mark.parametrize(
    ("heights", "cell"),
    [
        ({"softmax": [3.25], "linear": [1.0]}, Cell("0.30")),  # one seed has no interval
        ({"softmax": [2, 9]}, Cell("0.50", "0.50", ("1 of 2 seeds learned",))),  # without a test there is no p
        ({"softmax": [3, None], "linear": [1, 2]}, Cell("0.27", "0.73", ("n = 1", "1 failed"))),
    ],
)
def test_a_cell_says_what_is_known_of_it(heights: dict[str, list[float | None]], cell: Cell) -> None:
    assert column(grid(climbed(heights)), "mqar", "Softmax") == cell


@pytest.mark.parametrize(("distance", "is_apart"), [(0.4, False), (0.6, True)])
def test_heights_that_differ_by_less_than_half_a_level_are_not_apart(distance: float, *, is_apart: bool) -> None:
    long = ladder_of("tokens", *range(2, 26))
    near = [5 + 0.01 * place for place in range(5)]
    rows = climbed({"softmax": [one + distance for one in near], "linear": near}, "mqar", long)

    cells = grid(rows)
    (verdict,) = judge(cells).values()
    assert verdict.p < 0.05
    assert verdict.has_differences == is_apart
    assert verdict.is_apart(*cells.mechanisms) == is_apart
    # Between accuracies 0.6 of 24 levels count for nothing.
    (of_accuracy,) = judge(grid(rows.assign(task_args='{"length":32}'))).values()
    assert not of_accuracy.has_differences


def test_half_a_level_from_none_and_from_all_is_at_the_floor_and_at_the_ceiling() -> None:
    for heights, place in (([0.4, 0.5], "at floor"), ([10.6, 10.5], "at ceiling"), ([0.4, 0.7], "between")):
        (verdict,) = judge(grid(climbed({"softmax": heights, "linear": heights}))).values()
        assert verdict.score_range == place


def test_a_run_without_a_score_has_no_load() -> None:
    cells = grid(climbed({"softmax": [None, None], "linear": [1.0, 2.0]}))
    (task,) = cells.tasks
    table = load_table(cells)
    assert math.isnan(cells.cell(task, cells.mechanisms[0]).load_at_half)
    assert table.lines[0].cells[1] == Cell()


def test_a_mean_profile_is_over_the_runs_that_have_all_levels() -> None:
    low, high = levels_at(PAIRS, 2.5), levels_at(PAIRS, 7)
    mean = mean_profile(PAIRS, [low, high, high[:3]])
    assert mean is not None
    assert mean.num_runs == 2
    assert mean.mean == pytest.approx(np.mean([profile(low), profile(high)], axis=0))
    assert mean.low == pytest.approx(profile(low))
    assert mean.high == pytest.approx(profile(high))
    assert mean_profile(PAIRS, [high[:3]]) is None


def test_rows_with_and_without_a_ladder_are_shown_as_fractions_alike(core: pd.DataFrame) -> None:
    other = make_frame({"softmax": [0.5, 0.6], "linear": [0.1, 0.2]}, suite="core", task="sort")
    cells = grid(pd.concat([core, other], ignore_index=True))

    assert not cells.has_ladder
    assert column(cells, "parity_running", "my-idea").value == "100.0"


@pytest.mark.parametrize("rungs", [[], 3, [2, 3], [{"load": 0}], [{"load": "2"}]])
def test_arguments_that_name_no_ladder_have_none(rungs: Any) -> None:
    assert ladder_in({"load": "pairs", "rungs": [{"load": 2}]}) is not None
    assert ladder_in({"load": "pairs", "rungs": rungs}) is None
    for arguments in ({}, {"length": 32}, {"load": "pairs"}, {"load": 2, "rungs": [{"load": 2}]}):
        assert ladder_in(arguments) is None


def test_levels_without_a_score_or_without_room_are_none() -> None:
    metrics: dict[str, float | None] = dict(metrics_of_levels(levels_at(PAIRS, 3)))
    assert scored_levels(metrics) == levels_at(PAIRS, 3)
    for incomplete in ({**metrics, "rung2.score": None}, {**metrics, "rung2.base": 1.0}, {}):
        assert scored_levels(incomplete) == []


def test_loads_are_marked_at_powers_of_two() -> None:
    ticks: dict[tuple[float, ...], tuple[float, ...]] = {
        (2, 3, 4, 6, 8): (2, 4, 8),
        (5, 7, 11, 15, 23): (8, 16),
        (1, 1024): (1, 4, 16, 64, 256, 1024),
        (5.0, 7.0): (5.0, 7.0),
        (4,): (4,),
        (0.3, 0.6): (0.5,),
    }
    assert {loads: Ladder("pairs", loads).ticks for loads in ticks} == ticks


def test_on_the_page_mechanisms_beyond_the_colours_are_pale() -> None:
    rows = climbed({f"m{place}": [place / 2, place / 2 + 0.1] for place in range(9)})
    shown = content(report_of(rows, "core"))
    ((panel,),) = shown.panels.values()

    assert shown.has_pale
    assert shown.coloured == tuple(f"m{place}" for place in range(2, 9))
    assert [line.look for line in panel.lines] == ["pale"] * 2 + [f"l{place}" for place in range(7)]


@pytest.fixture
def uneven() -> pd.DataFrame:
    """Seeds were added to two mechanisms and not to the third."""
    return climbed({"softmax": [10.0, 10.1, 10.2], "linear": alternating(3, 10), "slay": alternating(3.3, 5)})


def test_added_seeds_are_in_the_cells_and_the_mean_is_over_the_first_three(uneven: pd.DataFrame) -> None:
    cells = grid(uneven)
    remarks = [column(cells, "mqar", name).remarks for name in ("Softmax", "Linear", "SLAY")]
    assert remarks == [("n = 3",), ("n = 10",), ("n = 5",)]
    board, of_first = leaderboard(cells), leaderboard(grid(uneven[uneven["seed"] < 45]))
    assert (board.num_seeds, len(board.entries)) == ("3 seeds", len(cells.mechanisms))
    assert [entry.skill for entry in board.entries] == [entry.skill for entry in of_first.entries]


def test_a_report_says_what_added_seeds_mean_and_misses_no_run_of_decided_pairs(
    core: pd.DataFrame, uneven: pd.DataFrame
) -> None:
    for rows, is_said in ((core, False), (uneven, True)):
        built = build(rows, None, "core", formats=["md", "pages", "html"])
        for name in ("full.md", "separation.md", "index.html"):
            assert ("may have been added because a pair" in str(built[name])) == is_said, name
    for section in content(report_of(uneven, "core")).mechanisms.values():
        assert set(section.statuses) == {"ok"}


def test_verdicts_on_a_ladder_allow_for_the_looks() -> None:
    heights = {"softmax": [6.2, 5.8, 6.6], "linear": [5, 5.4, 4.6], "slay": [6, 6.3, 5.7], "my-idea": [5, 5.3, 4.7]}
    (verdict,) = judge(grid(climbed(heights))).values()
    (once,) = judge(grid(make_frame({name: [one / 11 for one in own] for name, own in heights.items()}))).values()
    assert (verdict.p, verdict.least_p, verdict.has_differences) == (once.p, once.least_p, True)

    added = {name: [*own, math.nan, math.nan] if name != "slay" else [*own, 6, 6] for name, own in heights.items()}
    (verdict,) = judge(grid(climbed(added).dropna(subset="score"))).values()
    assert verdict.p == pytest.approx(once.p / 0.3)
    assert not verdict.has_differences


def test_what_is_undecided_has_a_score_and_is_no_control() -> None:
    rows = climbed({"softmax": [5, 6, 4], "linear": [5, 4, 6], "slay": [None, None, None], "mean": [0, 1, 0]})
    rows.loc[rows["mech"] == "mean", "mech_family"] = CONTROL
    decided = seed_plan(grid(rows), ANALYSES[:1])

    assert decided == SeedPlan(0, 0, 1, frozenset({("mqar", "softmax"), ("mqar", "linear")}))
