"""Rounding of another processor, on this one: every computed number moves by a few units in the last place."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.contract import _computed

ULPS, OF_INPUTS = 1.0, 2.0
"""Units in the last place by which a result and an input may move.

Processors sum in other orders, fuse products into sums and approximate exponentials otherwise. That moves a result by
about one unit. What is left of a sum whose terms cancel moves by more, since the terms have moved too.
"""

EXACT = {
    "_to_copy", "_unsafe_view", "abs", "amax", "amin", "arange", "cat", "clamp", "clamp_max", "clamp_min", "clone",
    "constant_pad_nd", "copy", "empty", "empty_like", "eye", "fill", "flip", "floor", "full", "gather", "hardtanh",
    "index", "lift_fresh", "masked_fill", "max", "maximum", "min", "minimum", "neg", "new_zeros", "ones", "ones_like",
    "rand", "relu", "repeat", "scalar_tensor", "scatter", "sgn", "sign", "sort", "stack", "topk", "tril", "triu",
    "uniform", "where", "zero", "zeros", "zeros_like",
}  # fmt: skip
"""Operations that pick, move or make numbers without rounding: equal numbers are equal on every processor."""


class Rounding(TorchDispatchMode):
    """Within this context PyTorch rounds differently, gradients included.

    Args:
        seed: Which of the processors that could be.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._starts = np.random.default_rng(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._factors: dict[tuple[torch.dtype, float], Tensor] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.name().partition("::")[2].partition(".")[0].removesuffix("_")
        if not func.is_view and name not in EXACT:
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(tensor, Tensor) and tensor.is_floating_point():
                    self.move(tensor, ULPS)
        return result

    def move(self, tensor: Tensor, ulps: float) -> Tensor:
        """The same tensor, each number of it moved by at most this much."""
        count, factors = tensor.numel(), self._factors.get((tensor.dtype, ulps), torch.empty(0))
        if len(factors) < 2 * count:
            noise = torch.rand(max(2 * count, 1 << 16), dtype=tensor.dtype, generator=self._generator)
            factors = 1 + (2 * noise - 1) * ulps * torch.finfo(tensor.dtype).eps
            self._factors[tensor.dtype, ulps] = factors
        start = int(self._starts.integers(len(factors) - count))
        return tensor.mul_(factors[start : start + count].view(tensor.shape))


@contextmanager
def rounded_otherwise(seed: int) -> Iterator[None]:
    """Within this context golden numbers are computed from other inputs and by another processor."""
    draw, rounding = _computed.uniform, Rounding(seed)

    def moved(*shape: int, seed: int) -> Tensor:
        return rounding.move(draw(*shape, seed=seed), OF_INPUTS)

    with pytest.MonkeyPatch.context() as patch, rounding:
        patch.setattr(_computed, "uniform", moved)
        yield
