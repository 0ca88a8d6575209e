"""``bench all``: steps that resume, fail and run out of time."""

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from synthbench.bench import everything
from synthbench.bench.everything import Step
from synthbench.bench.rows import load
from synthbench.cli import app
from synthbench.cli.whole import MORE_TO_DO
from synthbench.errors import UnknownName, UsageError
from synthbench.mechanisms import MECHANISMS

CPU = torch.device("cpu")


def step(name: str, code: str) -> Step:
    return Step(name, ("-c", code))


def states(steps: Sequence[Step], folder: Path, budget_s: float = 600.0) -> dict[str, str]:
    return {done.step.name: done.state for done in everything.perform(steps, folder, budget_s=budget_s)}


def bench_all(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "all", "--device", "cpu", *arguments])


def test_a_step_is_run_once_and_its_output_kept(tmp_path: Path) -> None:
    steps = [step("first", "print('one')"), step("second", "import sys; print('two', file=sys.stderr)")]

    assert states(steps, tmp_path) == {"first": "done", "second": "done"}
    assert states(steps, tmp_path) == {"first": "there", "second": "there"}
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "first.txt": "one\n",
        "second.txt": "two\n",
    }


def test_a_step_that_failed_keeps_what_it_printed_and_is_tried_again_last(tmp_path: Path) -> None:
    fine, mark = step("fine", "print(1)"), tmp_path / "mark"
    failing = step("failing", f"import pathlib, sys; print('why'); sys.exit(not pathlib.Path({str(mark)!r}).exists())")

    assert states([failing, fine], tmp_path) == {"failing": "failed", "fine": "done"}
    assert (tmp_path / "failing.failed.txt").read_text() == "why\n"
    mark.touch()
    again = states([failing, fine], tmp_path)
    assert list(again) == ["fine", "failing"]
    assert again["failing"] == "done"
    assert not (tmp_path / "failing.failed.txt").exists()


def test_a_step_that_outlasts_the_time_is_asked_to_end_and_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everything, "GRACE_S", 60.0)
    asked = tmp_path / "asked"
    patient = step(
        "patient",
        "import time, pathlib\n"
        f"if not pathlib.Path({str(asked)!r}).exists():\n"
        "    try:\n"
        "        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n"
        f"        pathlib.Path({str(asked)!r}).touch()\n"
        "        raise\n",
    )

    assert states([patient], tmp_path, budget_s=68.0) == {"patient": "missing"}  # asked after 8 seconds
    assert asked.exists()
    assert not (tmp_path / "patient.txt").exists()
    assert states([patient], tmp_path) == {"patient": "done"}


def test_nothing_is_begun_without_time(tmp_path: Path) -> None:
    assert states([step("first", "print(1)")], tmp_path, budget_s=1.0) == {"first": "missing"}


def test_the_plan_is_printed_and_nothing_run(tmp_path: Path) -> None:
    result = bench_all("--dry-run", "--json", "--out", str(tmp_path))

    planned = json.loads(result.stdout)
    assert {"doctor", "scaling", "fidelity", "context", "suite"} <= {one["step"] for one in planned}
    assert all(one["state"] == "missing" for one in planned)
    assert all(one["command"].startswith("python -m synthbench ") for one in planned)
    assert not any(tmp_path.iterdir())


def test_the_plan_for_a_gpu_is_printed_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)

    result = bench_all("--dry-run", "--json", "--device", "cuda", "--out", str(tmp_path))

    planned = {one["step"]: one["command"] for one in json.loads(result.stdout)}
    assert {"scaling-bfloat16", "scaling-flex", "suite", "packing", "paper", "paper-cell-by-cell"} <= planned.keys()
    assert "--gigabytes GIGABYTES" in planned["context"]
    assert all("--device cuda" in command for name, command in planned.items() if name not in ("doctor", "tests"))


def test_a_plan_for_one_of_the_gpus_that_are_here_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    result = bench_all("--dry-run", "--device", "cuda:5", "--out", str(tmp_path))

    assert isinstance(result.exception, UsageError)
    assert "this machine has 1 CUDA devices" in str(result.exception)


def test_every_command_of_every_plan_can_be_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = type("Properties", (), {"total_memory": 80 * 2**30})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: properties)
    plans = [
        everything._on_cpu(CPU, tmp_path),
        everything._on_cuda(torch.device("cuda"), tmp_path),
        everything._quick(CPU, tmp_path),
    ]

    for plan in plans:
        assert len({one.name for one in plan}) == len(plan)
        for one in plan:
            if one.name != "tests":
                # A help text is printed only where all options before it exist.
                result = CliRunner().invoke(app, [*one.arguments[2:], "--help"])
                assert result.exit_code == 0, (one, result.output)


def test_the_linear_and_the_quadratic_mechanisms_are_all_of_them() -> None:
    linear, quadratic = everything._linear_time().split(","), everything._quadratic().split(",")

    assert sorted(linear + quadratic) == sorted(MECHANISMS)
    assert {"slay", "linear", "gla"} <= set(linear)
    assert {"softmax", "yat-spherical"} <= set(quadratic)


def test_the_tests_for_a_gpu_are_where_the_step_looks_for_them() -> None:
    (tests,) = everything._tests()

    files = [Path(argument) for argument in tests.arguments if "/" in argument]
    assert files
    assert all(file.exists() for file in files)


def test_make_bench_gpu_is_this_command(need: Callable[[str, bool, str], None]) -> None:
    need("make", shutil.which("make") is not None, "GNU make is not installed")
    done = subprocess.run(
        ["make", "-n", "--no-print-directory", "bench-gpu", "PYTHON=python3"],
        cwd=everything.TESTS.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "python3 -m synthbench bench all --device cuda --budget 540"


def test_an_unknown_step_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="'scaling'"):
        everything.select(everything.steps_for(CPU, tmp_path), ["scalin"])


def test_a_quick_call_measures_and_the_next_finds_it_done(tmp_path: Path) -> None:
    arguments = ["--quick", "--step", "fidelity", "--out", str(tmp_path)]

    assert bench_all(*arguments, "--budget", "1").exit_code == MORE_TO_DO
    first = bench_all(*arguments)
    assert first.exit_code == 0, first.output
    again = bench_all(*arguments, "--budget", "1", "--json")

    assert again.exit_code == 0
    assert [fact["state"] for fact in json.loads(again.stdout)] == ["there"]
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith("-quick")
    assert {row["bench"] for row in load(folder / "fidelity.parquet")} == {"fidelity"}


@pytest.mark.slow
def test_every_quick_step_runs(tmp_path: Path) -> None:
    for one in everything.steps_for(CPU, tmp_path, is_quick=True):
        assert one.arguments[:2] == ("-m", "synthbench")
        # In this process, which has imported everything; as processes of their own steps are run above.
        result = CliRunner().invoke(app, one.arguments[2:])
        assert result.exit_code == 0, (one.name, result.output)

    assert {file.stem for file in tmp_path.glob("*.parquet")} == {"scaling", "suite", "fidelity", "context"}
