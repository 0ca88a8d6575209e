"""Fixtures for kernels in Triton's interpreter."""

from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of bfloat16 by its values: the interpreter multiplies its bit patterns (seen in Triton 3.6 to 3.9)."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    multiply = interpreter.InterpreterBuilder.create_dot

    def widened(x: Any) -> Any:
        if x.data.dtype != np.uint16:
            return x
        values = (x.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(values, interpreter.tl.float32)

    def multiply_values(builder: Any, a: Any, b: Any, *others: Any) -> Any:
        return multiply(builder, widened(a), widened(b), *others)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", multiply_values)
