"""Stand-ins for the components of plugins: a process plans and judges their runs, and never runs their code.

A plugin can change whatever is computed in a process that loads it, so the one that verifies rows must not. What has to
be known of a component, above all its options and the hash of its source, is asked in a process of its own. A class
with the same name, options and version then takes its place here; only workers build the real one.
"""

import dataclasses
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from synthbench.blocks import Block
from synthbench.contract.trial import REGISTRIES, Trial
from synthbench.errors import ContractError
from synthbench.knobs import knob, knobs_of
from synthbench.mechanisms import Attention, Mechanism
from synthbench.positions import PositionEncoding
from synthbench.registry import code_hash, set_code_hash

Name = tuple[str, str]
"""Kind and name of a component: ``("mechanism", "my-idea")``."""

FACTS = ("name", "label", "family", "source", "complexity", "rotates")
"""Class variables that are taken over."""

_BASES = {base.__name__: base for base in (Attention, Mechanism, Block, PositionEncoding)}
_TYPES = {kind.__name__: kind for kind in (bool, int, float, str)}


@contextmanager
def standing_in(names: Collection[Name], trial: Trial) -> Iterator[None]:
    """Let stand-ins be found in the registries; they are taken out again at the end.

    Args:
        names: Components that do not come with synthbench. One that this process has loaded already, or that no plugin
            has, gets no stand-in.
        trial: Its process has the plugins.
    """
    wanted = [
        (kind, name)
        for kind, name in dict.fromkeys(names)
        if not any(unit.name == name for unit in REGISTRIES[kind].registered())
    ]
    described = trial.attempt("a component", describe, wanted) if wanted else []
    units: dict[Name, type[Any]] = {}
    try:
        for (kind, name), facts in zip(wanted, described, strict=True):
            if facts is not None:
                unit = _stand_in(kind, name, facts)
                REGISTRIES[kind].register(unit)
                units[kind, name] = unit
        yield
    finally:
        for (kind, _), unit in units.items():
            REGISTRIES[kind].withdraw(unit)


def existing(kind: str, names: Sequence[str]) -> list[str]:
    """Those of some names that components have; for the process that has the plugins."""
    return [name for name in names if name in REGISTRIES[kind]]


def describe(names: Sequence[Name]) -> list[str | None]:
    """What a stand-in needs to know of some components, a JSON object each; None for one that does not exist.

    For the process that has them.
    """
    return [json.dumps(_facts(REGISTRIES[kind][name])) if name in REGISTRIES[kind] else None for kind, name in names]


def _facts(unit: type[Any]) -> dict[str, Any]:
    options = [{**dataclasses.asdict(option), "type": option.type.__name__} for option in knobs_of(unit).values()]
    return {
        "base": next(base.__name__ for base in unit.__mro__ if _BASES.get(base.__name__) is base),
        "module": unit.__module__,
        "class": {name: getattr(unit, name) for name in FACTS if hasattr(unit, name)},
        "version": vars(unit).get("version"),
        "code_hash": code_hash(unit),
        "options": options,
    }


def _stand_in(kind: str, name: str, text: str) -> type[Any]:
    """The class that takes a component's place.

    Raises:
        ContractError: If what its process says of it makes none.
    """
    try:
        unit = _made_of(json.loads(text))
    except (ValueError, TypeError, KeyError) as problem:
        raise ContractError(f"{kind} {name!r} is described by what is no description: {problem!r}"[:300]) from None
    if unit.name != name:
        raise ContractError(f"{kind} {name!r} says that it is called {unit.name!r}"[:300])
    return unit


def _made_of(facts: dict[str, Any]) -> type[Any]:
    base: Any = _BASES[facts["base"]]
    version = {} if facts["version"] is None else {"version": facts["version"]}
    fields = [
        (
            option["name"],
            Literal[tuple(option["choices"])] if option["choices"] else _TYPES[option["type"]],
            knob(
                option["default"],
                option["meaning"],
                low=option["low"],
                high=option["high"],
                absent=option["absent"],
            ),
        )
        for option in facts["options"]
    ]
    unit = dataclasses.make_dataclass(
        "StandIn",
        fields,
        bases=(base,),
        # It is built for its options and never called: there is nothing where an author has to write something.
        namespace=dict.fromkeys(base.__abstractmethods__) | facts["class"] | version | {"__module__": facts["module"]},
        eq=False,
        repr=False,
        kw_only=True,
    )
    set_code_hash(unit, facts["code_hash"])
    return unit
