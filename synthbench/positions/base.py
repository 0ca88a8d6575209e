"""What a position encoding is: how the order of the tokens reaches a mechanism."""

from abc import ABC, abstractmethod
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.layers import MemberLayer
from synthbench.registry import Registry

T = TypeVar("T", bound="PositionEncoding")


class PositionEncoding(MemberLayer, ABC):
    """How the order of the tokens reaches a mechanism; built for sequences of up to ``length`` tokens."""

    kind: ClassVar = "position encoding"
    name: ClassVar[str]
    version: ClassVar[int] = 1
    source: ClassVar[str]

    @abstractmethod
    def __init__(self, model_dim: int, length: int, *, generator: torch.Generator | None = None) -> None:
        """Create the parameters, drawn from ``generator`` (the process-wide one if None)."""
        super().__init__()

    @abstractmethod
    def embed(
        self, x: Float[Tensor, "*leading batch length model_dim"]
    ) -> Float[Tensor, "*leading batch length model_dim"]:
        """Add what is known of the positions to the token embeddings."""


POSITIONS: Registry[PositionEncoding] = Registry("position encoding", room="synthbench.positions")


def position(unit: type[T]) -> type[T]:
    """Register a position encoding under its name; for use as a decorator."""
    POSITIONS.register(unit)
    return unit
