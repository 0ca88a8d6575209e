"""Kimi delta attention: the delta rule with a forget gate a channel."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms.shapes import Tokens
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import log_rates, log_uniform_steps
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.gated_deltanet import GatedDeltanet


@mechanism
class Kda(GatedDeltanet):
    r"""Gated DeltaNet whose every key channel forgets by a gate of its own.

    With q, k, v and beta as in ``gated-deltanet`` and :math:`\alpha_t = \exp(-A\,softplus(x_t W_1 W_2 + b))`, A one a
    head and b one a channel,

    .. math::
        S_t = (I - \beta_t k_t k_t^T) \, diag(\alpha_t) S_{t-1} + \beta_t k_t v_t^T, \qquad out_t = norm(S_t^T q_t)

    State: ``key_dim * value_dim`` numbers a head.

    Source: Kimi Team (2025), section 3, the recurrence of KDA. As in the model of the authors' code
    (flash-linear-attention, ``models/kda``), W_1 has as many columns as a head has channels, A is uniform in [1, 16],
    and the softplus of b log-uniform in [0.001, 0.1]; in its layer alone b is 0. The norm divides a head's output by
    its root mean square and has no parameters. Left out: the short convolutions before SiLU, and the output gate. As in
    ``gated-deltanet``, q is scaled once more there, the norm has a gain, and A and b have no weight decay.
    """

    name: ClassVar = "kda"
    label: ClassVar = "KDA"
    family: ClassVar = "linear-recurrent"
    source: ClassVar = "kimi2025linear"
    complexity: ClassVar = "T d^2"
    version: ClassVar = 2

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections to beta and to the gates, and the gates' rates."""
        self.rate = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
        self.gate_in = Linear(self.model_dim, self.head_dim, bias=False, generator=generator)
        self.gate_out = Linear(self.head_dim, self.model_dim, bias=False, generator=generator)
        self.log_rate = log_rates(self.num_heads, 1.0, generator)
        self.gate_bias = nn.Parameter(log_uniform_steps(self.num_heads, 1, self.head_dim, generator=generator))

    def read_gates(self, x: Tokens) -> Float[Tensor, "*batch length gates"]:
        """Read one number a channel off every token, through a few columns."""
        read: Tensor = self.gate_out(self.gate_in(x))
        return read
