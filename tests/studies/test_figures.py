"""The papers' figures: kernels and neurons are those of the formulas, and what is committed is what the code draws."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from studies.papers.figures import kernels, nmn, page, slay_errors
from studies.papers.figures.figure import FIGURES
from studies.papers.figures.kernels import attention_map, head, kernel, normal
from synthbench.forms.quadrature import inverse_distance
from synthbench.mechanisms import FeatureAttention
from synthbench.reports.render.figures.drawing import mark_in

X = np.array([-1.0, -0.3, 0.0, 0.5, 1.0])
AT = torch.from_numpy(X)


def test_the_kernels_of_the_cosine_are_those_of_the_papers() -> None:
    d, epsilon = 16, 1e-3

    np.testing.assert_allclose(kernels.response(head("softmax"), X), np.exp(4 * X))
    np.testing.assert_allclose(kernels.response(head("yat-spherical"), X), X**2 / (2 + epsilon - 2 * X), atol=1e-30)
    plain = (d * X) ** 2 / (2 * d - 2 * d * X + epsilon)
    np.testing.assert_allclose(kernels.response(head("yat-sum"), X), plain, atol=1e-28)


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


@pytest.mark.parametrize("num_nodes", [3, 9])
def test_the_nodes_shares_add_up_to_what_the_rule_finds(num_nodes: int) -> None:
    found = slay_errors.shares(num_nodes, X).sum(0)

    np.testing.assert_allclose(found, inverse_distance(num_nodes, 1e-3, AT).numpy() * (2.001 - 2 * X))
    if num_nodes == 3:  # at x = 0.5 and 1, computed by others
        np.testing.assert_allclose(found[-2:], [0.997, 0.0047], rtol=2e-3)


def test_the_page_its_pictures_and_their_numbers_are_those_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert page.main(["--check"]) == 0, f"python -m studies.papers.figures.page: {capsys.readouterr().out}"


def test_figures_whose_numbers_or_labels_changed_are_stale() -> None:
    drawing = FIGURES["nmn-10-squashing"].drawing()
    kept = page.in_short(drawing)

    assert page.agrees(drawing, kept)
    for old, new in (("0.5", "0.6"), ("soft-tanh", "tanh")):
        assert not page.agrees(drawing, {**kept, "lines": [line.replace(old, new) for line in kept["lines"]]})
    assert not page.agrees(drawing, {**kept, "count": kept["count"] + 1})


def test_the_command_writes_what_it_prints_and_the_same_bytes_on_every_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        assert page.main(["--figure", "nmn-xo*", "--figure", "nmn-xor", "--out", str(folder)]) == 0
        paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
        written.append({path.name: path.read_bytes() for path in paths})
        assert sorted(paths) == sorted(folder.iterdir())

    assert written[0] == written[1]
    assert set(written[0]) == {"nmn-xor.svg", "nmn-xor.pdf", "nmn-xor.csv"}
    assert mark_in(written[0]["nmn-xor.svg"]) == FIGURES["nmn-xor"].drawing().mark.encode()


@given(st.floats(0, 1e3), st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.5]))
def test_soft_sigmoid_and_soft_tanh_are_their_formulas_and_run_from_limit_to_limit(x: float, power: float) -> None:
    raised, given_x = x**power, torch.tensor([x, 0.0, 1.0, 1e200], dtype=torch.float64)

    sigmoid, tanh = (squash(given_x, power).tolist() for squash in (nmn.soft_sigmoid, nmn.soft_tanh))

    assert sigmoid == pytest.approx([raised / (1 + raised), 0, 0.5, 1], rel=1e-12)
    assert tanh == pytest.approx([(raised - 1) / (raised + 1), -1, 0, 1], rel=1e-10, abs=1e-14)
