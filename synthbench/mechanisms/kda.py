"""Kimi delta attention: the delta rule (replace the value stored for a key) with a forget gate per channel."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms.shapes import Tokens
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import SiluAttention
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.gated_deltanet import GatedDeltanet


@mechanism
class Kda(GatedDeltanet):
    r"""Gated DeltaNet in which every key channel has its own forget gate.

    First, q, k and v pass through a causal depthwise convolution with ``conv`` taps and SiLU. Then q and k are scaled
    to norm 1. With :math:`\beta_t = \sigma(x_t W_\beta)`, one per head, and
    :math:`\alpha_t = \exp(-A\,softplus(x_t W_1 W_2 + b))`, with one A per head and one b per channel,

    .. math::
        S_t = (I - \beta_t k_t k_t^T) \, diag(\alpha_t) S_{t-1} + \beta_t k_t v_t^T, \qquad
        out_t = norm(S_t^T q_t) \odot \sigma(x_t W_3 W_4 + c)

    The norm divides a head's output by its root mean square and has a learned gain. The optimiser's weight decay does
    not apply to A and b. The above is the stock layer, as its authors build it. The bare layer leaves out the
    convolution, the gain and the output gate; in it, weight decay applies to A and b.

    State: ``key_dim * value_dim`` numbers per head, and the convolution's inputs (q, k and v) at the last ``conv - 1``
    tokens.

    Source: Kimi Team (2025), section 3. The parts around the recurrence follow flash-linear-attention,
    ``layers/kda.py``. W_1 and W_3 have as many columns as a head has channels. A is initially uniform in [1, 16], and
    the softplus of b is log-uniform in [0.001, 0.1], as in ``models/kda`` of that library.
    """

    name: ClassVar = "kda"
    label: ClassVar = "KDA"
    source: ClassVar = "kimi2025linear"
    version: ClassVar = 2
    rotation_note: ClassVar = "a decay per channel does not commute with a rotation that mixes two channels"

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw all projections, the rates and biases of the gates, the convolution and the output norm."""
        self.rate = Linear(self.model_dim, self.num_heads, bias=False, generator=generator)
        self.gate_in = Linear(self.model_dim, self.head_dim, bias=False, generator=generator)
        self.gate_out = Linear(self.head_dim, self.model_dim, bias=False, generator=generator)
        self.draw_decay(generator, width=self.head_dim, lowest=1.0, undecayed=self.undecayed)
        SiluAttention.initialise(self, generator)

    def draw_output_gate(self, generator: torch.Generator | None) -> nn.Module:
        """Draw the two factors of the low-rank projection to the output gates."""
        return nn.Sequential(
            Linear(self.model_dim, self.head_dim, bias=False, generator=generator),
            Linear(self.head_dim, self.model_dim, bias=True, generator=generator),
        )

    def activated(self, gates: Tensor) -> Tensor:
        """Apply the sigmoid, the activation of the output gates."""
        return gates.sigmoid()

    def read_gates(self, x: Tokens) -> Float[Tensor, "*batch length gates"]:
        """Project each token, by a low-rank map, to the inputs of the forget gates, one number per channel."""
        return self.gate_out(self.gate_in(x))
