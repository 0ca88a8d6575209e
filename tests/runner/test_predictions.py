"""Saved predictions agree with the row, and saving them changes nothing."""

import json
from pathlib import Path

import numpy as np

from synthbench.results.schema import run_id
from synthbench.runner.environment import resolve_device
from synthbench.runner.plan import plan_request
from synthbench.runner.run import run
from synthbench.tasks import IGNORE
from synthbench.training.sequences import draw
from tests.results.stores import reader
from tests.runner.runs import lasting, tiny

CPU = resolve_device("cpu")


def test_a_file_holds_what_its_row_counts_and_changes_no_bit_of_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    run(tiny(tmp_path / "with", predictions=kept, executor="inline", group_size=4))
    run(tiny(tmp_path / "without", executor="inline", group_size=4))
    rows = reader(tmp_path / "with").table().to_pylist()

    assert lasting(tmp_path / "with") == lasting(tmp_path / "without")
    assert {path.name for path in kept.iterdir()} == {f"{row['run_id']}.npz" for row in rows}
    for row in rows:
        with np.load(kept / f"{row['run_id']}.npz", allow_pickle=False) as file:
            inputs, targets, predictions = (file[name] for name in ("inputs", "targets", "predictions"))
            metadata = json.loads(str(file["metadata"]))
        drawn = draw(f"{row['task']}:length=8", split="test", seed=row["seed"], count=32)
        np.testing.assert_array_equal(inputs, drawn.inputs)
        np.testing.assert_array_equal(targets, drawn.targets)
        assert inputs.dtype == targets.dtype == predictions.dtype == np.int64
        assert (predictions == targets).sum() == row["n_correct"]
        assert (targets != IGNORE).sum() == row["n_eval_examples"]
        np.testing.assert_array_equal(predictions == -1, targets == IGNORE)
        assert metadata["run_id"] == row["run_id"] == run_id(metadata["config"])
        assert metadata["floor"] == row["floor"]


def test_rows_that_are_done_are_counted_and_made_again_only_if_asked(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    run(tiny(tmp_path, tasks=("copy:length=8",)))
    request = tiny(tmp_path, predictions=kept)
    plan = plan_request(request, CPU)
    run(request)

    assert plan.notices == (f"2 of the rows already done have no predictions in {kept}; --rerun all makes them",)
    assert len(list(kept.iterdir())) == 2
    assert len(plan_request(request, CPU).notices) == 1
    run(tiny(tmp_path, predictions=kept, rerun="all"))
    assert len(list(kept.iterdir())) == 4
    assert plan_request(request, CPU).notices == ()
