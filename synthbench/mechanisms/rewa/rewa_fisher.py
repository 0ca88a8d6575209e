"""Fisher REWA: attention by the distance of probability distributions."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import log_softmax

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.mechanisms.rewa import _operators
from synthbench.mechanisms.rewa._operators import TemperedAttention, WitnessMap
from synthbench.options import option


@mechanism
class RewaFisher(TemperedAttention, ScoreAttention):
    r"""Softmax of the negative distance :math:`-d(p_q, p_k)^n / \tau` between two distributions over m categories.

    A linear map of q or k computes the logits of a token's distribution. The distance ``fisher-rao`` is the geodesic
    distance of the Fisher metric, :math:`2 \arccos \sum_z \sqrt{p_q(z) p_k(z)}`. This is twice the angle between the
    vectors :math:`\sqrt{p_q}` and :math:`\sqrt{p_k}`. The distance ``published`` is :math:`\sqrt{\sum_z (p_q(z) -
    p_k(z))^2 / (p_q(z) + p_k(z))}`. The exponent n is the option ``power``. Each head learns a temperature.

    State: every key and value so far.

    Source: Phadke (2025), proposition 10.1. The distance ``published`` is eq. 115, which the paper calls a Fisher
    distance. This distance is a metric, but not the Fisher–Rao distance. Between close distributions, it is √2 times
    smaller than the Fisher–Rao distance, and its largest value is √2 instead of π. Its computation takes memory for m
    numbers per pair of tokens.
    """

    name: ClassVar = "rewa-fisher"
    label: ClassVar = "Fisher REWA"
    complexity: ClassVar = "T^2 m"

    m: int = option(16, "categories of a distribution", low=2, high=1024)
    distance: Literal["fisher-rao", "published"] = option("fisher-rao", "which distance of distributions")
    power: int = option(1, "power of the distance", low=1, high=2)
    tau: float = option(1.0, "temperature to start from", low=1e-3, high=1e3)
    shared: bool = option(True, "whether queries and keys share the map to logits")  # noqa: FBT003

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the map to logits."""
        self.witness = WitnessMap(self.num_heads, self.head_dim, self.m, shared=self.shared, generator=generator)
        self.temperature = _operators.one_a_head(self.num_heads, self.tau)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute negative distances (squared if ``power`` is 2) from queries to keys, divided by the temperature."""
        logs = log_softmax(self.witness(q, "query"), dim=-1), log_softmax(self.witness(k, "key"), dim=-1)
        distances = fisher_rao(*logs) if self.distance == "fisher-rao" else published(*logs)
        return -(distances**self.power) / self.temperature()


def fisher_rao(left: Float[Tensor, "*batch queries m"], right: Float[Tensor, "*batch keys m"]) -> PairScores:
    """Compute the Fisher–Rao distance of every pair of categorical distributions, given as log-probabilities."""
    return 2 * _operators.arc((left / 2).exp() @ (right / 2).exp().mT)


def published(left: Float[Tensor, "*batch queries m"], right: Float[Tensor, "*batch keys m"]) -> PairScores:
    """Compute the distance of Phadke (2025), eq. 115, for every pair of distributions, given as log-probabilities.

    Where two distributions are equal up to rounding, the gradient is 0. The denominator, the sum of both probabilities,
    is clamped to at least the squared machine epsilon, so that gradients do not overflow for rare categories.
    """
    p, q = left.exp().unsqueeze(-2), right.exp().unsqueeze(-3)
    floor = torch.finfo(p.dtype).eps ** 2
    squared = ((p - q).square() / (p + q).clamp(min=floor)).sum(-1)
    return squared.clamp(min=floor).sqrt()
