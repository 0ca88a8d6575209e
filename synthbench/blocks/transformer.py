"""The block of a transformer, with a LayerNorm before the mechanism and one before the MLP."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import gelu

from synthbench.blocks.base import Block, Mix, block, last_rows
from synthbench.forms.shapes import Tokens
from synthbench.layers import LayerNorm, Linear
from synthbench.options import option


@block
class Transformer(Block):
    """The block of a transformer: ``y = x + mix(norm(x))``, then ``y + mlp(norm(y))``, with the mechanism ``mix``.

    The two norms are separate LayerNorms. The MLP has one hidden layer with GELU. There is no dropout.

    Source: Vaswani et al. (2017), section 3, with norms placed as in Xiong et al. (2020). Unlike in Xiong et al., no
    norm follows the last block: the model's linear output layer reads the output of that block directly.
    """

    name: ClassVar = "transformer"
    source: ClassVar = "xiong2020layer"

    expansion: int = option(4, "hidden units of the MLP for each channel", low=1, high=16)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Create the norms, and draw the initial weights of the MLP."""
        hidden = self.expansion * self.model_dim
        self.mixer_norm = LayerNorm(self.model_dim)
        self.mlp_norm = LayerNorm(self.model_dim)
        self.widen = Linear(self.model_dim, hidden, bias=True, generator=generator)
        self.narrow = Linear(hidden, self.model_dim, bias=True, generator=generator)

    def around(self, x: Tokens, mix: Mix) -> Tensor:
        """Add the mechanism's output to ``x``, then add the output of the MLP."""
        mixed = mix(self.mixer_norm(x))
        y = last_rows(x, mixed) + mixed
        added: Tensor = self.narrow(gelu(self.widen(self.mlp_norm(y))))
        return y + added
