"""The device and precision in which a mechanism is checked, and its tolerances for rounding."""

from typing import NamedTuple

import torch
from torch import Tensor

from synthbench.contract.causality import TOLERANCE as FLOAT32_TOLERANCE
from synthbench.mechanisms import Mechanism


class Setting(NamedTuple):
    """A device and a precision: float64 unless the mechanism refuses it."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float64

    @property
    def tolerance(self) -> float:
        """Largest change, relative to the largest output, that counts as rounding; a padded FFT needs 1e-9."""
        return 1e-7 if self.dtype == torch.float64 else FLOAT32_TOLERANCE

    @property
    def last_bits(self) -> float:
        """Tolerance between two calls on one input: memory addresses decide the last bits of sums."""
        return 1e-12 if self.dtype == torch.float64 else 1e-5

    @property
    def scales(self) -> tuple[float, ...]:
        """Scales of the noise that replaces a future; in float32 a transform rounds in proportion to the largest."""
        return (1.0, 10.0, 1e3) if self.dtype == torch.float64 else (1.0, 10.0)

    def noise(self, mechanism: Mechanism, *shape: int, seed: int) -> Tensor:
        """Draw inputs of a mechanism, [*shape, width]: the same numbers on every device."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(*shape, mechanism.model_dim, generator=generator, dtype=torch.float64)
        return drawn.to(self.device, self.dtype)

    def __str__(self) -> str:
        """Name both, as in ``float32 on cuda``."""
        return f"{str(self.dtype).removeprefix('torch.')} on {self.device}"


DOUBLE = Setting()
