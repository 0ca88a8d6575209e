"""Choice of the executor for a request."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.runner.executors import Inline, Pool, make_executor
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


@pytest.mark.parametrize(
    ("device", "changes", "expected"),
    [
        ("cuda", {}, ["0", "1"]),
        ("cuda", {"per_gpu": 2, "workers": 3}, ["0", "1", "0"]),
        ("cuda:1", {"timeout_s": 60.0}, ["1"]),
        ("cuda:1", {}, None),
        ("cuda", {"executor": "inline"}, None),
        ("cuda", {"per_gpu": 0}, "processes per GPU are 0; allowed: 1 and more"),
        ("cuda", {"per_gpu": 2, "executor": "inline"}, "executor inline; allowed: on GPUs, with pool or ray"),
    ],
)
def test_gpus_get_a_process_for_each_share_and_one_is_used_inline(
    device: str,
    changes: dict[str, Any],
    expected: list[str] | str | None,
    plan_of: Callable[[int], Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    plan = plan_of(3)
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            make_executor(Request(**changes), plan, torch.device(device))
        return
    executor = make_executor(Request(**changes), plan, torch.device(device))

    assert [slot.gpu for slot in getattr(executor, "slots", ())] == (expected or [])
    assert (executor.name, executor.num_workers) == (("pool", len(expected)) if expected else ("inline", 1))


def test_the_device_of_a_cluster_need_not_be_here(tmp_path: Path) -> None:
    there = one_by_one(tmp_path, executor="slurm", device="cuda")

    assert device_of(there).type == "cuda"
