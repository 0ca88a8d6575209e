"""A job's output goes to a log that no other driver touches, and that may be gone at the end."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from synthbench.errors import UsageError
from synthbench.process import contained
from synthbench.results import Store
from synthbench.runner.executors.base import log_of_job
from synthbench.runner.executors.pool import Pool
from synthbench.runner.plan import Job
from synthbench.runner.worker import RunContext
from synthbench.training.cell import Cell


def test_a_log_that_is_gone_when_its_job_ends_is_no_failure_and_one_with_words_stays(tmp_path: Path) -> None:
    gone, printed = tmp_path / "logs" / "gone.log", tmp_path / "logs" / "printed.log"
    with contained(gone):
        gone.unlink()
    with contained(printed):
        os.write(1, b"printed\n")

    assert not gone.exists()
    assert printed.read_text() == "printed\n"


def test_two_drivers_on_one_store_never_share_a_log(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    cell = make_cell()
    runs = tuple(cell.runs([0, 1]))
    job = Job((cell,), runs, runs, group_size=2)
    one, other = (RunContext(tmp_path, "cpu", "pool", time.time()) for _ in range(2))

    assert log_of_job(job, one) != log_of_job(job, other)
    assert log_of_job(job, one) == log_of_job(job, replace(one, is_alone=True)), "a job that is tried again"
    assert log_of_job(job, one).name.startswith(f"{runs[0].run_id}.")


def test_the_log_of_a_job_that_runs_is_not_collected_however_long_it_is_silent(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    log = tmp_path / "logs" / "one.log"
    with contained(log):
        os.utime(log, (0, 0))

        assert store.stale_logs() == []


UNGUARDED = "import synthbench\nsynthbench.run()\n"


@pytest.mark.parametrize(
    ("script", "spec", "problem"),
    [
        (UNGUARDED, None, UsageError),
        (UNGUARDED, ModuleSpec("package.mine", None), UsageError),
        (UNGUARDED, ModuleSpec("package.__main__", None), None),
        ("# not __main__\n" + UNGUARDED, None, UsageError),
        ("if __name__ == '__main__':\n    pass\n", None, None),
        ("import multiprocessing as m\nif m.parent_process() is None:\n    pass\n", None, None),
        (None, None, None),
    ],
)
def test_a_script_that_every_process_would_run_again_is_refused(
    script: str | None,
    spec: ModuleSpec | None,
    problem: type[Exception] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = spec
    if script is not None:
        path = tmp_path / "mine.py"
        path.write_text(script)
        main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(problem, match=r"worker processes import .*mine\.py") if problem else nullcontext():
        Pool(2)
