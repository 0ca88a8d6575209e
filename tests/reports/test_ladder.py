"""Reports of a suite with a ladder: heights in rungs, loads, skill over rungs, and what is left out."""

import csv
import io
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.canonical import canonical_json
from synthbench.heights import load_at_half, metrics_of_rungs, profile
from synthbench.registry import CONTROL, version_of
from synthbench.reports.build import FORMATS, build
from synthbench.reports.cells import Grid, grid
from synthbench.reports.compare import Side, compare
from synthbench.reports.folder import stale, write
from synthbench.reports.heights import load_of, load_table, load_text
from synthbench.reports.ladder import Ladder, ladder_in, mean_profile, median_load, num_climbed, scored_rungs
from synthbench.reports.leaderboard import leaderboard
from synthbench.reports.looks import LOOKS
from synthbench.reports.render.page.charts import PLOT_HEIGHT, PLOT_WIDTH, over_loads
from synthbench.reports.render.page.content import content
from synthbench.reports.render.page.example import describe
from synthbench.reports.report import Report
from synthbench.reports.selection import select
from synthbench.reports.separation import separation_table
from synthbench.reports.table import Cell, category_table, full_table
from synthbench.reports.verdicts import Standing, judge, standing
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.training.identity import task_options
from tests.reports._ladders import PAIRS, TASK_FACTS, ladder_of, rungs_at

MakeFrame = Callable[..., pd.DataFrame]

GOLDEN = Path(__file__).parents[1] / "golden" / "ladder"


@pytest.fixture(scope="session")
def files(climb: pd.DataFrame) -> dict[str, str]:
    """All files that are text."""
    built = build(climb, None, "climb", formats=FORMATS)
    return {name: content for name, content in built.items() if isinstance(content, str)}


def column(of: Grid, task: str, label: str) -> Cell:
    """What the table of all tasks says of a mechanism on a task."""
    table = full_table(of, judge(of))
    place = [one.label for one in table.columns].index(label)
    return next(line.cells[place] for line in table.lines if line.labels[1] == task)


def numbers(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_files_are_the_golden_ones(files: dict[str, str]) -> None:
    if os.environ.get("SYNTHBENCH_REWRITE_GOLDEN") == "1":
        write(files, GOLDEN)

    assert stale(files, GOLDEN) == []
    found = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()}
    assert found == {*files, ".generated"}


def test_heights_are_printed_in_rungs_with_half_of_their_interval(climb: pd.DataFrame) -> None:
    of = grid(climb)
    task = next(task for task in of.tasks if task.name == "s5_words")
    mechanism = next(one for one in of.mechanisms if one.name == "my-idea")
    low, high = of.interval(task, mechanism)

    cell = column(of, "s5_words", "my-idea")
    assert cell.value == f"{fmean([7.1, 7.3, 7]):.1f}"
    assert cell.std == f"{12 * (high - low) / 2:.1f}"
    assert column(of, "s5_words", "Rungs").value == "12"
    (table,) = (category_table(of, judge(of), category) for category in ["copying"])
    assert [line.labels for line in table.lines][-1:] == [("Rungs",)]
    assert [cell.value for cell in table.lines[-1].cells] == ["6"]


def test_the_interval_of_what_is_at_the_top_is_that_of_its_lower_half(climb: pd.DataFrame) -> None:
    of = grid(climb)
    task = next(task for task in of.tasks if task.name == "parity_running")
    mechanism = next(one for one in of.mechanisms if one.name == "my-idea")
    low, high = of.interval(task, mechanism)

    assert high == 1.0
    assert column(of, "parity_running", "my-idea").std == f"{12 * (1 - low):.1f}" != "0.0"


def test_one_seed_has_no_interval_and_a_failure_is_told(climbed: Callable[..., pd.DataFrame]) -> None:
    of = grid(climbed({"softmax": [3.25], "linear": [1.0]}))
    assert column(of, "mqar", "Standard") == Cell("3.2")

    assert column(grid(climbed({"softmax": [3, None], "linear": [1, 2]})), "mqar", "Standard").remarks == (
        "n = 1",
        "1 failed",
    )


@pytest.mark.parametrize(("distance", "is_apart"), [(0.4, False), (0.6, True)])
def test_heights_that_differ_by_less_than_half_a_rung_are_not_apart(
    climbed: Callable[..., pd.DataFrame],
    distance: float,
    is_apart: bool,  # noqa: FBT001 - a case
) -> None:
    long = ladder_of("tokens", *range(2, 26))
    near = [5 + 0.01 * place for place in range(5)]
    rows = climbed({"softmax": [one + distance for one in near], "linear": near}, "mqar", long)

    of = grid(rows)
    (verdict,) = judge(of).values()
    assert verdict.p < 0.05
    assert verdict.separates == is_apart
    assert verdict.is_apart(*of.mechanisms) == is_apart
    # Between accuracies 0.6 of 24 rungs count for nothing.
    (of_accuracy,) = judge(grid(rows.assign(task_args='{"length":32}'))).values()
    assert not of_accuracy.separates


def test_half_a_rung_from_none_and_from_all_is_at_the_floor_and_at_the_ceiling(
    climbed: Callable[..., pd.DataFrame],
) -> None:
    for heights, place in (([0.4, 0.5], "at floor"), ([10.6, 10.5], "at ceiling"), ([0.4, 0.7], "between")):
        (verdict,) = judge(grid(climbed({"softmax": heights, "linear": heights}))).values()
        assert verdict.place == place


def test_where_seeds_are_far_apart_a_cell_says_how_many_climbed(climb: pd.DataFrame) -> None:
    of = grid(climb)
    assert column(of, "s5_words", "SLAY").remarks == ("n = 3",)
    p = {one.task.name: one.p for one in judge(of).values()}["mqar"]
    assert p > 0.001
    assert f"2 of 3 seeds climbed, p = {p:.3f}" in column(of, "mqar", "SLAY").remarks


def test_without_a_test_there_is_no_p_of_what_climbed(climbed: Callable[..., pd.DataFrame]) -> None:
    assert column(grid(climbed({"softmax": [2, 9]})), "mqar", "Standard").remarks == ("1 of 2 seeds climbed",)


@given(st.lists(st.floats(0, 24), min_size=1, max_size=10))
def test_some_seeds_climbed_and_some_did_not_or_all_are_near(heights: list[float]) -> None:
    found = num_climbed(heights)
    if max(heights) - min(heights) > 3:
        assert found is not None
        assert 0 < found < len(heights)
        assert sorted(heights)[-found] > sorted(heights)[-found - 1]
    else:
        assert found is None


def test_the_load_is_that_of_a_run_in_the_middle() -> None:
    runs = [rungs_at(PAIRS, wanted) for wanted in (11, 2.0, 5.0, 0.1)]
    loads = [load_at_half(rungs) for rungs in runs]

    assert median_load(runs[:3]) == loads[2]
    assert median_load(runs[:2]) == loads[1]  # not half of the way to infinity
    assert median_load(runs) == sorted(loads)[1]
    assert math.isnan(median_load([]))


def test_loads_stand_below_the_heights_with_their_unit(climb: pd.DataFrame) -> None:
    of = grid(climb)
    table = load_table(of, of.tasks, "load")
    assert table is not None
    cells = {line.labels[1]: [cell.value for cell in line.cells] for line in table.lines}
    assert [one.label for one in table.columns] == ["Load in", *(one.label for one in of.mechanisms)]

    assert {name: of_task[0] for name, of_task in cells.items()} == {
        name: ladder.unit for name, (_category, ladder) in TASK_FACTS.items()
    }
    by_label = dict(zip([one.label for one in of.mechanisms], cells["mqar"][1:], strict=True))
    assert by_label["Standard"] == "≥ 64"
    assert by_label["Linear"] == "< 2"
    # A skill of one half lies between rung 4 and rung 5, of 6 and 8 pairs.
    assert by_label["my-idea"] == f"{load_at_half(rungs_at(PAIRS, 4.1)):.1f}"
    of_mqar = next(line for line in table.lines if line.labels[1] == "mqar")
    slay = of_mqar.cells[[one.label for one in table.columns].index("SLAY")]
    assert slay.remarks == (f"{load_at_half(rungs_at(PAIRS, 2.4)):.1f} to ≥ 64",)


@pytest.mark.parametrize(
    ("load", "text"), [(math.inf, "≥ 64"), (0.0, "< 2"), (6.0, "6.0"), (6.77, "6.8"), (23.4, "23"), (math.nan, "--")]
)
def test_a_load_is_printed_with_two_digits(climb: pd.DataFrame, load: float, text: str) -> None:
    task = next(task for task in grid(climb).tasks if task.name == "mqar")
    assert load_text(task, load) == text


def test_a_run_without_a_score_has_no_load(climbed: Callable[..., pd.DataFrame]) -> None:
    of = grid(climbed({"softmax": [None, None], "linear": [1.0, 2.0]}))
    (task,) = of.tasks
    table = load_table(of, of.tasks, "load")
    assert table is not None
    assert math.isnan(load_of(of.cell(task, of.mechanisms[0])))
    assert table.lines[0].cells[1] == Cell()


def test_the_area_below_a_line_is_the_height(climb: pd.DataFrame, files: dict[str, str]) -> None:
    areas: dict[tuple[str, str], float] = {}
    for line in numbers(files["figures/rungs.csv"]):
        key = (line["task"], line["mechanism"])
        areas[key] = areas.get(key, 0.0) + float(line["mean"])
        assert float(line["low"]) <= float(line["mean"]) + 1e-5
        assert float(line["mean"]) <= float(line["high"]) + 1e-5
    num_rungs = climb["task"].map({task: ladder.num_rungs for task, (_category, ladder) in TASK_FACTS.items()})
    means = (climb["score"] * num_rungs).groupby([climb["task"], climb["mech_label"]]).mean()

    assert areas == pytest.approx(means.to_dict(), rel=1e-4)


def test_tasks_are_drawn_by_category_over_their_own_loads(climb: pd.DataFrame, files: dict[str, str]) -> None:
    lines = numbers(files["figures/rungs.csv"])
    categories = list(dict.fromkeys(line["category"] for line in lines))
    assert categories == list(grid(climb).categories)
    assert [line["category"] for line in lines] == sorted((line["category"] for line in lines), key=categories.index)
    for task, (_category, ladder) in TASK_FACTS.items():
        own = [line for line in lines if line["task"] == task and line["mechanism"] == "Linear"]
        assert [float(line["load"]) for line in own] == list(ladder.loads)
        assert {line["load_in"] for line in own} == {ladder.unit}


def test_a_mean_profile_is_over_the_runs_that_have_all_rungs() -> None:
    low, high = rungs_at(PAIRS, 2.5), rungs_at(PAIRS, 7)
    found = mean_profile(PAIRS, [low, high, high[:3]])
    assert found is not None
    assert found.num_runs == 2
    assert found.mean == pytest.approx(np.mean([profile(low), profile(high)], axis=0))
    assert found.low == pytest.approx(profile(low))
    assert found.high == pytest.approx(profile(high))
    assert mean_profile(PAIRS, [high[:3]]) is None


def test_the_mean_skill_weighs_categories_alike_and_comes_last(climb: pd.DataFrame) -> None:
    rows = climb[climb["status"] == "ok"]
    rows = rows[~(rows["mech"] == "my-idea")]
    means = rows.groupby(["mech_label", "task_category", "task"])["score"].mean()
    expected = means.groupby(level=[0, 1]).mean().groupby(level=0).mean().to_dict()

    board = leaderboard(grid(rows))
    assert {entry.mechanism.label: entry.skill.value for entry in board.entries} == pytest.approx(expected)
    line = content(Report(select(rows, "climb"), None)).boards[0]
    assert list(line.parts) == list(grid(rows).categories)


def test_what_makes_no_sense_of_heights_is_left_out(files: dict[str, str]) -> None:
    assert not {"averages.md", "steps_to_threshold.md"} & set(files)
    for name, text in files.items():
        if name.endswith((".md", ".tex", ".html")) and name != "sources.bib":
            for word in (
                "olved",
                "too narrow",
                "hortcut:",
                "Floor",
                "Local",
                "ccuracy in per cent",
                "Accuracy, %",
                "2×",
            ):
                assert word not in text, (name, word)


def test_tables_of_heights_have_no_columns_of_accuracies(climb: pd.DataFrame) -> None:
    of = grid(climb)
    table = separation_table(of, judge(of))
    assert [one.label for one in table.columns] == ["Rungs", "Height", "p", "Pairs", "Between", "Verdict"]
    of_words = next(line for line in table.lines if line.labels[1] == "parity_running")
    assert of_words.cells[1].value == f"{fmean([0.9, 1.2, 0.7]):.1f} to 12.0"


def test_a_control_is_left_out_of_the_verdict_and_drawn(climbed: Callable[..., pd.DataFrame]) -> None:
    rows = climbed({"softmax": [5, 5.1], "linear": [0, 0]})
    rows.loc[rows["mech"] == "linear", "mech_family"] = CONTROL
    (verdict,) = judge(grid(rows)).values()
    assert verdict.num_pairs == 0
    lines = numbers(str(build(rows, None, "climb", formats=["figures"])["figures/rungs.csv"]))
    assert {line["mechanism"] for line in lines} == {"Standard", "Linear"}


def test_rows_with_and_without_a_ladder_are_shown_as_fractions_alike(
    climb: pd.DataFrame, make_frame: MakeFrame
) -> None:
    other = make_frame({"softmax": [0.5, 0.6], "linear": [0.1, 0.2]}, suite="climb", task="sort")
    of = grid(pd.concat([climb, other], ignore_index=True))

    assert not of.has_ladder
    assert column(of, "parity_running", "my-idea").value == "100.0"
    assert load_table(of, of.tasks, "load") is None


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"length": 32},
        {"load": "pairs"},
        {"load": "pairs", "rungs": []},
        {"load": "pairs", "rungs": 3},
        {"load": "pairs", "rungs": [2, 3]},
        {"load": "pairs", "rungs": [{"load": 0}]},
        {"load": "pairs", "rungs": [{"load": "2"}]},
        {"load": 2, "rungs": [{"load": 2}]},
    ],
)
def test_arguments_that_name_no_ladder_have_none(arguments: dict[str, Any]) -> None:
    assert ladder_in(arguments) is None


def test_rungs_without_a_score_or_without_room_are_none() -> None:
    metrics: dict[str, float | None] = dict(metrics_of_rungs(rungs_at(PAIRS, 3)))
    assert scored_rungs(metrics) == rungs_at(PAIRS, 3)
    assert scored_rungs({**metrics, "rung2.score": None}) == []
    assert scored_rungs({**metrics, "rung2.base": 1.0}) == []
    assert scored_rungs({}) == []


def test_rows_of_another_ladder_are_another_protocol(climb: pd.DataFrame) -> None:
    rows = climb.assign(config_json=json.dumps({"model": {}, "ladder": {"batch_tokens": 512}}))
    is_old = rows["task"] == "mqar"
    rows.loc[is_old, "config_json"] = json.dumps({"model": {}, "ladder": {"batch_tokens": 1024}})
    rows.loc[is_old, "finished_at"] -= pd.Timedelta("1D")

    assert select(rows, "climb").num_other_protocols == is_old.sum()


def test_of_a_ladder_the_first_rung_is_drawn() -> None:
    suite = load_suite("climb")
    arguments = task_options(suite, TASKS["mqar"], 0, {})
    rung = TASKS["mqar"].ladder(suite.ladder.longest)[0]  # type: ignore[union-attr]

    found = describe("mqar", version_of(TASKS["mqar"]), canonical_json(arguments))
    assert found is not None
    assert found.example is not None
    assert found.example.length == rung.length
    facts = ladder_in(arguments)
    assert facts is not None
    assert facts.unit == TASKS["mqar"].load


@pytest.mark.parametrize(
    ("loads", "ticks"),
    [
        ((2, 3, 4, 6, 8), (2, 4, 8)),
        ((5, 7, 11, 15, 23), (8, 16)),
        ((1, 1024), (1, 4, 16, 64, 256, 1024)),
        ((5.0, 7.0), (5.0, 7.0)),
        ((4,), (4,)),
        ((0.3, 0.6), (0.5,)),
    ],
)
def test_loads_are_marked_at_powers_of_two(loads: tuple[float, ...], ticks: tuple[float, ...]) -> None:
    assert Ladder("pairs", loads).ticks == ticks


def test_on_the_page_a_mark_lies_where_the_line_has_its_load(climb: pd.DataFrame) -> None:
    panels = [panel for own in content(Report(select(climb, "climb"), None)).panels.values() for panel in own]
    marks = {panel.task.name: panel.ticks for panel in panels}

    assert [load for load, _place in marks["mqar"]] == ["2", "4", "8", "16", "32", "64"]
    assert [float(place) for _load, place in marks["mqar"]] == [0, 20, 40, 60, 80, 100]
    assert [load for load, _place in marks["parity_running"]] == ["8", "16", "32", "64", "128", "256"]


def test_heights_less_than_half_a_rung_apart_are_a_tie(climbed: Callable[..., pd.DataFrame]) -> None:
    """Half a rung of 11 is 0.045 of skill."""
    for lead, chance in ((0.4, 0.5), (0.5, 1.0)):
        board = leaderboard(grid(climbed({"softmax": [3 + lead] * 2, "linear": [3, 3]})))
        improvement = board.improvement[0][1]
        assert improvement is not None
        assert improvement.value == chance


def test_a_line_over_loads_goes_from_edge_to_edge() -> None:
    middle = f"{PLOT_WIDTH / 4:.0f} {PLOT_HEIGHT / 2:.0f}"
    assert over_loads([2.0, 4.0, 32.0], [1.0, 0.5, 0.0]) == f"M0 0L{middle}L{PLOT_WIDTH} {PLOT_HEIGHT}"
    assert over_loads([2.0], [1.0]) == "M0 0"


def test_the_page_draws_every_task_and_names_the_mechanisms_with_a_colour(
    climb: pd.DataFrame, files: dict[str, str]
) -> None:
    found = content(Report(select(climb, "climb"), None))
    drawn = [panel for panels in found.panels.values() for panel in panels]
    assert {panel.task.name for panel in drawn} == set(TASK_FACTS)
    assert [facet.label for facet in found.panels] == list(grid(climb).categories)
    assert all(len(panel.lines) == 4 for panel in drawn)
    assert found.coloured == tuple(one.label for one in grid(climb).mechanisms)
    assert "12.0</b>" in files["index.html"]
    assert "≥ 64 pairs" in files["index.html"]
    assert "2 of 3 seeds climbed" in files["index.html"]


def test_on_the_page_mechanisms_beyond_the_colours_are_pale(climbed: Callable[..., pd.DataFrame]) -> None:
    rows = climbed({f"m{place}": [place / 2, place / 2 + 0.1] for place in range(9)})
    found = content(Report(select(rows, "climb"), None))
    ((panel,),) = found.panels.values()

    assert found.has_pale
    assert found.coloured == tuple(f"m{place}" for place in range(2, 9))
    assert [line.look for line in panel.lines] == ["pale"] * 2 + [f"l{place}" for place in range(7)]


def test_a_hostile_unit_is_shown_and_does_nothing(climbed: Callable[..., pd.DataFrame]) -> None:
    rows = climbed({"softmax": [3, 4], "linear": [1, 2]}, "mqar", ladder_of("<script>alert(1)</script>", 2, 4, 8, 16))
    built = build(rows, None, "climb", formats=["html", "md", "figures"])

    assert "<script>alert" not in str(built["index.html"])
    assert "<script>alert" not in str(built["full.md"])


def test_the_tables_of_a_ladder_compile(
    files: dict[str, str], compile_latex: Callable[[Mapping[str, str]], None]
) -> None:
    compile_latex({name: text for name, text in files.items() if name.endswith(".tex")})


def normal_heights(mean: float, count: int) -> list[float]:
    return [mean + 0.4 * (-1) ** place for place in range(count)]


@pytest.fixture
def uneven(climbed: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """Seeds were added to two mechanisms and not to the third."""
    return climbed({"softmax": [10.0, 10.1, 10.2], "linear": normal_heights(3, 10), "slay": normal_heights(3.3, 5)})


def test_added_seeds_are_in_the_cells_and_the_mean_is_over_common_seeds(uneven: pd.DataFrame) -> None:
    of = grid(uneven)
    assert [column(of, "mqar", name).remarks for name in ("Standard", "Linear", "SLAY")] == [
        ("n = 3",), ("n = 10",), ("n = 5",),
    ]  # fmt: skip
    board = leaderboard(of)
    assert (board.seeds, board.num_seeds) == ((42, 43, 44), "3 seeds that all ranked mechanisms have")
    assert not board.partial
    first = uneven[uneven["seed"] < 45]
    assert [one.skill for one in board.entries] == [one.skill for one in leaderboard(grid(first)).entries]


def test_a_mechanism_without_the_first_seeds_is_not_ranked(uneven: pd.DataFrame) -> None:
    rows = uneven[~((uneven["mech"] == "slay") & (uneven["seed"] == 42))]
    found = content(Report(select(rows, "climb"), None)).boards[0]
    assert [(line.mechanism.name, line.reason) for line in found.unranked] == [("slay", "2 of 3 runs")]


def test_a_report_says_what_added_seeds_mean_and_misses_no_run_of_decided_pairs(
    climb: pd.DataFrame, uneven: pd.DataFrame
) -> None:
    for rows, is_said in ((climb, False), (uneven, True)):
        built = build(rows, None, "climb", formats=["md", "html"])
        for name in ("full.md", "separation.md", "index.html"):
            assert ("may have been added because a pair" in str(built[name])) == is_said, name
    for section in content(Report(select(uneven, "climb"), None)).mechanisms:
        assert set(section.statuses) == {"ok"}


def test_verdicts_on_a_ladder_allow_for_the_looks(climbed: Callable[..., pd.DataFrame], make_frame: MakeFrame) -> None:
    heights = {"softmax": [7.0, 6.6, 7.4], "linear": [5, 5.4, 4.6], "slay": [6, 6.3, 5.7], "my-idea": [5, 5.3, 4.7]}
    (verdict,) = judge(grid(climbed(heights))).values()
    (once,) = judge(grid(make_frame({name: [one / 11 for one in own] for name, own in heights.items()}))).values()
    assert (verdict.p, verdict.least_p, verdict.separates) == (once.p, once.least_p, True)

    added = {name: [*own, math.nan, math.nan] if name != "slay" else [*own, 6, 6] for name, own in heights.items()}
    (verdict,) = judge(grid(climbed(added).dropna(subset="score"))).values()
    assert verdict.p == pytest.approx(once.p / 0.3)
    assert not verdict.separates


def test_pairs_that_are_within_half_a_rung_are_counted(climbed: Callable[..., pd.DataFrame]) -> None:
    near = [5.0, 5.05, 4.95]
    of = grid(climbed({"softmax": near, "linear": near, "slay": [9.0, 9.1, 8.9], "my-idea": [5.1, 5.0, 5.05]}))
    (verdict,) = judge(of).values()
    assert verdict.num_within == 3
    pairs = separation_table(of, judge(of)).lines[0].cells[3]
    assert pairs.remarks[0] == "3 within 0.5 rungs"


def test_what_is_undecided_has_a_score_and_is_no_control(climbed: Callable[..., pd.DataFrame]) -> None:
    rows = climbed({"softmax": [5, 6, 4], "linear": [5, 4, 6], "slay": [None, None, None], "mean": [0, 1, 0]})
    rows.loc[rows["mech"] == "mean", "mech_family"] = CONTROL
    found = standing(grid(rows), LOOKS[:1])

    assert found == Standing(0, 0, 1, frozenset({("mqar", "softmax"), ("mqar", "linear")}))


def side(name: str, rows: pd.DataFrame) -> Side:
    return Side(name, "mechanism", rows[rows["mech"] == name])


def test_a_comparison_on_a_ladder_allows_for_the_looks(climbed: Callable[..., pd.DataFrame]) -> None:
    for count, share in ((3, 1.0), (5, 0.2), (10, 0.5)):
        rows = climbed({"softmax": normal_heights(4, count), "linear": normal_heights(3.5, count)})
        found, once = (
            compare(side("softmax", one), side("linear", one), "climb")
            for one in (rows, rows.assign(task_args='{"length":32}'))
        )
        assert found.tasks[0].p == pytest.approx(min(1.0, once.tasks[0].p / share))
