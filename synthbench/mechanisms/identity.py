"""A reference mechanism that does not mix tokens."""

from typing import ClassVar

import torch

from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import Linear
from synthbench.mechanisms.base import Mechanism, mechanism


@mechanism
class Identity(Mechanism):
    """A reference mechanism that uses no earlier token: it projects each token twice.

    Its score on a task is the empirical floor of the task: a mechanism that scores clearly higher makes use of earlier
    tokens. ``num_heads`` is ignored.

    State: none.

    Source: Yu et al. (2024), IdentityFormer, whose token mixer is the identity. The two projections are added here, so
    that values pass through as many matrices as in attention.
    """

    name: ClassVar = "identity"
    label: ClassVar = "Identity"
    family: ClassVar = "control"
    source: ClassVar = "yu2024metaformer"
    complexity: ClassVar = "T d"

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the two projections."""
        self.value = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)
        self.out = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)

    def forward(self, x: Tokens) -> Tokens:
        """Project each token alone."""
        return self.out(self.value(x))

    def forward_last(self, x: Tokens) -> Token:
        """Project the last token."""
        return self.forward(x[..., -1:, :])

    def advance(self, x: Token, state: State) -> Token:  # noqa: ARG002
        """Project the token, and leave the state empty."""
        return self.forward(x)

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Return 0, since the state is empty."""
        return 0
