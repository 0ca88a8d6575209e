"""A driver that is killed, interrupted, refused by the disk or doubled leaves what an undisturbed one does."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from synthbench.errors import StoreError
from synthbench.process import _ancestors, _parents
from synthbench.results import Store
from tests.cli.commands import Need
from tests.faults.drivers import Driver, ended, twelve_rows
from tests.results.rows import make_row
from tests.results.stores import filled, reader
from tests.runner.runs import command, is_alive, lasting, tiny, wait_until

pytestmark = pytest.mark.end_to_end

KILLS = 6


def test_a_driver_killed_at_random_costs_no_row(driver: Driver, undisturbed: Path, tmp_path: Path) -> None:
    """A killed driver begins again from nothing, so on a slow machine none would live to see a row end.

    Therefore every second one is killed a moment after its first row has ended, the others a moment after they began.
    """
    request = twelve_rows(tmp_path / "results")
    whole = float(reader(undisturbed).runs().wall_s.sum())
    rng = np.random.default_rng(0)
    moments, ends, rows = [], [], [0]
    for kill in range(KILLS):
        moments.append(rng.uniform(0, whole / KILLS))
        (child,) = driver.begin(request)
        while kill % 2 and rows[-1] < 12 and "row ok" not in driver.said:
            time.sleep(0.01)
        time.sleep(moments[-1])
        child.kill()  # it may have ended by itself; few may, as is asserted
        ends.append(ended(child))
        rows.append(len(Store.open(tmp_path / "results", create=True).runs()))

    story = f"killed after {moments} s, rows {rows}"
    assert ends.count(-signal.SIGKILL) >= KILLS // 2, story
    assert rows == sorted(rows), story
    assert 0 < rows[KILLS // 2] < 12, story
    assert driver.run(request) == 0, story
    assert lasting(tmp_path / "results") == lasting(undisturbed), story


def test_drivers_that_begin_together_make_every_row_once(driver: Driver, undisturbed: Path, tmp_path: Path) -> None:
    """Each has two workers, with a log for every job; they are forked, since each would import for seconds.

    Each planned before another had written a row, so together they wrote more than there are.
    """
    quick = """
import multiprocessing
from synthbench.runner.executors import pool
pool.get_context = lambda _: multiprocessing.get_context("fork")
"""
    assert driver.run(twelve_rows(tmp_path, executor="pool", workers=2), quick, times=4) == 0, driver.said

    assert driver.said.count("row ok") > 12
    assert lasting(tmp_path) == lasting(undisturbed)
    assert list((tmp_path / "logs").iterdir()) == []
    assert list((tmp_path / "_tmp").glob("*.partial")) == []


LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))"
"""Python after which no larger file can be written: a curve fits into this limit, a row does not."""


def test_a_limit_on_files_ends_the_run_and_spares_its_rows(driver: Driver, undisturbed: Path, tmp_path: Path) -> None:
    assert driver.run(twelve_rows(tmp_path / "results", seeds=(0,))) == 0
    before = lasting(tmp_path / "results")

    code = driver.run(twelve_rows(tmp_path / "results"), LIMIT)

    assert code == 3
    assert "cannot write to the results store" in driver.said
    assert "File too large; " in driver.said
    assert " MB free" in driver.said
    assert lasting(tmp_path / "results") == before
    assert list((tmp_path / "results" / "_tmp").glob("*.partial")) == []
    assert driver.run(twelve_rows(tmp_path / "results")) == 0
    assert lasting(tmp_path / "results") == lasting(undisturbed)


@pytest.fixture
def disk(need: Need, tmp_path: Path) -> Iterator[Path]:
    """A file system of 10 MB and 24 files."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=10m,nr_inodes=24", "tmpfs", os.fspath(mounted)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    need("mount", done.returncode == 0, f"a small disk is mounted as root: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_a_disk_that_holds_no_further_file_is_told_from_one_without_room(disk: Path) -> None:
    store, rows = Store.open(disk / "results", create=True), [make_row(seed=seed) for seed in range(24)]
    with pytest.raises(
        StoreError, match="No space left on device; 10 MB free, but it holds as many files as it can"
    ) as refusal:
        filled(store.root, rows)
    written = store.table()["seed"].to_pylist()
    subprocess.run(["mount", "-o", "remount,nr_inodes=1000", disk], check=True)
    filled(store.root, rows[len(written) :])

    assert refusal.value.exit_code == 3
    assert written == list(range(len(written))) != []
    assert store.table()["seed"].to_pylist() == list(range(24))
    assert store.quarantined == []


def endless(results: Path, *options: str, mechanism: str = "linear") -> list[str]:
    """A command that goes on for hours in two workers."""
    asked = tiny(results, tasks=("copy:length=8",), mechanisms=(mechanism,), steps=10**6, executor="pool")
    return command(asked, "--seeds", "0-7", "--workers", "2", *options)


def descendants(process: int) -> set[int]:
    """The processes below one, its workers and what they began."""
    parents = _parents()
    return {pid for pid in parents if process in _ancestors(pid, parents)}


@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP]])
def test_a_second_interrupt_or_a_signal_leaves_nothing_behind(tmp_path: Path, signals: list[signal.Signals]) -> None:
    results, temporary = tmp_path / "results", tmp_path / "temporary"
    temporary.mkdir()
    driver = subprocess.Popen(
        endless(results), start_new_session=True, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": os.fspath(temporary)},
    )  # fmt: skip
    assert driver.stderr is not None
    try:
        wait_until(lambda: len(list((results / "logs").glob("*.log"))) == 2, "both workers have a job")
        workers = descendants(driver.pid)
        *first, last = signals
        for number in first:
            driver.send_signal(number)
            said = ""
            while "Ctrl-C again stops at once" not in said:
                said += driver.stderr.readline()
        assert any(map(is_alive, workers))
        driver.send_signal(last)

        assert driver.wait(timeout=30) == 128 + last
        assert list(temporary.iterdir()) == []
        wait_until(lambda: not any(map(is_alive, workers)), "a worker goes on without its driver", patience_s=10)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.stderr.close()
        driver.wait()
    assert len(Store.open(results, create=False).runs()) == 0


def check_that_none_outlives(driver: list[str], workers_of: Callable[[int], set[int]]) -> None:
    """Kill a driver as soon as it has workers; they end by themselves."""
    process = subprocess.Popen(driver, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        workers = workers_of(process.pid)
    finally:
        process.kill()
        process.wait()
    try:
        wait_until(lambda: not any(map(is_alive, workers)), "one goes on without its driver", patience_s=10)
    finally:
        for worker in filter(is_alive, workers):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_no_worker_outlives_a_driver_that_is_killed_while_they_start(tmp_path: Path, delay: float) -> None:
    def starting(driver: int) -> set[int]:
        wait_until(lambda: bool(descendants(driver)), "a process is there")
        time.sleep(delay)
        return descendants(driver)

    check_that_none_outlives(endless(tmp_path / "results"), starting)


@pytest.mark.parametrize("mechanism", ["holds-the-lock", "holds-the-lock-always"])
def test_what_hangs_ends_with_a_driver_that_is_killed(toys: Path, tmp_path: Path, mechanism: str) -> None:
    """One hangs in its job, the other already when it is examined."""
    note = toys.with_name("holding")

    def hanging(_driver: int) -> set[int]:
        wait_until(note.exists, "it hangs")
        return {int(note.read_text())}

    options = ("--plugin", os.fspath(toys), "--workers", "1")
    check_that_none_outlives(endless(tmp_path / "results", *options, mechanism=mechanism), hanging)
