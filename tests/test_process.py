"""Output of jobs goes to logs of their own, workers run no script again, and algorithms can be deterministic."""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from importlib.machinery import ModuleSpec
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.process import (
    WORKSPACE,
    contained,
    deterministic_algorithms,
    orphans_ended,
    own_turn,
    reserve_workspace,
)
from synthbench.results import Store
from synthbench.runner.executors.base import log_of_job
from synthbench.runner.executors.pool import Pool
from synthbench.runner.request import RunContext
from tests.cli.commands import Need
from tests.runner.runs import job_of
from tests.training.cells import make_cell


def test_a_log_that_is_gone_when_its_job_ends_is_no_failure_and_one_with_words_stays(tmp_path: Path) -> None:
    gone, printed = tmp_path / "logs" / "gone.log", tmp_path / "logs" / "printed.log"
    with contained(gone):
        gone.unlink()
    with contained(printed):
        os.write(1, b"printed\n")

    assert not gone.exists()
    assert printed.read_text() == "printed\n"


def test_two_drivers_on_one_store_never_share_a_log(tmp_path: Path) -> None:
    job = job_of(make_cell())
    one, other = (RunContext(tmp_path, "cpu", "pool", time.time()) for _ in range(2))

    assert log_of_job(job, one) != log_of_job(job, other)
    assert log_of_job(job, one) == log_of_job(job, replace(one, is_alone=True)), "a job that is tried again"
    assert log_of_job(job, one).name.startswith(f"{job.runs[0].run_id}.")


def test_the_log_of_a_job_that_runs_is_not_collected_however_long_it_is_silent(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    log = tmp_path / "logs" / "one.log"
    with contained(log):
        os.utime(log, (0, 0))

        assert store.stale_logs() == []


UNGUARDED = "import synthbench\nsynthbench.run()\n"


@pytest.mark.parametrize(
    ("script", "spec", "is_refused"),
    [
        (UNGUARDED, None, True),
        (UNGUARDED, ModuleSpec("package.mine", None), True),
        (UNGUARDED, ModuleSpec("package.__main__", None), False),
        ("# not __main__\n" + UNGUARDED, None, True),
        ("if __name__ == '__main__':\n    pass\n", None, False),
        ("import multiprocessing as m\nif m.parent_process() is None:\n    pass\n", None, False),
        (None, None, False),
    ],
)
def test_a_script_that_every_process_would_run_again_is_refused(
    script: str | None, spec: ModuleSpec | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = spec
    if script is not None:
        path = tmp_path / "mine.py"
        path.write_text(script)
        main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(UsageError, match=r"worker processes import .*mine\.py") if is_refused else nullcontext():
        Pool(2)


PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
DRIVER = """
import os, signal, sys
from synthbench.process import orphans_ended
with orphans_ended() as folder:
    print(folder, flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
"""


def test_only_the_folder_of_a_killed_driver_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: Need) -> None:
    need("procfs", Path("/proc/sys/kernel/random/boot_id").exists(), "only Linux names the running kernel")

    def driver(end: str) -> tuple[subprocess.Popen[str], Path]:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        begun = subprocess.Popen([sys.executable, "-c", DRIVER, end], env=environment, **PIPES)
        assert begun.stdout is not None
        return begun, Path(begun.stdout.readline().strip())

    def left_by_next() -> set[Path]:
        with orphans_ended() as own:
            left = set(tmp_path.iterdir()) - {Path(own)}
        assert not Path(own).exists()
        return left

    living, lives = driver("lives")
    killed, dead = driver("killed")
    with living, killed:  # the end of the block closes stdin, at which the living one ends
        killed.wait()
        (lock,) = dead.iterdir()
        elsewhere, unmarked = tmp_path / "synthbench-elsewhere", tmp_path / "synthbench-unmarked"
        for folder in (elsewhere, unmarked):
            folder.mkdir()
        (elsewhere / "driver-another-kernel.lock").touch()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

        with monkeypatch.context() as context:
            context.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
            assert left_by_next() == {lives, dead, elsewhere, unmarked}, "they are another user's"
        assert lock.exists()
        assert left_by_next() == {lives, elsewhere, unmarked}
    assert set(tmp_path.iterdir()) == {elsewhere, unmarked}


GPU = torch.device("cuda")


def settings() -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        cudnn.deterministic,
        not cudnn.benchmark,
        not cudnn.allow_tf32,
        not torch.backends.cuda.matmul.allow_tf32,
    )


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":0:0")  # what was there is put back


def test_all_settings_are_made_and_put_back() -> None:
    before = settings()
    with deterministic_algorithms(torch.device("cpu")):
        assert all(settings())

    assert settings() == before
    assert not all(before)


def test_the_workspace_is_reserved_before_cuda_starts_for_later_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (":0:0", None):
        if found is None:
            monkeypatch.delenv(WORKSPACE)
        reserve_workspace(GPU)
        assert os.environ[WORKSPACE] == ":4096:8"


@pytest.mark.parametrize(
    ("device", "found", "said"),
    [
        *(("cuda", None, "unset"), ("cuda", ":0:0", "':0:0'")),
        *(("cuda", ":4096:8", None), ("cuda", ":16:8", None), ("cpu", ":0:0", None)),
    ],
)
def test_without_a_reserved_workspace_a_gpu_is_refused_once_cuda_has_started(
    device: str, found: str | None, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setenv(WORKSPACE, found or "")
    if found is None:
        monkeypatch.delenv(WORKSPACE)
    message = f"{WORKSPACE} {said}; allowed: :4096:8 or :16:8"
    with (
        pytest.raises(UsageError, match=message) if said else nullcontext(),
        deterministic_algorithms(torch.device(device)),
    ):
        assert said is None


def take_turn() -> None:
    with own_turn():
        pass


def test_a_forked_process_does_not_wait_for_a_thread_that_exists_only_in_its_parent() -> None:
    with ThreadPoolExecutor(max_workers=1) as other:
        other.submit(own_turn().__enter__).result()
        forked = get_context("fork").Process(target=take_turn, daemon=True)
        forked.start()
        forked.join(20)
        other.submit(own_turn().__exit__, None, None, None).result()

    assert forked.exitcode == 0
