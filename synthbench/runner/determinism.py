"""The same numbers every time on a GPU: settings that must all be made, one of them before CUDA starts.

A CPU with one thread needs none of them. Nothing is promised across devices, or across versions of PyTorch.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from synthbench.errors import UsageError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""Its values with which cuBLAS adds in the same order every time; the first is set where there is none."""


def reserve_workspace(device: torch.device) -> None:
    """Fix the workspaces of cuBLAS in this process and those that it starts; nothing on a CPU.

    Raises:
        UsageError: If CUDA has started without.
    """
    found = os.environ.get(WORKSPACE)
    if device.type != "cuda" or found in WORKSPACES:
        return
    if torch.cuda.is_initialized():
        raise UsageError(
            f"deterministic, but CUDA has started with {WORKSPACE} {'unset' if found is None else repr(found)}; "
            f"allowed: {' or '.join(WORKSPACES)}, set before the first tensor is on the device"
        )
    os.environ[WORKSPACE] = WORKSPACES[0]


@contextmanager
def deterministic_algorithms(device: torch.device) -> Iterator[None]:
    """Let PyTorch use nothing in here that may give other bits the next time; it raises where there is no such thing.

    Raises:
        UsageError: If it is too late for that.
    """
    reserve_workspace(device)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
    try:
        torch.use_deterministic_algorithms(True)  # noqa: FBT003 - torch's own signature
        cudnn.benchmark, cudnn.deterministic = False, True
        cudnn.allow_tf32 = matmul.allow_tf32 = False
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = before
        torch.use_deterministic_algorithms(was_deterministic)


def is_refused(problem: BaseException) -> bool:
    """Whether PyTorch raised this because it knows no deterministic way to compute something."""
    return isinstance(problem, RuntimeError) and "does not have a deterministic implementation" in str(problem)
