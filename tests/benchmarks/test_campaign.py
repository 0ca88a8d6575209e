"""The campaign: steps that resume, fail and run out of time."""

import json
import re
import runpy
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner, Result

from benchmarks import campaign, flash_linear_attention, steps
from benchmarks.campaign import MORE_TO_DO
from benchmarks.steps import Step, steps_for
from synthbench.cli.app import app
from synthbench.errors import UsageError
from synthbench.forms import kernels
from synthbench.mechanisms import MECHANISMS
from synthbench.results import Store

CPU = torch.device("cpu")


def step(name: str, code: str) -> Step:
    return Step(name, ("-c", code))


def states(steps: Sequence[Step], folder: Path, budget_s: float = 600.0) -> dict[str, str]:
    return {done.step.name: done.state for done in campaign.perform(steps, folder, budget_s=budget_s)}


def run_campaign(*arguments: str) -> Result:
    return CliRunner().invoke(campaign.app, ["--device", "cpu", *arguments])


def test_a_step_is_run_once_and_its_output_kept(tmp_path: Path) -> None:
    steps = [step("first", "print('one')"), step("second", "import sys; print('two', file=sys.stderr)")]

    for state in ("done", "there"):
        assert states(steps, tmp_path) == {"first": state, "second": state}
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"first.txt": "one\n", "second.txt": "two\n"}


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


PATIENT = """
import time, pathlib
print("measuring")
if not pathlib.Path({0!r}).exists():
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        pathlib.Path({0!r}).touch()
        raise SystemExit(130)
"""


@pytest.mark.end_to_end
def test_a_step_that_outlasts_the_time_is_asked_to_end_and_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "GRACE_S", 60.0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a job that a shell put into the background
    asked = tmp_path / "asked"
    patient = step("patient", PATIENT.format(str(asked)))

    assert states([patient], tmp_path, budget_s=65.0) == {"patient": "cut"}  # asked after 5 seconds
    assert asked.exists()
    assert not (tmp_path / "patient.txt").exists()
    said = "measuring\n\ncut here: the time of the call was over; the same call goes on\n"
    assert (tmp_path / "patient.part.txt").read_text() == said
    assert states([patient], tmp_path) == {"patient": "done"}
    assert (tmp_path / "patient.txt").read_text() == said + "measuring\n"
    assert not (tmp_path / "patient.part.txt").exists()


def test_the_plan_for_a_gpu_is_printed_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)

    result = run_campaign("--dry-run", "--json", "--device", "cuda", "--out", str(tmp_path))

    planned = {one["step"]: one["command"] for one in json.loads(result.stdout)}
    assert {"scaling-bfloat16", "suite", "paper", "paper-cell-by-cell"} <= planned.keys()
    assert "--gigabytes GIGABYTES" in planned["context"]
    assert all("--device cuda" in one for name, one in planned.items() if name != "doctor" and "pytest" not in one)
    assert all("python -m " in one for one in planned.values())
    assert not any(tmp_path.iterdir())


def test_a_gpu_is_asked_first_whether_it_computes_then_for_rows_then_for_its_kernels_then_for_speed(
    tmp_path: Path,
) -> None:
    planned = {one.name: one for one in steps_for(torch.device("cuda"), tmp_path)}

    tests = [name for name in planned if name.startswith("tests-")]
    assert list(planned)[: 8 + len(tests)] == [
        *("doctor", "smoke", "paper"),
        *tests,
        *("scaling-kernels", "suite", "scaling-few-bfloat16", "scaling-few-float32", "scaling-published"),
    ]
    assert {one.environment["TRITON_INTERPRET"] for one in planned.values()} == {"0"}
    assert {one.environment["SYNTHBENCH_PLUGINS"] for one in planned.values()} == {"off"}
    stores = [one.arguments[one.arguments.index("--results") + 1] for one in planned.values() if "run" in one.arguments]
    assert len(set(stores)) == len(stores)


@pytest.fixture
def _one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(total_memory=80 * 2**30))


@pytest.mark.usefixtures("_one_gpu")
@pytest.mark.parametrize("chosen", [None, "old/ptxas"])
def test_steps_on_a_gpu_get_a_good_assembler_unless_the_caller_chose_one(
    tmp_path: Path, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {(9, 0): {"TRITON_PTXAS_PATH": "good/ptxas"}}
    monkeypatch.setattr(kernels, "load", {"_assembler": SimpleNamespace(substitute=good.__getitem__)}.__getitem__)
    monkeypatch.setattr(steps, "find_spec", lambda _name: object())
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    if chosen is not None:
        monkeypatch.setenv("TRITON_PTXAS_PATH", chosen)

    planned = steps_for(torch.device("cuda"), tmp_path)

    expected = "good/ptxas" if chosen is None else None  # a step keeps what it is not given
    assert {one.environment.get("TRITON_PTXAS_PATH") for one in planned} == {expected}


@pytest.mark.usefixtures("_one_gpu")
def test_every_command_of_every_plan_can_be_parsed(tmp_path: Path) -> None:
    asked = ((CPU, False), (torch.device("cuda"), False), (CPU, True))
    plans = [steps_for(device, tmp_path, is_quick=is_quick) for device, is_quick in asked]
    commands = {}  # one for each set of options, whatever their values
    for plan in plans:
        assert len({one.name for one in plan}) == len(plan)
        for one in plan:
            if one.arguments[1] != "pytest":
                options = [word for word in one.arguments if word.startswith("-")]
                commands[*one.arguments[1:4], *options] = one.arguments[1:]

    apps = {"synthbench": app, "benchmarks.flash_linear_attention": flash_linear_attention.app}
    for name, *command in commands.values():
        # A help text is printed only where all options before it exist.
        result = CliRunner().invoke(apps[name], [*command, "--help"])
        assert result.exit_code == 0, (command, result.output)


def test_the_linear_and_the_quadratic_mechanisms_are_all_of_them() -> None:
    linear, quadratic = (steps._mechanisms(is_quadratic=is_so).split(",") for is_so in (False, True))

    assert sorted(linear + quadratic) == sorted(MECHANISMS)
    assert {"slay", "linear", "gla"} <= set(linear)
    assert {"softmax", "yat-spherical"} <= set(quadratic)


@pytest.mark.parametrize("has_xdist", [True, False])
def test_a_step_runs_each_file_of_tests_that_need_a_gpu(has_xdist: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a case
    monkeypatch.setattr(steps, "find_spec", lambda _name: object() if has_xdist else None)

    planned = list(steps._tests())

    with_mark = {file for file in steps.TESTS.rglob("test_*.py") if re.search(r"marks?[.=].*\bgpu\b", file.read_text())}
    assert {Path(one.arguments[-1]) for one in planned} == with_mark
    assert len({one.name for one in planned}) == len(planned)
    assert any("--numprocesses" in one.arguments for one in planned) == has_xdist


def test_without_parallel_tests_every_kernel_is_tested_by_one_step() -> None:
    tests = runpy.run_path(str(steps.TESTS / steps.KERNEL_TESTS))
    marks = tests["test_a_kernel_computes_what_float64_does"].pytestmark
    (cases,) = [mark.args[1] for mark in marks if mark.name == "parametrize" and isinstance(mark.args[0], tuple)]

    assert {name for name, *_ in cases} == set(steps.TESTED_KERNELS)


def test_make_bench_gpu_is_this_command(need: Callable[[str, bool, str], None]) -> None:
    need("make", shutil.which("make") is not None, "GNU make is not installed")
    command = ["make", "-n", "--no-print-directory", "bench-gpu", "PYTHON=python3"]
    done = subprocess.run(command, cwd=steps.TESTS.parent, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "python3 -m benchmarks.campaign --device cuda --budget 540"


def test_a_call_without_the_time_for_a_step_says_that_there_is_more_to_do(tmp_path: Path) -> None:
    # What is more than 30 is gone before the step could begin.
    result = run_campaign("--quick", "--step", "fidelity", "--out", str(tmp_path), "--budget", "30.000001")

    assert result.exit_code == MORE_TO_DO
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith("-quick")
    assert not any(folder.iterdir())


@pytest.mark.end_to_end
def test_each_call_leaves_archives_of_all_that_there_is(tmp_path: Path) -> None:
    out, target = tmp_path / "bench", tmp_path / "archives"
    arguments = ["--quick", "--step", "doctor", "--step", "smoke", "--out", str(out), "--archive", str(target)]

    result = run_campaign(*arguments)

    assert result.exit_code == 0, result.output
    (folder,) = out.iterdir()
    assert [file.name for file in target.iterdir()] == [f"{folder.name}-1.tar.gz"]
    rows = Store.open(folder / "smoke", create=False).table()
    assert rows.num_rows == 1
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    subprocess.run(["tar", "-xzf", target / f"{folder.name}-1.tar.gz", "-C", moved], check=True)
    assert sorted(file.name for file in (moved / folder.name).iterdir()) == ["doctor.txt", "smoke", "smoke.txt"]
    merged = CliRunner().invoke(
        app, ["store", "merge", str(moved / folder.name / "smoke"), "--results", str(tmp_path / "mine")]
    )
    assert merged.exit_code == 0, merged.output
    assert Store.open(tmp_path / "mine", create=False).table() == rows
    # What was unpacked is known: the next call, on another machine too, begins behind it.
    again = run_campaign("--quick", "--step", "smoke", "--out", str(moved), "--budget", "1", "--json")
    assert [fact["state"] for fact in json.loads(again.stdout)] == ["there"]


@pytest.mark.usefixtures("_one_gpu")
@pytest.mark.parametrize(
    ("arguments", "commit", "message"),
    [
        (["--dry-run", "--device", "cuda:5"], "0" * 40, "this machine has 1 CUDA devices"),
        (["--quick", "--step", "doctor", "--budget", "29"], "0" * 40, "--budget is 29; allowed: more than 30 seconds"),
        ([], "main", "SYNTHBENCH_COMMIT is 'main'"),
        (["--step", "scalin"], "0" * 40, "did you mean 'scaling'"),
    ],
)
def test_a_call_that_cannot_work_is_refused_before_its_first_step(
    arguments: list[str], commit: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNTHBENCH_COMMIT", commit)

    result = run_campaign(*arguments, "--out", str(tmp_path))

    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quick_call_runs_every_step_of_a_gpu_on_a_cpu(tmp_path: Path) -> None:
    result = run_campaign("--quick", "--out", str(tmp_path), "--budget", "840", "--json")

    assert result.exit_code == 0, result.output
    done = {fact["step"]: fact["state"] for fact in json.loads(result.stdout)}
    on_gpu = {one.name for one in steps_for(torch.device("cuda"), tmp_path)}
    assert done == dict.fromkeys(on_gpu, "done")
    (folder,) = tmp_path.iterdir()
    assert {file.stem for file in folder.glob("*.parquet")} == {"scaling", "suite", "fidelity", "context"}
