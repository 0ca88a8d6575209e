"""DeltaNet: linear attention in which a new value replaces the value stored for its key."""

from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import delta
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention, SiluAttention
from synthbench.mechanisms.base import mechanism
from synthbench.options import option


@mechanism
class Deltanet(SiluAttention):
    r"""Linear attention that replaces the value stored for a key, instead of adding to it.

    First, q, k and v pass through a causal depthwise convolution with ``conv`` taps and SiLU. Then q and k are scaled
    to norm 1. With :math:`\beta_t = \sigma(x_t W_\beta)`, one per head, the memory :math:`S_t` (a matrix from keys to
    values) is updated and read by

    .. math:: S_t = S_{t-1} - \beta_t k_t (S_{t-1}^T k_t - v_t)^T, \qquad out_t = norm(S_t^T q_t)

    The norm divides a head's output by its root mean square and has a learned gain. The above is the stock layer, as
    its authors build it. The bare layer leaves out the convolution, SiLU and the gain. The option ``output_gate``
    multiplies the output by :math:`silu(x_t W_g)`; it is off by default, as in the authors' code.

    A step multiplies the state by :math:`I - \beta_t k_t k_t^T`, whose eigenvalues are 1 and :math:`1 - \beta_t`. The
    eigenvalue :math:`1 - \beta_t` lies between 0 and 1. With ``eigenvalues=signed``, beta is doubled, so the eigenvalue
    lies between -1 and 1. A single layer can count modulo two only with ``eigenvalues=signed``.

    State: ``key_dim * value_dim`` numbers per head, and the convolution's inputs (q, k and v) at the last ``conv - 1``
    tokens.

    Source: Schlag et al. (2021), section 4.2, for the rule; Yang et al. (2024), Parallelizing linear transformers with
    the delta rule, for the algorithm and the scaling of q and k. The parts around the recurrence follow
    flash-linear-attention, ``layers/delta_net.py``; signed eigenvalues follow Grazzi et al. (2025). The norm adds a
    small epsilon to the mean square. Flash-linear-attention divides q by the square root of q's width. The stock layer
    multiplies epsilon by this width instead, to the same effect; the bare layer does neither.
    """

    name: ClassVar = "deltanet"
    label: ClassVar = "DeltaNet"
    source: ClassVar = "yang2024deltanet"
    complexity: ClassVar = "T d^2"
    bare: ClassVar = MappingProxyType({"conv": 0, "norm_gain": False})
    epsilon: ClassVar = 1e-6

    eigenvalues: Literal["zero-one", "signed"] = option(
        "zero-one", "range of a step's eigenvalues: beta from 0 to 1, or from 0 to 2"
    )
    conv: int = option(
        4, "tokens that its short convolutions see, SiLU behind, 0 for neither", low=0, high=64, absent=0
    )
    output_gate: bool = option(
        default=False, meaning="whether a gate read off the token multiplies a head's normed output", absent=False
    )

    def initialise(self, generator: torch.Generator | None) -> None:
        """Create the projection to beta (the rate of replacement), then the convolution, norm and output gate."""
        self.rate = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
        super().initialise(generator)

    def controls(self, x: Tokens) -> tuple[Tensor | None, ...]:
        """Compute beta, the rate at which a token replaces a stored value, and the output gates."""
        return self.beta(x), self.output_gates(x)

    def beta(self, x: Tokens) -> Float[Tensor, "*batch heads length 1"]:
        """Compute beta: at 0 a token leaves the value stored for its key unchanged, at 1 it replaces that value."""
        beta: Tensor = self.rate(x).sigmoid().mT.unsqueeze(-1)
        return beta if self.eigenvalues == "zero-one" else 2 * beta

    def split_heads(self, fused: Float[Tensor, "*batch length fused"]) -> tuple[Tensor, Tensor, Tensor]:
        """Split the fused projection into q, k and v, after SiLU if there is a convolution."""
        return super().split_heads(fused) if self.conv else RecurrentAttention.split_heads(self, fused)

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        beta: Float[Tensor, "*batch heads length 1"] | None = None,
        output_gates: ValueHeads | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with the rates ``beta``; by default, beta is 1: every token replaces the value stored for its key."""
        if beta is None:
            beta = torch.ones_like(k[..., :1])
        out = delta(unit_vectors(q), unit_vectors(k), v, beta, state=state)
        return self.normed(out, output_gates)
