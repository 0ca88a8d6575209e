"""The Yat kernel, and the base class of attention with this kernel."""

from abc import abstractmethod
from dataclasses import dataclass

import torch

from synthbench.errors import UsageError
from synthbench.forms.scores import Normaliser
from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import ScoreAttention
from synthbench.options import option


def yat_kernel(q: Queries, k: Keys, epsilon: float) -> PairScores:
    """Compute the Yat kernel (q·k)² / (‖q - k‖² + epsilon) for every pair of a query q and a key k.

    The squared distance is computed from inner products, which is cheap but can give a result below zero where q ≈ k. A
    negative result is replaced by zero, so that the kernel stays finite. The code behind the tables of the papers on
    the Yat kernel lacks this guard.

    For a given q, the kernel is largest at k = (1 + epsilon/‖q‖²) q, where it equals ‖q‖⁴/epsilon + ‖q‖². Bouhsine
    (2026), proposition 11, gives ‖q‖⁴/epsilon instead, the value at k = q. The gradient of the kernel agrees with
    theorem 5 of Bouhsine (2026). Proposition 12 of the same paper has a wrong sign.
    """
    inner = q @ k.mT
    norms = q.square().sum(-1).unsqueeze(-1) + k.square().sum(-1).unsqueeze(-2)
    return inner.square() / ((norms - 2 * inner).clamp(min=0) + epsilon)


@dataclass(eq=False, repr=False, kw_only=True)
class YatAttention(ScoreAttention):
    """Attention with a kernel that is never negative.

    Softmax, division by the sum, or softermax (division of powers by their sum) turns the kernel's values into weights.
    """

    # `mechanism` makes dataclasses of the classes, which ruff cannot see: an option is a field, not a shared default.
    normaliser: Normaliser = option("softmax", "what makes weights of the kernel's values")  # noqa: RUF009
    scale: float = option(1.0, "factor of the values; softmax only", low=1e-6, high=1e6)
    power: float = option(1.0, "exponent of the values; softermax only, 1 is sum", low=0.25, high=16)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Create the mechanism; check that ``scale`` and ``power`` are 1 unless the normaliser uses them.

        Raises:
            UsageError: If ``scale`` or ``power`` is not 1 and the normaliser does not use it.
        """
        super().__post_init__(generator)
        if self.scale != 1 and self.normaliser != "softmax":
            raise UsageError(
                f"{self.name}:scale is {self.scale:g}; allowed: 1 with normaliser={self.normaliser}, where a factor of "
                "all values cancels, any with softmax"
            )
        if self.power != 1 and self.normaliser != "softermax":
            raise UsageError(
                f"{self.name}:power is {self.power:g}; allowed: 1 with normaliser={self.normaliser}, which raises "
                "nothing to a power, any with softermax"
            )

    @property
    def softermax_power(self) -> float:
        """Exponent to which the normaliser ``softermax`` raises the kernel's values: the hyper-parameter ``power``."""
        return self.power

    @abstractmethod
    def kernel(self, q: Queries, k: Keys) -> PairScores:
        """Compute the kernel for every pair of a query and a key; no value is negative."""

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute the kernel for every pair of a query and a key, times ``scale``."""
        kernel = self.kernel(q, k)
        return kernel if self.scale == 1 else self.scale * kernel
