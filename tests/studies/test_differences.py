"""The study of the SLAY paper's tables, for made-up rows."""

import math

import numpy as np
import pandas as pd
import pytest

from studies.papers.differences import page as study

SHIFTS = (-0.02, 0.02, -0.02, 0.02)


@pytest.fixture
def near() -> pd.DataFrame:
    """All published cells as if we had run them: the published mean with a spread of two points."""
    cells = study.table8().dropna()[["task", "mech", "accuracy_mean"]].assign(
        mech_label=lambda of: of["mech"].str.upper(), status="ok", floor=0.0, ceiling=1.0,
        metrics='{"score_std_over_sequences": 0.16}',
    )  # fmt: skip
    return pd.concat([cells.assign(seed=seed, score=cells["accuracy_mean"] + by) for seed, by in enumerate(SHIFTS)])


def test_table_3_is_table_8_averaged_to_within_its_rounding(near: pd.DataFrame) -> None:
    averages = study.averages(study.compare(near))

    assert (len(study.table8()), study.table8()["accuracy_mean"].isna().sum()) == (22 * 7, 7)
    assert len(averages) == 7 * 5
    assert averages["difference"].abs().max() <= 0.0101  # both are rounded, so they may lie one printed digit apart


def test_the_combined_error_is_the_documented_one(near: pd.DataFrame) -> None:
    cells, variance = study.compare(near), np.var(SHIFTS, ddof=1)
    predicted, printed = variance / 3 + 0.16**2 / (3 * 64), cells["accuracy_std"] ** 2 * 3 / 2 / 3

    assert {*(printed > predicted)} == {True, False}
    expected = np.sqrt(variance / 4 + np.maximum(printed, predicted) + 0.01**2 / 12)
    assert cells["error"].to_numpy() == pytest.approx(expected.to_numpy())


def test_a_cell_beyond_three_errors_is_outside_and_named(near: pd.DataFrame) -> None:
    assert study.summary(study.compare(near)).startswith("147 of 147 published cells lie within 3 combined")
    near["score"] += 0.3 * ((near["task"] == "reverse") & near["mech"].isin(["softmax", "slay"]))
    far = study.compare(near)

    assert study.summary(far).startswith(
        "145 of 147 published cells lie within 3 combined standard errors; 2 outside (SOFTMAX on reverse, SLAY on rev"
    )
    assert f"rms z is {math.sqrt((far['z'] ** 2).mean()):.2f}" in study.summary(far)


def test_a_missing_cell_and_a_single_run_are_not_judged(near: pd.DataFrame) -> None:
    is_copy, is_linear = near["task"] == "copy", near["mech"] == "linear"
    cells = study.compare(near[~(is_copy & is_linear) & ((near["seed"] == 0) | ~is_linear)])

    assert set(cells[cells["z"].isna()]["mech"]) == {"linear"}
    assert study.summary(cells).endswith("Not judged, fewer than two runs: 21.")
    averages = study.averages(cells)
    assert set(averages[averages["error"].isna()]["mech"]) == {"linear"}
