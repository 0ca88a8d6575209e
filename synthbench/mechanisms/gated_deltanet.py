"""Gated DeltaNet: the delta rule (replace the value stored for a key) with a forget gate."""

from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import corrected
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import SiluAttention
from synthbench.mechanisms.base import mechanism, stock_part
from synthbench.options import option


@mechanism
class GatedDeltanet(SiluAttention):
    r"""DeltaNet whose memory also decays: each token multiplies the whole memory by a forget gate.

    First, q, k and v pass through a causal depthwise convolution with ``conv`` taps and SiLU. Then q and k are scaled
    to norm 1. With :math:`\beta_t = \sigma(x_t W_\beta)` and :math:`\alpha_t = \exp(-A\,softplus(x_t W_\alpha + b))`,
    one per head,

    .. math::
        S_t = \alpha_t (I - \beta_t k_t k_t^T) S_{t-1} + \beta_t k_t v_t^T, \qquad
        out_t = norm(S_t^T q_t) \odot silu(x_t W_g)

    The norm divides a head's output by its root mean square and has a learned gain. The optimiser's weight decay does
    not apply to A and b. The above is the stock layer, as its authors build it. The bare layer leaves out the
    convolution, the gain and the output gate; in it, weight decay applies to A and b. ``eigenvalues=signed`` doubles
    beta, so that an eigenvalue of the matrix in brackets can be negative.

    State: ``key_dim * value_dim`` numbers per head, and the convolution's inputs (q, k and v) at the last ``conv - 1``
    tokens.

    Source: Yang et al. (2025), section 3.1, the gated delta rule. The parts around the recurrence and the initial A and
    b follow flash-linear-attention, ``layers/gated_deltanet.py``: A is uniform in [0, 16], and the softplus of b is
    log-uniform in [0.001, 0.1]. In that code, values are twice as wide as keys, and the keys of all heads together have
    three quarters of the model's width. Here, keys and values have equal width. The scaling of q is explained in
    ``deltanet``.
    """

    name: ClassVar = "gated-deltanet"
    label: ClassVar = "Gated DeltaNet"
    source: ClassVar = "yang2025gated"
    complexity: ClassVar = "T d^2"
    bare: ClassVar = MappingProxyType({"conv": 0, "norm_gain": False, "output_gate": False, "undecayed": False})

    eigenvalues: Literal["zero-one", "signed"] = option(
        "zero-one", "range of a step's eigenvalues but for the gates: beta from 0 to 1, or from 0 to 2"
    )
    undecayed: bool = stock_part("whether weight decay leaves the gate's rate A and bias alone")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw all projections, the forget gate's rates and biases, the convolution, the norm and the output gate."""
        self.rate = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
        self.gate = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
        self.draw_decay(generator, undecayed=self.undecayed)
        super().initialise(generator)

    def controls(self, x: Tokens) -> tuple[Tensor | None, ...]:
        """Compute beta (the rate of replacement), the logarithms of the forget gates, and the output gates."""
        beta = self.by_head(self.rate(x)).sigmoid()
        gates = self.log_decay(self.by_head(self.read_gates(x)))
        return (beta if self.eigenvalues == "zero-one" else 2 * beta), gates, self.output_gates(x)

    def read_gates(self, x: Tokens) -> Float[Tensor, "*batch length gates"]:
        """Project each token to the inputs of the forget gates, one number per head."""
        return self.gate(x)

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        beta: Float[Tensor, "*batch heads length 1"] | None = None,
        log_gates: Float[Tensor, "*batch heads length gates"] | None = None,
        output_gates: ValueHeads | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with the given rates beta and forget gates; by default, beta is 1 and nothing is forgotten."""
        beta = torch.ones_like(k[..., :1]) if beta is None else beta
        log_gates = torch.zeros_like(beta) if log_gates is None else log_gates
        k = unit_vectors(k)
        out = corrected(unit_vectors(q), beta * k, k, beta * v, log_gates, state=state)
        return self.normed(out, output_gates)
