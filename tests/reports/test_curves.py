import pandas as pd
import pytest

from synthbench.reports.cells import grid
from synthbench.reports.report import mean_curves
from tests.reports._made import make_frame


def test_a_run_that_stopped_early_keeps_its_last_value_in_the_mean() -> None:
    rows = make_frame({"slay": [0.5, 1.0]})
    slow, fast = rows["run_id"]
    points = [(slow, 20, 0.1), (slow, 40, 0.3), (fast, 20, 0.9)]
    curves = pd.DataFrame(points, columns=["run_id", "step", "value"]).assign(split="validation", metric="accuracy")

    averages = mean_curves(grid(rows), curves).set_index("step")

    assert averages["mean"].to_dict() == pytest.approx({20: 0.5, 40: 0.6})
    assert averages["n"].to_dict() == {20: 2, 40: 2}
