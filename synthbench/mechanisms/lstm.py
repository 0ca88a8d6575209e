"""Long short-term memory."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms.base import Mechanism, mechanism


@mechanism
class Lstm(Mechanism):
    r"""An LSTM layer as wide as the model, followed by a linear projection.

    .. math::
        (g, i, f, o) = x_t W + h_{t-1} U + b, \qquad
        c_t = \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g), \qquad h_t = \sigma(o) \odot \tanh(c_t)

    The computation is sequential: a loop over the tokens, with one matrix product and six elementwise operations per
    step. ``num_heads`` is ignored.

    State: h and c.

    Source: Hochreiter & Schmidhuber (1997), with the forget gate of Gers et al. (2000); no peepholes. The forget gate's
    bias begins at 1, as Gers et al. advise; if ``bias`` is False, no gate has a bias.
    """

    name: ClassVar = "lstm"
    label: ClassVar = "LSTM"
    family: ClassVar = "recurrent"
    source: ClassVar = "hochreiter1997lstm"
    complexity: ClassVar = "T d model_dim"

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the matrices, whose columns belong to g, i, f and o, in this order."""
        width = self.model_dim
        self.gates = Linear(width, 4 * width, bias=self.bias, generator=generator)
        self.recurrent = Linear(width, 4 * width, bias=False, generator=generator)
        self.out = Linear(width, width, bias=self.bias, generator=generator)
        if self.gates.bias is not None:
            with torch.no_grad():
                self.gates.bias[2 * width : 3 * width].fill_(1.0)

    def forward(self, x: Tokens) -> Tokens:
        """Run the recurrence over the tokens, then project."""
        return self.out(self.hidden(x))

    def forward_last(self, x: Tokens) -> Token:
        """Compute ``forward`` at the last position."""
        return self.out(self.hidden(x)[..., -1:, :])

    def hidden(self, x: Tokens) -> Tokens:
        """Compute the outputs h of all tokens."""
        weight = self.recurrent.weight.view(-1, self.model_dim, 4 * self.model_dim)  # one run if none are stacked
        gates = self.gates(x).reshape(len(weight), -1, x.shape[-2], weight.shape[-1])
        # Time first, so that a step is one piece of memory.
        hidden: Tensor = _Recurrence.apply(gates.movedim(-2, 0), weight)  # type: ignore[no-untyped-call]
        return hidden.movedim(0, -2).reshape(x.shape)

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token from the previous output h and cell c, and update both in ``state``."""
        hidden, cell = (state.tensors.get(name, torch.zeros_like(x)) for name in ("hidden", "cell"))
        g, i, f, o = (self.gates(x) + self.recurrent(hidden)).chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        state.tensors["cell"], state.tensors["hidden"] = cell, o.sigmoid() * cell.tanh()
        return self.out(state.tensors["hidden"])

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Count the numbers in h and c, whatever the length."""
        return 2 * self.model_dim


class _Recurrence(torch.autograd.Function):
    """The loop over time, which computes the outputs h from the part x W + b of the gates' inputs.

    This part is [length, runs, sequences, 4 width], and the outputs are [length, runs, sequences, width]. Runs are
    models that train together. The backward pass is written by hand: derivatives that need no later step are computed
    for all steps at once, outside the loop.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor) -> Tensor:
        """Run the recurrence over the tokens."""
        width = weight.shape[-2]
        gates = gates.clone(memory_format=torch.contiguous_format)
        cell, squashed, hidden = (torch.empty_like(gates[..., :width]) for _ in range(3))
        steps = zip(
            gates.unbind(),
            gates[..., :width].unbind(),
            gates[..., width:].unbind(),
            *(part.unbind() for part in gates[..., width:].split(width, dim=-1)),
            cell.unbind(),
            squashed.unbind(),
            hidden.unbind(),
            strict=True,
        )
        h_before = c_before = None
        for every, g, others, i, f, o, c, squashed_c, h in steps:
            if h_before is not None:
                every.baddbmm_(h_before, weight)
            g.tanh_()
            others.sigmoid_()
            torch.mul(i, g, out=c)
            if c_before is not None:
                c.addcmul_(f, c_before)
            torch.tanh(c, out=squashed_c)
            torch.mul(o, squashed_c, out=h)
            h_before, c_before = h, c
        ctx.save_for_backward(gates, cell, squashed, hidden, weight)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the derivatives of all gates, then the gradients in a loop from the last token to the first."""
        gates, cell, squashed, hidden, weight = ctx.saved_tensors
        width = weight.shape[-2]
        g, i, f, o = gates.split(width, dim=-1)
        c_before = torch.cat([torch.zeros_like(cell[:1]), cell[:-1]])
        slopes = (i * (1 - g * g), g * i * (1 - i), c_before * f * (1 - f), squashed * o * (1 - o))
        grad_gates = torch.cat(slopes, dim=-1)
        cell_slope = o * (1 - squashed * squashed)
        steps = zip(
            grad_hidden.unbind(),
            grad_gates.unbind(),
            grad_gates[..., : 3 * width].unflatten(-1, (3, width)).unbind(),
            grad_gates[..., 3 * width :].unbind(),
            cell_slope.unbind(),
            f.unbind(),
            strict=True,
        )
        transposed = weight.mT.contiguous()
        grad_cell = torch.zeros_like(cell[0])
        grad_later = None
        for grad_h, grad_every, through_cell, through_output, slope, forget in reversed(list(steps)):
            grad_total = grad_h if grad_later is None else torch.baddbmm(grad_h, grad_later, transposed)
            grad_cell.addcmul_(grad_total, slope)
            through_cell.mul_(grad_cell.unsqueeze(-2))
            through_output.mul_(grad_total)
            grad_cell.mul_(forget)
            grad_later = grad_every
        grad_weight = torch.einsum("tmrw,tmrg->mwg", hidden[:-1], grad_gates[1:])
        return grad_gates, grad_weight
