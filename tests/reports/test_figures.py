"""Figures: their numbers, what is left out, that they are readable, and that the same rows give the same bytes."""

import csv
import io
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import grid, records
from synthbench.reports.curves import mean_curves
from synthbench.reports.leaderboard import leaderboard
from synthbench.reports.render.figures import Drawing, Facts, drawings, render
from synthbench.reports.render.figures.drawing import COLOURS, LONGEST, _style, shown
from synthbench.reports.render.figures.profiles import profiles
from synthbench.reports.render.figures.scatter import Point, looks, places

MakeFrame = Callable[..., pd.DataFrame]

TASKS = {"sort": "basic", "copy": "basic", "parity": "arithmetic", "long_division": "arithmetic", "stack": "memory"}
STATES = (64, 1088, 4352, 16384, 69632)
HOSTILE = [
    "$x^2$",
    "\x1b[31m",
    "名前",
    "_hidden",
    "<script>",
    "&amp;",
    "x" * 300,
    "two\n\nlines",
    r"\input{x}",
    "",
    "%s {0}",
]

IN_ANOTHER_PROCESS = """
import locale, pickle, sys
import pandas as pd
from synthbench.reports.build import build
try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass
rows, curves = pickle.load(open(sys.argv[1], "rb"))
pickle.dump(build(rows, curves, "paper", formats=["figures"]), sys.stdout.buffer)
"""


def sweep(make_frame: MakeFrame, mechanisms: Sequence[str], num_seeds: int = 3) -> pd.DataFrame:
    """A complete sweep: better mechanisms first, costs and families that differ, tests at 2 and 4 times the length."""
    rng = np.random.default_rng(0)
    frames = []
    for task, category in TASKS.items():
        scores = {
            mech: list(np.clip(0.95 - 0.9 * place / len(mechanisms) + 0.03 * rng.standard_normal(num_seeds), 0, 1))
            for place, mech in enumerate(mechanisms)
        }
        frames.append(make_frame(scores, task=task, task_category=category))
    rows: pd.DataFrame = pd.concat(frames, ignore_index=True)
    place_of = rows["mech"].map({mech: place for place, mech in enumerate(mechanisms)})
    return rows.assign(
        run_id=[f"{row.task}-{row.mech}-{row.seed}" for row in rows.itertuples()],
        mech_family=[f"family {place % 9}" for place in place_of],
        state_size=[STATES[place % 5] for place in place_of],
        n_params_mixer=33280 + 1000 * (place_of % 4),
        train_s=2.0 + place_of / 10,
        metrics="{}",
    )


def curves_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Validation accuracy that grows to the score in four steps."""
    parts = [
        pd.DataFrame({"run_id": rows["run_id"], "step": 50 * part, "value": rows["score"] * part / 4})
        for part in (1, 2, 3, 4)
    ]
    return pd.concat(parts, ignore_index=True).assign(split="validation", metric="accuracy")


def drawn(rows: pd.DataFrame, curves: pd.DataFrame | None = None) -> dict[str, Drawing]:
    """All drawings of some rows by name."""
    board = leaderboard(grid(rows)) if len(set(rows["seed"])) > 1 else None
    averages = None if curves is None else mean_curves(grid(rows), records(rows), curves)
    return {one.name: one for one in drawings(Facts(records(rows), grid(rows), averages, board))}


def numbers(drawing: Drawing) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(drawing.numbers)))


@pytest.fixture(scope="module")
def rows(make_frame: MakeFrame) -> pd.DataFrame:
    return sweep(make_frame, ["softmax", "slay", "linear", "performer"])


@pytest.fixture(scope="module")
def all_drawn(rows: pd.DataFrame) -> dict[str, Drawing]:
    return drawn(rows, curves_of(rows))


CURVES = {f"learning-curves-{category}" for category in ("basic", "arithmetic", "memory")}
RANKED = {"ranks", "profiles", "skill-state", "improvement"}


def test_a_complete_sweep_has_every_figure(all_drawn: dict[str, Drawing]) -> None:
    assert set(all_drawn) == CURVES | RANKED | {"heat-map"}


def test_what_the_rows_say_nothing_about_is_left_out(rows: pd.DataFrame) -> None:
    without = {
        "one seed": (drawn(rows[rows["seed"] == 42], curves_of(rows)), RANKED),
        "no curves": (drawn(rows), CURVES),
        "one point a curve": (drawn(rows, curves_of(rows).query("step == 50")), CURVES),
        "one size": (drawn(rows.assign(state_size=64, n_params_mixer=64), curves_of(rows)), {"skill-state"}),
        "one mechanism": (drawn(rows[rows["mech"] == "slay"], curves_of(rows)), RANKED),
        "no gap": (
            drawn(rows.assign(floor=1.0, skill=np.nan, metrics="{}"), curves_of(rows)),
            RANKED | {"heat-map"},
        ),
    }
    everything = CURVES | RANKED | {"heat-map"}

    for case, (found, missing) in without.items():
        assert set(found) == everything - missing, case


def test_a_size_that_is_the_same_for_all_has_no_panel(rows: pd.DataFrame, all_drawn: dict[str, Drawing]) -> None:
    assert all_drawn["skill-state"].header == ("mechanism", "family", "state", "parameters", "skill", "low", "high")
    for column, missing in (("n_params_mixer", "parameters"), ("state_size", "state")):
        found = drawn(rows.assign(**{column: 64}))["skill-state"]
        assert set(all_drawn["skill-state"].header) - set(found.header) == {missing}


def test_of_many_mechanisms_each_has_a_number_and_a_marker_of_its_own_in_the_colour_of_its_family() -> None:
    families = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
    points = [Point(f"m{one}", families[one % 10], Interval(0.5, 0.4, 0.6), (1.0,)) for one in range(41)]
    found = looks(points)

    assert [look.text for look in found] == [str(number) for number in range(1, 42)]
    assert len({(look.colour, look.marker) for look in found}) == 41
    assert len({look.colour for look in found}) == 10
    assert all((one.colour == other.colour) == (a.family == b.family)
               for (one, a), (other, b) in combinations(zip(found, points, strict=True), 2))  # fmt: skip
    assert [look.text for look in looks(points[:3])] == ["m0", "m1", "m2"]


def test_every_mechanism_is_in_the_key_and_its_number_at_its_point(make_frame: MakeFrame) -> None:
    rows = sweep(make_frame, [f"mechanism-{number}" for number in range(41)])
    found = [text for text, _ in texts(drawn(rows)["skill-state"])]

    assert {f"mechanism-{number}" for number in range(41)} <= {text.partition("  ")[2] for text in found}
    num_panels = len(drawn(rows)["skill-state"].header) - 5
    assert all(found.count(str(number)) >= num_panels for number in range(1, 42))


def test_the_heat_map_names_the_tasks_that_it_leaves_out(rows: pd.DataFrame, all_drawn: dict[str, Drawing]) -> None:
    narrow = rows.assign(floor=np.where(rows["task"].isin(["sort", "stack"]), 0.85, rows["floor"]))

    assert "Left out, with less than 20 points" not in all_drawn["heat-map"].caption
    assert drawn(narrow)["heat-map"].caption.endswith(
        "Left out, with less than 20 points between floor and ceiling: sort, stack."
    )


def test_profiles_are_the_shares_of_runs_that_reach_a_skill(rows: pd.DataFrame, all_drawn: dict[str, Drawing]) -> None:
    for line in numbers(all_drawn["profiles"]):
        own = rows[rows["mech_label"] == line["mechanism"]]
        reached = (own["skill"] >= float(line["skill"]) - 1e-9).groupby(own["task_category"]).mean()
        assert float(line["share"]) == pytest.approx(reached.mean(), abs=1e-5)
        assert float(line["low"]) <= float(line["share"]) <= float(line["high"])
    shares = [float(line["share"]) for line in numbers(all_drawn["profiles"]) if line["mechanism"] == "SLAY"]
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)


def test_profiles_of_41_mechanisms_take_less_than_two_seconds(make_frame: MakeFrame) -> None:
    rows = sweep(make_frame, [f"mechanism-{number}" for number in range(41)])
    facts = Facts(records(rows), grid(rows), None, leaderboard(grid(rows)))
    start = time.process_time()

    assert len(profiles(facts).lines) == 41 * 41  # type: ignore[union-attr]
    assert time.process_time() - start < 2


def test_the_heat_map_holds_the_skills_of_the_grid(rows: pd.DataFrame, all_drawn: dict[str, Drawing]) -> None:
    of = grid(rows)
    skills = {(task.label, one.label): of.cell(task, one).skill for task in of.tasks for one in of.mechanisms}

    found = {(line["task"], line["mechanism"]): float(line["skill"]) for line in numbers(all_drawn["heat-map"])}
    assert found == pytest.approx(skills, rel=1e-5)


def test_ranks_sizes_and_improvement_are_those_of_the_leaderboard(
    rows: pd.DataFrame, all_drawn: dict[str, Drawing]
) -> None:
    entries = leaderboard(grid(rows)).entries

    assert [line["mechanism"] for line in numbers(all_drawn["ranks"])] == [entry.mechanism.label for entry in entries]
    for entry, rank, size in zip(
        entries, *(numbers(all_drawn[name]) for name in ("ranks", "skill-state")), strict=True
    ):
        assert [int(rank[name]) for name in ("rank", "low", "high")] == list(entry.rank)
        assert float(size["state"]) == entry.mechanism.state
        assert float(size["parameters"]) == entry.mechanism.num_parameters
        assert [float(size[name]) for name in ("skill", "low", "high")] == pytest.approx(list(entry.skill), rel=1e-5)
    chances = {(line["mechanism"], line["other"]): line for line in numbers(all_drawn["improvement"])}
    for one, other in combinations([entry.mechanism.label for entry in entries], 2):
        for name, opposite in (("probability", "probability"), ("low", "high"), ("high", "low")):
            ends = float(chances[one, other][name]), float(chances[other, one][opposite])
            assert sum(ends) == pytest.approx(1, abs=1e-5)


def test_learning_curves_hold_the_mean_and_its_error(rows: pd.DataFrame, all_drawn: dict[str, Drawing]) -> None:
    scores = rows[(rows["task"] == "sort") & (rows["mech"] == "slay")]["score"]
    line = next(
        line
        for line in numbers(all_drawn["learning-curves-basic"])
        if (line["task"], line["mechanism"], line["step"]) == ("sort", "SLAY", "200")
    )

    assert float(line["mean"]) == pytest.approx(scores.mean(), rel=1e-5)
    assert float(line["standard_error"]) == pytest.approx(scores.std() / np.sqrt(3), rel=1e-4)


def test_a_run_that_stopped_early_keeps_its_last_value(rows: pd.DataFrame) -> None:
    curves = curves_of(rows)
    has_stopped = (curves["run_id"] == "sort-slay-43") & (curves["step"] > 100)
    found = numbers(drawn(rows, curves[~has_stopped])["learning-curves-basic"])
    scores = rows[(rows["task"] == "sort") & (rows["mech"] == "slay")].set_index("seed")["score"]

    last = [line for line in found if (line["task"], line["mechanism"]) == ("sort", "SLAY")][-1]
    expected = (scores[42] + scores[43] / 2 + scores[44]) / 3
    assert (last["step"], last["n"]) == ("200", "3")
    assert float(last["mean"]) == pytest.approx(expected, rel=1e-5)


def test_the_numbers_of_a_figure_are_marked_in_its_pictures(rows: pd.DataFrame, all_drawn: dict[str, Drawing]) -> None:
    other = drawn(rows.assign(state_size=rows["state_size"] + 1))

    assert other["skill-state"].mark != all_drawn["skill-state"].mark
    assert other["ranks"].mark == all_drawn["ranks"].mark
    for picture in render(all_drawn["ranks"]).values():
        assert all_drawn["ranks"].mark.encode() in picture


def test_pictures_hold_letters_as_outlines_or_embedded_fonts_and_no_time(all_drawn: dict[str, Drawing]) -> None:
    for drawing in all_drawn.values():
        pictures = render(drawing)
        names = {element.tag.rpartition("}")[2] for element in ET.fromstring(pictures["svg"]).iter()}  # noqa: S314
        assert "path" in names
        assert names.isdisjoint({"text", "image", "script", "date"}), drawing.name
        assert pictures["pdf"].startswith(b"%PDF-")
        assert b"FontFile2" in pictures["pdf"]
        assert not re.search(rb"CreationDate|ModDate|matplotlib", pictures["pdf"], re.IGNORECASE)
        assert b"atplotlib v" not in pictures["svg"]


def test_the_settings_of_the_user_change_nothing_and_stay(all_drawn: dict[str, Drawing]) -> None:
    before = render(all_drawn["skill-state"])
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 20, "svg.fonttype": "none", "pdf.fonttype": 3}):
        assert render(all_drawn["skill-state"]) == before
        assert mpl.rcParams["font.size"] == 20


def test_time_locale_hash_seed_settings_and_row_order_change_no_byte(
    rows: pd.DataFrame, all_drawn: dict[str, Drawing], tmp_path: Path
) -> None:
    rows_and_curves = (rows.sample(frac=1, random_state=1), curves_of(rows).sample(frac=1, random_state=2))
    (tmp_path / "rows").write_bytes(pickle.dumps(rows_and_curves))
    (tmp_path / "matplotlibrc").write_text("font.size: 20\naxes.facecolor: red\n")
    variables = {
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "de_DE.UTF-8",
        "PYTHONHASHSEED": "3",
        "SOURCE_DATE_EPOCH": "1",
        "MATPLOTLIBRC": str(tmp_path / "matplotlibrc"),
    }
    command = [sys.executable, "-W", "error", "-c", IN_ANOTHER_PROCESS, str(tmp_path / "rows")]
    finished = subprocess.run(command, env=os.environ | variables, capture_output=True, check=True, timeout=120)
    found = pickle.loads(finished.stdout)  # noqa: S301

    for drawing in all_drawn.values():
        for kind, picture in render(drawing).items():
            assert found[f"figures/{drawing.name}.{kind}"] == picture, drawing.name


def _undrawn(figure: Figure) -> set[Text]:
    """Labels of ticks beyond the ends of their axis, which matplotlib keeps and does not draw."""
    undrawn = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not low <= tick.get_loc() <= high:
                    undrawn |= {tick.label1, tick.label2}
    return undrawn


def texts(drawing: Drawing) -> list[tuple[str, Bbox]]:
    """The visible texts of a figure with their boxes in pixels, a figure of one inch being 100 pixels wide."""
    with _style():
        figure = drawing.draw()
        figure.set_dpi(100)
        canvas = FigureCanvasAgg(figure)
        renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
        figure.draw(renderer)
        found = [one for one in figure.findobj(Text) if isinstance(one, Text) and one.get_text()]
        found = [one for one in found if one.get_visible() and one not in _undrawn(figure)]
        boxes = [(one.get_text(), one.get_window_extent(renderer)) for one in found]
        outside = [text for text, box in boxes if not figure.bbox.padded(1).contains(box.x0, box.y0)]
        outside += [text for text, box in boxes if not figure.bbox.padded(1).contains(box.x1, box.y1)]
        assert not outside, f"{drawing.name}: outside of the figure: {outside}"
    return boxes


@pytest.mark.parametrize("num_mechanisms", [2, 7, 13, 41])
def test_no_label_lies_on_another_or_outside(make_frame: MakeFrame, num_mechanisms: int) -> None:
    rows = sweep(make_frame, [f"mechanism-{number}" for number in range(num_mechanisms)])
    for drawing in drawn(rows, curves_of(rows)).values():
        for (one, box), (other, other_box) in combinations(texts(drawing), 2):
            # A pixel of overlap is the space above a letter.
            common = Bbox.intersection(box, other_box)
            is_clear = common is None or min(common.width, common.height) <= 1
            assert is_clear, f"{drawing.name}: {one!r} lies on {other!r}"


def test_more_mechanisms_than_colours_are_pale_but_the_best(make_frame: MakeFrame) -> None:
    rows = sweep(make_frame, [f"mechanism-{number:02}" for number in range(12)])
    facts = Facts(records(rows), grid(rows), None, leaderboard(grid(rows)))

    assert set(facts.looks) == {f"mechanism-{number:02}" for number in range(len(COLOURS))}
    assert "In colour: the 7 with the best mean skill; pale: the other 5." in drawn(rows)["profiles"].caption
    assert "pale" not in drawn(rows[rows["mech"] < "mechanism-03"])["profiles"].caption


def test_hostile_names_are_drawn_as_they_are(make_frame: MakeFrame) -> None:
    rows = sweep(make_frame, [f"m{number}" for number in range(len(HOSTILE))])
    labels = dict(zip(sorted(set(rows["mech"])), HOSTILE, strict=True))
    hostile = rows["mech"].map(labels)
    rows = rows.assign(mech_label=hostile, mech_family=hostile, task=rows["task"] + hostile.iloc[0], device_name="$$")

    found = drawn(rows, curves_of(rows))
    assert set(found) >= {"skill-state", "learning-curves-basic", "profiles"}
    for drawing in found.values():
        ET.fromstring(render(drawing)["svg"])  # noqa: S314


@pytest.mark.parametrize(
    ("label", "printed"),
    [
        ("Exact vec(uuᵀ)", "Exact vec(uuᵀ)"),
        ("two\n\nlines", "two lines"),
        ("\x1b[31m", "U+001B[31m"),
        ("名", "U+540D"),
        ("_x", " _x"),
        ("x" * 300, "x" * (LONGEST - 1) + "…"),
    ],
)
def test_a_label_is_one_line_of_signs_that_the_font_has(label: str, printed: str) -> None:
    assert shown(label) == printed


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 2)), min_size=1, max_size=41), st.floats(0.01, 0.5))
def test_what_stands_at_a_point_covers_no_point_and_no_other_text(at: list[tuple[float, float]], width: float) -> None:
    boxes = places(np.array(at), [width] * len(at), (3.0, 2.0))
    placed = [box for box in boxes if box is not None]

    assert len(boxes) == len(at)
    assert placed
    assert all(box.left >= 0 and box.bottom >= 0 and box.right <= 3 and box.top <= 2 for box in placed)
    assert not [(x, y) for box in placed for x, y in at if box.left < x < box.right and box.bottom < y < box.top]
    for one, other in combinations(placed, 2):
        is_beside = one.right <= other.left or other.right <= one.left
        assert is_beside or one.top <= other.bottom or other.top <= one.bottom


def test_a_lone_point_has_its_text_to_its_right() -> None:
    (box,) = places(np.array([[1.0, 1.0]]), [0.3], (3.0, 2.0))

    assert box is not None
    assert 1.0 < box.left < 1.1
    assert box.bottom < 1.0 < box.top


def test_a_text_that_is_wider_than_the_panel_is_left_out() -> None:
    assert places(np.array([[1.0, 1.0]]), [4.0], (3.0, 2.0)) == [None]
