"""Oscillatory REWA: an overlap that is not monotone in the distance."""

from typing import ClassVar

import torch
from torch import Tensor

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.mechanisms.rewa import _operators
from synthbench.mechanisms.rewa._operators import Positive, WitnessMap
from synthbench.options import option

FLOOR = 1e-6
"""Number added to (1 + cos) / 2, so that the logarithm of the sum is finite even where the cosine is -1."""


@mechanism
class RewaOscillatory(ScoreAttention):
    r"""Weights proportional to :math:`\sum_{n=1}^K c_n e^{-\lambda_n d} \frac{1 + \cos(\omega_n d)}{2}` at distance d.

    This sum is the overlap of a query and a key. Both are mapped linearly to witnesses in m dimensions, and d is the
    Euclidean distance between the witnesses. Each head learns K factors c, K decays λ and K frequencies ω, all
    positive. All factors start at 1/K, all decays at ``decay``, and the frequencies at the first K multiples of
    ``frequency``.

    State: every key and value so far.

    Source: Phadke (2025), eq. 110, which has cos in place of (1 + cos)/2. With cos, an overlap can be negative, which
    definition 3.1 excludes, and the sum over keys can be 0. The overlap used here still has the published form, but
    with 2K terms: each oscillating term is paired with a term of frequency 0.
    """

    name: ClassVar = "rewa-oscillatory"
    label: ClassVar = "Oscillatory REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T^2 (m + K)"

    K: int = option(4, "oscillating terms", low=1, high=64)
    m: int = option(16, "dimensions of a witness", low=1, high=1024)
    decay: float = option(1.0, "decay of every term to start from", low=1e-3, high=1e3)
    frequency: float = option(1.0, "lowest frequency to start from", low=1e-3, high=1e3)
    shared: bool = option(True, "whether queries and keys share the map to witnesses")  # noqa: FBT003

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the map to witnesses, and create factors c, decays and frequencies, each [heads, 1, K]."""
        self.witness = WitnessMap(self.num_heads, self.head_dim, self.m, shared=self.shared, generator=generator)
        ones = torch.ones(self.num_heads, 1, self.K)
        self.weights = Positive(ones / self.K)
        self.decays = Positive(ones * self.decay)
        self.frequencies = Positive(ones * self.frequency * torch.arange(1, self.K + 1))

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute the logarithms of the overlaps of all queries and keys."""
        a, b = self.witness(q, "query"), self.witness(k, "key")
        norms = a.square().sum(-1), b.square().sum(-1)
        distances = _operators.distances(a @ b.mT, *norms, power=1).unsqueeze(-1)
        weights, decays, frequencies = (
            numbers().unsqueeze(-2) for numbers in (self.weights, self.decays, self.frequencies)
        )
        raised = (1 + (frequencies * distances).cos()) / 2 + FLOOR
        logs: Tensor = weights.log() - decays * distances + raised.log()
        return logs.logsumexp(-1)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - learned, whatever the inputs
        """Return the factors c, the decays and the frequencies, each [..., K, heads]."""
        learned = {"weight": self.weights, "decay": self.decays, "frequency": self.frequencies}
        return {name: numbers()[..., 0, :].mT for name, numbers in learned.items()}
