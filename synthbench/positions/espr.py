"""ESPR, equivariant structured positional rotations: a position encoding with learned rotations."""

import math
from copy import deepcopy
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms.shapes import KeyHeads
from synthbench.layers import project
from synthbench.options import option
from synthbench.positions._rotations import (
    LearnedRotation,
    axial_frequencies,
    cayley,
    combine,
    num_entries,
    rows_of,
    skew_matrix,
    turn_planes,
)
from synthbench.positions.base import PositionEncoding, position


class MixedRotation(LearnedRotation):
    """A rotation of some channels by position, and of all channels of a head by a learned matrix P.

    The channels that rotate by position are called active.
    """

    def __init__(self, encoding: "Espr", generator: torch.Generator | None) -> None:
        """Begin with RoPE's frequencies, and draw the entries of the skew-symmetric matrix S that determines P."""
        num_planes = encoding.head_dim // 2
        num_active_planes = min(num_planes, max(1, round(encoding.active * num_planes)))
        frequencies = axial_frequencies(encoding, num_active_planes, encoding.base)
        super().__init__(encoding, num_active_planes)
        self.order = encoding.order
        self.is_commuting = encoding.commuting
        self.is_null_kept = encoding.null == "keep"
        skew = torch.empty(self.num_heads, num_entries(self.dim))
        self.skew = nn.Parameter(skew.normal_(std=encoding.spread / math.sqrt(self.dim), generator=generator))
        rates = frequencies.to(self.coordinates)
        # Commuting: β, [heads, planes, axes]. Else the entries of the skew-symmetric L_k, [heads, entries, axes].
        rates = rates if self.is_commuting else _block_generators(rates)
        self.rates = nn.Parameter(rates.repeat(self.num_heads, 1, 1))

    def forward(self, x: KeyHeads, first: int = 0) -> KeyHeads:
        """Multiply row t by R(r) P or, with ``order=conjugate``, by P R(r) Pᵀ.

        Here, R(r) rotates the active channels by the coordinates r of token ``first + t``.
        """
        mixing = cayley(skew_matrix(self.skew, self.dim)).unsqueeze(-4)
        if not self.is_null_kept:
            x = self._without_null(x)
        if self.order == "post":
            turned = self._turn(project(x, mixing.mT), first)
        else:
            turned = project(self._turn(project(x, mixing), first), mixing.mT)
        if self.is_null_kept:
            return turned
        # Mechanisms divide scores by √d, T4.4 by √(2m): queries and keys are each scaled by the root of the ratio.
        return self._without_null(turned) * math.sqrt(math.sqrt(self.dim / self.num_active))

    def unmixed(self) -> "MixedRotation":
        """Copy the rotation without P, the learned matrix that mixes all channels."""
        plain = deepcopy(self)
        plain.skew.zero_()
        return plain

    def _without_null(self, x: Tensor) -> Tensor:
        padded: Tensor = nn.functional.pad(x[..., : self.num_active], (0, self.dim - self.num_active))
        return padded

    def _turn(self, x: Tensor, first: int) -> Tensor:
        """Rotate the active channels by position."""
        numbers = combine(rows_of(self.coordinates, x.shape[-2], first), self.rates)
        if self.is_commuting:
            angles = numbers.unsqueeze(-4)
            return turn_planes(x, angles.cos(), angles.sin())
        rotations = torch.linalg.matrix_exp(skew_matrix(numbers, self.num_active)).unsqueeze(-5)
        active, null = x.tensor_split([self.num_active], dim=-1)
        return torch.cat((torch.einsum("...tij,...tj->...ti", rotations, active), null), dim=-1)


def _block_generators(frequencies: Float[Tensor, "planes axes"]) -> Float[Tensor, "entries axes"]:
    """Return the entries of skew-symmetric matrices, one per axis, whose exponentials rotate by ``frequencies``."""
    dim = 2 * len(frequencies)
    rows, columns = torch.triu_indices(dim, dim, offset=1)
    entries = frequencies.new_zeros(num_entries(dim), frequencies.shape[-1])
    entries[(rows % 2 == 0) & (columns == rows + 1)] = frequencies
    return entries


@position
class Espr(PositionEncoding):
    r"""Rotations of some channels by learned generators, and a learned rotation that mixes all channels.

    Of the d channels of a head, 2m are *active*: :math:`R(r) = \exp(\sum_k r_k L_k)` rotates them, where r are the
    coordinates of the token and :math:`L_k` is the generator of axis k. The other channels are the *null* channels,
    which R(r) does not change. The learned matrix :math:`P = (I - S)(I + S)^{-1}`, with S skew-symmetric, mixes active
    and null channels. Each head has its own L and S.

    ``order=post``, the default, multiplies queries and keys by :math:`R(r) P`. This follows statements T3.5 and T4.3 of
    the derivation cited below. ``order=conjugate`` multiplies them by :math:`P R(r) P^T`, a different map, as in T8'.7.

    ``null=drop``, the default, follows T4.3 and T4.4. Null channels are zeroed before and after the map, and scores are
    divided by :math:`\sqrt{2m}` in place of the mechanism's :math:`\sqrt d`. ``null=keep`` keeps all channels and the
    mechanism's scale. Scores q·k depend on offsets between positions only, with two exceptions: generators that do not
    commute, and ``null=drop`` with ``order=conjugate``. In the second case, null channels are zeroed between the
    mixings of the query and of the key, so that scores also depend on absolute positions.

    With ``commuting=true``, generators are block-diagonal as in T2.5, with a learned frequency :math:`\beta` per plane
    and axis. With ``commuting=false``, each :math:`L_k` is a free skew-symmetric matrix on the active channels,
    initially block-diagonal, and R(r) is a matrix exponential per position and head. With one axis, scores then still
    depend on offsets only. With several axes, they also depend on absolute positions. In float32, this matrix
    exponential deviates from a rotation by about 2e-3 at position 8000.

    Source: parts ("tiers") 1-4 and T8'.7 of the ESPR derivation (a manuscript). Here, as in T8'.7, the derivation's
    basis U is the identity, and P takes the role of U. The derivation specifies neither m nor the initial S. Here, the
    option ``active`` sets m as a fraction of all planes (pairs of channels), and the entries of S are initially drawn
    from :math:`N(0, \mathrm{spread}^2 / d)`. They do not begin at 0, since the mixing of active and null channels would
    then get no gradient: by T6'.7, the effect of this mixing is quadratic in S.

    Some bounds of the derivation hold only in a corrected form: see tests/positions/test_espr_theorems.py.
    """

    name: ClassVar = "espr"
    source: ClassVar = "espr"
    rotates: ClassVar = True

    base: float = option(10000.0, "base of RoPE's frequencies, at which the learned ones begin", low=1)
    active: float = option(0.75, "share of the planes that positions turn, at least one plane", low=0, high=1)
    null: Literal["drop", "keep"] = option("drop", "whether scores see the channels that positions do not turn")
    order: Literal["post", "conjugate"] = option("post", "the map: R P (post) or P R P^T (conjugate)")
    commuting: bool = option(True, "whether the generators of the axes commute")  # noqa: FBT003 - a default
    spread: float = option(0.1, "size of S at the start: the standard deviation of its entries times sqrt(d)", low=0)

    def rotation(self, generator: torch.Generator | None) -> MixedRotation:
        """Make the rotation of one layer, with RoPE's frequencies and a skew-symmetric S drawn from ``generator``.

        Raises:
            UsageError: If there are fewer active planes (pairs of channels) than coordinate axes.
        """
        return MixedRotation(self, generator)
