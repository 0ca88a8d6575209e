"""A reference mechanism: the average of all values so far, regardless of content."""

from typing import ClassVar

import torch

from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms.base import Mechanism, mechanism


@mechanism
class Mean(Mechanism):
    r"""The average :math:`\frac{1}{t} \sum_{s \le t} v_s` of the projected tokens so far, projected once more.

    Attention computes this average if all keys are equal. This is a reference: a mechanism that scores no higher on a
    task than this average gains nothing there by selecting tokens by content. ``num_heads`` is ignored.

    State: the sum of the values.

    Source: Zhang et al. (2018), the cumulative average, without their gates and feed-forward layer.
    """

    name: ClassVar = "mean"
    label: ClassVar = "Mean"
    family: ClassVar = "control"
    source: ClassVar = "zhang2018average"
    complexity: ClassVar = "T d"

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the two projections."""
        self.value = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)
        self.out = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)

    def forward(self, x: Tokens) -> Tokens:
        """Average the projected tokens up to each position, then project."""
        counts = torch.arange(1, x.shape[-2] + 1, dtype=x.dtype, device=x.device).unsqueeze(-1)
        return self.out(self.value(x).cumsum(-2) / counts)

    def forward_last(self, x: Tokens) -> Token:
        """Compute ``forward`` at the last position."""
        return self.out(self.value(x.mean(-2, keepdim=True)))

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and add its value to the sum in ``state``."""
        return self.out(state.add("sum", self.value(x)) / (state.position + 1))

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Return the number of channels, since the state has one sum per channel, whatever the length."""
        return self.model_dim
