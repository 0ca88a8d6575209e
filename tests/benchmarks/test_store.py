"""The made-up rows of the benchmark are rows like others, and every step of it is timed."""

from pathlib import Path

import pytest

from benchmarks import store as bench
from synthbench.errors import UsageError
from synthbench.results import Store
from synthbench.results.maintenance import examine


def test_each_step_is_timed_on_rows_that_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "NUM_TASKS", 2)
    monkeypatch.setattr(bench, "NUM_MECHANISMS", 2)
    monkeypatch.setattr(bench, "_BATCH_ROWS", 5)

    facts = bench.measure(tmp_path, num_rows=12, num_singles=3, num_points=2)

    assert [fact["step"] for fact in facts] == ["write", "compact", "load", "report", "load and report"]
    assert all(fact["seconds"] > 0 for fact in facts)
    made = Store.open(tmp_path, create=False)
    assert examine(made, is_repairing=False) == []
    rows = made.runs()
    assert len(rows) == rows["run_id"].nunique() == 12
    assert rows.groupby(["task", "mech"])["seed"].nunique().tolist() == [3, 3, 3, 3]
    assert len(made.curves()) == 12 * 2 * len(bench.MEASURES)


def test_a_folder_that_is_in_use_and_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--singles is 3; allowed: 1 to 2"):
        bench.measure(tmp_path, num_rows=2, num_singles=3, num_points=2)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="is not empty"):
        bench.measure(tmp_path, num_rows=2, num_singles=1, num_points=2)
