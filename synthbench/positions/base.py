"""Base class of position encodings, which pass the order of the tokens to a mechanism.

A position encoding either adds vectors to the token embeddings, once, or rotates queries and keys in every layer.
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
    """A position encoding, which tells a mechanism the order of at most ``length`` tokens.

    The fields made by :func:`synthbench.options.option` are the encoding's hyper-parameters. ``model_dim``,
    ``num_heads``, ``length`` and ``coordinates`` describe the model and the tokens.
    """

    kind: ClassVar = "position encoding"
    name: ClassVar[str]
    version: ClassVar[int] = 1
    source: ClassVar[str]
    rotates: ClassVar[bool] = False
    """True if this encoding rotates queries and keys; the mechanism must then have both."""
    extends: ClassVar[bool] = True
    """True if a trained model can be rebuilt for longer sequences; False for a learned table of positions."""

    model_dim: int = 64
    num_heads: int = 4
    length: int = 512
    coordinates: Tensor | None = None
    """Coordinates of the tokens, [length, axes]; if None, there is one axis with the coordinates 0, 1, ..."""
    generator: InitVar[torch.Generator | None] = None

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Check the hyper-parameters and coordinates, then call :meth:`initialise`.

        Raises:
            UsageError: If a hyper-parameter lies outside its range, or ``coordinates`` is not [length, axes].
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
        """Create the parameters that :meth:`embed` needs; an encoding that only rotates need not override this."""

    @property
    def head_dim(self) -> int:
        """Width of a query or key in one head."""
        return self.model_dim // self.num_heads

    def embed(self, x: Tokens, first: int = 0) -> Tokens:  # noqa: ARG002 - for encodings that add something
        """Add position vectors, beginning with position ``first``, to the token embeddings; by default, add nothing."""
        return x

    def rotation(self, generator: torch.Generator | None) -> Rotation | None:  # noqa: ARG002 - for those that rotate
        """Create the rotation of queries and keys in one layer; return None if this encoding rotates nothing.

        Raises:
            UsageError: If queries and keys of this width cannot be rotated.
        """
        return None

    def rotations(self, widths: Sequence[int], generator: torch.Generator | None) -> list[Rotation]:
        """Create one rotation for each entry of ``widths``, the widths of the vectors that one layer rotates.

        The result is empty if this encoding rotates nothing.

        Raises:
            UsageError: If vectors of one of these widths cannot be rotated.
        """
        encoding, made = copy(self), []
        for width in widths:
            encoding.model_dim = self.num_heads * width
            made.append(encoding.rotation(generator))
        return [rotation for rotation in made if rotation is not None]


POSITIONS: Registry[PositionEncoding] = Registry("position encoding", room="synthbench.positions")


@dataclass_transform(eq_default=False, kw_only_default=True)
def position(unit: type[T]) -> type[T]:
    """Turn a class into a dataclass, register it as a position encoding, and return it.

    Fields made by :func:`synthbench.options.option` become the encoding's hyper-parameters.
    """
    unit = dataclass(eq=False, repr=False, kw_only=True)(unit)
    POSITIONS.register(unit)
    return unit
