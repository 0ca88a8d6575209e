"""A worker that dies, hangs, runs out of memory or meddles costs its own job at most."""

import contextlib
import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthbench.results import Store
from synthbench.runner.executors import Pool, base, pool
from synthbench.runner.held_out import HeldOutTest
from synthbench.runner.request import Request
from tests.cli.commands import Need
from tests.runner.runs import lasting, planned

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("_quick_workers")]

MakeRequest = Callable[..., Request]


def sweep(request: Request, *, workers: int, timeout_s: float | None = None, is_reversed: bool = False) -> pd.DataFrame:
    """Run the jobs of a request in workers, as they are; the rows by mechanism and seed."""
    executor = Pool(workers, timeout_s)
    jobs, context = planned(request, executor.name)
    with contextlib.closing(HeldOutTest(context.results, context.driver)) as test:
        for done in executor.run(jobs[::-1] if is_reversed else jobs, context, lambda: False, test.begin):
            test.take(done.job)
    return Store.open(request.results, create=False).runs().set_index(["mech", "seed"])


def kill_workers(moments: list[float], rng: np.random.Generator, killed: list[int], is_over: threading.Event) -> None:
    """After each of some pauses, kill one of the workers that there are."""
    for pause in moments:
        if is_over.wait(pause):
            return
        workers = [child for child in multiprocessing.active_children() if child.name == "pebble_pool_worker"]
        if workers:
            victim = workers[rng.integers(len(workers))]
            victim.kill()
            killed.append(victim.pid or 0)


def test_workers_killed_at_random_leave_what_undisturbed_ones_do(
    request_of: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"seeds": tuple(range(8)), "steps": 60, "limit": 32, "plugins": ()}
    undisturbed = sweep(request_of("linear", "softmax", results=tmp_path / "undisturbed", **changes), workers=2)
    job_s = float(undisturbed.wall_s.median())  # the sweep's own time has the start of the server in it
    monkeypatch.setattr(base, "MAX_TRIES", 99)  # chance may choose one job again and again
    rng, is_over = np.random.default_rng(0), threading.Event()
    killed: list[int] = []
    moments = [rng.uniform(0, job_s) for _ in range(30)]  # each kill makes the sweep longer
    killer = threading.Thread(target=kill_workers, args=(moments, rng, killed, is_over))

    killer.start()
    rows = sweep(request_of("linear", "softmax", **changes), workers=2)
    is_over.set()
    killer.join()

    story = f"after {moments} s, {len(killed)} killed"
    assert len(killed) >= 5, story
    assert (rows.attempt > 1).any(), story
    assert lasting(tmp_path / "results") == lasting(tmp_path / "undisturbed"), story


def test_workers_that_die_before_they_have_a_job_are_replaced(
    request_of: MakeRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker that is killed while it starts has no job to lose, and yet the sweep must go on."""
    launched: list[int] = []
    genuine = multiprocessing.process.BaseProcess.start

    def start(process: multiprocessing.process.BaseProcess) -> None:
        genuine(process)
        if process.name == "pebble_pool_worker":
            launched.append(process.pid or 0)
            if len(launched) <= 2:
                process.kill()

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start)
    rows = sweep(request_of("softmax", results=tmp_path / "results"), workers=2)

    assert len(launched) >= 4
    assert list(rows.status) == ["ok", "ok"]


def test_a_mechanism_that_hangs_in_c_and_ignores_requests_to_end_is_killed(request_of: MakeRequest, toys: Path) -> None:
    rows = sweep(request_of("holds-the-lock", seeds=(0,)), workers=1, timeout_s=5.0)

    assert list(rows.status) == ["timeout"]
    assert toys.with_name("holding").exists()


def notes(toys: Path, name: str) -> list[list[str]]:
    """Lines that a mechanism left beside its file, split into words."""
    return [line.split() for line in toys.with_name(name).read_text().splitlines()]


def test_memory_that_runs_out_halves_the_runs_then_is_a_row_and_renews_the_process(
    request_of: MakeRequest, toys: Path
) -> None:
    """The allocation is a real one that fails, as it does on a CPU."""
    rows = sweep(request_of("asks-for-too-much", "fits-always", seeds=range(4), group_size=4), workers=1)

    assert set(rows.status["asks-for-too-much"]) == {"oom"}
    assert rows.error_message["asks-for-too-much"].str.contains("can't allocate memory").all()
    assert rows.score["asks-for-too-much"].isna().all()
    assert set(rows.ensemble_size["fits-always"]) == {4}
    processes = [{process for process, _ in notes(toys, name)} for name in ("asks-for-too-much", "fits-always")]
    assert list(map(len, processes)) == [1, 1]
    assert processes[0] != processes[1]
    runs = [int(number) for _, number in notes(toys, "asks-for-too-much")]
    assert runs.index(4) < runs.index(2) < len(runs) - 1  # a check at the same shapes has one run
    assert runs[-1] == 1


@pytest.fixture
def limited(need: Need) -> Iterator[Path]:
    """The list of processes whose memory the kernel limits to half a gigabyte: a control group."""
    groups = Path("/sys/fs/cgroup")
    version_1, name = groups / "memory", f"synthbench-{os.getpid()}"
    group = (version_1 if version_1.is_dir() else groups) / name
    limit = group / ("memory.limit_in_bytes" if version_1.is_dir() else "memory.max")
    try:
        group.mkdir()
        limit.write_text(str(2**29))
        problem = None
    except OSError as refusal:
        problem = refusal
    need("cgroup", problem is None, f"a control group of memory is made as root: {problem}")
    yield group / "cgroup.procs"
    deadline = time.monotonic() + 20
    while group.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # a process that was killed is in it for a moment
            group.rmdir()
        time.sleep(0.1)


@pytest.mark.parametrize("is_limited", [False, True])
def test_a_worker_killed_for_its_memory_is_tried_once_more_alone_and_is_then_a_row(
    request_of: MakeRequest,
    toys: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_limited: bool,
) -> None:
    """The kill is real; without a limit, that it was for memory is what the kernel would count."""
    if is_limited:
        toys.with_name("group").write_text(os.fspath(request.getfixturevalue("limited")))
    else:
        counts = itertools.count()
        monkeypatch.setattr(pool, "num_memory_kills", lambda: next(counts))
    asked = request_of("fills-memory", "softmax", "linear", "slay", "sound", seeds=(0,), steps=30)
    rows, tries = sweep(asked, workers=2).droplevel("seed"), notes(toys, "tries")

    killed, others = rows.loc["fills-memory"], rows.drop("fills-memory")
    assert (killed.status, killed.attempt, len(tries)) == ("oom", 2, 2)
    assert "memory" in killed.error_message
    assert set(others.status) == {"ok"}
    second = pd.Timestamp(float(tries[1][0]), unit="s", tz="UTC")
    assert not ((others.started_at < killed.finished_at) & (others.finished_at > second)).any()


def test_a_mechanism_that_writes_anywhere_spoils_only_its_own_rows(request_of: MakeRequest, tmp_path: Path) -> None:
    """Two such run before the others."""
    changes: dict[str, Any] = {"steps": 30, "limit": 32}
    writers = ["rummages", "writes-into-its-input"]
    sweep(request_of("softmax", "linear", results=tmp_path / "alone", **changes), workers=1)
    rows = sweep(request_of(*writers, "softmax", "linear", **changes), workers=1, is_reversed=True)

    (log, *_) = (tmp_path / "results" / "logs").glob("*.log")
    assert max(int(line.split()[1]) for line in log.read_text().splitlines()) > 1, "it did find some"
    others = rows.drop(writers)
    assert rows.started_at[writers].max() < others.started_at.min()
    of_others = [row for row in lasting(tmp_path / "results")[0] if any(name in row for name in others.run_id)]
    assert of_others == lasting(tmp_path / "alone")[0]
