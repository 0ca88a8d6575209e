"""Ray: two machines in one, workers and machines that die, a driver that dies, and clusters of other people."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from synthbench.errors import StoreError, UsageError
from synthbench.runner.executors import Executor, Pool
from synthbench.runner.executors.base import Try
from synthbench.runner.request import Request
from synthbench.runner.run import run
from tests.results.stores import reader
from tests.runner.runs import command, interrupted, lasting, one_by_one, planned, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.ray]


@pytest.fixture
def executor(cluster: Any) -> Iterator[Callable[..., Executor]]:
    """Ray executors on the cluster of the session."""
    import ray  # noqa: PLC0415 - may be missing

    from synthbench.runner.executors.ray import Ray  # noqa: PLC0415 - the same

    yield lambda **options: Ray(None, address=cluster.address, **options)
    assert not ray.is_initialized()


def in_background(executor: Executor, request: Request) -> threading.Thread:
    jobs, context = planned(request, "ray")
    driver = threading.Thread(target=lambda: list(executor.run(jobs, context, lambda: False)), daemon=True)
    driver.start()
    return driver


def test_rows_are_those_of_the_inline_executor(cluster: Any, tmp_path: Path) -> None:
    ladder = {"suite": "core", "tasks": ("dyck,mqar",), "seeds": (1,), "steps": 16, "limit": 16}
    report = run(one_by_one(tmp_path / "ray", executor="ray", address=cluster.address, **ladder))
    run(one_by_one(tmp_path / "inline", executor="inline", **ladder))

    assert report.ok
    assert set(report.rows.executor) == {"ray"}
    assert set(report.rows.attempt) == {1}
    assert lasting(tmp_path / "ray") == lasting(tmp_path / "inline")


def test_a_worker_and_then_its_machine_are_lost_and_nothing_changes(
    cluster: Any, executor: Callable[..., Executor], tmp_path: Path, gate: Any
) -> None:
    machine = cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    driver = in_background(executor(), gate.request(tmp_path / "lost", seeds=range(3)))
    os.kill(gate.begun(3)[0], signal.SIGKILL)
    begun = gate.begun(4)
    cluster.remove_node(machine, allow_graceful=False)
    wait_until(lambda: sum(Path(f"/proc/{process}").exists() for process in begun) == 2, "the machine is gone")
    gate.open()  # only now is there room for the job that was lost
    driver.join(timeout=120)
    in_background(Pool(1), gate.request(tmp_path / "undisturbed", seeds=range(3))).join(timeout=120)

    assert not driver.is_alive()
    lost, undisturbed = (gate.stores(tmp_path / name) for name in ("lost", "undisturbed"))
    assert sum((reader(folder).runs().attempt - 1).sum() for folder in lost) == 2
    assert lasting(*lost) == lasting(*undisturbed)


def test_what_hangs_is_ended(executor: Callable[..., Executor], tmp_path: Path, gate: Any) -> None:
    jobs, context = planned(gate.request(tmp_path, seeds=(0, 1)), "ray")
    events = list(executor(timeout_s=1.0).run(jobs, context, lambda: False))

    assert [outcome.status for event in events for outcome in event.outcomes] == ["timeout", "timeout"]
    rows = pd.concat(reader(folder).runs() for folder in gate.stores(tmp_path))
    assert set(rows.error_message) == {"killed after 1.0 s"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(one_by_one(folder, steps=300, seeds=range(5), executor="inline"))
    return folder


@pytest.mark.parametrize("lost", ["driver", "machines"])
def test_a_run_that_lost_its_driver_or_every_machine_writes_nothing_more_and_the_same_command_goes_on(
    lost: str, cluster: Any, tmp_path: Path, undisturbed: Path
) -> None:
    address = cluster.address if lost == "driver" else None  # the machines of a cluster of its own
    request = one_by_one(tmp_path / "lost", steps=300, seeds=range(5), executor="ray", address=address)
    driver = subprocess.Popen(command(request, "--seeds", "0-4"), stderr=subprocess.PIPE, text=True)
    runs = request.results / "runs"
    wait_until(lambda: driver.poll() is not None or len(list(runs.glob("*.parquet"))) >= 2, "two rows are there")
    for process in [driver.pid] if lost == "driver" else daemons_of(driver.pid):
        os.kill(process, signal.SIGKILL)
    _, said = driver.communicate(timeout=180)
    before = reader(request.results).runs()
    report = run(request if lost == "driver" else replace(request, executor="inline"))

    assert driver.returncode == (-signal.SIGKILL if lost == "driver" else 3)
    assert ("the same command runs what is missing" in said) == (lost == "machines")
    assert set(before.status) == {"ok"}
    assert 2 <= len(before) < 10
    assert report.ok
    after = reader(request.results).runs().set_index("run_id")
    assert after.row_sha256[before.run_id].tolist() == before.row_sha256.tolist()
    assert lasting(request.results) == lasting(undisturbed)


def daemons_of(driver: int) -> list[int]:
    """Ray's daemons that a driver started."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    lines = (line.split(None, 2) for line in listed.stdout.splitlines())
    return [int(pid) for pid, parent, arguments in lines if int(parent) == driver and "raylet/raylet " in arguments]


@pytest.mark.usefixtures("cluster")  # a foreign one, that must be left alone
def test_the_command_line_starts_a_cluster_of_its_own_and_ctrl_c_finishes_what_runs(tmp_path: Path) -> None:
    request = one_by_one(tmp_path, tasks=("copy",), mechanisms=("slay",), steps=200, executor="ray")
    # Nobody listens there, and nothing can be written to that home.
    elsewhere = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1", "HOME": "/proc"}
    output = interrupted(request, "--seeds", "0-19", "--json", most=20, is_to_all=True, env=elsewhere)

    assert sorted(row["run_id"] for row in json.loads(output)["rows"]) == sorted(reader(tmp_path).runs().run_id)


def test_a_cluster_has_room_for_as_many_jobs_as_it_has_cores_or_shares_of_gpus(
    executor: Callable[..., Executor], tmp_path: Path, gate: Any
) -> None:
    _, context = planned(gate.request(tmp_path), "ray")

    def room(device: str, **options: Any) -> int:
        ray: Any = executor(**options)
        with ray.workers(replace(context, device=device, is_alone=False)):
            return int(ray.capacity())

    cores = room("cpu")  # a machine that was lost may still be counted
    assert cores >= 2
    assert (room("cuda"), room("cuda:0", gpu_fraction=0.5), room("cuda", gpu_fraction=0.01)) == (1, 2, cores)


@pytest.mark.usefixtures("_ray")
def test_a_machine_that_does_not_see_the_results_says_that_it_has_begun_and_then_why_not(tmp_path: Path) -> None:
    from synthbench.runner.executors.ray import _work  # noqa: PLC0415 - may be missing

    (job, *_), context = planned(one_by_one(tmp_path / "results"), "ray")
    begun, end = _work(Try(job, 1), replace(context, results=tmp_path / "elsewhere"), tmp_path / "one.log", 1.0)

    assert begun is None
    assert isinstance(end, StoreError)


@pytest.mark.usefixtures("_ray")
@pytest.mark.parametrize(
    ("address", "message"), [("127.0.0.1:1", "no Ray cluster at"), ("ray://host:10001", "host:port, or auto")]
)
def test_an_address_where_no_cluster_is_is_refused(address: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        run(one_by_one(tmp_path, executor="ray", address=address))


def test_a_cluster_of_another_version_is_refused_in_one_line(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray  # noqa: PLC0415 - may be missing

    monkeypatch.setattr(ray, "__version__", "0.0.1")
    with pytest.raises(UsageError, match=r"^no Ray cluster at .*Version mismatch.*Ray: 0\.0\.1.*, or auto$"):
        run(one_by_one(tmp_path, executor="ray", address=cluster.address))
    assert not ray.is_initialized()
