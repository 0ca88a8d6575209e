"""Differential attention: one softmax minus another."""

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, rms_norm

from synthbench.errors import UsageError
from synthbench.forms.scores import fused
from synthbench.forms.shapes import KeyHeads, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import RmsNorm
from synthbench.mechanisms.base import Attention, Layer, mechanism
from synthbench.options import option

LIMIT = 0.8
"""Limit that lambda_0 approaches in deep layers."""


@mechanism
class Differential(Attention):
    r"""The difference of two softmax attentions with separate queries and keys, and shared values.

    Let :math:`q^1, q^2, k^1, k^2` have width d, and values width 2d. All heads share four learned vectors of width d:
    :math:`\lambda_{q1}`, :math:`\lambda_{k1}`, :math:`\lambda_{q2}` and :math:`\lambda_{k2}`. Then

    .. math::
        out_t = (1 - \lambda_0) \, norm\Big( \sum_s \Big[ softmax_s\Big( \frac{q^1_t \cdot k^1_s}{\sqrt d} \Big) -
        \lambda \, softmax_s\Big( \frac{q^2_t \cdot k^2_s}{\sqrt d} \Big) \Big] v_s \Big), \qquad
        \lambda = e^{\lambda_{q1} \cdot \lambda_{k1}} - e^{\lambda_{q2} \cdot \lambda_{k2}} + \lambda_0

    With ``layout=authors``, the default, each softmax uses the queries and keys of a whole head of the model. With
    RoPE, each softmax thus uses all rotation frequencies. The norm divides by the root mean square and has a gain, and
    :math:`\lambda_0` is 0.8 - (0.8 - ``initial``) exp(-0.3 l) in layer l = 0, 1, ...

    With ``layout=split``, each softmax uses one half of a head, which is split after the rotation by position. With
    RoPE, one softmax thus uses the fast rotation frequencies, and the other softmax the slow ones. The norm has no
    gain, and :math:`\lambda_0` is the same in all layers.

    State: every key and value so far.

    Source: Ye et al. (2025), eq. 1 to 3. The default layout and the initial vectors, which are normal with standard
    deviation 0.1, follow the authors' code, Diff-Transformer/multihead_diffattn.py.
    """

    name: ClassVar = "differential"
    label: ClassVar = "Differential"
    family: ClassVar = "softmax"
    source: ClassVar = "ye2025differential"
    complexity: ClassVar = "T^2 d"

    initial: float = option(
        0.2, "lambda_0, what the second softmax of the first layer is multiplied by at first", low=0, high=LIMIT
    )
    layout: Literal["authors", "split"] = option(
        "authors",
        "what the two softmaxes of a head are made of: two heads of the model, or halves of one",
        absent="split",
    )

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the four vectors from which lambda, the weight of the second softmax, is computed.

        Raises:
            UsageError: If the number of heads is odd with ``layout=authors``, or if the head width is odd with
                ``layout=split``.
        """
        width = self.head_dim
        if self.layout == "split":
            if width % 2:
                raise UsageError(f"a head has {width} channels; allowed: an even number, for two halves")
            width //= 2
        elif self.num_heads % 2:
            raise UsageError(
                f"num_heads is {self.num_heads}; allowed: an even number, of which two make one of differential's, or "
                "any with layout=split"
            )
        # The rows are q1, k1, q2, k2, in this order.
        self.vectors = nn.Parameter(0.1 * torch.randn(4, 1, width, generator=generator))
        if self.layout == "authors":
            self.gain = RmsNorm(2 * width)

    @classmethod
    def layers_of(cls, values: dict[str, Any], num_layers: int) -> list[Layer]:
        """Return the class and the arguments of each layer.

        With ``layout=authors``, the argument ``initial`` (lambda_0, roughly the initial weight of the second softmax)
        grows with the depth of the layer.
        """
        if values.get("layout", cls.layout) == "split":
            return super().layers_of(values, num_layers)
        below = LIMIT - values.get("initial", cls.initial)
        return [(cls, {**values, "initial": LIMIT - below * math.exp(-0.3 * depth)}) for depth in range(num_layers)]

    def attend(self, q: KeyHeads, k: KeyHeads, v: ValueHeads, *, state: State | None = None) -> ValueHeads:
        """Compute both softmax attentions in one fused operation, and subtract the second from the first."""
        # Zeros pad keys to the width of values, since PyTorch then chooses a kernel that holds no length x length.
        is_causal = state is None
        if state is not None:
            k, v = state.append("keys", k), state.append("values", v)
        query, key = self._pairs(q), self._pairs(k)
        if self.layout == "authors":
            v = torch.cat(self._pairs(v).unbind(0), dim=-1)
        scale = query.shape[-1] ** -0.5
        query, key = (pad(x, (0, v.shape[-1] - x.shape[-1])) for x in (query, key))
        first, second = fused(query, key, v.expand(2, *v.shape), is_causal=is_causal, scale=scale)
        q1, k1, q2, k2 = self.vectors.unbind(-3)
        factor = (q1 * k1).sum(-1, keepdim=True).exp() - (q2 * k2).sum(-1, keepdim=True).exp() + self.initial
        out = first - factor.unsqueeze(-3) * second
        if self.layout == "split":
            return (1 - self.initial) * rms_norm(out, out.shape[-1:], eps=1e-5)
        joined = (1 - self.initial) * self.gain(out)
        answers: Tensor = joined.unflatten(-1, (2, -1)).movedim(-2, -3).flatten(-4, -3)
        return answers

    def _pairs(self, x: KeyHeads) -> Tensor:
        """Split queries, keys or values into those of the two softmaxes, [2, ..., heads, length, channels]."""
        if self.layout == "split":
            halves: Tensor = x.unflatten(-1, (2, -1)).movedim(-2, 0)
            return halves
        pairs: Tensor = x.unflatten(-3, (-1, 2)).movedim(-3, 0)
        return pairs
