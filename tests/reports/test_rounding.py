"""Reports print the same where numbers of rows differ in the last place, as sums of them do on other processors."""

import numpy as np
import pandas as pd
import pytest

from synthbench.reports.build import build

TEXTS = ("md", "tex", "pages", "csv", "json", "html")


def moved(rows: pd.DataFrame, share: float) -> pd.DataFrame:
    """The rows with each number of float64 moved by at most this share; equal ones stay equal, as do 0 and 1."""
    floats = rows.select_dtypes(np.float64)
    noise = np.sin(1e6 * floats) * share
    return rows.assign(**floats.where(floats == 1, floats * (1 + noise)))


@pytest.mark.parametrize("suite", ["paper", "core"])
def test_the_last_place_of_a_score_is_seen_in_no_file(suite: str, request: pytest.FixtureRequest) -> None:
    rows: pd.DataFrame = request.getfixturevalue(suite)
    two_units = 2 * np.finfo(np.float64).eps
    expected, others, otherwise = (
        build(moved(rows, share), None, suite, formats=TEXTS) for share in (0, two_units, 0.1)
    )

    assert not moved(rows, two_units).equals(rows)
    assert others == expected != otherwise
