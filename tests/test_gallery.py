import csv
import io
import json
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from synthbench.cli import app
from synthbench.errors import StoreError, UnknownName
from synthbench.gallery import FIGURES, denominators, files, neurons, quadrature, response, select
from synthbench.gallery.kernels import attention_map, head, kernel, normal
from synthbench.gallery.kernels import response as kernel_response
from synthbench.mechanisms import FeatureAttention
from synthbench.reports.render.figures.drawing import Drawing, mark_in
from synthbench.reports.render.spreadsheet import Value

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "gallery.json"
"""By figure: the mark of the gallery's picture, and some of the numbers that it was drawn from."""
X = np.array([-1.0, -0.3, 0.0, 0.5, 1.0])


def test_the_kernels_of_the_cosine_are_those_of_the_papers() -> None:
    d, epsilon = 16, 1e-3

    np.testing.assert_allclose(kernel_response(head("softmax"), X), np.exp(4 * X))
    np.testing.assert_allclose(kernel_response(head("yat-spherical"), X), X**2 / (2 + epsilon - 2 * X), atol=1e-30)
    plain = (d * X) ** 2 / (2 * d - 2 * d * X + epsilon)
    np.testing.assert_allclose(kernel_response(head("yat-sum"), X), plain, atol=1e-28)


def test_slopes_are_those_of_the_formulas() -> None:
    x = X[1:-1]

    np.testing.assert_allclose(response.slope(head("softmax"), x), 4 * np.exp(4 * x))
    np.testing.assert_allclose(
        response.slope(head("yat-spherical"), x), 2 * x * (2.001 - x) / (2.001 - 2 * x) ** 2, atol=1e-15
    )


@pytest.mark.parametrize("name", ["softmax", "yat-sum", "slay", "performer"])
def test_the_kernel_over_its_sum_is_what_the_mechanism_attends_by(name: str) -> None:
    unit, (q, k) = head(name, seed=3), normal(0, 2, 2, 9, 16)
    weights = kernel(unit, q, k).tril()
    sums = weights.sum(-1, keepdim=True)
    delta = unit.delta if isinstance(unit, FeatureAttention) else 1e-6 * (name == "yat-sum")

    torch.testing.assert_close(attention_map(unit, q, k), weights / (sums + delta))


def test_what_is_no_attention_has_no_kernel() -> None:
    with pytest.raises(TypeError, match="has no kernel"):
        kernel(head("gla"), *normal(0, 2, 1, 4, 16))


def test_the_nodes_shares_add_up_to_what_the_rule_finds() -> None:
    for num_nodes in (3, 9):
        found = quadrature.share_found(num_nodes, X)
        np.testing.assert_allclose(quadrature.shares(num_nodes, X).sum(0), found)
    # The audit's table: three nodes at x = 0.5 and 1.
    np.testing.assert_allclose(quadrature.share_found(3, X)[-2:], [0.997, 0.0047], rtol=2e-3)


def test_denominators_are_negative_for_signed_features_only() -> None:
    for name in denominators.VARIANTS:
        is_signed = name in {"slay-nystrom", "slay-tensorsketch", "slay-maclaurin"}
        assert (denominators.mean_kernels(name).min() < 0) == is_signed, name


def test_one_unit_answers_xor_as_in_section_3_1() -> None:
    corners = np.array([(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])

    answers = neurons.answers(neurons.neuron((1.0, -1.0), 0.001), corners)

    np.testing.assert_allclose(answers, [0, 1 / 5.001, 1 / 1.001, 0])


def test_a_neuron_peaks_beyond_its_weight_and_levels_off() -> None:
    unit = neurons.neuron((1.0, 0.0), 0.1)

    at = neurons.answers(unit, np.array([(1.0, 0.0), (1.1, 0.0), (1e6, 0.0), (0.0, 5.0)]))

    np.testing.assert_allclose(at, [10, 11, 1, 0], rtol=1e-5)


@cache
def drawing_of(name: str) -> Drawing:
    """A figure with its numbers, computed once for all tests."""
    return FIGURES[name].drawing()


@pytest.fixture(params=FIGURES)
def drawing(request: pytest.FixtureRequest) -> Drawing:
    return drawing_of(request.param)


@pytest.fixture(scope="module")
def golden() -> dict[str, dict[str, Any]]:
    """The golden file; ``SYNTHBENCH_REWRITE_GOLDEN=1 pytest tests/test_gallery.py`` rewrites it."""
    if os.environ.get("SYNTHBENCH_REWRITE_GOLDEN") == "1":
        drawings = [drawing_of(name) for name in FIGURES]
        GOLDEN.write_text(as_json({drawing.name: in_short(drawing) for drawing in drawings}), encoding="utf-8")
    figures: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return figures


def in_short(drawing: Drawing) -> dict[str, Any]:
    """At most a hundred lines of the numbers, evenly spaced, with six digits as in the CSV."""
    lines = drawing.lines[:: -(-len(drawing.lines) // 100)]
    return {
        "mark": drawing.mark,
        "count": len(drawing.lines),
        "lines": [[float(f"{value:.6g}") if isinstance(value, float) else value for value in line] for line in lines],
    }


def as_json(figures: dict[str, dict[str, Any]]) -> str:
    """One line a line of numbers, so that a difference shows which of them changed."""
    found = []
    for name, figure in figures.items():
        lines = ",\n".join(f"    {json.dumps(line, ensure_ascii=False)}" for line in figure["lines"])
        mark, count = json.dumps(figure["mark"]), figure["count"]
        found.append(f'  "{name}": {{"mark": {mark}, "count": {count}, "lines": [\n{lines}\n  ]}}')
    return "{\n" + ",\n".join(found) + "\n}\n"


@pytest.mark.parametrize("drawing", ["nmn-xor"], indirect=True)  # computed in a blink
def test_a_figure_has_the_same_bytes_on_every_call(drawing: Drawing) -> None:
    name = drawing.name
    first = files(FIGURES[name])

    assert first == files(FIGURES[name])
    assert set(first) == {f"{name}.svg", f"{name}.pdf", f"{name}.csv"}
    assert mark_in(first[f"{name}.svg"]) == drawing.mark.encode()


def numbers_of(lines: Sequence[Sequence[Value]]) -> np.ndarray:
    return np.array([value for line in lines for value in line if isinstance(value, float)])


def labels_of(lines: Sequence[Sequence[Value]]) -> list[Value]:
    return [None if isinstance(value, float) else value for line in lines for value in line]


def test_figures_have_the_numbers_that_the_gallery_was_drawn_from(
    golden: dict[str, dict[str, Any]], drawing: Drawing
) -> None:
    """To a thousandth, as no eye sees less; and each has words.

    The mark of a picture cannot be compared: it changes with the last of six digits, and that is rounding where numbers
    follow from float32, such as the directions that ``torch.randn`` draws. One number in a hundred may differ more:
    those near 0, and keys on the border between two regions.
    """
    was, now = golden[drawing.name], in_short(drawing)
    header, *lines = csv.reader(io.StringIO(drawing.numbers))

    assert len(drawing.caption) > 80
    assert all(len(line) == len(header) for line in lines)
    assert not re.search(r"\b(inf|nan)\b", drawing.numbers)
    assert now["count"] == was["count"]
    assert labels_of(now["lines"]) == labels_of(was["lines"])
    near = np.isclose(numbers_of(now["lines"]), numbers_of(was["lines"]), rtol=1e-3, atol=0)
    assert near.mean() > 0.99, "run the command of docs/anatomy.md, then these tests with SYNTHBENCH_REWRITE_GOLDEN=1"


def test_the_gallery_has_every_figure_with_those_numbers_and_no_other(golden: dict[str, dict[str, Any]]) -> None:
    pictures = list((ROOT / "docs" / "anatomy").iterdir())

    assert {path.stem for path in pictures} == golden.keys() == FIGURES.keys()
    other = [path.name for path in pictures if mark_in(path.read_bytes()) != golden[path.stem]["mark"].encode()]
    assert other == [], "run the command of docs/anatomy.md"


def test_figures_are_chosen_by_globs() -> None:
    chosen = [figure.name for figure in select(["nmn-0[23]*", "nmn-02*"])]

    assert chosen == ["nmn-02-well", "nmn-03-angle-and-radius"]
    assert len(select([])) == len(FIGURES)


def test_unknown_figures_and_formats_are_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'slay-04-alignment'"):
        select(["slay-04-alinment"])
    with pytest.raises(UnknownName, match=r"no format called 'svgg'; did you mean 'svg'\?"):
        files(FIGURES["nmn-xor"], ["svgg"])


def test_the_command_writes_what_it_prints(tmp_path: Path) -> None:
    arguments = ["bench", "anatomy", "--figure", "nmn-10*", "--format", "svg", "--out", str(tmp_path / "figures")]
    ran = CliRunner().invoke(app, arguments)

    assert ran.exit_code == 0, ran.output
    assert sorted(ran.stdout.split()) == sorted(str(path) for path in (tmp_path / "figures").iterdir())
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"nmn-10-squashing.csv", "nmn-10-squashing.svg"}
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(app, [*arguments[:-1], str(tmp_path / "file")])
    assert isinstance(refused.exception, StoreError)
