"""Figures: their numbers, what is left out, that they are readable, and that the same rows give the same bytes."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from unittest.mock import patch
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from synthbench.reports.aggregates import Interval
from synthbench.reports.render.figures import Drawing, drawings, render
from synthbench.reports.render.figures.drawing import LONGEST, SINGLE, _style, shown
from synthbench.reports.render.figures.scatter import Point, _draw, styled
from tests.reports._made import joined, make_frame, report_of, scattered

Pictures = dict[str, dict[str, bytes]]
"""By figure and kind."""

TASKS = {"sort": "basic", "parity": "arithmetic", "long_division": "arithmetic"}
STATES = (64, 1088, 4352, 16384, 69632)
LABELS = {
    "Exact vec(uuᵀ)": "Exact vec(uuᵀ)",
    "two\n\nlines": "two lines",
    "\x1b[31m": "U+001B[31m",
    "名": "U+540D",
    "_x": " _x",
    "x" * 300: "x" * (LONGEST - 1) + "…",
}
"""Labels, and how they are printed."""
HOSTILE = [*LABELS, "$x^2$", "<script>", "&amp;", r"\input{x}", "", "%s {0}"]


def sweep(mechanisms: Sequence[str]) -> pd.DataFrame:
    """A complete sweep: better mechanisms first, costs and families that differ, tests at 2 and 4 times the length."""
    means = {mech: 0.94 - 0.9 * place / len(mechanisms) for place, mech in enumerate(mechanisms)}
    rows = joined(*(make_frame(scattered(means, 3), task=task, task_category=name) for task, name in TASKS.items()))
    place_of = rows["mech"].map({mech: place for place, mech in enumerate(mechanisms)})
    return rows.assign(
        mech_family=[f"family {place % 9}" for place in place_of],
        state_size=[STATES[place % 5] for place in place_of],
        n_params_mixer=33280 + 1000 * (place_of % 4),
        metrics="{}",
    )


def curves_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Validation accuracy that grows to the score in four steps."""
    parts = [rows[["run_id"]].assign(step=50 * part, value=rows["score"] * part / 4) for part in (1, 2, 3, 4)]
    return pd.concat(parts, ignore_index=True).assign(split="validation", metric="accuracy")


def drawn(rows: pd.DataFrame, curves: pd.DataFrame | None = None) -> dict[str, Drawing]:
    """All drawings of some rows by name."""
    return {one.name: one for one in drawings(report_of(rows, curves=curves))}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return sweep(["softmax", "slay", "linear", "performer"])


@pytest.fixture(scope="module")
def all_drawn(rows: pd.DataFrame) -> dict[str, Drawing]:
    return drawn(rows, curves_of(rows))


@pytest.fixture(scope="module")
def pictures(all_drawn: dict[str, Drawing]) -> Pictures:
    """One with fields of colour, and one with points."""
    return {name: render(all_drawn[name]) for name in ("heat-map", "skill-state")}


@cache
def of_mechanisms(number: int) -> dict[str, Drawing]:
    rows = sweep([f"mechanism-{place}" for place in range(number)])
    return drawn(rows, curves_of(rows))


CURVES = {"learning-curves-basic", "learning-curves-arithmetic"}
RANKED = {"profiles", "skill-state"}


def test_a_complete_sweep_has_every_figure_and_what_rows_say_nothing_about_is_left_out(
    rows: pd.DataFrame, all_drawn: dict[str, Drawing]
) -> None:
    everything, curves = CURVES | RANKED | {"heat-map"}, curves_of(rows)
    without = {
        "one seed": (rows[rows["seed"] == 42], set[str]()),
        "one size": (rows.assign(state_size=64, n_params_mixer=64), {"skill-state"}),
        "one mechanism": (rows[rows["mech"] == "slay"], RANKED),
        "no gap": (rows.assign(floor=1.0, skill=np.nan, metrics="{}"), RANKED | {"heat-map"}),
    }

    assert set(all_drawn) == everything
    for case, (fewer, missing) in without.items():
        assert set(drawn(fewer, curves)) == everything - missing, case
    for no_curves in (None, curves.query("step == 50")):
        assert set(drawn(rows, no_curves)) == everything - CURVES


def test_of_many_mechanisms_each_has_a_number_and_a_marker_of_its_own_in_the_colour_of_its_family() -> None:
    points = [Point(f"m{one}", "abcdefghij"[one % 10], Interval(0.5, 0.4, 0.6), (1.0,)) for one in range(41)]
    of_points = styled(points)

    assert [look.text for look in of_points] == [str(number) for number in range(1, 42)]
    assert len({(look.colour, look.marker) for look in of_points}) == 41
    assert len({look.colour for look in of_points}) == 10
    assert all((one.colour == other.colour) == (a.family == b.family)
               for (one, a), (other, b) in combinations(zip(of_points, points, strict=True), 2))  # fmt: skip
    assert [look.text for look in styled(points[:3])] == ["m0", "m1", "m2"]


def test_every_mechanism_is_in_the_key_and_its_number_at_its_point() -> None:
    drawing = of_mechanisms(13)["skill-state"]
    labels = [text for text, _ in texts(drawing)]

    assert {f"mechanism-{number}" for number in range(13)} <= {text.partition("  ")[2] for text in labels}
    assert all(labels.count(str(number)) >= len(drawing.header) - 5 for number in range(1, 14))


def test_the_numbers_of_a_figure_are_marked_in_its_pictures(
    rows: pd.DataFrame, all_drawn: dict[str, Drawing], pictures: Pictures
) -> None:
    other = drawn(rows.assign(state_size=rows["state_size"] + 1))

    assert other["skill-state"].mark != all_drawn["skill-state"].mark
    assert other["heat-map"].mark == all_drawn["heat-map"].mark
    for picture in pictures["heat-map"].values():
        assert all_drawn["heat-map"].mark.encode() in picture


def test_pictures_hold_letters_as_outlines_or_embedded_fonts_and_no_time(pictures: Pictures) -> None:
    for figure, picture in pictures.items():
        names = {element.tag.rpartition("}")[2] for element in ET.fromstring(picture["svg"]).iter()}  # noqa: S314
        assert "path" in names
        assert names.isdisjoint({"text", "image", "script", "date"}), figure
        assert picture["pdf"].startswith(b"%PDF-")
        assert b"FontFile2" in picture["pdf"]
        assert not re.search(rb"CreationDate|ModDate|matplotlib", picture["pdf"], re.IGNORECASE)
        assert b"atplotlib v" not in picture["svg"]


@cache
def texts(drawing: Drawing) -> list[tuple[str, Bbox]]:
    """The texts that a figure draws with their boxes in pixels, a figure of one inch being 100 pixels wide."""
    with _style(), patch.object(Text, "draw", autospec=True) as draw:
        figure = drawing.draw()
        figure.set_dpi(100)
        canvas = FigureCanvasAgg(figure)
        renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
        figure.draw(renderer)
        labels = {label for (label, _), _ in draw.call_args_list if label.get_text() and label.get_visible()}
        boxes = [(label.get_text(), Text.get_window_extent(label, renderer)) for label in labels]  # without its line
        holds = figure.bbox.padded(1).contains
        outside = [text for text, box in boxes if not (holds(box.x0, box.y0) and holds(box.x1, box.y1))]
        assert not outside, f"{drawing.name}: outside of the figure: {outside}"
    return boxes


@pytest.mark.end_to_end
@pytest.mark.parametrize("num_mechanisms", [2, 13, 41])  # two, the fewest with numbers for names, and all
def test_no_label_lies_on_another_or_outside(num_mechanisms: int) -> None:
    for drawing in of_mechanisms(num_mechanisms).values():
        for (one, box), (other, other_box) in combinations(texts(drawing), 2):
            # A pixel of overlap is the space above a letter.
            common = Bbox.intersection(box, other_box)
            is_clear = common is None or min(common.width, common.height) <= 1
            assert is_clear, f"{drawing.name}: {one!r} lies on {other!r}"


@pytest.mark.end_to_end
def test_hostile_names_are_drawn_as_they_are() -> None:
    rows = sweep([f"m{number}" for number in range(len(HOSTILE))])
    labels = dict(zip(sorted(set(rows["mech"])), HOSTILE, strict=True))
    hostile = rows["mech"].map(labels)
    rows = rows.assign(mech_label=hostile, mech_family=hostile, task=rows["task"] + hostile.iloc[0], device_name="$$")

    drawings_by_name = drawn(rows, curves_of(rows))
    assert set(drawings_by_name) >= {"skill-state", "learning-curves-basic", "profiles"}
    for drawing in drawings_by_name.values():
        ET.fromstring(render(drawing)["svg"])  # noqa: S314


@pytest.mark.parametrize(("label", "printed"), LABELS.items())
def test_a_label_is_one_line_of_signs_that_the_font_has(label: str, printed: str) -> None:
    assert shown(label) == printed


@pytest.mark.parametrize("num_points", [5, 41])
def test_what_stands_at_a_point_covers_no_point_and_no_other_text(num_points: int) -> None:
    rng = np.random.default_rng(num_points)
    points = [
        Point(f"name {one}", "abc"[one % 3], Interval(skill, skill, skill), (cost,))
        for one, (skill, cost) in enumerate(
            zip(rng.random(num_points), 10 ** (3 * rng.random(num_points)), strict=True)
        )
    ]
    with _style():
        figure = _draw(points, ["cost"], SINGLE)
        figure.draw_without_rendering()
        (axis,) = figure.axes
        at = axis.transData.transform([(*point.costs, point.skill.value) for point in points])
        boxes = [Text.get_window_extent(text) for text in axis.texts]

    assert len(boxes) >= 0.9 * num_points
    assert all(axis.bbox.count_contains(box.get_points()) == 2 for box in boxes)
    assert not [box for box in boxes if box.count_contains(at)]
    assert not [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)]
