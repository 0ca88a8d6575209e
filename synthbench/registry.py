"""One registry for every kind of unit: tasks, mechanisms, position encodings, blocks.

A built-in unit is registered by adding its file: the room is imported file by file the first time that somebody asks.
"""

import ast
import hashlib
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from synthbench.errors import UnknownName, UsageError

T = TypeVar("T")

_HASHES: WeakKeyDictionary[type[Any], str] = WeakKeyDictionary()

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Registry(Mapping[str, type[T]]):
    """Names of one kind of unit, each bound to its class.

    Args:
        kind: What the units are, in the singular, for messages: ``task``.
        room: The package whose modules register the built-in units when they are imported.
    """

    def __init__(self, kind: str, room: str) -> None:
        """Begin empty; the room is imported on first use."""
        self.kind = kind
        self._room = room
        self._units: dict[str, type[T]] = {}
        self._is_loaded = False

    def register(self, unit: type[Any]) -> None:
        """Bind a class to the ``name`` that it declares.

        Raises:
            UsageError: If the name is malformed or belongs to another class.
        """
        name = getattr(unit, "name", None)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise UsageError(
                f"{self.kind} {unit.__qualname__} has the name {name!r}; "
                "allowed: lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit"
            )
        known = self._units.setdefault(name, unit)
        if known is not unit and (known.__module__, known.__qualname__) != (unit.__module__, unit.__qualname__):
            raise UsageError(
                f"two {self.kind}s are called {name!r}: "
                f"{known.__module__}.{known.__qualname__} and {unit.__module__}.{unit.__qualname__}"
            )
        self._units[name] = unit

    def __getitem__(self, name: str) -> type[T]:
        """The class called ``name``.

        Raises:
            UnknownName: If there is none; the message names the nearest.
        """
        self._load()
        try:
            return self._units[name]
        except KeyError:
            raise UnknownName(self.kind, name, self._units) from None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in alphabetical order."""
        self._load()
        return iter(sorted(self._units))

    def __len__(self) -> int:
        """Count the registered units."""
        self._load()
        return len(self._units)

    def __contains__(self, name: object) -> bool:
        """Tell whether a unit has this name."""
        self._load()
        return name in self._units

    def _load(self) -> None:
        if self._is_loaded:
            return
        package = importlib.import_module(self._room)
        for module in pkgutil.walk_packages(package.__path__, prefix=f"{self._room}."):
            if not module.name.rpartition(".")[2].startswith("_"):
                importlib.import_module(module.name)
        self._is_loaded = True


def code_hash(unit: type[Any]) -> str:
    """Hash of a class's code in 12 hex digits; comments, docstrings and layout do not count.

    What the class inherits does not count either: a change in a base that changes numbers bumps the unit's ``version``.
    """
    if unit in _HASHES:
        return _HASHES[unit]
    tree = ast.parse(textwrap.dedent(inspect.getsource(unit)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    _HASHES[unit] = hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:12]
    return _HASHES[unit]


def version_of(unit: type[Any]) -> str:
    """A unit's declared version and the hash of its code: ``1+3f9a0c11d2e4``."""
    return f"{getattr(unit, 'version', 1)}+{code_hash(unit)}"


def origin_of(unit: type[Any]) -> str:
    """Where a unit comes from: ``builtin``, ``distribution==version``, or the name of a file."""
    top = unit.__module__.partition(".")[0]
    if top == "synthbench":
        return "builtin"
    for distribution in packages_distributions().get(top, []):
        return f"{distribution}=={version(distribution)}"
    return Path(inspect.getfile(unit)).name
