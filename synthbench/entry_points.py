"""What installed packages offer: read from their metadata, imported only when it is chosen.

A package declares its units as entry points, ``name = "module:Class"`` in a group such as ``synthbench.mechanisms``.
They are known as ``distribution/name``: names without a slash belong to what comes with synthbench, to files that the
user names, and to notebooks. Whoever chooses a unit of a package runs that package's code.
"""

import importlib.metadata
import os
import re
from dataclasses import dataclass
from functools import lru_cache

from synthbench.errors import ContractError, UsageError

GROUPS = ("tasks", "mechanisms", "positions", "blocks", "suites")
SWITCH = "SYNTHBENCH_PLUGINS"
"""Environment variable; ``off`` hides every package and the plugins of the working folder."""

STANDS_FOR = "_synthbench_unit"
"""Attribute of a plain module's class: the mechanism that was made of it, which an entry point means by the class."""

BARE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""A bare name."""
_UNIT = rf"{BARE_NAME.pattern}(/{BARE_NAME.pattern})?"
NAME = re.compile(rf"{_UNIT}(\+{_UNIT})*")
"""A bare name, that of a package's unit, or a pattern of such names for layers."""


@dataclass(frozen=True)
class Offer:
    """A unit that a package declares; nothing of it is imported yet."""

    name: str
    """``distribution/name``."""
    value: str
    """``module:Class``."""
    origin: str
    """``distribution==version``."""
    fault: str | None = None
    """Why it cannot be used, where the metadata alone say so."""

    def load(self) -> object:
        """Import the module and take the object from it.

        Raises:
            ContractError: If that fails, whatever the package raises; the message is the reason.
        """
        if self.fault is not None:
            raise ContractError(f"{self.name!r} is broken: {self.fault}")
        try:
            found = importlib.metadata.EntryPoint(self.name, self.value, "").load()
        except (Exception, SystemExit) as problem:  # foreign code may raise anything
            raise ContractError(f"{self.name!r} is broken: {reason(problem)}") from problem
        return vars(found).get(STANDS_FOR, found) if isinstance(found, type) else found


def is_enabled() -> bool:
    """Whether packages and the working folder may offer plugins.

    Raises:
        UsageError: If the switch has an unknown value.
    """
    value = os.environ.get(SWITCH, "on")
    if value not in ("on", "off"):
        raise UsageError(f"{SWITCH} is {value!r}; allowed: on, off")
    return value == "on"


def offers(group: str) -> dict[str, Offer]:
    """What installed packages offer of one group, by name, in alphabetical order."""
    return _offers(group) if is_enabled() else {}


def package_of(module: str) -> str | None:
    """The distribution whose entry points name something in the package that a module belongs to; None if none does.

    The switch changes nothing here: a unit has one name, however it was imported.
    """
    if module.partition(".")[0] == "synthbench":
        return None
    return _distributions().get(module.partition(".")[0])


def reason(problem: BaseException) -> str:
    """An exception in one line, its type first."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}"[:300] if text else type(problem).__name__


def _entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=f"synthbench.{group}"))


def _distribution_name(point: importlib.metadata.EntryPoint) -> str:
    """As the index writes it: lower case, runs of other signs as one hyphen."""
    return re.sub(r"[-_.]+", "-", point.dist.name if point.dist else "").lower()


@lru_cache
def _offers(group: str) -> dict[str, Offer]:
    found: dict[str, Offer] = {}
    for point in _entry_points(group):
        name, fault = f"{_distribution_name(point)}/{point.name}", None
        if not NAME.fullmatch(name):
            name = ascii(name)  # it is printed
            fault = f"its name is {point.name!r}; allowed: lower-case letters, digits, '.', '_' and '-'"
        elif name in found:
            fault = f"it is declared twice, as {found[name].value} and as {point.value}"
        origin = f"{point.dist.name}=={point.dist.version}" if point.dist else "unknown"
        found[name] = Offer(name, point.value, origin, fault)
    return dict(sorted(found.items()))


@lru_cache
def _distributions() -> dict[str, str]:
    points = [point for group in GROUPS for point in _entry_points(group)]
    return {point.module.partition(".")[0]: _distribution_name(point) for point in points if point.dist}
