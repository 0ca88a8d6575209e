"""Linear attention with the second-order Taylor expansion of the exponential, and softmax attention to a window."""

from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.forms.shapes import AnswerHeads, FeatureRows, KeyHeads, KeyRows, QueryHeads, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear, ShortConvolution
from synthbench.mechanisms.base import FeatureAttention, Side, convolved, kept_by_convolution, mechanism
from synthbench.mechanisms.local import attend_to_window
from synthbench.options import option


@mechanism
class Based(FeatureAttention):
    r"""Linear attention with the kernel :math:`1 + z + z^2 / 2`, :math:`z = q \cdot k / \sqrt{d}`, and local softmax.

    The kernel is the Taylor expansion of :math:`\exp(z)` to second order. The features of a query or key x are
    :math:`[1, x d^{-1/4}, vec(x x^\top) / \sqrt{2 d}]`. The kernel is never below 1/2, so the denominator (the sum of
    the kernel over the keys) grows with the length.

    The stock layer has all the parts that the authors use. The first half of its heads have this kernel. The second
    half apply softmax to z over the last ``window`` tokens, and only these heads are rotated by a position encoding.
    Before the projections to queries, keys and values, a gated convolution replaces each token x by
    :math:`conv(x) \odot (x W + b) + x`. In the bare layer, every head has the kernel, and there is no convolution. A
    position encoding then rotates all heads.

    State: ``(1 + d + d^2) * (value_dim + 1)`` numbers for each head with the kernel above. Each head with a window
    keeps its last ``window - 1`` keys and values. The convolution keeps the last ``conv - 1`` tokens.

    Source: Arora et al. (2024), sections 4.1 and 4.2; the code of HazyResearch/based and, for the convolution,
    HazyResearch/zoology, ``mixers/base_conv.py``. The authors' models have layers of three kinds: convolution, Taylor
    kernel and window. Here, each layer combines all three, since a model may have a single layer. The hybrid
    ``based+local`` with ``based_window=0`` alternates layers without and with a window. In the authors' code, a norm
    follows the convolution; in their language models, the convolution has more channels than the model. The authors'
    queries and keys have 16 channels per head; here, they are as wide as values.
    """

    name: ClassVar = "based"
    label: ClassVar = "Based"
    family: ClassVar = "linear"
    source: ClassVar = "arora2024based"
    complexity: ClassVar = "T d^3 + T window d"
    bare: ClassVar = MappingProxyType({"window": 0, "conv": 0})
    _projections: ClassVar = ("qkv.", "out.", "ahead.", "gate.")

    window: int = option(
        64, "tokens that half of the heads see by softmax, their own among them, 0 for no such heads", low=0, absent=0
    )
    conv: int = option(3, "tokens that the gated convolution ahead sees, 0 for none", low=0, high=64, absent=0)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the weights of the gated convolution.

        Raises:
            UsageError: If there is a window but only one head.
        """
        if self.window and self.num_heads == 1:
            raise UsageError("num_heads is 1; allowed with based: at least 2, of which half have a window, or window=0")
        if self.conv:
            self.ahead = ShortConvolution(self.conv, self.model_dim, generator, bias=True)
            self.gate = Linear(self.model_dim, self.model_dim, bias=True, generator=generator)

    @property
    def num_linear(self) -> int:
        """Number of heads with the Taylor kernel; these heads come first."""
        return self.num_heads - self.num_heads // 2 if self.window else self.num_heads

    def features(self, x: KeyRows, side: Side) -> FeatureRows:  # noqa: ARG002 - both sides alike
        """Concatenate the constant, linear and quadratic features."""
        scaled = x / x.shape[-1] ** 0.25
        squares = (scaled.unsqueeze(-1) * scaled.unsqueeze(-2)).flatten(-2) / 2**0.5
        return torch.cat([torch.ones_like(scaled[..., :1]), scaled, squares], dim=-1)

    def heads(
        self, x: Tokens, state: State | None = None, fused: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the gated convolution to the tokens, then project them to queries, keys and values."""
        if self.conv:
            x = convolved(self.ahead, x, state, kept="tokens") * self.gate(x) + x
        return super().heads(x, state, fused)

    def rotated(self, x: KeyHeads, state: State | None) -> Tensor:
        """Rotate queries or keys by position in the heads with a window; in all heads if ``window`` is 0."""
        turned = super().rotated(x, state)
        if not self.window:
            return turned
        return torch.cat([x[..., : self.num_linear, :, :], turned[..., self.num_linear :, :, :]], dim=-3)

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> AnswerHeads:
        """Attend with the Taylor kernel in the first heads, and with softmax over the window in the other heads."""
        if not self.window:
            return super().attend(q, k, v, state=state)
        n = self.num_linear
        first = super().attend(q[..., :n, :, :], k[..., :n, :, :], v[..., :n, :, :], state=state)
        last = attend_to_window(q[..., n:, :, :], k[..., n:, :, :], v[..., n:, :, :], self.window, state)
        return torch.cat([first, last], dim=-3)

    def state_elements(self, length: int) -> int:
        """Count the numbers stored by the heads with the Taylor kernel, the heads with a window and the convolution."""
        linear = super().state_elements(length) // self.num_heads * self.num_linear
        local = 2 * min(length, max(self.window - 1, 0)) * self.head_dim * (self.num_heads - self.num_linear)
        return linear + local + kept_by_convolution(self.conv, self.model_dim, length)
