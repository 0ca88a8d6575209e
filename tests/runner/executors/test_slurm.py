"""SLURM: with processes on this machine instead of it, and with stand-ins for its commands."""

import os
import shutil
import signal
import stat
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from synthbench.errors import UsageError
from synthbench.process import _ancestors, _parents
from synthbench.results import Store
from synthbench.runner.run import run
from tests.runner.runs import lasting, one_by_one, planned

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("_submitit")]

COMMANDS = Path(__file__).with_name("slurm")
"""Stand-ins of the commands that submitit calls: the elements of an array run the command of its script."""


def test_rows_are_those_of_the_inline_executor_and_nothing_else_is_left(tmp_path: Path) -> None:
    report = run(one_by_one(tmp_path / "slurm", executor="slurm", address="local", workers=2))
    run(one_by_one(tmp_path / "inline", executor="inline"))

    assert report.ok
    assert set(report.rows.executor) == {"slurm"}
    assert set(report.rows.attempt) == {1}
    assert lasting(tmp_path / "slurm") == lasting(tmp_path / "inline")
    assert list((tmp_path / "slurm" / "slurm").iterdir()) == []


def test_the_jobs_of_an_element_that_is_lost_go_into_another_array(tmp_path: Path, gate: Any) -> None:
    from synthbench.runner.executors.slurm import Slurm  # noqa: PLC0415 - may be missing

    jobs, context = planned(gate.request(tmp_path, seeds=(0, 1)), "slurm")
    events: list[Any] = []
    slurm = Slurm(num_workers=1, cluster="local")
    driver = threading.Thread(target=lambda: events.extend(slurm.run(jobs, context, lambda: False)))
    driver.start()
    (worker,) = gate.begun()
    (folder,) = (tmp_path / "slurm").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    parents = _parents()
    for process in {worker, *_ancestors(worker, parents)} - {os.getpid(), *_ancestors(os.getpid(), parents), 1}:
        os.kill(process, signal.SIGKILL)  # those up to the one that submitit began
    gate.begun(2)
    gate.open()
    driver.join(timeout=120)

    assert not driver.is_alive()
    assert [outcome.status for event in events for outcome in event.outcomes] == ["ok", "ok"]
    attempts = [Store.open(folder, create=False).runs().attempt for folder in gate.stores(tmp_path)]
    assert set(pd.concat(attempts)) == {2}


def test_an_array_uses_slurms_commands_and_a_stop_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = shutil.copytree(COMMANDS, tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    stop = threading.Event()
    request = one_by_one(tmp_path / "results", executor="slurm", workers=2, seeds=range(20))
    report = run(request, is_stopped=stop.is_set, on_outcome=lambda _outcome: stop.set())

    assert report.is_interrupted
    assert 2 <= len(report.outcomes) < 40
    assert sorted(outcome.run_id for outcome in report.outcomes) == sorted(report.rows.run_id)
    assert not report.failed


def test_a_missing_cluster_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="needs sbatch and srun, which are not here"):
        run(one_by_one(tmp_path / "results", executor="slurm"))
    assert not (tmp_path / "results").exists()
