"""Defines a position encoding: it carries the order of the tokens to a mechanism.

Either it adds something to the embeddings, once, or it turns queries and keys in every layer.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import InitVar, dataclass
from typing import ClassVar, TypeVar, dataclass_transform

import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.forms.shapes import Tokens
from synthbench.layers import FieldModule, Rotation, RunLayer
from synthbench.options import check
from synthbench.registry import Registry

T = TypeVar("T", bound="PositionEncoding")


@dataclass(eq=False, repr=False, kw_only=True)
class PositionEncoding(FieldModule, RunLayer):
    """Carries the order of the tokens to a mechanism; built for sequences of up to ``length`` tokens.

    Hyper-parameters are the fields made by :func:`synthbench.options.option`; the fields below describe the model.
    """

    kind: ClassVar = "position encoding"
    name: ClassVar[str]
    version: ClassVar[int] = 1
    source: ClassVar[str]
    rotates: ClassVar[bool] = False
    """True if it turns queries and keys, which a mechanism must then have."""
    extends: ClassVar[bool] = True
    """True if a model that was trained with it can be built for longer sequences: not with a learned table."""

    model_dim: int = 64
    num_heads: int = 4
    length: int = 512
    coordinates: Tensor | None = None
    """Coordinates of the tokens, [length, axes]; 0, 1, ... on one axis if None."""
    generator: InitVar[torch.Generator | None] = None

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Check the hyper-parameters and draw what is random.

        Raises:
            UsageError: If a hyper-parameter lies outside its range, or there are not ``length`` coordinates.
        """
        check(self)
        if self.coordinates is None:
            self.coordinates = torch.arange(self.length, dtype=torch.get_default_dtype()).unsqueeze(-1)
        if self.coordinates.ndim != 2 or len(self.coordinates) != self.length:
            raise UsageError(
                f"coordinates have the shape {list(self.coordinates.shape)}; allowed: [{self.length}, number of axes]"
            )
        self.initialise(generator)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Create what :meth:`embed` needs; an encoding that only rotates leaves this alone."""

    @property
    def head_dim(self) -> int:
        """Width of a query or key in one head."""
        return self.model_dim // self.num_heads

    def embed(self, x: Tokens, first: int = 0) -> Tokens:  # noqa: ARG002 - for those that add something
        """Add what is known of the positions, beginning with ``first``, to the token embeddings."""
        return x

    def rotation(self, generator: torch.Generator | None) -> Rotation | None:  # noqa: ARG002 - for those that rotate
        """Make the rotation of one layer, whose parameters are drawn from ``generator``; None if it does not rotate.

        Raises:
            UsageError: If queries and keys of this width cannot be turned.
        """
        return None

    def rotations(self, widths: Sequence[int], generator: torch.Generator | None) -> list[Rotation]:
        """Make the rotations of one layer for heads of these widths; none if it does not rotate.

        Raises:
            UsageError: If queries and keys of such a width cannot be turned.
        """
        encoding, made = copy(self), []
        for width in widths:
            encoding.model_dim = self.num_heads * width
            made.append(encoding.rotation(generator))
        return [rotation for rotation in made if rotation is not None]


POSITIONS: Registry[PositionEncoding] = Registry("position encoding", room="synthbench.positions")


@dataclass_transform(eq_default=False, kw_only_default=True)
def position(unit: type[T]) -> type[T]:
    """Make a position encoding of a class: its annotated fields become hyper-parameters, its name is registered."""
    unit = dataclass(eq=False, repr=False, kw_only=True)(unit)
    POSITIONS.register(unit)
    return unit
