"""Which executor a request gets, and what part of the plan."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthbench.errors import UsageError
from synthbench.runner.environment import resolve_device
from synthbench.runner.run import Request, make_executor, plan_request, progress_of, run

CPU = resolve_device("cpu")


def planned(request: Request) -> list[str]:
    return list(plan_request(request, CPU).run_ids)


@pytest.fixture
def broad(tiny: Callable[..., Request]) -> Callable[..., Request]:
    """A plan of 24 cells with two seeds."""

    def make(results: Path, **changes: Any) -> Request:
        mechanisms = ("linear,softmax,identity,mean,gla,lstm",)
        return tiny(results, **{"tasks": ("all",), "mechanisms": mechanisms, **changes})

    return make


@pytest.mark.parametrize("num_parts", [1, 3, 7])
def test_the_shards_are_the_plan_each_row_once(num_parts: int, tmp_path: Path, broad: Callable[..., Request]) -> None:
    shards = [planned(broad(tmp_path, shard=f"{part}/{num_parts}")) for part in range(1, num_parts + 1)]

    assert sorted(run_id for shard in shards for run_id in shard) == sorted(planned(broad(tmp_path)))
    assert max(map(len, shards)) < 48 or num_parts == 1


def test_a_shard_keeps_its_cells_whatever_is_done_and_whatever_the_seeds_and_groups(
    tmp_path: Path, broad: Callable[..., Request]
) -> None:
    def cells(**changes: Any) -> set[tuple[str, str]]:
        plan = plan_request(broad(tmp_path, shard="2/3", rerun="all", **changes), CPU)
        return {(job.cell.task_name, job.cell.mechanism_name) for job in plan.jobs}

    before = cells()
    run(broad(tmp_path, shard="1/3", steps=1, limit=8, mechanisms=("mean",)))
    assert cells() == cells(seeds=(7, 8, 9)) == cells(group_size=64) == before


def test_an_interrupted_shard_resumes_and_its_status_is_its_own(tmp_path: Path, broad: Callable[..., Request]) -> None:
    request = broad(tmp_path, shard="1/3", mechanisms=("mean", "identity"), steps=1, limit=8)
    shorter = broad(tmp_path, shard="1/3", mechanisms=("mean", "identity"), steps=1, limit=8, seeds=(42,))
    run(shorter)
    facts = progress_of(request, CPU)[-1]
    report = run(request)

    assert (facts["planned"], facts["missing"]) == (report.num_planned, len(report.outcomes))
    assert 0 < report.num_done_before == report.num_planned // 2
    assert report.ok


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "/", "a/b", "1/0", "-1/3", "1/3/3", "1.0/3", ""])
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
