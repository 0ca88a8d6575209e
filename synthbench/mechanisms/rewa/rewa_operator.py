"""Operator REWA: attention by the Hilbert–Schmidt distance of operators."""

from typing import ClassVar

import torch

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.mechanisms.rewa import _operators
from synthbench.mechanisms.rewa._operators import TemperedAttention, WitnessMap
from synthbench.options import option


@mechanism
class RewaOperator(TemperedAttention, ScoreAttention):
    r"""Softmax of the negative distance :math:`-\|A_q - A_k\|_{HS}^p / \tau` between m x m operators of rank r.

    A linear map of q or k computes the factors U and V of the token's operator :math:`A = U V^T`. Distances are
    computed from the inner products :math:`tr(A^T B) = \sum (U_A^T U_B) \circ (V_A^T V_B)`, an elementwise product
    summed over all entries. The exponent p is the option ``power``. Each head learns a temperature.

    State: every key and value so far.

    Source: Phadke (2025), definition 6.1, algorithm 6 and eq. 104, with the singular values absorbed into U. Since the
    factors are linear in the token, the operator is quadratic in the token; the paper's full operator (eq. 88) is
    linear. The paper uses power 2 for operators and power 1 in the general form of the kernel (eq. 6).
    """

    name: ClassVar = "rewa-operator"
    label: ClassVar = "Operator REWA"
    complexity: ClassVar = "T^2 min(m^2, m r^2)"

    m: int = option(8, "width of an operator", low=1, high=128)
    r: int = option(2, "rank of an operator", low=1, high=128)
    power: int = option(2, "power of the distance", low=1, high=2)
    tau: float = option(1.0, "temperature to start from", low=1e-3, high=1e3)
    shared: bool = option(True, "whether queries and keys share the map to operators")  # noqa: FBT003

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the map from queries and keys to the factors of operators.

        Raises:
            UsageError: If r exceeds m.
        """
        _operators.check_rank(self.name, self.r, self.m)
        width = 2 * self.r * self.m
        self.witness = WitnessMap(self.num_heads, self.head_dim, width, shared=self.shared, generator=generator)
        self.temperature = _operators.one_a_head(self.num_heads, self.tau)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute negative distances (squared if ``power`` is 2) from queries to keys, divided by the temperature."""
        a = _operators.factors(self.witness(q, "query"), self.r)
        b = _operators.factors(self.witness(k, "key"), self.r)
        norms = _operators.hilbert_schmidt_norms(a), _operators.hilbert_schmidt_norms(b)
        distances = _operators.distances(_operators.hilbert_schmidt_product(a, b), *norms, power=self.power)
        return -distances / self.temperature()
