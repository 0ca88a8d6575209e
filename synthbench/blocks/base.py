"""What a block is: the layer around a mechanism."""

from abc import ABC, abstractmethod
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.layers import Mixer
from synthbench.registry import Registry

T = TypeVar("T", bound="Block")


class Block(nn.Module, ABC):
    """One layer of the model: a mechanism and what stands around it."""

    kind: ClassVar = "block"
    name: ClassVar[str]
    version: ClassVar[int] = 1
    source: ClassVar[str]

    mixer: Mixer

    @abstractmethod
    def __init__(self, mixer: Mixer, *, generator: torch.Generator | None = None) -> None:
        """Take the mechanism; draw what else the block holds from ``generator`` (the process-wide one if None)."""
        super().__init__()
        self.mixer = mixer

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "*leading batch length model_dim"]
    ) -> Float[Tensor, "*leading batch length model_dim"]:
        """Mix positions, then transform each."""

    @abstractmethod
    def forward_last(
        self, x: Float[Tensor, "*leading batch length model_dim"]
    ) -> Float[Tensor, "*leading batch 1 model_dim"]:
        """What ``forward`` gives at the last position."""


BLOCKS: Registry[Block] = Registry("block", room="synthbench.blocks")


def block(unit: type[T]) -> type[T]:
    """Register a block under its name; for use as a decorator."""
    BLOCKS.register(unit)
    return unit
