"""Path REWA: attention along chains of relations."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms import scores
from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.shapes import KeyHeads, ValueHeads
from synthbench.forms.state import State
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa import _operators
from synthbench.mechanisms.rewa._operators import TemperedAttention, WitnessMap
from synthbench.options import option


@mechanism
class RewaPath(TemperedAttention):
    r"""Softmax of path scores: :math:`\sum_{s, t \le i} tr(A_i R_s R_t A_j^T)` for the query i and the key j.

    Every token has an entity A and a relation R, both m x m operators of rank r. Each is a product of two factors. The
    factors of a query's A are linear in q; the factors of R and of a key's A are linear in k. A path consists of the
    relations of two tokens s and t, each at or before the query's position; s and t may be equal. The sum over s and t
    is therefore a product of prefix sums, :math:`tr(A_i M_i M_i A_j^T)` with :math:`M_i = \sum_{s \le i} R_s`. The cost
    is m³ for each token and each relation of a path, and m² for each pair of tokens. A and M are scaled to
    Hilbert–Schmidt norm 1; the scaling of M multiplies all scores of a query by the same factor. The scores are divided
    by a temperature that each head learns.

    State: every key and value so far, and ``m ** 2`` numbers per head.

    Source: Phadke (2025), eq. 93 and 94, with factors as in eq. 104. The paper scores a single path. The choice of the
    tokens s and t, the sum over paths and the scaling are not from the paper. The option ``hops`` is the number of
    relations in a path, 2 in the formulas above.
    """

    name: ClassVar = "rewa-path"
    label: ClassVar = "Path REWA"
    complexity: ClassVar = "T^2 m^2 + T hops m^3"

    m: int = option(8, "width of an operator", low=1, high=64)
    r: int = option(2, "rank of an operator", low=1, high=64)
    hops: int = option(2, "relations in a chain", low=1, high=8)
    tau: float = option(0.1, "temperature to start from", low=1e-3, high=1e3)
    shared: bool = option(True, "whether queries and keys share the map to entities")  # noqa: FBT003

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the linear maps that turn queries and keys into factors of the entity and relation operators.

        Raises:
            UsageError: If the rank ``r`` exceeds the size ``m`` of the operators.
        """
        _operators.check_rank(self.name, self.r, self.m)
        width = 2 * self.r * self.m
        self.entity = WitnessMap(self.num_heads, self.head_dim, width, shared=self.shared, generator=generator)
        self.relation = WitnessMap(self.num_heads, self.head_dim, width, shared=True, generator=generator)
        self.temperature = _operators.one_a_head(self.num_heads, self.tau)

    def attend(self, q: KeyHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> ValueHeads:
        """Attend with weights that are the softmax of path scores divided by the temperature."""
        paths = self.paths(q, k, state=state).flatten(-2) / self.temperature()
        if state is not None:
            k, v = state.append("keys", k), state.append("values", v)
        ends = self._scaled(self._operators(self.entity(k, "key")))
        return scores.attend(lambda q, k: q @ k.mT, "softmax", paths, ends.flatten(-2), v)

    def paths(
        self, q: KeyHeads, k: KeyHeads, *, state: State | None = None
    ) -> Float[Tensor, "*batch heads length m m"]:
        """Compute the entity A_i of every query i, multiplied ``hops`` times by the sum of relations M_i."""
        relations = self._operators(self.relation(k, "key"))
        relations = self._scaled(relations.cumsum(-3) if state is None else state.add("relations", relations))
        paths = self._scaled(self._operators(self.entity(q, "query")))
        for _ in range(self.hops):
            paths = paths @ relations
        return paths

    def state_elements(self, length: int) -> int:
        """Count the numbers in all keys and values, and in the sums of relations of all heads."""
        return super().state_elements(length) + self.num_heads * self.m**2

    def _operators(self, witness: Tensor) -> Tensor:
        return _operators.operators(_operators.factors(witness, self.r))

    def _scaled(self, operators: Tensor) -> Tensor:
        scaled: Tensor = unit_vectors(operators.flatten(-2)).unflatten(-1, (self.m, self.m))
        return scaled
