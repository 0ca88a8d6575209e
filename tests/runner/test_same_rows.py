"""The same command gives the same bits, whatever runs it, on however many workers, in whatever order."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
import torch

from synthbench.results import Store
from synthbench.runner.executors import Inline
from synthbench.runner.plan import plan_request
from synthbench.runner.request import Request
from synthbench.runner.run import run
from synthbench.runner.worker import RunContext
from tests.runner.runs import MAY_DIFFER, command, tiny


def bits(results: Path) -> tuple[pa.Table, list[tuple[object, ...]]]:
    """All else of the rows, and of the points of their curves."""
    store = Store.open(results, create=False)
    curves = store.curves().drop(columns="wall_s")
    return store.table().drop_columns(MAY_DIFFER), list(curves.itertuples(index=False, name=None))


def test_no_result_may_differ() -> None:
    assert {"score", "skill", "metrics", "train_loss", "eval_loss"}.isdisjoint(MAY_DIFFER)


def request(results: Path, **changes: Any) -> Request:
    """Four jobs of one row each."""
    base: dict[str, Any] = {
        "tasks": ("copy:length=8", "majority:length=9"), "mechanisms": ("slay", "softmax"), "seeds": (0,), "steps": 3,
        "limit": 16, "executor": "inline", "group_size": 1,
    }  # fmt: skip
    return tiny(results, **(base | changes))


def run_command(asked: Request, *options: str, hash_seed: str = "0") -> None:
    """Run a request as a user types it."""
    words = command(asked, "--seeds", "0", *options)
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, list[tuple[object, ...]]]:
    folder = tmp_path_factory.mktemp("inline")
    run(request(folder))
    return bits(folder)


@pytest.mark.end_to_end
def test_rows_do_not_depend_on_workers_nor_on_the_hash_seed(expected: object, tmp_path: Path) -> None:
    run_command(request(tmp_path, executor="pool"), "--workers", "3", hash_seed="4294967295")

    assert bits(tmp_path) == expected
    assert set(Store.open(tmp_path, create=False).runs()["executor"]) == {"pool"}


def test_rows_do_not_depend_on_the_order_of_jobs(expected: object, tmp_path: Path) -> None:
    jobs = plan_request(request(tmp_path), torch.device("cpu")).jobs
    context = RunContext(tmp_path, "cpu", "inline", planned_at=0.0)
    Store.open(tmp_path, create=True)
    for _ in Inline().run(jobs[::-1], context, Event()):
        pass

    assert len(jobs) == 4
    assert bits(tmp_path) == expected


@pytest.mark.gpu
def test_deterministic_rows_of_a_gpu_are_the_same_bits_alone_and_beside_others(
    expected: tuple[pa.Table, list[tuple[object, ...]]], tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("cuda", torch.cuda.is_available(), "this machine has no CUDA device")
    stores = []
    for name, executor, options in (
        ("first", "inline", ()),
        ("again", "inline", ()),
        ("shared", "pool", ("--per-gpu", "2")),
    ):
        asked = request(tmp_path / name, device="cuda", executor=executor)
        run_command(asked, "--deterministic", *options)
        stores.append(bits(tmp_path / name))

    assert stores[0] == stores[1] == stores[2]
    rows, on_cpu = stores[0][0].to_pylist(), expected[0].to_pylist()
    assert all(row["deterministic"] and row["status"] == "ok" for row in rows)
    # Another device rounds differently, which after three steps is far from mattering.
    assert [row["eval_loss"] for row in rows] == pytest.approx([row["eval_loss"] for row in on_cpu], rel=1e-3)
