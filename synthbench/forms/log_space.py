"""Attention by exponential features that may lie beyond the range of floating-point numbers.

The kernel of a query and a key is Σ_j f_j(q) exp(e_j(k)), with one term per feature j. Let m_s be the largest exponent
of key s, and M_t the largest m_s of all keys s ≤ t. For query t, the exponentials of key s are split into three
factors:

    exp(e_j(k_s)) = exp(e_j(k_s) - m_s) exp(m_s - M_t) exp(M_t),      s ≤ t,

where the first two factors are at most 1 and the last cancels between numerator and denominator. Keys after query t do
not influence its output, not even its rounding. The maxima are held constant in the backward pass, since the result
does not depend on them.

Only the mechanism ``performer-exp`` may need this method. Its exponents are at most ‖ω‖²/2, where ω is the random
direction of a feature. In heads of up to 64 channels, its features therefore fit float32 and bfloat16, but not float16.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from synthbench.forms import linear
from synthbench.forms.linear import Guard, widened, with_ones
from synthbench.forms.shapes import AnswerRows, FeatureRows, ValueRows

WIDEST_HEAD = 64
"""Width of a head beyond which exp(‖ω‖²/2) may overflow float32. A sum over 1e5 keys overflows if ‖ω‖² exceeds 154. At
this width, 154 is 8 standard deviations above the mean of ‖ω‖²."""


def may_overflow(k: Tensor) -> bool:
    """Return whether exponential features of these keys may overflow, judged by the width and dtype of the keys."""
    return k.shape[-1] > WIDEST_HEAD or k.dtype == torch.float16


def attend(
    query_features: Float[Tensor, "*batch queries features"],
    key_exponents: FeatureRows,
    v: ValueRows,
    *,
    guard: Guard,
    delta: float,
) -> AnswerRows:
    """Attend with the key features exp(``key_exponents``), without overflow, in time linear in the length.

    If there are fewer queries than keys, the queries belong to the last positions.
    """
    queries, length = query_features.shape[-2], v.shape[-2]
    query, values = pad(widened(query_features), (0, 0, length - queries, 0)), with_ones(widened(v))
    own = key_exponents.detach().amax(-1, keepdim=True)
    key, running = (key_exponents - own).exp(), own.cummax(-2).values
    sums = []
    state = values.new_zeros(*values.shape[:-2], key.shape[-1], values.shape[-1])
    before = own.new_full((), -torch.inf)
    for q, k, chunk, m, largest in zip(
        *(x.split(linear.CHUNK, dim=-2) for x in (query, key, values, own, running)), strict=True
    ):
        is_future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        within = (m.mT - largest).masked_fill(is_future, -torch.inf).exp()
        sums.append((q @ k.mT * within) @ chunk + (before - largest).exp() * (q @ state))
        after = largest[..., -1:, :]
        state = (before - after).exp() * state + k.mT @ ((m - after).exp() * chunk)
        before = after
    # delta is meant for the unscaled features: here it is divided by exp(M_t), and bounded to stay finite.
    limit, largest = math.log(torch.finfo(running.dtype).max) - 1, running[..., length - queries :, :]
    floor = (math.log(delta) - largest).clamp(max=limit).exp() if delta else torch.zeros_like(largest)
    own_sums = torch.cat(sums, dim=-2)[..., length - queries :, :]
    numerator, denominator = own_sums.split([v.shape[-1], 1], dim=-1)
    out: Tensor = numerator / (denominator + floor if guard == "add" else torch.maximum(denominator, floor))
    return out.to(v.dtype)
