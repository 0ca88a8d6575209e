"""Measure how much a mechanism's outputs change if the same tokens stand at later positions."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from synthbench.contract.mechanisms import SHAPE
from synthbench.contract.states import parts_of
from synthbench.layers import Rotation
from synthbench.mechanisms import Attention, FeatureAttention, Mechanism
from synthbench.mechanisms._parameters import perturb
from synthbench.positions import POSITIONS
from synthbench.process import settings_restored

LATER = (7, 100)
"""Distances by which tokens are moved, in positions."""
LENGTH = 48
"""Tokens in a sequence: more than one chunk of a recurrence."""
SMALLEST_CHANGE = 1e-6
"""Largest relative change of outputs that may still be rounding, in float64."""


class Moved(Rotation):
    """A rotation of queries and keys by their positions, which begin at ``later`` instead of 0."""

    def __init__(self, rotation: Rotation, later: int) -> None:
        """Wrap a rotation and add ``later`` to its positions."""
        super().__init__()
        self.rotation, self.later = rotation, later

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Rotate row t as if it stood at position ``first + later + t``."""
        turned: Tensor = self.rotation(x, first + self.later)
        return turned


@torch.no_grad()
def change_when_moved(
    unit: type[Mechanism], arguments: Mapping[str, Any], positions: str | None = None
) -> tuple[float, float]:
    """Measure how much the outputs change if all tokens move by 7 positions, and if they move by 100 positions.

    Each of the two returned numbers is the largest change of an output, divided by the largest output. If the mechanism
    sees only distances between tokens, both numbers are rounding errors of float64.

    Args:
        unit: The mechanism's class, registered or not.
        arguments: The mechanism's options, and any model sizes (such as ``model_dim``) in place of the small defaults.
        positions: Name of a position encoding that rotates queries and keys, or ``none``. Default: the encoding that
            the mechanism's authors chose.

    Raises:
        UsageError: If an argument is not allowed.
    """
    generator = torch.Generator().manual_seed(0)
    mechanism = unit(generator=generator, **{**SHAPE, **arguments}).double().eval()
    perturb(mechanism)  # a gate that starts at 0 could hide what it sees
    length = min(LENGTH, mechanism.max_length)
    x, outs = torch.randn(2, length, mechanism.model_dim, generator=generator, dtype=torch.float64), []
    for later in (0, *LATER):
        for part in parts_of(mechanism):
            _move(part, later, positions or part.own_positions)
        outs.append(mechanism(x))
    near, far = (float((out - outs[0]).abs().max() / outs[0].abs().max()) for out in outs[1:])
    return near, far


def sees_places(unit: type[Mechanism], options: Mapping[str, Any], positions: str | None = None) -> bool:
    """Return True if outputs change by more than rounding errors when all tokens move by 7 or by 100 positions.

    Args:
        unit: The mechanism's class, registered or not.
        options: The mechanism's options that differ from the defaults.
        positions: Name of a position encoding, as in :func:`change_when_moved`.
    """
    return max(change_when_moved(unit, options, positions)) > SMALLEST_CHANGE


def _move(mechanism: Mechanism, later: int, positions: str) -> None:
    """Make a mechanism's positions begin at ``later`` instead of 0."""
    if isinstance(mechanism, FeatureAttention):

        def factors(x: Tensor, side: Any, first_position: int = 0) -> Any:
            return type(mechanism).factors(mechanism, x, side, first_position + later)

        mechanism.factors = factors  # type: ignore[method-assign]
    if isinstance(mechanism, Attention) and positions != "none":
        with settings_restored():
            torch.set_default_dtype(torch.float64)  # angles in float32 would change outputs by 1e-7
            encoding = POSITIONS[positions](
                model_dim=mechanism.model_dim, num_heads=mechanism.num_heads, length=LENGTH + max(LATER)
            )
            rotations = encoding.rotations(mechanism.turned_widths, None)
        mechanism.turn_by([Moved(rotation, later) for rotation in rotations])
