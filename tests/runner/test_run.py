import itertools
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthbench.results import Store
from synthbench.results.schema import run_id
from synthbench.runner.environment import resolve_device
from synthbench.runner.plan import count_status, plan_request
from synthbench.runner.request import Request
from synthbench.runner.run import run
from synthbench.tasks import IGNORE
from synthbench.training.sequences import draw
from tests.results.rows import later
from tests.results.stores import reader
from tests.runner.runs import interrupted, lasting, tiny

CPU = resolve_device("cpu")


@pytest.mark.end_to_end
def test_the_first_interrupt_finishes_what_runs_and_keeps_it(tmp_path: Path) -> None:
    request = tiny(tmp_path, tasks=("copy:length=8",), steps=200, executor="pool")
    interrupted(request, "--workers", "2", "--seeds", "0-39", most=40, is_to_all=False)


def test_a_stop_begins_no_further_job(tmp_path: Path) -> None:
    stop = threading.Event()
    report = run(
        tiny(tmp_path, executor="inline", group_size=1), is_stopped=stop.is_set, on_outcome=lambda _outcome: stop.set()
    )

    assert len(report.outcomes) == 1
    assert report.is_interrupted
    assert not report.ok


def test_a_run_compacts_what_it_leaves_once_there_are_many_files(tmp_path: Path) -> None:
    request = tiny(tmp_path, tasks=("copy:length=8",), seeds=(0,), executor="inline")
    run(request)
    assert len(Store.open(tmp_path, create=False).loose()) == 1
    report = run(request, most_loose=0)

    assert report.ok
    assert Store.open(tmp_path, create=False).loose() == []
    assert plan_request(request, CPU).num_missing == 0


@pytest.fixture
def done(tmp_path: Path) -> tuple[Request, Store, dict[str, Any]]:
    """A request of one row that is done, the store, and the row."""
    request = tiny(tmp_path, tasks=("copy:length=8",), seeds=(0,), executor="inline")
    run(request)
    store = Store.open(tmp_path, create=True)
    (row,) = store.table().to_pylist()
    return request, store, row


def test_failed_rows_run_again_only_if_asked(done: tuple[Request, Store, dict[str, Any]]) -> None:
    request, store, row = done
    store.write_all([(later(row, status="error", score=None, skill=None), [])])

    assert plan_request(request, CPU).num_missing == 0
    assert plan_request(request, CPU).notices == ("1 of the rows already done failed; --rerun failed makes them again",)
    assert count_status(request, CPU)[-1] == {"category": "all", "planned": 1, "done": 0, "failed": 1, "missing": 0}
    again = run(request)
    assert (again.outcomes, again.num_failed_before, again.ok) == ([], 1, False)
    assert plan_request(replace(request, rerun="failed"), CPU).num_missing == 1
    assert plan_request(replace(request, rerun="all"), CPU).num_missing == 1


def test_what_failed_with_another_source_gets_another_chance(done: tuple[Request, Store, dict[str, Any]]) -> None:
    request, store, row = done
    failed = {"status": "error", "score": None, "skill": None}
    seconds = itertools.count(1)

    def num_missing(**changes: Any) -> int:
        store.write_all([(later(row, next(seconds), **failed | changes), [])])
        return plan_request(request, CPU).num_missing

    assert num_missing() == 0
    assert num_missing(mech_code_hash="0" * 12) == num_missing(task_code_hash="0" * 12) == 1
    assert num_missing(task_code_hash=None) == 0  # of a row of before this column nobody knows
    store.write_all([(later(row, next(seconds), mech_code_hash="0" * 12), [])])
    assert plan_request(request, CPU).num_missing == 0


def test_a_task_outside_the_suite_has_rows_of_its_own_and_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mqar, absent = "mqar:length=16,num_pairs=2", "not in suite 'smoke', so not in its tables: mqar"
    request = tiny(tmp_path, tasks=(f"copy:length=8,{mqar}",))
    run(request)
    plan = plan_request(request, CPU)
    whole = replace(request, steps=None, limit=None)
    (notice,) = plan_request(whole, CPU).notices
    (short,) = plan_request(replace(whole, results=Request.results), CPU).notices
    rows = reader(tmp_path).runs()

    assert plan.notices == (absent,)  # no report shows shortened runs
    assert notice == f"{absent}; `synthbench report --suite smoke.extra --results {tmp_path}` shows them"
    assert short == notice.replace(f" --results {tmp_path}", "")
    assert plan.num_missing == plan_request(replace(request, suite="smoke.extra", tasks=(mqar,)), CPU).num_missing == 0
    assert dict(zip(rows.task, rows.suite, strict=True)) == {"copy": "smoke", "mqar": "smoke.extra"}
    assert set(rows.suite_version) == {"2026.1"}
    assert count_status(request, CPU) == [
        {"category": name, "planned": num, "done": num, "failed": 0, "missing": 0}
        for name, num in (("basic", 2), ("recall", 2), ("all", 4))
    ]


def test_a_block_and_positions_with_arguments_are_stored_as_they_were_asked_for(tmp_path: Path) -> None:
    around = {"block": "aether:norm=pre", "positions": "rope:base=500"}
    report = run(tiny(tmp_path, tasks=("copy:length=8",), seeds=(0,), steps=1, **around))

    assert report.ok
    assert report.rows[["block", "positions"]].to_dict("records") == [
        {"block": "aether:norm=pre", "positions": "rope:base=500.0"}
    ]


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
