"""Base class of blocks; a block is one layer of the model, built around a mechanism."""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import ClassVar, Literal, TypeVar, dataclass_transform

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.layers import FieldModule, Linear, Mixer, ShortConvolution
from synthbench.mechanisms import Attention
from synthbench.mechanisms.base import convolved
from synthbench.options import check, option, options_of
from synthbench.registry import Registry

T = TypeVar("T", bound="Block")
Mix = Callable[[Tensor], Tensor]
"""Function that computes a mechanism's output, at all positions or only at the last, from its input, [..., length,
model_dim]."""


@dataclass(eq=False, repr=False, kw_only=True)
class Block(FieldModule):
    """One layer of the model: a mechanism and the parts around it.

    The fields made by :func:`synthbench.options.option` are the block's hyper-parameters. A subclass builds the parts
    around the mechanism from layers of the class :class:`synthbench.layers.RunLayer`, so that several models can be
    trained together. The subclass defines the block's computation in :meth:`around`, which ``forward``,
    ``forward_last`` and ``stream_step`` call.

    Every block can have a short causal convolution, a filter of ``conv`` taps for each channel. With ``conv_on=input``,
    the mechanism's input is ``x + conv(x)``, as in a Canon-A layer without an activation (Allen-Zhu, 2025). With
    ``conv_on=qkv``, queries, keys and values each pass through the convolution and SiLU, ``silu(conv(q))``, as in
    DeltaNet (Yang et al., 2024) and later mechanisms.

    With ``gate``, the mechanism's output is multiplied by a sigmoid of a projection of the mechanism's input. Qiu et
    al. (2025) find that a gate before the mechanism's output projection helps most. Here, the gate comes after that
    projection, since a block can apply it there to any mechanism.

    The option ``layers`` is the number of blocks in a model. Only :class:`synthbench.training.cell.Cell`, which builds
    the model, reads this option.
    """

    kind: ClassVar = "block"
    name: ClassVar[str]
    version: ClassVar[int] = 1
    source: ClassVar[str]

    mixer: Mixer
    model_dim: int = 64
    generator: InitVar[torch.Generator | None] = None
    conv: int = option(0, "tokens that a short convolution sums, 0 for none", low=0, high=64, is_addition=True)
    conv_on: Literal["input", "qkv"] = option(
        "input", "what it acts on: the mechanism's input, or its queries, keys and values", is_addition=True
    )
    gate: bool = option(default=False, meaning="whether a sigmoid gate multiplies what was mixed", is_addition=True)
    layers: int = option(0, "blocks in a model, 0 for the suite's number", low=0, high=256, is_addition=True)

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Check the hyper-parameters; then create the subclass's parts, the convolution and the gate, in this order.

        Raises:
            UsageError: If a hyper-parameter lies outside its range, or if ``conv_on`` is ``qkv`` although ``conv`` is 0
                or the mechanism has no queries, keys and values.
        """
        check(self)
        self.initialise(generator)
        self.convolution: ShortConvolution | None = None
        if self.conv == 0:
            if self.conv_on != "input":
                raise UsageError(f"{self.name}:conv_on is {self.conv_on!r} without a convolution; set conv=4 too")
        elif self.conv_on == "input":
            self.convolution = ShortConvolution(self.conv, self.model_dim, generator)
        elif isinstance(self.mixer, Attention):
            self.mixer.convolution = ShortConvolution(self.conv, 3 * self.model_dim, generator)
        else:
            raise UsageError(
                f"{self.name}:conv_on is 'qkv', and mechanism {getattr(self.mixer, 'name', '')!r} has no queries, keys "
                "and values; allowed: input"
            )
        self.output_gate: Linear | None = None
        if self.gate:
            self.output_gate = Linear(self.model_dim, self.model_dim, bias=True, generator=generator)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Create the parts around the mechanism; a block without such parts need not override this."""

    @abstractmethod
    def around(self, x: Tokens, mix: Mix) -> Tensor:
        """Apply the block to ``x``, with the function ``mix`` in place of its mechanism.

        ``mix`` returns one row for every position, or the row of the last position alone. The block's output has the
        same positions. The last row of the output must be the same in both cases.
        """

    def forward(self, x: Tokens) -> Tokens:
        """Apply the block to all positions."""
        return self.around(x, lambda x: self._mixed(self.mixer, self._read(x, None)))

    def forward_last(self, x: Tokens) -> Token:
        """Compute ``forward`` at the last position; only the mechanism and the convolution see earlier positions."""
        return self.around(x, lambda x: self._mixed(self.mixer.forward_last, self._read(x, None)))

    def stream_step(
        self, x: Float[Tensor, "*leading batch model_dim"], state: State
    ) -> tuple[Float[Tensor, "*leading batch model_dim"], State]:
        """Process the next token of every sequence; return the output of ``forward`` at this token, and the new state.

        ``state`` is the block's state after the earlier tokens; it is not modified.
        """
        after = state.copied()

        def mix(x: Tensor) -> Tensor:
            def step(x: Tensor) -> Tensor:
                mixed, after.parts["mixer"] = self.mixer.stream_step(x.squeeze(-2), after.part("mixer"))
                return mixed.unsqueeze(-2)

            return self._mixed(step, self._read(x, after))

        return self.around(x.unsqueeze(-2), mix).squeeze(-2), after

    def _mixed(self, mix: Mix, x: Tensor) -> Tensor:
        """Apply the mechanism ``mix`` to ``x``; multiply the result by the gate if the block has one."""
        mixed = mix(x)
        return mixed if self.output_gate is None else mixed * self.output_gate(last_rows(x, mixed)).sigmoid()

    def _read(self, x: Tensor, state: State | None) -> Tensor:
        """Compute the input of the mechanism: ``x``, or ``x + conv(x)`` if the block has a convolution on its input."""
        return x if self.convolution is None else x + convolved(self.convolution, x, state)


def last_rows(x: Float[Tensor, "*leading length model_dim"], mixed: Tensor) -> Tensor:
    """Return the rows of a block's input ``x`` at the positions of ``mixed``, the mechanism's output.

    The result is ``x`` if ``mixed`` has as many rows as ``x``; if not, the result is the last row of ``x``.
    """
    return x if mixed.shape[-2] == x.shape[-2] else x[..., -1:, :]


def conv_elements(conv: int, conv_on: str, model_dim: int) -> int:
    """Count the numbers in the past inputs that a block's convolution of ``conv`` taps stores for the next token."""
    return max(0, conv - 1) * model_dim * (3 if conv_on == "qkv" else 1)


BLOCKS: Registry[Block] = Registry("block", room="synthbench.blocks")


@dataclass_transform(eq_default=False, kw_only_default=True)
def block(unit: type[T]) -> type[T]:
    """Turn a class into a dataclass, register it as a block, and return it.

    Fields made by :func:`synthbench.options.option` become the block's hyper-parameters.

    Raises:
        UsageError: If the class's ``name`` is malformed or taken, or if one of its options has the name of an option
            that all blocks have.
    """
    if taken := sorted(options_of(Block).keys() & inspect.get_annotations(unit).keys()):
        raise UsageError(
            f"block {unit.__qualname__} declares {taken[0]!r}, an option that every block has; allowed: another name"
        )
    unit = dataclass(eq=False, repr=False, kw_only=True)(unit)
    BLOCKS.register(unit)
    return unit
