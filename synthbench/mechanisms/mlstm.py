"""mLSTM: a matrix memory with an exponential input gate."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import layer_norm, logsigmoid, pad

from synthbench.forms.recurrences import decayed
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import mechanism


@mechanism
class Mlstm(RecurrentAttention):
    r"""Linear attention with a forget gate, an exponential input gate and a normaliser.

    With :math:`i_t = \exp(x_t w_i + b_i)`, :math:`f_t = \sigma(x_t w_f + b_f)`, one a head, and
    :math:`o_t = \sigma(x_t W_o + b_o)`,

    .. math::
        C_t = f_t C_{t-1} + i_t \frac{k_t}{\sqrt d} v_t^T, \qquad n_t = f_t n_{t-1} + i_t \frac{k_t}{\sqrt d}, \qquad
        out_t = o_t \odot norm\Big( \frac{C_t^T q_t}{\max(|n_t \cdot q_t|, 1)} \Big)

    Both are held relative to :math:`\exp(m_t)`, :math:`m_t = \max(m_{t-1} + \log f_t, \log i_t, 0)`, so that nothing
    overflows; m cancels.

    State: ``key_dim * (value_dim + 1) + 1`` numbers a head: C, n and m.

    Source: Beck et al. (2024), section 2.3, with the sigmoid for f; as in the authors' code w_i and w_f begin at 0, b_i
    normal with deviation 0.1, and b_f from 3 to 6 over the heads. There m has no 0 in its maximum, and the 1 becomes
    exp(-m): the same function. The norm is a layer norm a head without parameters. Left out: the projections up and
    down around the cell, its short convolution, and the learned skip.
    """

    name: ClassVar = "mlstm"
    label: ClassVar = "mLSTM"
    family: ClassVar = "linear-recurrent"
    source: ClassVar = "beck2024xlstm"
    complexity: ClassVar = "T d^2"

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projection to the output gate and the input gate's biases."""
        self.output_gate = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)
        self.gates = Linear(self.model_dim, 2 * self.num_heads, bias=False, generator=generator)
        with torch.no_grad():
            self.gates.weight.zero_()
        self.input_bias = nn.Parameter(0.1 * torch.randn(self.num_heads, 1, 1, generator=generator))
        self.forget_bias = nn.Parameter(torch.linspace(3, 6, self.num_heads).view(-1, 1, 1))

    def controls(self, x: Tokens) -> tuple[Tensor, Tensor, Tensor]:
        """Logarithms of the input and the forget gate, and the output gate."""
        log_input, forget = (self.by_head(gate) for gate in self.gates(x).chunk(2, dim=-1))
        output = self.by_head(self.output_gate(x)).sigmoid()
        return log_input + self.input_bias, logsigmoid(forget + self.forget_bias), output

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        log_input: Float[Tensor, "*batch heads length 1"] | None = None,
        log_forget: Float[Tensor, "*batch heads length 1"] | None = None,
        output: ValueHeads | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with these gates; without any, all are 1."""
        log_input = torch.zeros_like(k[..., :1]) if log_input is None else log_input
        log_forget = torch.zeros_like(k[..., :1]) if log_forget is None else log_forget
        if state is None:
            highest = running_maximum(log_input.detach(), log_forget.detach())
            before = pad(highest[..., :-1, :], (0, 0, 1, 0))
        else:
            before = state.tensors.get("highest", torch.zeros_like(log_input))
            highest = torch.maximum(before + log_forget, log_input).clamp(min=0).detach()
            state.tensors["highest"] = highest
        keys = k * (log_input - highest).exp() / math.sqrt(k.shape[-1])
        # A column of ones beside the values makes the normaliser one more column.
        sums = decayed(q, keys, pad(v, (0, 1), value=1.0), log_forget + before - highest, state=state)
        mixed = sums[..., :-1] / torch.maximum(sums[..., -1:].abs(), (-highest).exp())
        normal = layer_norm(mixed, mixed.shape[-1:], eps=1e-5)
        return normal if output is None else output * normal

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Key x (value + normaliser) and the maximum in every head, whatever the length."""
        return self.model_dim * (self.head_dim + 1) + self.num_heads


def running_maximum(
    log_input: Float[Tensor, "*batch length 1"], log_forget: Float[Tensor, "*batch length 1"]
) -> Float[Tensor, "*batch length 1"]:
    """m_t = max(m_{t-1} + log_forget_t, log_input_t, 0), by doubling the distance that is looked back."""
    highest, forgotten = log_input.clamp(min=0), log_forget
    distance, length = 1, log_input.shape[-2]
    while distance < length:
        earlier = pad(highest, (0, 0, distance, 0), value=-torch.inf)[..., :length, :]
        highest = torch.maximum(highest, earlier + forgotten)
        forgotten = forgotten + pad(forgotten, (0, 0, distance, 0))[..., :length, :]
        distance *= 2
    return highest
