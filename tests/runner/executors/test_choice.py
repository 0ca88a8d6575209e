"""Choice of the executor for a request, and the shares of GPUs that its processes get."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import current_process, get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from pebble import ProcessPool

from synthbench.errors import UsageError
from synthbench.runner.executors import Inline, Pool, make_executor
from synthbench.runner.executors.pool import VISIBLE, Slot, _initialise_worker, take_slot
from synthbench.runner.plan import Plan, plan_request
from synthbench.runner.request import EXECUTORS, Request
from synthbench.runner.run import device_of, run
from tests.runner.runs import Known, one_by_one

CPU = torch.device("cpu")


@pytest.fixture
def plan_of(tmp_path: Path) -> Callable[[int], Plan]:
    """A plan of some jobs."""
    return lambda num_jobs: plan_request(one_by_one(tmp_path, tasks=("copy:length=8",), seeds=range(num_jobs)), CPU)


@pytest.mark.parametrize(
    ("num_jobs", "run_s", "expected"),
    [(1, 600.0, Inline), (2, None, Inline), (2, 0.1, Inline), (2, 600.0, Pool), (3, 0.1, Pool)],
)
def test_a_process_a_core_is_started_for_many_jobs_or_two_long_ones(
    num_jobs: int, run_s: float | None, expected: type, plan_of: Callable[[int], Plan]
) -> None:
    plan = replace(plan_of(num_jobs), estimates=Known(lambda _cell: run_s))

    assert len(plan.jobs) == num_jobs
    assert type(make_executor(Request(), plan, CPU)) is expected


def test_a_daemonic_process_trains_in_itself_and_starts_no_workers(
    plan_of: Callable[[int], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current_process(), "_config", {"daemon": True})  # as in a worker of multiprocessing.Pool

    assert make_executor(Request(), plan_of(3), CPU).name == "inline"
    with pytest.raises(UsageError, match=r"a daemonic process, such as one of multiprocessing\.Pool, cannot start any"):
        make_executor(Request(executor="pool"), plan_of(3), CPU)


def test_nothing_leaves_this_machine_unless_it_is_asked_to(
    plan_of: Callable[[int], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    here = [name for name, kind in EXECUTORS.items() if not kind.is_elsewhere]

    assert make_executor(Request(), plan_of(3), CPU).name == "pool"
    assert here == ["auto", "inline", "pool"]


@pytest.mark.parametrize(("executor", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_executor_whose_package_is_missing_says_what_to_install(
    executor: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it could not be found
    monkeypatch.delitem(sys.modules, f"synthbench.runner.executors.{executor}", raising=False)
    with pytest.raises(UsageError, match=rf"needs the package {package}.*pip install -e '\.\[{executor}\]'"):
        run(one_by_one(tmp_path / "results", executor=executor))
    assert not (tmp_path / "results").exists()


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv(VISIBLE, raising=False)


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(
    ("device", "changes", "visible", "expected"),
    [
        ("cuda", {}, None, ["0", "1"]),
        ("cuda", {"per_gpu": 4, "workers": 3}, None, ["0", "1", "0"]),  # all GPUs before any is shared
        ("cuda:1", {"per_gpu": 2}, None, ["1", "1"]),
        ("cuda:1", {"timeout_s": 60.0}, None, ["1"]),
        ("cuda", {}, "5,3", ["5", "3"]),  # GPUs that this process was given
        ("cuda:1", {"timeout_s": 60.0}, "GPU-8a, MIG-1b", ["MIG-1b"]),
        ("cuda:1", {}, None, []),
        ("cuda", {"executor": "inline"}, None, []),
    ],
)
def test_gpus_get_a_process_for_each_share_and_one_is_used_inline(
    device: str,
    changes: dict[str, Any],
    visible: str | None,
    expected: list[str],
    plan_of: Callable[[int], Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    executor = make_executor(Request(**changes), plan_of(3), torch.device(device))
    share = 1 / changes.get("per_gpu", 1)

    assert [*getattr(executor, "slots", ())] == [(gpu, share) for gpu in expected]
    assert (executor.name, executor.num_workers) == (("pool", len(expected)) if expected else ("inline", 1))


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per_gpu": 0}, "processes per GPU are 0; allowed: 1 and more"),
        ({"per_gpu": 2, "executor": "inline"}, "executor inline; allowed: on GPUs, with pool or ray"),
        ({"per_gpu": 2, "workers": 5}, "workers is 5; allowed: 1 to 4, 2 on each of 2 GPUs; --per-gpu"),
        ({"workers": 3}, "workers is 3; allowed: 1 to 2"),
    ],
)
def test_what_fits_no_gpu_is_refused(changes: dict[str, Any], message: str, plan_of: Callable[[int], Plan]) -> None:
    with pytest.raises(UsageError, match=message):
        make_executor(Request(**changes), plan_of(3), torch.device("cuda"))


def test_the_device_of_a_cluster_need_not_be_here(tmp_path: Path) -> None:
    there = one_by_one(tmp_path, executor="slurm", device="cuda")

    assert device_of(there).type == "cuda"


def test_a_slot_is_taken_once_and_free_again_when_it_is_let_go(tmp_path: Path) -> None:
    slots = [Slot("0"), Slot("1")]
    (first, lock), (second, _kept) = take_slot(slots, tmp_path), take_slot(slots, tmp_path)

    assert (first, second) == (slots[0], slots[1])
    with pytest.raises(TimeoutError, match="all 2 slots are taken"):
        take_slot(slots, tmp_path, patience_s=0.0)
    lock.release()
    assert take_slot(slots, tmp_path)[0] == slots[0]


def visible(deadly: str = "") -> tuple[str, int]:
    """Report a worker's GPUs and id; it dies of one GPU."""
    time.sleep(0.05)  # so that both workers get some
    if os.environ[VISIBLE] == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.environ[VISIBLE], os.getpid()


@pytest.mark.end_to_end
def test_a_worker_sees_its_own_gpu_and_the_one_that_replaces_it_sees_the_same(tmp_path: Path) -> None:
    places = [("7", 1.0), ("GPU-8a", 1.0)], str(tmp_path)
    with ProcessPool(2, context=get_context("spawn"), initializer=_initialise_worker, initargs=places) as pool:

        def all_seen() -> dict[str, int]:
            found: dict[str, int] = {}
            while len(found) < 2:
                gpu, worker = pool.schedule(visible).result()
                found[gpu] = worker
            return found

        before = all_seen()
        while pool.schedule(visible, args=["7"]).exception() is None:
            pass  # the other worker took it
        after = all_seen()

    assert before.keys() == after.keys() == {"7", "GPU-8a"}
    assert after["7"] != before["7"]
