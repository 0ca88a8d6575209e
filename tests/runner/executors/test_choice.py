"""Which executor a request gets, and what part of the plan."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.runner.environment import resolve_device
from synthbench.runner.estimates import Estimates
from synthbench.runner.executors import Inline, Pool
from synthbench.runner.executors import make_executor
from synthbench.runner.plan import plan_request, progress_of
from synthbench.runner.request import Request
from synthbench.runner.run import device_of, run

CPU = resolve_device("cpu")


def planned(request: Request) -> list[str]:
    return list(plan_request(request, CPU).run_ids)


@pytest.fixture
def broad(tiny: Callable[..., Request]) -> Callable[..., Request]:
    """A plan of 12 cells with two seeds."""

    def make(results: Path, **changes: Any) -> Request:
        mechanisms = ("linear,softmax,mean",)
        return tiny(results, **{"tasks": ("all",), "mechanisms": mechanisms, **changes})

    return make


@pytest.mark.parametrize(
    ("num_jobs", "share_s", "expected"),
    [(1, 600.0, Inline), (2, None, Inline), (2, 0.1, Inline), (2, 600.0, Pool), (3, 0.1, Pool)],
)
def test_a_process_a_core_is_started_for_many_jobs_or_two_long_ones(
    tmp_path: Path,
    tiny: Callable[..., Request],
    monkeypatch: pytest.MonkeyPatch,
    num_jobs: int,
    share_s: float | None,
    expected: type,
) -> None:
    monkeypatch.setattr(Estimates, "share_s", lambda _self, _traits: share_s)
    tasks = ",".join(["copy:length=8", "majority:length=8", "reverse:length=8"][:num_jobs])
    request = tiny(tmp_path, tasks=(tasks,), mechanisms=("linear",), seeds=(42,), executor="auto")
    plan = plan_request(request, CPU)

    assert len(plan.jobs) == num_jobs
    assert type(make_executor(request, plan, CPU)) is expected


def test_the_shards_are_the_plan_each_row_once(tmp_path: Path, broad: Callable[..., Request]) -> None:
    shards = [planned(broad(tmp_path, shard=f"{part}/3")) for part in range(1, 4)]

    assert sorted(run_id for shard in shards for run_id in shard) == sorted(planned(broad(tmp_path)))
    assert max(map(len, shards)) < 24


def test_a_shard_keeps_its_cells_whatever_is_done_and_whatever_the_seeds_and_groups(
    tmp_path: Path, broad: Callable[..., Request]
) -> None:
    def cells(**changes: Any) -> set[tuple[str, str]]:
        plan = plan_request(broad(tmp_path, shard="2/3", rerun="all", **changes), CPU)
        return {(cell.task_name, cell.mechanism_name) for job in plan.jobs for cell in job.cells}

    before = cells()
    run(broad(tmp_path, shard="1/3", steps=1, limit=8, mechanisms=("mean",), executor="inline", seeds=(42,)))
    assert cells() == cells(seeds=(7, 8, 9), group_size=64) == before


def test_an_interrupted_shard_resumes_and_its_status_is_its_own(tmp_path: Path, broad: Callable[..., Request]) -> None:
    few = {"mechanisms": ("mean",), "steps": 1, "limit": 8, "executor": "inline"}
    # Which parts have a run of this mechanism depends on its ids.
    shard = next(part for part in ("1/3", "2/3", "3/3") if plan_request(broad(tmp_path, shard=part, **few), CPU).jobs)
    request = broad(tmp_path, shard=shard, **few)
    run(broad(tmp_path, shard=shard, seeds=(42,), **few))
    facts = progress_of(request, CPU)[-1]
    report = run(request)

    assert (facts["planned"], facts["missing"]) == (report.num_planned, len(report.outcomes))
    assert 0 < report.num_done_before == report.num_planned // 2
    assert report.ok


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0", "1/3/3", ""])
def test_a_shard_that_is_none_is_refused(shard: str, tmp_path: Path, tiny: Callable[..., Request]) -> None:
    with pytest.raises(UsageError, match=r"allowed: i/n with i from 1 to n, as in 2/3"):
        plan_request(tiny(tmp_path, shard=shard), CPU)


@pytest.mark.parametrize(("executor", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_executor_whose_package_is_missing_says_what_to_install(
    executor: str, package: str, tmp_path: Path, tiny: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it could not be found
    monkeypatch.delitem(sys.modules, f"synthbench.runner.executors.{executor}", raising=False)
    with pytest.raises(UsageError, match=rf"needs the package {package}.*pip install -e '\.\[{executor}\]'"):
        run(tiny(tmp_path / "results", executor=executor))
    assert not (tmp_path / "results").exists()


def test_nothing_leaves_this_machine_unless_it_is_asked_to(
    tmp_path: Path, tiny: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    request = tiny(tmp_path)
    assert make_executor(request, plan_request(request, CPU), CPU).name == "pool"
    for executor in ("auto", "inline", "pool"):
        with pytest.raises(UsageError, match="executors ray and slurm only"):
            run(tiny(tmp_path, executor=executor, address="auto"))


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(
    ("device", "changes", "expected"),
    [
        ("cuda", {}, ["0", "1"]),
        ("cuda", {"per_gpu": 2, "workers": 3}, ["0", "1", "0"]),
        ("cuda:1", {"timeout_s": 60.0}, ["1"]),
        ("cuda:1", {}, None),
        ("cuda", {"executor": "inline"}, None),
    ],
)
def test_gpus_get_a_process_for_each_share_and_one_is_used_inline(
    device: str, changes: dict[str, Any], expected: list[str] | None, tmp_path: Path, broad: Callable[..., Request]
) -> None:
    request = broad(tmp_path, **changes)
    executor = make_executor(request, plan_request(request, CPU), torch.device(device))

    if expected is None:
        assert isinstance(executor, Inline)
    else:
        assert isinstance(executor, Pool)
        assert [slot.gpu for slot in executor.slots] == expected
        assert executor.num_workers == len(expected)


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(
    ("device", "changes", "message"),
    [
        ("cuda", {"workers": 3}, "workers is 3; allowed: 1 to 2, 1 on each of 2 GPUs; --per-gpu"),
        ("cpu", {"per_gpu": 2}, "processes per GPU are 2 with device cpu and executor auto; allowed: on GPUs"),
        ("cuda", {"per_gpu": 2, "executor": "inline"}, "executor inline; allowed: on GPUs, with pool or ray"),
    ],
)
def test_processes_that_do_not_fit_the_gpus_are_refused(
    device: str, changes: dict[str, Any], message: str, tmp_path: Path, broad: Callable[..., Request]
) -> None:
    request = broad(tmp_path, **changes)
    with pytest.raises(UsageError, match=message):
        make_executor(request, plan_request(request, CPU), torch.device(device))


def test_rows_that_were_made_without_determinism_are_missing_where_it_is_asked_for(
    tmp_path: Path, tiny: Callable[..., Request]
) -> None:
    short = {"tasks": ("copy:length=8",), "seeds": (0,), "steps": 1, "limit": 8, "executor": "inline"}
    run(tiny(tmp_path, **short))
    asked = tiny(tmp_path, **short, deterministic=True)

    assert plan_request(asked, CPU).num_done == 0
    assert run(asked).rows["deterministic"].all()
    assert plan_request(asked, CPU).num_missing == 0
    assert plan_request(tiny(tmp_path, **short), CPU).num_missing == 0


def test_the_device_of_a_cluster_need_not_be_here(tmp_path: Path, tiny: Callable[..., Request]) -> None:
    there = tiny(tmp_path, executor="slurm", device="cuda")
    assert device_of(there).type == "cuda"
    assert {job.cells[0].device_type for job in plan_request(there, device_of(there)).jobs} == {"cuda"}
    with pytest.raises(UsageError, match="allowed: auto, cpu, cuda"):
        device_of(tiny(tmp_path, executor="slurm", device="tpu"))
