"""Gated DeltaNet: the delta rule with a forget gate."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.recurrences import corrected
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.knobs import knob
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import SiluAttention, log_decay, log_rates, log_uniform_steps
from synthbench.mechanisms.base import mechanism


@mechanism
class GatedDeltanet(SiluAttention):
    r"""The delta rule, whose memory also forgets as a whole, by a gate that is read off the token.

    With q, k and v passed through SiLU, q and k then scaled to length 1, :math:`\beta_t = \sigma(x_t W_\beta)` and
    :math:`\alpha_t = \exp(-A\,softplus(x_t W_\alpha + b))`, one a head,

    .. math:: S_t = \alpha_t (I - \beta_t k_t k_t^T) S_{t-1} + \beta_t k_t v_t^T, \qquad out_t = norm(S_t^T q_t)

    ``eigenvalues=signed`` doubles beta, as in ``deltanet``.

    State: ``key_dim * value_dim`` numbers a head.

    Source: Yang et al. (2025), section 3.1, the gated delta rule; beginning as in the authors' code: A uniform in
    [0, 16], the softplus of b log-uniform in [0.001, 0.1]. The norm divides a head's output by its root mean square and
    has no parameters. Values are as wide as keys, not twice. Left out: the short convolutions before SiLU, and the
    output gate. In the code q is also divided by the root of its width, which the norm undoes but for its epsilon; the
    norm has a gain; A and b have no weight decay, which is up to the suite here.
    """

    name: ClassVar = "gated-deltanet"
    label: ClassVar = "Gated DeltaNet"
    family: ClassVar = "linear-recurrent"
    source: ClassVar = "yang2025gated"
    complexity: ClassVar = "T d^2"

    eigenvalues: Literal["zero-one", "signed"] = knob(
        "zero-one", "range of a step's eigenvalues but for the gates: beta from 0 to 1, or from 0 to 2"
    )

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections to beta and to the gate, the gate's rates and biases."""
        self.rate = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
        self.gate = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
        self.log_rate = log_rates(self.num_heads, 0.0, generator)
        self.gate_bias = nn.Parameter(log_uniform_steps(self.num_heads, 1, 1, generator=generator))

    def controls(self, x: Tokens) -> tuple[Tensor, Tensor]:
        """Beta and the logarithms of the gates."""
        beta = self.by_head(self.rate(x)).sigmoid()
        gates = log_decay(self.log_rate, self.gate_bias, self.by_head(self.read_gates(x)))
        return (beta if self.eigenvalues == "zero-one" else 2 * beta), gates

    def read_gates(self, x: Tokens) -> Float[Tensor, "*batch length gates"]:
        """Read one number a head off every token."""
        read: Tensor = self.gate(x)
        return read

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        beta: Float[Tensor, "*batch heads length 1"] | None = None,
        log_gates: Float[Tensor, "*batch heads length gates"] | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with this beta and these gates; without any, beta is 1 and nothing is forgotten."""
        beta = torch.ones_like(k[..., :1]) if beta is None else beta
        log_gates = torch.zeros_like(beta) if log_gates is None else log_gates
        k = unit_vectors(k)
        out = corrected(unit_vectors(q), beta * k, k, beta * v, log_gates, state=state)
        return rms_norm(out, out.shape[-1:], eps=1e-5)
