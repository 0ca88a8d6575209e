import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from synthbench.reports.against.published import table8
from synthbench.reports.cells import grid
from synthbench.reports.difference import difference, difference_tables

MakeFrame = Callable[..., pd.DataFrame]

SEEDS = 4


@pytest.fixture(scope="module")
def near() -> pd.DataFrame:
    """All published cells as if we had run them: the published mean with a spread of two points."""
    from_published = {"standard": "softmax"}
    shifts = np.array([-0.02, 0.02, -0.02, 0.02])
    rows = [
        {
            "task": cell.task,
            "task_category": cell.category,
            "mech": from_published.get(cell.mechanism, cell.mechanism),
            "seed": seed,
            "score": cell.mean + float(shift),
        }
        for cell in table8()
        if cell.mean is not None
        for seed, shift in enumerate(shifts)
    ]
    frame = pd.DataFrame(rows).assign(
        suite="paper", suite_version="2026.1", status="ok", task_version="1", task_source="slay2026", task_args="{}",
        seq_len=32, n_eval=1000, mech_family="", mech_source="slay2026", mech_version="1", mech_args="{}",
        mech_origin="builtin", block="attention_only", positions="learned", skill=0.5, floor=0.0, ceiling=1.0,
        metric_name="accuracy",
        floor_kind="exact", ceiling_kind="exact", metrics='{"score_std_over_sequences": 0.16}', steps_planned=200,
        steps_to_threshold=None, local_ceiling=None, n_params_mixer=1, state_size=1, role=None, d_model=64, match=None,
        finished_at=pd.Timestamp("2026-01-01T00:00:00Z"),
    )  # fmt: skip
    return frame.assign(mech_label=frame["mech"].str.upper(), run_id=[f"{number:05}" for number in range(len(frame))])


def test_of_several_settings_that_of_the_published_protocol_is_compared(near: pd.DataFrame) -> None:
    of_slay = near["mech"] == "slay"
    arguments = '{"D":16,"P":32,"R":2,"epsilon":1e-06,"guard":"clamp"}'
    rows = near.assign(mech_args=near["mech_args"].mask(of_slay, arguments))
    narrow = rows[of_slay].assign(mech_args=arguments.replace("32", "8"), score=0.0)
    matched = rows[of_slay].assign(match="state of slay:P=32", score=0.0)
    several = pd.concat(
        [rows, narrow.assign(run_id="n" + narrow["run_id"]), matched.assign(run_id="m" + rows["run_id"])]
    )

    alone, among = (difference(grid(some)).comparisons for some in (rows, several))
    assert all(comparison.ours is not None for comparison in among)
    assert [comparison.ours for comparison in among] == [comparison.ours for comparison in alone]


def test_all_147_cells_are_compared_and_bigram_is_named(near: pd.DataFrame) -> None:
    result = difference(grid(near))

    assert len(result.comparisons) == 147
    assert result.unpublished == ("bigram",)
    assert result.outside == ()
    assert result.rms_z == pytest.approx(0, abs=1e-6)
    assert result.summary().startswith("147 of 147 published cells within 3 combined standard errors")
    assert "105 of the cells are in the paper, 42 in its authors' repository." in result.summary()
    assert "left out: bigram." in result.summary()


def test_the_combined_error_is_the_documented_one(near: pd.DataFrame) -> None:
    ours_std = float(np.std([-0.02, 0.02, -0.02, 0.02], ddof=1))
    predicted = ours_std**2 / 3 + 0.16**2 / (3 * 64)
    printed = {(cell.task, cell.mechanism): cell.std for cell in table8()}
    branches = set()

    for comparison in difference(grid(near)).comparisons:
        std = printed[comparison.task, comparison.mechanism_published]
        assert std is not None
        sample: float = 1.5 * std**2 / 3
        branches.add(sample > predicted)
        assert comparison.standard_error == pytest.approx(
            math.sqrt(ours_std**2 / SEEDS + max(sample, predicted) + 0.01**2 / 12)
        )
    assert branches == {True, False}


def test_a_cell_beyond_three_errors_is_outside_and_its_cause_is_looked_up(near: pd.DataFrame) -> None:
    far = near.copy()
    moved = (far["task"] == "reverse") & far["mech"].isin(["softmax", "slay"])
    far.loc[moved, "score"] += 0.3
    result = difference(grid(far))

    assert {(comparison.task, comparison.mechanism_published) for comparison in result.outside} == {
        ("reverse", "standard"),
        ("reverse", "slay"),
    }
    assert result.summary().startswith("145 of 147")
    z = [comparison.z for comparison in result.comparisons]
    assert result.rms_z == pytest.approx(math.sqrt(sum(value**2 for value in z) / 147))

    outside = difference_tables(result, {("reverse", "standard"): "a longer warm-up"})[0]
    assert [(line.labels, line.cells[-1].value) for line in outside.lines] == [
        (("reverse", "SOFTMAX"), "a longer warm-up"),
        (("reverse", "SLAY"), "not explained"),
    ]
    assert [line.cells[0].value for line in outside.lines] == ["+30.0", "+30.0"]


def test_missing_cells_are_counted_apart(near: pd.DataFrame) -> None:
    few = near[(near["task"] == "copy") & (near["mech"] != "linear")]
    result = difference(grid(few))

    assert result.summary().startswith("6 of 147")
    assert "cell with a score: 141." in result.summary()
    averages = difference_tables(result, {})[-1]
    assert {cell.value for line in averages.lines for cell in (line.cells[0], *line.cells[2:])} == {"--"}


def test_one_seed_is_not_judged(near: pd.DataFrame) -> None:
    result = difference(grid(near[near["seed"] == 0]))

    assert not any(comparison.is_judged or comparison.is_within for comparison in result.comparisons)
    assert math.isnan(result.rms_z)
    assert "fewer than two seeds: 147." in result.summary()
    assert "rms" not in result.summary()


def test_an_unknown_evaluation_noise_is_said(near: pd.DataFrame) -> None:
    result = difference(grid(near.assign(metrics="{}")))

    assert "which our rows lack: 147." in result.summary()
    smallest = min(comparison.standard_error for comparison in result.comparisons)
    variance = np.var([-0.02, 0.02, -0.02, 0.02], ddof=1)
    assert smallest == pytest.approx(math.sqrt(variance / SEEDS + variance / 3 + 0.01**2 / 12))


def test_a_task_at_two_sizes_is_not_compared(near: pd.DataFrame) -> None:
    copy = near[near["task"] == "copy"]
    longer = copy.assign(seq_len=64, run_id=copy["run_id"] + "-64")

    assert all(comparison.ours is None for comparison in difference(grid(pd.concat([copy, longer]))).comparisons)
