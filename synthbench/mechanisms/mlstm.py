"""mLSTM: a matrix memory with an exponential input gate."""

import math
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import layer_norm, logsigmoid, pad, silu

from synthbench.forms.recurrences import decayed
from synthbench.forms.shapes import KeyHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear, ShortConvolution, exempt_from_decay
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import convolved, kept_by_convolution, mechanism, stock_part
from synthbench.options import option


@mechanism
class Mlstm(RecurrentAttention):
    r"""Linear attention with a forget gate, an exponential input gate and a normaliser.

    A causal depthwise convolution with ``conv`` taps, followed by SiLU, turns the token :math:`x_t` into :math:`u_t`.
    Then q and k are projections of :math:`u_t`, and v is a projection of :math:`x_t`. Let :math:`y_t = [q_t, k_t, v_t]`
    be the concatenated queries, keys and values of all heads. With the gates :math:`i_t = \exp(y_t w_i + b_i)` and
    :math:`f_t = \sigma(y_t w_f + b_f)`, one per head,

    .. math::
        C_t = f_t C_{t-1} + i_t \frac{k_t}{\sqrt d} v_t^T, \qquad n_t = f_t n_{t-1} + i_t \frac{k_t}{\sqrt d}, \qquad
        out_t = silu(x_t W_z) \odot \Big( norm\Big( \frac{C_t^T q_t}{\max(|n_t \cdot q_t|, 1)} \Big) + s \odot u_t \Big)

    where the norm is a layer norm per head with a gain, and s is a learned weight per channel. C and n are stored
    divided by :math:`\exp(m_t)` with :math:`m_t = \max(m_{t-1} + \log f_t, \log i_t, 0)`, so that nothing overflows;
    the output does not depend on m.

    In the stock layer, as in the authors' code (xlstm, blocks/mlstm/layer.py and cell.py), projections have no bias,
    and weight decay applies only to matrices and convolution taps. The bare layer is the cell of the paper. It has
    no convolution, so q and k are projections of x; its gates i and f read x instead of y. Its output gate is a
    sigmoid, its norm has no gain, and the term with s is absent. The benchmark suite sets whether its projections have
    biases, and weight decay applies to all its parameters.

    State: ``key_dim * (value_dim + 1) + 1`` numbers per head for C, n and m, and the last ``conv - 1`` tokens.

    Source: Beck et al. (2024), section 2.3, with the sigmoid for f. As in the authors' code, w_i and w_f begin at 0,
    b_i is normal with standard deviation 0.1, and s begins at 1. From the first head to the last, b_f increases from 3
    to 6. In the authors' code, the maximum that defines m does not include 0. The result is the same, except that their
    code adds 1e-6 to the denominator. By default, their code first projects the layer's input to four times its width;
    one half of the result is x, and the other half gives the output gate. Here, x is the layer's input. Their
    projections to q, k and v are block-diagonal with 4 channels per block; here, the matrices are full.
    """

    name: ClassVar = "mlstm"
    label: ClassVar = "mLSTM"
    source: ClassVar = "beck2024xlstm"
    complexity: ClassVar = "T d^2"
    bare: ClassVar = MappingProxyType(
        {
            "conv": 0,
            "gates_from": "token",
            "gate_activation": "sigmoid",
            "learned_skip": False,
            "norm_gain": False,
            "own_biases": False,
            "undecayed": False,
        }
    )

    conv: int = option(4, "tokens that the short convolution before q and k sees, 0 for none", low=0, high=64, absent=0)
    gates_from: Literal["qkv", "token"] = option(
        "qkv", "what the input and the forget gate are read off: q, k and v of all heads, or the token", absent="token"
    )
    gate_activation: Literal["silu", "sigmoid"] = option(
        "silu", "the function that makes the output gate of what is read off the token", absent="sigmoid"
    )
    learned_skip: bool = stock_part("whether what q and k are projected from is added to the heads' outputs")
    norm_gain: bool = stock_part("whether the norm of a head's output has a gain")
    own_biases: bool = stock_part("whether no projection has a bias, as with its authors, whatever the suite says")
    undecayed: bool = stock_part("whether weight decay leaves biases, the skip and the norm's gain alone")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the output gate's projection, the input gate's biases and the convolution; the rest is not random."""
        width, heads = self.model_dim, self.num_heads
        bias = self.bias and not self.own_biases
        self.output_gate = Linear(width, width, bias=bias, generator=generator)
        num_inputs = 3 * width if self.gates_from == "qkv" else width
        self.gates = Linear(num_inputs, 2 * heads, bias=False, generator=generator)
        with torch.no_grad():
            self.gates.weight.zero_()
        self.input_bias = nn.Parameter(0.1 * torch.randn(heads, 1, 1, generator=generator))
        self.forget_bias = nn.Parameter(torch.linspace(3, 6, heads).view(-1, 1, 1))
        self.token_convolution = ShortConvolution(self.conv, width, generator, bias=True) if self.conv else None
        self.gain = nn.Parameter(torch.ones(heads, 1, self.head_dim)) if self.norm_gain else None
        self.skip = nn.Parameter(torch.ones(heads, 1, self.head_dim)) if self.learned_skip else None
        if self.own_biases:
            self.qkv.bias = self.out.bias = None
        if self.undecayed:
            biases = [name for name, _ in self.named_parameters() if name.endswith("bias")]
            exempt_from_decay(self, "gain", "skip", *biases)

    def attended(self, x: Tokens, state: State | None = None) -> ValueHeads:
        """Compute the outputs of all heads, before they are concatenated and projected.

        If a state is given, ``x`` holds only the next token. The state keeps each head's matrix C, normaliser n and
        maximum m, and the convolution's last inputs.
        """
        seen = x
        if self.token_convolution is None:
            fused = self.qkv(x)
        else:
            seen = silu(convolved(self.token_convolution, x, state, kept="token convolution"))
            fused = self.qkv.by_part(seen, seen, x)
        heads = self.heads(x, state, fused)
        # Computed from q and k before their rotation: a gate must not depend on the position of its token.
        controls = self.controls(fused if self.gates_from == "qkv" else x)
        out = self.attend(*heads, *controls, state=state)
        if self.gain is not None:
            out = out * self.gain
        if self.skip is not None:
            out = torch.addcmul(out, self.skip, self.by_head(seen))
        gate = self.by_head(self.output_gate(x))
        return (silu(gate) if self.gate_activation == "silu" else gate.sigmoid()) * out

    def controls(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the logarithms of the input and the forget gates."""
        log_input, forget = (self.by_head(gate) for gate in self.gates(x).chunk(2, dim=-1))
        return log_input + self.input_bias, logsigmoid(forget + self.forget_bias)

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        log_input: Float[Tensor, "*batch heads length 1"] | None = None,
        log_forget: Float[Tensor, "*batch heads length 1"] | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with input and forget gates, given as logarithms; gates that are None are 1."""
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
        return layer_norm(mixed, mixed.shape[-1:], eps=1e-5)

    def state_elements(self, length: int) -> int:
        """Count the numbers in C, n and m of all heads, and in the past inputs of the convolution."""
        cell = self.model_dim * (self.head_dim + 1) + self.num_heads
        return cell + kept_by_convolution(self.conv, self.model_dim, length)


def running_maximum(
    log_input: Float[Tensor, "*batch length 1"], log_forget: Float[Tensor, "*batch length 1"]
) -> Float[Tensor, "*batch length 1"]:
    """Compute m_t = max(m_{t-1} + log_forget_t, log_input_t, 0) for all t, with m_{-1} = 0, by a parallel scan.

    Each of the log2(length) passes looks back twice as far as the pass before.
    """
    highest, forgotten = log_input.clamp(min=0), log_forget
    distance, length = 1, log_input.shape[-2]
    while distance < length:
        earlier = pad(highest, (0, 0, distance, 0), value=-torch.inf)[..., :length, :]
        highest = torch.maximum(highest, earlier + forgotten)
        forgotten = forgotten + pad(forgotten, (0, 0, distance, 0))[..., :length, :]
        distance *= 2
    return highest
