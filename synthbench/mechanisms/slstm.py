"""sLSTM: an LSTM with an exponential input gate and a normaliser."""

import math
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import layer_norm, logsigmoid, silu

from synthbench.errors import UsageError
from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import Linear, RunLayer, ShortConvolution, exempt_from_decay, project
from synthbench.mechanisms.base import Mechanism, convolved, kept_by_convolution, mechanism, stock_part
from synthbench.options import option


@mechanism
class Slstm(Mechanism):
    r"""An LSTM with an exponential input gate; its cell state is an average weighted by the gates.

    .. math::
        (z, i, f, o) = (x_t, u_t, u_t, x_t) W + h_{t-1} R + b, \quad c_t = \sigma(f) c_{t-1} + e^i \tanh(z), \quad
        n_t = \sigma(f) n_{t-1} + e^i, \quad h_t = \sigma(o) \, c_t / n_t

    where u is the token x after a causal depthwise convolution with ``conv`` taps and SiLU. Each head has its own
    matrices W and R, which mix only its channels. The state holds c / n and log n, so nothing can overflow, and the
    paper's stabiliser is not needed. A new token enters the average c / n with the weight
    :math:`\sigma(i - \log\sigma(f) - \log n_{t-1})`. The output is h after a layer norm per head, with a gain. The
    computation is sequential: a loop over the tokens.

    In the stock layer, as in the authors' code (xlstm, blocks/slstm/layer.py and cell.py), weight decay applies only to
    W and the convolution taps. The bare layer is the cell of the paper: x replaces u, W is a full matrix, there is no
    gain, and a projection follows the norm. Weight decay applies to all parameters of the bare layer.

    State: h, c / n and log n, each with one number per channel, and the last ``conv - 1`` tokens.

    Source: Beck et al. (2024), section 2.2, with the sigmoid for f. As in the authors' code, R and all biases except
    b_f begin at 0, and W of the stock layer is drawn from a normal distribution. Over the channels of a head, b_f
    decreases from 5 to -7, so some channels keep their content and others forget it at once. Here, b_f decreases in
    equal steps. In their code, the steps follow a power law, whose exponent increases from 0.3 in the first block to
    1.6 in the last block. The feed-forward part of their layer is left out, since the model's block has its own.
    """

    name: ClassVar = "slstm"
    label: ClassVar = "sLSTM"
    family: ClassVar = "recurrent"
    source: ClassVar = "beck2024xlstm"
    complexity: ClassVar = "T d^2"
    version: ClassVar = 2
    bare: ClassVar = MappingProxyType(
        {"conv": 0, "headwise_gates": False, "norm_gain": False, "out_projection": True, "undecayed": False}
    )

    conv: int = option(4, "tokens that the short convolution before i and f sees, 0 for none", low=0, high=64, absent=0)
    headwise_gates: bool = stock_part("whether the gates of a head are read off its own channels only")
    norm_gain: bool = stock_part("whether the norm of a head's output has a gain")
    out_projection: bool = option(
        default=False, meaning="whether the heads' outputs are projected once more", absent=True
    )
    undecayed: bool = stock_part("whether weight decay leaves R, biases and the norm's gain alone")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections, and set R and the biases to their initial values.

        Raises:
            UsageError: If the number of heads does not divide the width.
        """
        width, heads = self.model_dim, self.num_heads
        if heads < 1 or width % heads:
            raise UsageError(f"num_heads is {heads}; allowed: a divisor of the width {width}")
        size = width // heads
        self.gates: HeadwiseLinear | Linear = (
            HeadwiseLinear(heads, size, 4 * size, generator)
            if self.headwise_gates
            else Linear(width, 4 * width, bias=False, generator=generator)
        )
        self.out = Linear(width, width, bias=self.bias, generator=generator) if self.out_projection else None
        self.recurrent = nn.Parameter(torch.zeros(heads, size, 4 * size))
        biases = [torch.zeros(size), torch.zeros(size), torch.linspace(5, -7, size), torch.zeros(size)]
        # The columns of a head belong to z, i, f and o in this order.
        self.gates_bias = nn.Parameter(torch.cat(biases).expand(heads, -1).reshape(1, 1, -1).clone())
        self.own_convolution = ShortConvolution(self.conv, width, generator, bias=True) if self.conv else None
        self.gain = nn.Parameter(torch.ones(1, 1, width)) if self.norm_gain else None
        if self.undecayed:
            exempt_from_decay(self, "recurrent", "gates_bias", "gain", "own_convolution.bias", "out.bias")

    def forward(self, x: Tokens) -> Tokens:
        """Compute the outputs at all positions: convolve, run the recurrence, normalise, and optionally project."""
        return self._normed(self.hidden(x))

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and update h, c / n, log n and the last inputs in ``state``."""
        gates = self._read(x, state).unflatten(-1, (self.num_heads, -1))
        hidden = state.tensors.get("hidden")
        if hidden is not None:
            gates = gates + project(hidden.unsqueeze(-2), self.recurrent.unsqueeze(-4).unsqueeze(-4)).squeeze(-2)
        z, i, f, o = gates.chunk(4, dim=-1)
        average, log_sum = z.tanh(), i
        if hidden is not None:
            kept = logsigmoid(f) + state.tensors["log_sum"]
            average = torch.lerp(state.tensors["average"], average, (i - kept).sigmoid())
            log_sum = torch.logaddexp(kept, i)
        state.tensors |= {"hidden": o.sigmoid() * average, "average": average, "log_sum": log_sum}
        return self._normed(state.tensors["hidden"].flatten(-2))

    def _read(self, x: Tensor, state: State | None = None) -> Tensor:
        """Compute the part of z and of the gates i, f and o that comes from the tokens and not from the recurrence."""
        fused: Tensor = self.gates(x)
        if self.own_convolution is not None:
            seen = silu(convolved(self.own_convolution, x, state))
            token, behind = (read.unflatten(-1, (self.num_heads, 4, -1)) for read in (fused, self.gates(seen)))
            fused = torch.cat([token[..., :1, :], behind[..., 1:3, :], token[..., 3:, :]], dim=-2).flatten(-3)
        return fused + self.gates_bias

    def _normed(self, hidden: Tensor) -> Tensor:
        hidden = hidden.unflatten(-1, (self.num_heads, -1))
        normal = layer_norm(hidden, hidden.shape[-1:]).flatten(-2)
        normal = normal if self.gain is None else normal * self.gain
        return normal if self.out is None else self.out(normal)

    def hidden(self, x: Tokens) -> Tokens:
        """Compute the outputs h of all tokens."""
        heads, size = self.recurrent.shape[-3:-1]
        weight = self.recurrent.view(-1, heads, size, 4 * size)  # one run if none are stacked
        gates = self._read(x)
        gates = gates.reshape(len(weight), x.shape[:-2].numel() // len(weight), x.shape[-2], heads, 4 * size)
        # Time first and heads before rows, so that a step is one product per head.
        hidden: Tensor = _Recurrence.apply(gates.permute(2, 0, 3, 1, 4), weight)  # type: ignore[no-untyped-call]
        return hidden.permute(1, 3, 0, 2, 4).reshape(x.shape)

    def state_elements(self, length: int) -> int:
        """Count the numbers in the state: output h, cell c divided by n, log n, and past inputs of the convolution."""
        return 3 * self.model_dim + kept_by_convolution(self.conv, self.model_dim, length)


class HeadwiseLinear(RunLayer):
    """A linear layer with one matrix per head, which maps the head's input channels to its output columns.

    ``weight`` is [heads, size, columns], where size is the number of input channels of a head. Each entry is drawn from
    a normal distribution with variance 0.4 / (heads · size). If several runs are trained together, ``weight`` and ``x``
    have a leading run axis.
    """

    def __init__(self, heads: int, size: int, columns: int, generator: torch.Generator | None) -> None:
        """Draw the matrices from ``generator`` or, if it is None, from the process-wide generator."""
        super().__init__()
        drawn = torch.empty(heads, size, columns).normal_(std=math.sqrt(0.4 / (heads * size)), generator=generator)
        self.weight = nn.Parameter(drawn)

    def forward(self, x: Float[Tensor, "*leading width"]) -> Float[Tensor, "*leading columns_of_heads"]:
        """Apply the matrices to the last axis, head by head."""
        heads = x.unflatten(-1, self.weight.shape[-3:-1])
        form = "...hs,hsc->...hc" if self.weight.ndim == 3 else "m...hs,mhsc->m...hc"
        return torch.einsum(form, heads, self.weight).flatten(-2)


class _Recurrence(torch.autograd.Function):
    """The loop over the tokens, which computes outputs from the gates' inputs.

    Gates are [length, runs, heads, sequences, 4 size], and outputs are [length, runs, heads, sequences, size]. Runs are
    models that train together. The gradient is written by hand, as in ``lstm``: derivatives that need no later step are
    computed for all steps at once.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor) -> Tensor:
        """Compute the outputs by a loop from the first token to the last."""
        size = weight.shape[-2]
        gates = gates.clone(memory_format=torch.contiguous_format)
        averages, shares, hidden = (torch.empty_like(gates[..., :size]) for _ in range(3))
        h = average = log_sum = None
        for t, every in enumerate(gates.unbind()):
            if h is not None:
                every.add_(h @ weight)
            z, i, f, o = every.split(size, dim=-1)
            if average is None or log_sum is None:  # the first token is the whole average
                shares[t], averages[t], log_sum = 1.0, z.tanh(), i
            else:
                kept = logsigmoid(f) + log_sum
                shares[t] = (i - kept).sigmoid()
                averages[t] = torch.lerp(average, z.tanh(), shares[t])
                log_sum = torch.logaddexp(kept, i)
            average = averages[t]
            torch.mul(o.sigmoid(), average, out=hidden[t])
            h = hidden[t]
        ctx.save_for_backward(gates, averages, shares, hidden, weight)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the gradients by a loop from the last token to the first."""
        gates, averages, shares, hidden, weight = ctx.saved_tensors
        z, _, f, o = gates.split(weight.shape[-2], dim=-1)
        z, o, kept = z.tanh(), o.sigmoid(), 1 - shares
        before = torch.cat([torch.zeros_like(averages[:1]), averages[:-1]])
        through_output, through_z = averages * o * (1 - o), shares * (1 - z * z)
        through_share, through_forget = (z - before) * shares * kept, (-f).sigmoid()
        grad_gates, transposed = torch.empty_like(gates), weight.mT.contiguous()
        grad_average, grad_log_sum = torch.zeros_like(z[0]), torch.zeros_like(z[0])
        grad_later = None
        for t in reversed(range(len(gates))):
            grad_h = grad_hidden[t] if grad_later is None else grad_hidden[t] + grad_later @ transposed
            grad_average = grad_average + grad_h * o[t]
            by_share = grad_average * through_share[t]
            by_kept = grad_log_sum * kept[t] - by_share
            grads = (
                grad_average * through_z[t],
                grad_log_sum * shares[t] + by_share,
                by_kept * through_forget[t],
                grad_h * through_output[t],
            )
            torch.cat(grads, dim=-1, out=grad_gates[t])
            grad_average, grad_log_sum, grad_later = grad_average * kept[t], by_kept, grad_gates[t]
        grad_weight = torch.einsum("tmhrs,tmhrg->mhsg", hidden[:-1], grad_gates[1:])
        return grad_gates, grad_weight
