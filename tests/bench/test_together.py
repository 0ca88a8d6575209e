"""Processes side by side begin together, and none waits for one that failed."""

import os
import time

import pytest

from synthbench.bench.suite import side_by_side, wait_for_all


def moments(delay: float) -> tuple[int, float, float]:
    time.sleep(delay)
    is_there = time.perf_counter()
    wait_for_all()
    return os.getpid(), is_there, time.perf_counter()


@pytest.mark.end_to_end
def test_none_begins_before_the_last_is_there() -> None:
    processes, there, began = zip(*side_by_side(moments, [0.0, 0.2]), strict=True)

    assert len({os.getpid(), *processes}) == 3
    assert min(began) >= max(there)


def fail_or_wait(is_failing: bool) -> None:  # noqa: FBT001 - an argument of a process
    if is_failing:
        raise ZeroDivisionError("the cause")
    wait_for_all()


@pytest.mark.end_to_end
def test_a_process_that_fails_is_named_and_the_others_end() -> None:
    with pytest.raises(ZeroDivisionError, match="the cause"):
        side_by_side(fail_or_wait, [False, True])


def test_nothing_waits_outside() -> None:
    wait_for_all()
