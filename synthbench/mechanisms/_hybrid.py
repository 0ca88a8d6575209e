"""Hybrids: models whose layers have different mechanisms, named by a pattern such as ``gla+softmax``."""

import hashlib
from dataclasses import dataclass, field, fields, make_dataclass
from functools import lru_cache
from typing import Any, ClassVar, cast

import torch
from torch import nn

from synthbench.errors import UsageError
from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.mechanisms.base import MECHANISMS, Attention, Layer, Mechanism, mean_state, part_option
from synthbench.options import options_of
from synthbench.plugins import is_built_in
from synthbench.registry import code_hash, set_code_hash, version_of

SIZES = ("model_dim", "num_heads", "max_length", "bias")


@dataclass(eq=False, repr=False, kw_only=True)
class Hybrid(Mechanism):
    """A sequence of mechanisms, one per layer, that repeats over the layers of a model.

    For example, the layers of the hybrid ``gla+softmax`` alternate between ``gla`` and ``softmax``. Each mechanism in
    the sequence is called a part. In a model, each layer has one part: see :meth:`layers_of`. An instance of this
    class, by contrast, applies all parts in sequence, so that tests of the instance cover every part. A hybrid has the
    hyper-parameters of all parts, each prefixed with its part's name, such as ``slay_R`` for ``R`` of ``slay``.

    Source: Lieber et al. (2024), section 3, for repeating a sequence of layers. The parts have their own sources.
    """

    family: ClassVar = "hybrid"
    source: ClassVar = "lieber2024jamba"
    parts: ClassVar[tuple[type[Mechanism], ...]]

    def __post_init__(self, generator: torch.Generator | None) -> None:
        """Build the mechanisms of the pattern."""
        Mechanism.__post_init__(self, generator)  # skips Attention's: the parts have their own projections

    def initialise(self, generator: torch.Generator | None) -> None:
        """Build all parts in order, with initial values drawn from ``generator``."""
        values = {name: getattr(self, name) for name in (*SIZES, *options_of(type(self)))}
        self.layers = nn.ModuleList(
            unit(**options, generator=generator) for unit, options in self.layers_of(values, len(self.parts))
        )

    @classmethod
    def layers_of(cls, values: dict[str, Any], num_layers: int) -> list[Layer]:
        """Return, for every layer of a model, the class of its mechanism and the arguments of that class.

        Raises:
            UsageError: If the model has fewer layers than the hybrid has parts.
        """
        if num_layers < len(cls.parts):
            raise UsageError(
                f"mechanism {cls.name!r} is a pattern of {len(cls.parts)} layers; the model has {num_layers}"
            )
        sizes = {name: values[name] for name in SIZES if name in values}
        layers: list[Layer] = []
        for index in range(num_layers):
            unit = cls.parts[index % len(cls.parts)]
            called = {option: part_option(unit.name, option) for option in options_of(unit)}
            options = {option: values[own] for option, own in called.items() if own in values}
            layers.append(unit.layers_of(sizes | options, num_layers)[index])
        return layers

    def forward(self, x: Tokens) -> Tokens:
        """Apply the parts one after the other."""
        for layer in self.layers:
            x = layer(x)
        return x

    def advance(self, x: Token, state: State) -> Token:
        """Compute the output at the next token, and update the states of all parts in place."""
        x = x.squeeze(-2)
        for n, layer in enumerate(self.layers):
            x, state.parts[str(n)] = cast("Mechanism", layer).stream_step(x, state.part(str(n)))
        return x.unsqueeze(-2)

    def state_elements(self, length: int) -> int:
        """Return the state size (numbers kept for the next token), averaged over the hybrid's layers and rounded up."""
        return mean_state([cast("Mechanism", layer).state_elements(length) for layer in self.layers])


def hybrid(name: str) -> type[Hybrid]:
    """Return the class of the hybrid whose mechanisms are listed in ``name``, joined with ``+``, as in ``gla+softmax``.

    Raises:
        UnknownName: If a name in the list is not the name of a mechanism.
        UsageError: If all mechanisms are the same, if they come from more than one plugin, or if an option would get an
            invalid or duplicate name in the hybrid.
    """
    parts = tuple(MECHANISMS[part] for part in name.split("+"))
    if len(set(parts)) == 1:
        raise UsageError(f"mechanism {name!r} has one mechanism only; allowed: that one, {parts[0].name!r}")
    return _hybrid(name, parts)


@lru_cache(maxsize=256)
def _hybrid(name: str, parts: tuple[type[Mechanism], ...]) -> type[Hybrid]:
    distinct = list(dict.fromkeys(parts))
    foreign = list(dict.fromkeys(part.__module__ for part in distinct if not is_built_in(part)))
    if len(foreign) > 1:
        raise UsageError(f"mechanism {name!r} has parts of {len(foreign)} plugins; allowed: of one")
    options = [
        (part_option(part.name, option.name), option.type, field(default=option.default, metadata=option.metadata))
        for part in distinct
        for option in fields(part)
        if option.name in options_of(part)
    ]
    names = [name for name, _, _ in options]
    if unclear := [name for name in names if names.count(name) > 1 or not name.isidentifier()]:
        raise UsageError(f"mechanism {name!r} cannot name the option {unclear[0]!r} of its parts")
    # A rotation needs queries and keys in every layer.
    bases = (Hybrid, Attention) if all(issubclass(part, Attention) for part in parts) else (Hybrid,)
    unit: type[Hybrid] = make_dataclass(
        "Hybrid",
        options,
        bases=bases,
        namespace={
            "__doc__": Hybrid.__doc__,
            "attend": None,  # its layers do
            # The recorded origin is the code that does not come with synthbench, if there is any.
            "__module__": foreign[0] if foreign else __name__,
            "name": name,
            "label": " + ".join(part.label for part in parts),
            "version": "+".join(version_of(part) for part in parts),
            "complexity": " + ".join(dict.fromkeys(part.complexity for part in parts)),
            "parts": parts,
            "own_positions": own.pop() if len(own := {part.own_positions for part in parts}) == 1 else "own",
            "bare": {part_option(part.name, option): value for part in distinct for option, value in part.bare.items()},
        },
        eq=False,
        repr=False,
        kw_only=True,
    )
    set_code_hash(unit, hashlib.sha256("+".join(map(code_hash, parts)).encode()).hexdigest()[:12])
    return unit
