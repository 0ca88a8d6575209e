"""The study of the SLAY paper's tables, for made-up rows."""

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


def test_a_missing_cell_and_a_single_run_are_not_judged(near: pd.DataFrame) -> None:
    is_copy, is_linear = near["task"] == "copy", near["mech"] == "linear"
    cells = study.compare(near[~(is_copy & is_linear) & ((near["seed"] == 0) | ~is_linear)])

    assert set(cells[cells["z"].isna()]["mech"]) == {"linear"}
    assert study.summary(cells).endswith("Not judged, fewer than two runs: 21.")
    averages = study.averages(cells)
    assert set(averages[averages["error"].isna()]["mech"]) == {"linear"}
