"""Addresses of kernels in tensors of more than 2^31 numbers, which take no memory here."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from triton.runtime import interpreter

from benchmarks import compiled
from benchmarks.compiled import Case, Launch
from synthbench.forms import kernels

APART = 2**50
"""Bytes from one tensor's address to the next one's."""


def padded(grid: tuple[int, ...]) -> tuple[int, ...]:
    """With all three axes."""
    return (*grid, 1, 1)[:3]


def run_program(
    launch: Launch, program: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[int, int, int]]:
    """Let the interpreter run one program of a launch, in which all that is read is 0.

    Returns, for every tensor that it touches, the smallest and the largest place, and how many numbers there are.
    """
    tensors = {name: x for name, x in launch.arguments.items() if isinstance(x, Tensor)}
    names = list(tensors)
    touched: dict[str, tuple[int, int, int]] = {}

    def touch(pointers: Any, mask: Any) -> None:
        used = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        if used.size:
            nearest = (int(used.min()) + APART // 2) // APART
            name = names[nearest - 1]
            found = [(int(end) - APART * nearest) // tensors[name].itemsize for end in (used.min(), used.max())]
            low, high, count = touched.get(name, (*found, tensors[name].numel()))
            touched[name] = min(low, found[0]), max(high, found[1]), count

    def load(_builder: Any, pointers: Any, mask: Any, *_others: Any) -> Any:
        touch(pointers, mask)
        kind = pointers.get_element_ty()
        return interpreter.TensorHandle(np.zeros(pointers.data.shape, interpreter._get_np_dtype(kind)), kind)

    def store(_builder: Any, pointers: Any, _value: Any, mask: Any, *_others: Any) -> None:
        touch(pointers, mask)

    builder, grid = interpreter.interpreter_builder, padded(launch.grid)
    stand_ins = {
        name: SimpleNamespace(dtype=tensors[name].dtype, data_ptr=lambda address=APART * place: address)
        for place, name in enumerate(names, start=1)
    }
    with monkeypatch.context() as patch:
        patch.setattr(interpreter.InterpreterBuilder, "create_masked_load", load)
        patch.setattr(interpreter.InterpreterBuilder, "create_masked_store", store)
        patch.setattr(interpreter.GridExecutor, "_init_args_hst", lambda _self, args, named: (args, named))
        patch.setattr(interpreter.GridExecutor, "_restore_args_dev", lambda *_: None)
        patch.setattr(interpreter, "_unwrap_tensor", lambda x: x)
        set_dim, set_idx = builder.set_grid_dim, builder.set_grid_idx
        patch.setattr(builder, "set_grid_dim", lambda *_: set_dim(*grid))
        patch.setattr(builder, "set_grid_idx", lambda *_: set_idx(*program))
        launch.kernel[1, 1, 1](**(launch.arguments | stand_ins))
    return touched


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("case", "length"),
    [
        (Case("slay", 16, 3, 10), 400),
        (Case("yat-spherical", 16), 400),
        pytest.param(
            *(Case("slay", kernels.MAX_HEAD_DIM, 1, 16), kernels.MAX_LENGTH),
            marks=[pytest.mark.slow, pytest.mark.timeout(900)],  # the interpreter takes minutes for one long program
        ),
    ],
    ids=["slay, many heads", "yat-spherical, many heads", "slay, long"],
)
def test_programs_stay_inside_tensors_beyond_32_bits(case: Case, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "HEADS", 2**31 // (length * case.head_dim) + 2)
    monkeypatch.setattr(compiled, "LENGTH", length)
    furthest = 0

    for _, launch in compiled.launches(case, torch.float32):
        for program in ((0, 0, 0), tuple(count - 1 for count in padded(launch.grid))):
            for name, (low, high, count) in run_program(launch, program, monkeypatch).items():
                assert 0 <= low <= high < count, name
                furthest = max(furthest, high)

    assert furthest >= 2**31
