"""sLSTM: an LSTM with exponential gates and a normaliser."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import layer_norm, logsigmoid

from synthbench.errors import UsageError
from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import Linear, project
from synthbench.mechanisms.base import Mechanism, mechanism


@mechanism
class Slstm(Mechanism):
    r"""An LSTM whose input gate is an exponential, and whose cell is an average by the gates so far.

    .. math::
        (z, i, f, o) = x_t W + h_{t-1} R + b, \quad c_t = \sigma(f) c_{t-1} + e^i \tanh(z), \quad
        n_t = \sigma(f) n_{t-1} + e^i, \quad h_t = \sigma(o) \, c_t / n_t

    R mixes the channels of a head only. Held are c / n and log n, so that nothing overflows without a stabiliser: the
    weight of a token in the average is :math:`\sigma(i - \log\sigma(f) - \log n_{t-1})`. The output is the
    projection of a layer norm a head of h, without parameters. Sequential, as ``lstm``.

    State: h, c / n and log n, a number a channel each.

    Source: Beck et al. (2024), section 2.2, with the sigmoid for f. As in the authors' code R and the other biases
    begin at 0, and b_f goes from 5 to -7 over the channels of a head, so some hold on to what they have and others
    forget it at once: evenly here, there by a power law whose exponent rises from 0.3 in the first block to 1.6 in the
    last. Left out: the convolution before the gates, and the projections up and down after the cell.
    """

    name: ClassVar = "slstm"
    label: ClassVar = "sLSTM"
    family: ClassVar = "recurrent"
    source: ClassVar = "beck2024xlstm"
    complexity: ClassVar = "T d^2"
    version: ClassVar = 2

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections; R and the biases begin at given values.

        Raises:
            UsageError: If the heads do not divide the width.
        """
        width, heads = self.model_dim, self.num_heads
        if heads < 1 or width % heads:
            raise UsageError(f"num_heads is {heads}; allowed: a divisor of the width {width}")
        size = width // heads
        self.gates = Linear(width, 4 * width, bias=False, generator=generator)
        self.out = Linear(width, width, bias=self.bias, generator=generator)
        self.recurrent = nn.Parameter(torch.zeros(heads, size, 4 * size))
        biases = [torch.zeros(size), torch.zeros(size), torch.linspace(5, -7, size), torch.zeros(size)]
        # The columns of a head belong to z, i, f and o in this order.
        self.gates_bias = nn.Parameter(torch.cat(biases).expand(heads, -1).reshape(1, 1, -1).clone())

    def forward(self, x: Tokens) -> Tokens:
        """Run over the tokens, norm, project."""
        return self._projected(self.hidden(x))

    def advance(self, x: Token, state: State) -> Token:
        """Go on from output, average and logarithm of the normaliser."""
        gates = (self.gates(x) + self.gates_bias).unflatten(-1, (self.num_heads, -1))
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
        return self._projected(state.tensors["hidden"].flatten(-2))

    def _projected(self, hidden: Tensor) -> Tensor:
        hidden = hidden.unflatten(-1, (self.num_heads, -1))
        projected: Tensor = self.out(layer_norm(hidden, hidden.shape[-1:]).flatten(-2))
        return projected

    def hidden(self, x: Tokens) -> Tokens:
        """The outputs h."""
        heads, size = self.recurrent.shape[-3:-1]
        weight = self.recurrent.view(-1, heads, size, 4 * size)  # one member if none are stacked
        gates = self.gates(x) + self.gates_bias
        gates = gates.reshape(len(weight), x.shape[:-2].numel() // len(weight), x.shape[-2], heads, 4 * size)
        # Time first and heads before rows, so that a step is one product a head.
        hidden: Tensor = _Recurrence.apply(gates.permute(2, 0, 3, 1, 4), weight)  # type: ignore[no-untyped-call]
        return hidden.permute(1, 3, 0, 2, 4).reshape(x.shape)

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Output, average and logarithm of the normaliser, whatever the length."""
        return 3 * self.model_dim


class _Recurrence(torch.autograd.Function):
    """The loop over time, [length, members, heads, rows, 4 size] to [length, members, heads, rows, size].

    Differentiated by hand, as in ``lstm``: slopes that need no later step are computed for all steps at once.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor) -> Tensor:
        """Run over the tokens."""
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
        """Run back over the tokens."""
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
