"""What a block is: the layer around a mechanism."""

from abc import abstractmethod
from dataclasses import InitVar, dataclass
from typing import ClassVar, TypeVar, dataclass_transform

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.knobs import check
from synthbench.layers import FieldModule, Mixer
from synthbench.registry import Registry

T = TypeVar("T", bound="Block")


@dataclass(eq=False, repr=False, kw_only=True)
class Block(FieldModule):
    """One layer of the model: a mechanism and what stands around it.

    Hyper-parameters are the fields made by :func:`synthbench.knobs.knob`. What else a block holds is made of layers
    that know of members: :class:`synthbench.layers.MemberLayer`.
    """

    kind: ClassVar = "block"
    name: ClassVar[str]
    version: ClassVar[int] = 1
    source: ClassVar[str]

    mixer: Mixer
    model_dim: int = 64
    generator: InitVar[torch.Generator | None] = None

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Check the hyper-parameters and draw what stands around the mechanism.

        Raises:
            UsageError: If a hyper-parameter lies outside its range.
        """
        check(self)
        self.initialise(generator)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Create what stands around the mechanism; a block that adds nothing leaves this alone."""

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


@dataclass_transform(eq_default=False, kw_only_default=True)
def block(unit: type[T]) -> type[T]:
    """Make a block of a class: its annotated fields become hyper-parameters, its name is registered."""
    unit = dataclass(eq=False, repr=False, kw_only=True)(unit)
    BLOCKS.register(unit)
    return unit
