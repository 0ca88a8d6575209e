"""Geometric witnesses: points in Euclidean space, on the sphere and in the Poincaré ball, with distances and weights.

A witness is a point that represents a query or key and is computed from it by a linear map. Spherical witnesses are
then scaled to norm 1, and hyperbolic witnesses are mapped into the ball by :func:`to_ball`. "The paper" is Phadke
(2025).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.errors import UsageError
from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.layers import Rotation, project, uniform
from synthbench.mechanisms.base import Attention, Side
from synthbench.mechanisms.rewa import _operators
from synthbench.mechanisms.rewa._operators import WitnessMap
from synthbench.options import option

WEIGHTS = {"euclidean": "alpha", "spherical": "beta", "hyperbolic": "gamma"}
"""The paper's name for the weight of each geometry."""

RADIUS = 1 - 4e-3
"""Largest norm of a point in the ball, at hyperbolic distance 6.2 from the centre. Distances come from inner products,
whose float32 rounding error is amplified by 1 / ((1 - |u|²)(1 - |v|²)) for points u and v. At this norm, the factor is
1.6e4. The value is the same in float64, so that both precisions compute the same function."""

UNFROZEN = {1: ("spherical",), 2: ("spherical", "euclidean")}
"""The geometries that are active in phases 1 and 2 of a curriculum that adds geometries in turn; from phase 3 on, all
geometries are active."""


def to_ball(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """Map x to the Poincaré ball by the exponential map at the centre, tanh(‖x‖) x / ‖x‖; norms are at most ``RADIUS``.

    The REWA paper (Phadke, 2025) takes tanh of every coordinate instead, which can map to points outside the ball.
    """
    tiny = torch.finfo(x.dtype).eps ** 2
    length = x.square().sum(-1, keepdim=True).clamp(min=tiny).sqrt()
    return x * (length.tanh().clamp(max=RADIUS) / length)


def euclidean_distance(x: Queries, y: Keys) -> PairScores:
    """Compute ‖x - y‖ for every pair of points x and y.

    A distance below the rounding error is replaced by this error, and its gradient is 0.
    """
    return _operators.distances(x @ y.mT, x.square().sum(-1), y.square().sum(-1), power=1)


def spherical_distance(x: Queries, y: Keys) -> PairScores:
    """Compute the angle arccos(x·y) for every pair of unit vectors; where x·y rounds to ±1, the gradient is 0."""
    return _operators.arc(x @ y.mT)


def hyperbolic_distance(x: Queries, y: Keys) -> PairScores:
    """Compute the Poincaré distance arcosh(1 + 2s) for every pair of points x and y.

    Here, s = ‖x - y‖² / ((1 - ‖x‖²)(1 - ‖y‖²)). The code computes 2 arsinh √s, which is equal and stays accurate for
    points that are close together.

    Source: Phadke (2025), eq. 124. In more than one dimension, eq. 99 and eq. 125 are not this distance.
    """
    room_x, room_y = (1 - points.square().sum(-1) for points in (x, y))
    rooms = room_x.unsqueeze(-1) * room_y.unsqueeze(-2)
    return 2 * (euclidean_distance(x, y) / rooms.sqrt()).asinh()


class Witnesses(nn.Module):
    """Linear maps from queries and keys to witnesses: points in up to three geometries; each head has its own maps.

    The geometries are Euclidean space, the sphere and the Poincaré ball.
    """

    def __init__(self, owner: "WitnessAttention", generator: torch.Generator | None) -> None:
        """Draw a map for every geometry whose width (number of coordinates) is not 0.

        Raises:
            UsageError: If all widths are 0, or the width of the sphere is 1.
        """
        super().__init__()
        if not any((owner.m, owner.n, owner.p)):
            raise UsageError(f"{owner.name}:m, n and p are all 0; allowed: at least one above 0")
        if owner.n == 1:
            raise UsageError(f"{owner.name}:n is 1, whose sphere is two points; allowed: 0, or int from 2")
        self.power = owner.power
        self.widths = {name: width for name, width in zip(WEIGHTS, (owner.m, owner.n, owner.p), strict=True) if width}
        self.maps = nn.ModuleDict(
            {
                geometry: WitnessMap(owner.num_heads, owner.head_dim, width, shared=owner.shared, generator=generator)
                for geometry, width in self.widths.items()
            }
        )
        self.rotations = nn.ModuleDict()
        # Saved, so that a resumed run stays in its phase.
        self.active = nn.Buffer(torch.ones(len(self.widths)))

    def map(self, geometry: str) -> WitnessMap:
        """Return the linear map to the given geometry; the width of this geometry must not be 0."""
        return cast("WitnessMap", self.maps[geometry])

    def points(
        self, geometry: str, x: Float[Tensor, "*batch length dim"], side: Side, first: int = 0
    ) -> Float[Tensor, "*batch length width"]:
        """Map queries or keys to points in one geometry, and rotate the points by position if there is a rotation.

        The first row of ``x`` has the position ``first``.
        """
        mapped: Tensor = self.map(geometry)(x, side)
        if geometry in self.rotations:  # about the centre, so it leaves the sphere and the ball as they are
            even, odd = mapped.tensor_split([mapped.shape[-1] // 2 * 2], dim=-1)
            mapped = torch.cat([self.rotations[geometry](even, first), odd], dim=-1)
        if geometry == "euclidean":
            return mapped
        return unit_vectors(mapped) if geometry == "spherical" else to_ball(mapped)

    def distance(self, geometry: str, q: Queries, k: Keys) -> PairScores:
        """Compute the distances between queries and keys in a geometry, squared if ``power`` is 2.

        The last query has the position of the last key.
        """
        x, y = self.points(geometry, q, "query", k.shape[-2] - q.shape[-2]), self.points(geometry, k, "key")
        if geometry == "euclidean":
            distances = euclidean_distance(x, y)
        else:
            distances = spherical_distance(x, y) if geometry == "spherical" else hyperbolic_distance(x, y)
        return distances if self.power == 1 else distances.square()

    def mask(self, geometry: str) -> Tensor:
        """Return 1 if the geometry is active in the current phase of a curriculum, else 0.

        A curriculum adds geometries in turn. The result broadcasts against scores.
        """
        index = list(self.widths).index(geometry)
        return self.active[..., index : index + 1]

    def starts(self) -> dict[str, float]:
        """Return each geometry's initial weight by Phadke (2025), eq. 100 to 102: 1 for the sphere, 1/√width otherwise.

        These weights bring the distances in different geometries to a similar size.
        """
        return {
            geometry: 1.0 if geometry == "spherical" else 1 / math.sqrt(width)
            for geometry, width in self.widths.items()
        }

    def enter_phase(self, phase: int) -> None:
        """Activate the geometries of a phase of a curriculum that adds geometries in turn.

        Phase 1 has the sphere only, phase 2 adds Euclidean space, and later phases have all geometries. A geometry of
        width 0 is absent. If all geometries of a phase are absent, all geometries that exist are activated.
        """
        acting = [float(geometry in UNFROZEN.get(phase, WEIGHTS)) for geometry in self.widths]
        self.active.copy_(torch.tensor(acting if any(acting) else [1.0] * len(acting)))


@dataclass(eq=False, repr=False, kw_only=True)
class WitnessAttention(Attention):
    """Attention by the distances of witnesses: points computed from queries and keys, and rotated by position.

    Because of the rotation, distances depend on offsets between positions only. The rotation acts on pairs of channels;
    if the number of channels is odd, the last channel is not rotated. With ``turns=heads``, queries and keys are
    rotated instead of witnesses. The method ``initialise`` of a subclass must first call :meth:`draw_witnesses`.
    """

    turns: Literal["witnesses", "heads"] = option(
        "witnesses", "what positions turn: witnesses, or queries and keys before the maps to them", absent="heads"
    )

    m: int = option(5, "dimensions of Euclidean witnesses, 0 for none", low=0, high=1024)
    n: int = option(5, "coordinates of spherical witnesses, 0 for none", low=0, high=1024)
    p: int = option(5, "dimensions of hyperbolic witnesses, 0 for none", low=0, high=1024)
    power: int = option(1, "power of the distances, 1 as published", low=1, high=2)
    shared: bool = option(default=True, meaning="whether queries and keys share the maps to witnesses")

    def draw_witnesses(self, generator: torch.Generator | None) -> None:
        """Draw the maps to the geometries whose width is not 0."""
        self.witnesses = Witnesses(self, generator)

    @property
    def has_phases(self) -> bool:
        """True if there is more than one geometry, so that a curriculum can add geometries in turn."""
        return len(self.witnesses.widths) > 1

    def enter_phase(self, phase: int) -> None:
        """Activate the geometries of a phase, counted from 1, of a curriculum that adds geometries in turn."""
        self.witnesses.enter_phase(phase)

    @property
    def turned_widths(self) -> tuple[int, ...]:
        """Widths of the rotated vectors: an even width per geometry or, with ``turns=heads``, the head width."""
        if self.turns == "heads":
            return super().turned_widths
        return tuple(width // 2 * 2 for width in self.witnesses.widths.values())

    def turn_by(self, rotations: Sequence[Rotation]) -> None:
        """Set the rotations by position: one per geometry or, with ``turns=heads``, one for both queries and keys."""
        if self.turns == "heads":
            super().turn_by(rotations)
            return
        self.witnesses.rotations.update(dict(zip(self.witnesses.widths, rotations, strict=True)))


def named(weights: dict[str, Float[Tensor, "*batch heads"]]) -> dict[str, Float[Tensor, "*batch heads"]]:
    """Return the weights of the geometries under the paper's names, and the effective curvature kappa.

    The names are alpha (Euclidean), beta (spherical) and gamma (hyperbolic); an absent geometry has the weight 0. By
    eq. 59 of Phadke (2025), kappa = (gamma - beta) / (alpha + beta + gamma). Kappa lies between -1 (spherical) and 1
    (hyperbolic). The curvatures in the paper's definition 2.3, and kappa in its section 8.1.4, have the opposite sign.
    """
    absent = torch.zeros_like(next(iter(weights.values())))
    alpha, beta, gamma = (weights.get(geometry, absent) for geometry in WEIGHTS)
    return {"alpha": alpha, "beta": beta, "gamma": gamma, "kappa": (gamma - beta) / (alpha + beta + gamma)}


class Perceptron(nn.Module):
    """One network per head, whose hidden tanh layer keeps the outputs bounded for all inputs."""

    def __init__(self, num_heads: int, dim: int, hidden: int, width: int, *, generator: torch.Generator | None) -> None:
        """Draw weights and biases as PyTorch's linear layers do."""
        super().__init__()
        self.inner = uniform((num_heads, dim, hidden), 1 / math.sqrt(dim), generator)
        self.inner_bias = uniform((num_heads, 1, hidden), 1 / math.sqrt(dim), generator)
        self.outer = uniform((num_heads, hidden, width), 1 / math.sqrt(hidden), generator)
        self.outer_bias = uniform((num_heads, 1, width), 1 / math.sqrt(hidden), generator)

    def forward(self, x: Float[Tensor, "*batch length dim"]) -> Float[Tensor, "*batch length width"]:
        """Apply each head's network to every token."""
        return project((project(x, self.inner) + self.inner_bias).tanh(), self.outer) + self.outer_bias


class Gate(nn.Module):
    """A network that computes, from each query, the weight of every geometry; the weights of a query sum to 1."""

    def __init__(self, owner: WitnessAttention, hidden: int, generator: torch.Generator | None) -> None:
        """Draw the network, with ``hidden`` hidden units.

        Raises:
            UsageError: If fewer than two geometries have a width above 0.
        """
        super().__init__()
        geometries = list(owner.witnesses.widths)
        if len(geometries) < 2:
            raise UsageError(
                f"{owner.name}:m, n, p leave only the {geometries[0]} geometry; allowed: at least two above 0"
            )
        self.network = Perceptron(owner.num_heads, owner.head_dim, hidden, len(geometries), generator=generator)

    def forward(self, q: Queries, witnesses: Witnesses) -> dict[str, Float[Tensor, "*batch queries 1"]]:
        """Compute, for every query, weights of the geometries that sum to 1.

        If a curriculum adds geometries in turn, a geometry has the weight 0 before its phase.
        """
        shares = (self.network(q) + witnesses.active.log()).softmax(-1)
        return dict(zip(witnesses.widths, shares.split(1, -1), strict=True))

    def means(self, q: Queries, witnesses: Witnesses) -> dict[str, Float[Tensor, "*runs heads"]]:
        """Return, per head, the mean weights over queries and sequences, and kappa (curvature) of these means."""
        shares = self(q, witnesses)
        return named({geometry: share[..., 0].mean(-1).mean(-2) for geometry, share in shares.items()})
