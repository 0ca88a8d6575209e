import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks import plan as bench
from synthbench.errors import UsageError
from synthbench.results import Store
from synthbench.results.schema import row_sha256
from synthbench.runner.estimates import TIMED, Estimates

MakeRow = Callable[..., dict[str, Any]]


def sweep(num_cells: int, num_seeds: int) -> pd.DataFrame:
    """Rows whose seconds differ a hundredfold from cell to cell and by a third from seed to seed, as measured."""
    rng = np.random.default_rng(0)
    per_cell = np.exp(rng.normal(1, 1.3, num_cells))
    rows = [
        {
            "device_type": "cpu", "d_model": 64, "n_layers": 2, "task": f"task{cell % 10}", "task_args": "{}",
            "task_category": f"category{cell % 10 % 3}", "mech": f"mech{cell // 10}", "mech_args": "{}",
            "mech_family": f"family{cell // 10 % 4}", "seq_len": 32 * (1 + cell % 10), "steps_planned": 200,
            "batch_size": 64, "status": "ok", "ensemble_size": 1, "seed": seed,
            "wall_s": per_cell[cell] * np.exp(rng.normal(0, 0.3)),
        }
        for cell in range(num_cells)
        for seed in range(num_seeds)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_sweep_in_our_order_ends_within_five_per_cent_of_the_lower_bound() -> None:
    estimated, _, taken = bench.draw(sweep(100, 6), 2000, np.random.default_rng(1))
    ratios = {
        name: bench.makespan(taken[np.argsort(sign * estimated)], 32) / bench.lower_bound(taken, 32)
        for name, sign in (("longest first", -1), ("shortest first", 1))
    }

    assert np.median(np.abs(np.log(estimated / taken))) > 0.2  # the estimates are as wrong as estimates are
    assert ratios["longest first"] <= 1.05
    assert ratios["shortest first"] > 1.05


def test_jobs_are_drawn_from_rows_that_the_estimates_do_not_rest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sweep(20, 4)
    known: list[pd.DataFrame | None] = []

    def remember(given: pd.DataFrame | None = None) -> Estimates:
        known.append(given)
        return Estimates(given)

    monkeypatch.setattr(bench, "Estimates", remember)
    _, _, taken = bench.draw(rows, 500, np.random.default_rng(0))

    assert known[0] is not None
    assert len(known[0]) == 10 * 2
    assert set(known[0].columns) == set(TIMED)
    assert set(taken).isdisjoint(known[0]["wall_s"])
    assert set(taken) <= set(rows["wall_s"])


@settings(max_examples=50, deadline=None)
@given(seconds=st.lists(st.integers(1, 100).map(float), min_size=1, max_size=40), workers=st.integers(1, 8))
def test_no_order_beats_the_bound_and_none_takes_twice_as_long(seconds: list[float], workers: int) -> None:
    bound = bench.lower_bound(seconds, workers)

    assert bound <= bench.makespan(seconds, workers) < 2 * bound


def test_a_plan_is_made_and_resumed(make_row: MakeRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "NUM_LEFT", 3)
    monkeypatch.setattr(bench, "MECHANISMS", ("linear",))
    store = Store.open(tmp_path, create=True)
    store.write(make_row(), [])

    planned, resumed = bench.planning(store, num_jobs=30)

    assert (planned["what"], resumed["what"]) == ("plan", "resume")
    assert planned["jobs"] == resumed["jobs"] == 44  # 22 tasks, two seeds
    assert len(bench.copies(store.table().to_pylist(), ["0" * 16, "1" * 16])) == 2


def test_copies_are_rows_that_a_store_accepts(make_row: MakeRow, tmp_path: Path) -> None:
    table = bench.copies([make_row(), make_row(seed=43)], [f"{number:016x}" for number in range(3)])
    store = Store.open(tmp_path, create=True)
    store.folder.commit_compact("runs", table)

    assert sorted(store.statuses()) == [f"{number:016x}" for number in range(3)]
    assert not store.quarantined
    assert all(row["row_sha256"] == row_sha256(row) for row in table.to_pylist())


def test_a_store_without_rows_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    with pytest.raises(UsageError, match="trained rows of 0 cells; allowed: 2 and more"):
        next(bench.measure(store, num_jobs=10, num_workers=[2], seed=0))


def test_the_command_prints_every_measurement(
    make_row: MakeRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "MECHANISMS", ("linear",))
    store = Store.open(tmp_path, create=True)
    for task in ("copy", "reverse"):
        for seed in range(4):
            store.write(make_row(task=task, seed=seed, wall_s=1.0 + seed), [])
    options = ["--results", str(tmp_path), "--jobs", "30", "--workers", "2,3", "--json"]
    result = CliRunner().invoke(bench.app, options)

    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert [fact["what"] for fact in facts] == ["plan", "resume", *["sweep"] * 8]
    assert all(fact["seconds/bound"] >= 1 for fact in facts[2:])
    assert {fact["workers"] for fact in facts} == {None, 2, 3}
