"""PaTH attention: softmax attention whose keys are multiplied by a Householder matrix at every later token."""

import math
from types import MappingProxyType
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import silu

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.linear import widened
from synthbench.forms.recurrences import chunks_of, cut, future_mask
from synthbench.forms.shapes import KeyHeads, KeyRows, Token, Tokens, ValueHeads, ValueRows
from synthbench.forms.state import State
from synthbench.layers import Linear, ShortConvolution
from synthbench.mechanisms._recurrent import RecurrentAttention
from synthbench.mechanisms.base import convolved, kept_by_convolution, mechanism
from synthbench.options import option


@mechanism
class Path(RecurrentAttention):
    r"""Softmax attention in which each token after a key, up to the query, multiplies the key by a Householder matrix.

    Let :math:`w_t` be :math:`x_t W_1 W_2` after three operations: a causal depthwise convolution with ``conv`` taps,
    SiLU, and scaling to norm 1 in each head. With :math:`\beta_t = 2 \sigma(x_t u + b)`, one per head,

    .. math::
        H_t = I - \beta_t w_t w_t^T, \qquad
        out_t = \sum_{s \le t} softmax_s\Big( \frac{q_t^T H_t H_{t-1} \dots H_{s+1} k_s}{\sqrt d} \Big) v_s

    This is the stock layer, as its authors build it. The bare layer leaves out the convolution and SiLU. The matrices H
    take the place of a position encoding.

    State: every key (updated at every token), every value, and :math:`x_t W_1 W_2` of the last ``conv - 1`` tokens.

    Source: Yang et al. (2025), PaTH attention, section 3, and flash-linear-attention, ``layers/path_attn.py``, where
    W_1 has 32 columns and the convolution three taps. A forget gate and a norm of q and k, both optional in that code,
    are left out here.
    """

    name: ClassVar = "path"
    label: ClassVar = "PaTH"
    family: ClassVar = "softmax"
    source: ClassVar = "yang2025path"
    complexity: ClassVar = "T^2 d"
    bare: ClassVar = MappingProxyType({"conv": 0})
    rotation_note: ClassVar = "its Householder vectors are not turned, its keys are"

    conv: int = option(
        3, "tokens that the short convolution of w sees, followed by SiLU, 0 for neither", low=0, high=64, absent=0
    )

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the projections to directions w and rates beta of the Householder matrices, and the convolution."""
        self.direction_in = Linear(self.model_dim, 32, bias=False, generator=generator)
        self.direction_out = Linear(32, self.model_dim, bias=False, generator=generator)
        self.rate = Linear(self.model_dim, self.num_heads, bias=True, generator=generator)
        self.direction_convolution = ShortConvolution(self.conv, self.model_dim, generator) if self.conv else None

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and update ``state`` in place."""
        return self.merge_heads(self.attend(*self.heads(x, state), *self.controls(x, state), state=state))

    def controls(self, x: Tokens, state: State | None = None) -> tuple[Tensor, Tensor]:
        """Compute directions w and rates beta of the Householder matrices.

        If a state is given, ``x`` holds only the next token.
        """
        direction = self.direction_out(self.direction_in(x))
        if self.direction_convolution is not None:
            direction = silu(convolved(self.direction_convolution, direction, state, kept="convolution of w"))
        return unit_vectors(self.by_head(direction)), 2 * self.by_head(self.rate(x)).sigmoid()

    def attend(
        self,
        q: KeyHeads,
        k: KeyHeads,
        v: ValueHeads,
        direction: KeyHeads | None = None,
        rate: Float[Tensor, "*batch heads length 1"] | None = None,
        *,
        state: State | None = None,
    ) -> ValueHeads:
        """Attend with the given directions and rates of the Householder matrices.

        Without them, this is plain softmax attention.
        """
        direction = torch.zeros_like(k) if direction is None else direction
        rate = torch.zeros_like(k[..., :1]) if rate is None else rate
        dtype, (q, k, v, w, rate) = v.dtype, map(widened, (q, k, v, direction, rate))
        if state is not None:
            if (keys := state.tensors.get("keys")) is not None:
                state.tensors["keys"] = keys - (keys @ w.mT) @ (rate * w)
            keys, values = state.append("keys", k), state.append("values", v)
            return ((q @ keys.mT / math.sqrt(q.shape[-1])).softmax(-1) @ values).to(dtype)
        return turned_attention(q / math.sqrt(q.shape[-1]), k, v, w, rate).to(dtype)

    def state_elements(self, length: int) -> int:
        """Count the numbers in all keys and values, and in the past inputs that the convolution stores."""
        return 2 * length * self.model_dim + kept_by_convolution(self.conv, self.model_dim, length)


def turned_attention(
    q: KeyRows, k: KeyRows, v: ValueRows, w: KeyRows, rate: Float[Tensor, "*batch length 1"]
) -> ValueRows:
    r"""Compute softmax attention with scores :math:`q_t^T H_t \dots H_{s+1} k_s` chunk by chunk.

    Here, :math:`H_t = I - \beta_t w_t w_t^T`, where :math:`\beta_t` is ``rate``. Let Q, K and W hold the queries, keys
    and directions of one chunk as rows, and let B = diag(rate). The product of all H in the chunk is :math:`I - W^T Y`
    with :math:`Y = (I + tril(B W W^T, -1))^{-1} B W`. The scores within the chunk are
    :math:`tril(Q K^T) - tril(Q W^T) X` with :math:`X = (I + tril(B W W^T, -1))^{-1} tril(B W K^T, -1)`.

    The scores between chunks are inner products of transformed queries and keys. Each query is multiplied by the H of
    its own token and of all earlier tokens in its chunk, which gives :math:`Q - tril(Q W^T) Y`. Each key is multiplied
    by the H of all later tokens in its chunk, which gives :math:`K - X^T W`. A loop over chunks stores the keys of
    earlier chunks as rows. After each chunk, it multiplies them from the right by :math:`I - Y^T W`, the transpose of
    that chunk's product, and appends the chunk's own keys.

    Source: Yang et al. (2025), PaTH attention, section 3.2 (the UT transform of a chunk's product).
    """
    length = k.shape[-2]
    num_chunks, size = chunks_of(length)
    q, k, w, rated = (cut(x, num_chunks, size) for x in (q, k, w, rate * w))
    solved: Tensor = torch.linalg.solve_triangular(
        (rated @ w.mT).tril(-1), torch.cat([(rated @ k.mT).tril(-1), rated], dim=-1), upper=False, unitriangular=True
    )
    x, y = solved.split([size, k.shape[-1]], dim=-1)
    overlaps = (q @ w.mT).tril()
    within = (q @ k.mT - overlaps @ x).masked_fill(future_mask(size, q.device), -torch.inf)
    if num_chunks == 1:
        out: Tensor = within.squeeze(-3).softmax(-1) @ v
        return out
    since_begin, until_end, passed = q - overlaps @ y, k - x.mT @ w, y.mT @ w
    keys = until_end[..., 0, :0, :]
    outs = []
    for n, (own, query, key, through) in enumerate(
        zip(within.unbind(-3), since_begin.unbind(-3), until_end.unbind(-3), passed.unbind(-3), strict=True)
    ):
        values = v[..., : (n + 1) * size, :]
        scores = torch.cat([query @ keys.mT, own], dim=-1)[..., : values.shape[-2]]
        outs.append(scores.softmax(-1) @ values)
        if n + 1 < num_chunks:
            keys = torch.cat([keys - keys @ through, key], dim=-2)
    return torch.cat(outs, dim=-2)[..., :length, :]
