"""Shares of GPUs: which process gets which, and that the one that replaces it gets the same."""

import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from pebble import ProcessPool

from synthbench.errors import UsageError
from synthbench.runner.executors.pool import VISIBLE, Slot, _initialise_worker, gpu_slots, take_slot


@pytest.mark.parametrize(
    ("device", "per_gpu", "num_gpus", "visible", "workers", "expected"),
    [
        ("cuda", 1, 3, None, None, [("0", 1.0), ("1", 1.0), ("2", 1.0)]),
        ("cuda", 4, 2, None, 3, [("0", 0.25), ("1", 0.25), ("0", 0.25)]),  # all GPUs before any is shared
        ("cuda:1", 2, 2, None, None, [("1", 0.5), ("1", 0.5)]),
        ("cuda", 1, 2, "5,3", None, [("5", 1.0), ("3", 1.0)]),  # GPUs that this process was given
        ("cuda:1", 1, 2, "GPU-8a, MIG-1b", None, [("MIG-1b", 1.0)]),
    ],
)
def test_slots_are_shares_of_the_gpus_that_the_process_sees(
    device: str,
    per_gpu: int,
    num_gpus: int,
    visible: str | None,
    workers: int | None,
    expected: list[tuple[str, float]],
) -> None:
    assert gpu_slots(torch.device(device), per_gpu, num_gpus=num_gpus, visible=visible, num_workers=workers) == expected


@pytest.mark.parametrize(
    ("per_gpu", "workers", "message"),
    [
        (2, 5, "workers is 5; allowed: 1 to 4, 2 on each of 2 GPUs; --per-gpu"),
        (1, 0, "workers is 0; allowed: 1 to 2"),
    ],
)
def test_what_does_not_fit_is_refused(per_gpu: int, workers: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        gpu_slots(torch.device("cuda"), per_gpu, num_gpus=2, num_workers=workers)


def test_a_slot_is_taken_once_and_free_again_when_it_is_let_go(tmp_path: Path) -> None:
    slots = [Slot("0"), Slot("1")]
    (first, lock), (second, _kept) = take_slot(slots, tmp_path), take_slot(slots, tmp_path)

    assert (first, second) == (slots[0], slots[1])
    with pytest.raises(TimeoutError, match="all 2 slots are taken"):
        take_slot(slots, tmp_path, patience_s=0.0)
    lock.release()
    assert take_slot(slots, tmp_path)[0] == slots[0]


def visible(deadly: str = "") -> tuple[str, int]:
    """Report a worker's GPUs and id; it dies of one GPU."""
    time.sleep(0.05)  # so that both workers get some
    if os.environ[VISIBLE] == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.environ[VISIBLE], os.getpid()


@pytest.mark.end_to_end
def test_a_worker_sees_its_own_gpu_and_the_one_that_replaces_it_sees_the_same(tmp_path: Path) -> None:
    places = [("7", 1.0), ("GPU-8a", 1.0)], str(tmp_path)
    with ProcessPool(2, context=get_context("spawn"), initializer=_initialise_worker, initargs=places) as pool:

        def all_seen() -> dict[str, int]:
            found: dict[str, int] = {}
            while len(found) < 2:
                gpu, worker = pool.schedule(visible).result()
                found[gpu] = worker
            return found

        before = all_seen()
        while pool.schedule(visible, args=["7"]).exception() is None:
            pass  # the other worker took it
        after = all_seen()

    assert before.keys() == after.keys() == {"7", "GPU-8a"}
    assert after["7"] != before["7"]
