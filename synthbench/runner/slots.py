"""Where worker processes run on GPUs: how many share one, and what each is told of it before CUDA starts."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from synthbench.errors import UsageError

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Slot:
    """Room for one worker process: a GPU, or a share of its memory."""

    gpu: str
    """As ``CUDA_VISIBLE_DEVICES`` names it."""
    share: float = 1.0
    """Of the memory of the GPU."""

    @property
    def environment(self) -> dict[str, str]:
        """What a process in this slot is started with; the GPU is then its only one, ``cuda:0``."""
        return {VISIBLE: self.gpu}


def gpu_slots(
    device: torch.device, per_gpu: int, *, num_gpus: int, visible: str | None = None, num_workers: int | None = None
) -> list[Slot]:
    """The slots of a command, those of different GPUs first.

    >>> [slot.gpu for slot in gpu_slots(torch.device("cuda"), 2, num_gpus=2)]
    ['0', '1', '0', '1']

    Args:
        device: ``cuda`` for all GPUs that this process sees, or one of them, counted as it sees them.
        per_gpu: Processes that share a GPU, each with as much of its memory.
        num_gpus: GPUs that this process sees.
        visible: What its own ``CUDA_VISIBLE_DEVICES`` says, if it says anything.
        num_workers: Processes to start; None: one a slot.

    Raises:
        UsageError: If a number is not allowed.
    """
    if per_gpu < 1:
        raise UsageError(f"processes per GPU are {per_gpu}; allowed: 1 and more")
    names = [str(index) for index in range(num_gpus)] if visible is None else visible.split(",")[:num_gpus]
    gpus = names if device.index is None else names[device.index : device.index + 1]
    slots = [Slot(gpu.strip(), 1 / per_gpu) for _ in range(per_gpu) for gpu in gpus]
    if num_workers is not None and not 1 <= num_workers <= len(slots):
        raise UsageError(
            f"workers is {num_workers}; allowed: 1 to {len(slots)}, {per_gpu} on each of {len(gpus)} GPUs; "
            "--per-gpu sets how many share one"
        )
    return slots[:num_workers]


def undivided(slot: Slot) -> tuple[Slot]:
    """The whole GPU of a slot, for a job that is alone."""
    return (replace(slot, share=1.0),)


def enter(slot: Slot) -> None:
    """Make a slot all that this process sees of the GPUs; before CUDA starts in it."""
    os.environ.update(slot.environment)
    if slot.share < 1:
        torch.cuda.set_per_process_memory_fraction(slot.share, 0)


def take_slot(slots: Sequence[Slot], folder: Path, *, patience_s: float = 60.0) -> tuple[Slot, FileLock]:
    """Take a slot that no other process has, and keep it until this process ends, however it ends.

    Args:
        slots: All slots of a pool.
        folder: Where its processes see what is taken.
        patience_s: Seconds to wait for one: a process that was killed may not be gone yet.

    Raises:
        TimeoutError: If none is free.
    """
    until = time.monotonic() + patience_s
    while True:
        for number, slot in enumerate(slots):
            lock = FileLock(folder / f"slot-{number}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            return slot, lock
        if time.monotonic() > until:
            raise TimeoutError(f"all {len(slots)} slots are taken")
        time.sleep(0.05)
