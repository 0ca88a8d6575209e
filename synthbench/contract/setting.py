"""The device and precision in which a mechanism is checked, and the rounding errors that are allowed there."""

from typing import NamedTuple

import torch
from torch import Tensor

from synthbench.contract.causality import TOLERANCE as FLOAT32_TOLERANCE
from synthbench.mechanisms import Mechanism


class Setting(NamedTuple):
    """The device and the precision of a check.

    The precision is float64 unless the mechanism does not run in float64.
    """

    device: str = "cpu"
    dtype: torch.dtype = torch.float64
    inside: torch.dtype = torch.float32
    """The lowest precision in which the mechanism computes when its input is float32, as in training."""

    @property
    def tolerance(self) -> float:
        """Largest change, relative to the largest output, that counts as rounding."""
        return 1e-7 if self.dtype == torch.float64 else self.tolerance_in_training

    @property
    def tolerance_in_training(self) -> float:
        """The tolerance for an input in float32, which the mechanism may convert to a lower precision."""
        return max(FLOAT32_TOLERANCE, 4 * torch.finfo(self.inside).eps)

    @property
    def last_bits(self) -> float:
        """Largest relative difference allowed between two equal calls.

        Equal calls may differ in the last bits of sums, which can depend on memory addresses.
        """
        return 1e-12 if self.dtype == torch.float64 else max(1e-5, torch.finfo(self.inside).eps)

    @property
    def scales(self) -> tuple[float, ...]:
        """Standard deviations of the noise that replaces later inputs.

        In float32, which rounds more coarsely, the largest of them is left out.
        """
        return (1.0, 10.0, 1e3) if self.dtype == torch.float64 else (1.0, 10.0)

    def noise(self, mechanism: Mechanism, *shape: int, seed: int) -> Tensor:
        """Draw random inputs of a mechanism, [*shape, model_dim]; they are the same on every device."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(*shape, mechanism.model_dim, generator=generator, dtype=torch.float64)
        return drawn.to(self.device, self.dtype)

    def __str__(self) -> str:
        """Name precision and device, as in ``float32 (bfloat16 inside) on cuda``."""
        inside = "" if self.inside == torch.float32 else f" ({str(self.inside).removeprefix('torch.')} inside)"
        return f"{str(self.dtype).removeprefix('torch.')}{inside} on {self.device}"


DOUBLE = Setting()
