"""The Aether block: an MLP of Yat units, which need no activation function, and by default no norm."""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from synthbench.blocks.base import Block, Mix, block, last_rows
from synthbench.forms.shapes import Tokens
from synthbench.layers import LayerNorm, Linear, YatProduct
from synthbench.options import option


@block
class Aether(Block):
    r"""A block with Yat units in its MLP: ``y = x + mix(x)``, and the output is ``y + linear(yat(y))``.

    Here, ``mix`` is the mechanism, and ``yat`` is a layer of Yat units, which need no activation function. With weights
    :math:`w_i`, bias :math:`b_i` and a factor s that all units share, unit i computes :math:`s (w_i \cdot y + b_i)^2 /
    (\|w_i - y\|^2 + \epsilon)`. There is no dropout and, by default, no norm. In the paper cited below, the mechanism
    is attention with the Yat kernel; here, it can be any mechanism. The option ``norm`` adds two LayerNorms: before the
    mechanism and before the Yat layer (``pre``), or after each of the two sums (``post``). In the paper's ablation with
    LayerNorm, training diverged.

    Source: Bouhsine (2026), figure 4 and sections 2.1, 2.3 and 3.6. Here, the Yat units (as in section 2.1) and the
    linear layer have biases; the paper's language model has none (table 7). The paper does not state epsilon.

    Here, as in section 2.3 of the paper, s is (n / log(1 + n))^alpha for n units, where alpha is learned and begins at
    1. In the authors' package ``nmn``, s is alpha, and epsilon is 1e-5.
    """

    name: ClassVar = "aether"
    source: ClassVar = "nmn2026"

    expansion: int = option(4, "Yat units for each channel", low=1, high=16)
    epsilon: float = option(1e-3, "added to the squared distance of a Yat unit", low=1e-12, high=1)
    norm: Literal["none", "pre", "post"] = option("none", "where LayerNorm stands, if anywhere")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the weights of the Yat units and the linear layer, in this order."""
        num_units = self.expansion * self.model_dim
        self.yat = YatProduct(self.model_dim, num_units, bias=True, epsilon=self.epsilon, generator=generator)
        self.linear = Linear(num_units, self.model_dim, bias=True, generator=generator)
        if self.norm != "none":
            self.mixer_norm, self.yat_norm = LayerNorm(self.model_dim), LayerNorm(self.model_dim)

    def around(self, x: Tokens, mix: Mix) -> Tensor:
        """Add the mechanism's output to ``x``; apply Yat units and the linear layer to the sum y, and add y."""
        mixed = mix(self.mixer_norm(x) if self.norm == "pre" else x)
        y = last_rows(x, mixed) + mixed
        if self.norm == "post":
            y = self.mixer_norm(y)
        added: Tensor = self.linear(self.yat(self.yat_norm(y) if self.norm == "pre" else y))
        return self.yat_norm(y + added) if self.norm == "post" else y + added
