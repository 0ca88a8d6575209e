import pandas as pd
import pytest

from synthbench.reports.cells import grid
from synthbench.reports.report import mean_curves
from tests.reports._made import make_frame


def test_a_run_that_ended_well_without_a_score_has_failed() -> None:
    (cell,) = grid(make_frame({"slay": [0.3, None]}, status="ok")).estimates.values()

    assert (cell.n, cell.num_failed) == (1, 1)


def labels_of(*frames: pd.DataFrame) -> list[str]:
    return [mechanism.label for mechanism in grid(pd.concat(frames)).mechanisms]


def test_labels_that_collide_name_what_differs() -> None:
    learned, espr = make_frame({"slay": [0.1]}), make_frame({"slay": [0.2], "linear": [0.3]}, positions="espr")
    impostor = make_frame({"stranger": [0.4]}, mech_label="SLAY")

    assert labels_of(learned, espr) == ["Linear", "SLAY (espr)", "SLAY (learned)"]
    assert sorted(labels_of(learned, impostor)) == ["SLAY (slay)", "SLAY (stranger)"]


def test_settings_of_one_mechanism_are_named_by_what_differs_in_the_order_of_their_numbers() -> None:
    wide = make_frame({"slay": [0.5]}, mech_args='{"P":16,"R":3}')
    narrow = make_frame({"slay": [0.5]}, mech_args='{"P":8,"R":3}')
    matched = make_frame({"slay": [0.5]}, mech_args='{"P":9,"R":3}', match="state=4096 of slay:P=8")

    assert labels_of(wide, narrow) == ["SLAY (P=8)", "SLAY (P=16)"]
    assert labels_of(narrow, matched) == ["SLAY", "SLAY (match state=4096)"]
    assert labels_of(matched) == ["SLAY (match state=4096)"]


def test_a_task_at_several_sizes_is_several_tasks_in_the_order_of_their_length() -> None:
    sizes = [make_frame({"slay": [size / 200]}, seq_len=size, task_args=f'{{"length":{size}}}') for size in (128, 64)]
    cells = grid(pd.concat(sizes))

    assert [task.label for task in cells.tasks] == ["sort (64)", "sort (128)"]
    assert [cell.mean for task in cells.tasks for cell in cells.cells_of(task)] == [0.32, 0.64]


def test_a_run_that_stopped_early_keeps_its_last_value_in_the_mean() -> None:
    rows = make_frame({"slay": [0.5, 1.0]})
    slow, fast = rows["run_id"]
    points = [(slow, 20, 0.1), (slow, 40, 0.3), (fast, 20, 0.9)]
    curves = pd.DataFrame(points, columns=["run_id", "step", "value"]).assign(split="validation", metric="accuracy")

    averages = mean_curves(grid(rows), curves)
    assert averages[["step", "n"]].to_numpy().tolist() == [[20, 2], [40, 2]]
    assert averages["mean"].tolist() == pytest.approx([0.5, 0.6])
