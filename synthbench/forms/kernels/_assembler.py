"""Check of the assembler that Triton uses for its kernels, and search for a newer assembler on this machine.

On compute capability 9 (Hopper), ``ptxas`` before CUDA 13.3 may reuse the input registers of an asynchronous matrix
product before the product has read them. The sums are then wrong. A newer ``ptxas`` assembles the same code correctly.
For Hopper, Triton 3.6 to 3.8 use ptxas 12.8 or 12.9, and Triton 3.9 uses 13.4.

Sources: https://github.com/triton-lang/triton/pull/11781, https://github.com/triton-lang/triton/pull/11854 and
https://github.com/fla-org/flash-linear-attention/pull/1262.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from typing import Any

from triton import knobs
from triton.backends.nvidia import compiler

AFFECTED = 9
"""Major version of the affected compute capability, whose asynchronous matrix products can read operands from
registers."""
NEEDED = (13, 3)
"""First version of CUDA whose assembler keeps input registers until a matrix product has read them."""
PACKAGE = "nvidia-cuda-nvcc"
"""The package on PyPI that contains ``ptxas``, in ``nvidia/cu13/bin``."""

_PROBLEMS = (AttributeError, OSError, RuntimeError)
"""Errors raised if Triton finds no assembler, cannot run it, or no longer has the functions used here."""


def objection(capability: tuple[int, int]) -> str | None:
    """Explain in one line why kernels for a compute capability may be wrong; return None if no reason is known.

    >>> objection((8, 0)) is None
    True
    """
    if capability[0] != AFFECTED:
        return None
    needed = ".".join(map(str, NEEDED))
    try:
        tool, variable = _in_use(capability)
        if _is_good(tool):
            return None
        found = better()
    except _PROBLEMS as problem:
        return f"Triton's assembler was not found ({problem}); before {needed} it may assemble them wrongly"
    remedy = (
        f"set {variable}={found}"
        if found
        else f"pip install '{PACKAGE}>={needed}' and set {variable} to its nvidia/cu13/bin/ptxas"
    )
    return f"{tool.path} is ptxas {tool.version}, which may assemble them wrongly; needed: {needed} or newer: {remedy}"


def substitute(capability: tuple[int, int]) -> dict[str, str]:
    """Return an environment variable and its value, which make Triton use a good assembler (ptxas).

    The dictionary is empty if Triton's present assembler is good, or if no good assembler is found. The variable
    changes the assembler of all kernels in a process, so set it only for processes that you start.
    """
    with suppress(*_PROBLEMS):
        tool, variable = _in_use(capability)
        if capability[0] == AFFECTED and not _is_good(tool) and (found := better()) is not None:
            return {variable: found}
    return {}


def better() -> str | None:
    """Find an assembler (ptxas) on this machine that is new enough; return its path, or None if there is none."""
    return next((path for path in _candidates() if _is_good(_tool(path))), None)


def _in_use(capability: tuple[int, int]) -> tuple[Any, str]:
    """Return Triton's assembler, with its ``path`` and ``version``, and the environment variable that replaces it."""
    tool = compiler.get_ptxas(10 * capability[0] + capability[1])
    is_first = tool.path == knobs.nvidia.ptxas.path
    return tool, "TRITON_PTXAS_PATH" if is_first else "TRITON_PTXAS_BLACKWELL_PATH"


def _candidates() -> Iterator[str]:
    yield knobs.nvidia.ptxas_blackwell.path  # which Triton brings along, for newer devices
    try:
        installed = files(PACKAGE) or []
    except PackageNotFoundError:
        installed = []
    yield from (str(file.locate()) for file in installed if file.match("bin/ptxas"))
    if (on_path := shutil.which("ptxas")) is not None:
        yield on_path


def _tool(path: str) -> Any:
    try:
        return knobs.NvidiaTool.from_path(path)
    except OSError:  # it cannot be run
        return None


def _is_good(tool: Any) -> bool:
    return tool is not None and tuple(map(int, tool.version.split("."))) >= NEEDED
