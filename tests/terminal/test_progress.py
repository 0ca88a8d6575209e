from collections.abc import Iterator

import pytest

from synthbench.runner.executors import Pool
from synthbench.runner.plan import Job, Plan, make_cells
from synthbench.runner.worker import Outcome
from synthbench.suites import load_suite
from synthbench.terminal.progress import Progress, clock


@pytest.fixture
def progress() -> Iterator[Progress]:
    cells = make_cells(
        load_suite("smoke"), {"copy": {}, "reverse": {}}, {"softmax": {}, "slay": {}}, device_type="cpu", is_full=True
    )
    members = {cell: tuple(cell.members([0, 1])) for cell in cells}
    jobs = tuple(Job((cell,), own, own, group_size=2) for cell, own in members.items())
    with Progress() as progress:
        progress.begin(Plan(jobs, num_planned=9, num_done=1), Pool(num_workers=2))
        yield progress


def outcome(task: str, mechanism: str, share_s: float) -> Outcome:
    return Outcome("0" * 16, task, mechanism, 0, "ok", 0.5, 0.4, share_s)


def test_lines_go_to_stderr(progress: Progress, capsys: pytest.CaptureFixture[str]) -> None:
    progress.advance(outcome("copy", "slay", 10.0))
    captured = capsys.readouterr()

    assert captured.out == ""
    assert captured.err == "[1/8, ETA 0:35] copy slay seed 0 ok 0.5000\n"


def test_notices_of_a_plan_come_before_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.begin(Plan((), num_planned=1, num_done=1, notices=("first [this]", "then that")), Pool(num_workers=2))

    assert capsys.readouterr().err.splitlines()[-2:] == ["first [this]", "then that"]


def test_nothing_is_said_of_the_time_before_something_is_known(
    progress: Progress, capsys: pytest.CaptureFixture[str]
) -> None:
    progress._line("still running")

    assert capsys.readouterr().err == "[0/8] still running\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (61.0, "1:01"), (3599.6, "1:00:00"), (36610.0, "10:10:10")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
