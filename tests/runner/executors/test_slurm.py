"""SLURM: with processes on this machine instead of it, and with stand-ins for its commands."""

import os
import signal
import stat
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from synthbench.errors import UsageError
from synthbench.results import Store
from synthbench.runner.run import run
from tests.runner.runs import lasting, one_by_one, planned

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("_submitit")]

# What submitit calls, as far as it relies on it: an array is submitted, each element runs the command of its script.
COMMANDS = {
    "sbatch": """
        script=$1; last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
        for element in $(seq 0 "$last"); do
            SLURM_JOB_ID=7$element SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$element setsid bash "$script" \\
                > "${0%/*}/element-$element.log" 2>&1 &
            echo $! > "${0%/*}/element-$element.pid"
        done
        echo "Submitted batch job 7"
    """,
    "srun": """
        while [ "${1#-}" != "$1" ]; do
            case $1 in
                --output|--error) shift 2 ;;
                *) shift ;;
            esac
        done
        SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 exec "$@"
    """,
    "sacct": """
        echo 'JobID|State|NodeList'
        for element in "${0%/*}"/element-*.pid; do
            number=${element##*-}
            if kill -0 "$(cat "$element")" 2> /dev/null; then state=RUNNING; else state=FAILED; fi
            echo "7_${number%.pid}|$state|here"
        done
    """,
}


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
    driver = threading.Thread(target=lambda: events.extend(slurm.run(jobs, context, threading.Event())))
    driver.start()
    (worker,) = gate.begun()
    (folder,) = (tmp_path / "slurm").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for process in element_of(worker):
        os.kill(process, signal.SIGKILL)
    gate.begun(2)
    gate.open()
    driver.join(timeout=120)

    assert not driver.is_alive()
    assert [outcome.status for event in events for outcome in event.outcomes] == ["ok", "ok"]
    attempts = [Store.open(folder, create=False).runs().attempt for folder in gate.stores(tmp_path)]
    assert set(pd.concat(attempts)) == {2}


def element_of(worker: int) -> list[int]:
    """A process and those that it descends from, up to the one that submitit began."""
    processes = [worker]
    while processes[-1] not in (1, os.getpid()):
        status = Path(f"/proc/{processes[-1]}/status").read_text(encoding="utf-8")
        processes.append(int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))))
    return processes[:-1]


def test_an_array_goes_through_the_commands_of_slurm_and_a_stop_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in COMMANDS.items():
        (commands / name).write_text(f"#!/bin/bash\n{script}")
        (commands / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    stop = threading.Event()
    request = one_by_one(tmp_path / "results", executor="slurm", workers=2, seeds=range(20))
    report = run(request, stop=stop, on_outcome=lambda _outcome: stop.set())

    assert report.is_interrupted
    assert 2 <= len(report.outcomes) < 40
    assert sorted(outcome.run_id for outcome in report.outcomes) == sorted(report.rows.run_id)
    assert not report.failed


def test_a_cluster_that_is_not_there_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="needs sbatch and srun, which are not here"):
        run(one_by_one(tmp_path / "results", executor="slurm"))
    assert not (tmp_path / "results").exists()
