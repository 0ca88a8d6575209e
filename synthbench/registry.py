"""Registries, one for every kind of component: tasks, mechanisms, position encodings, blocks.

To register a built-in component, it is enough to add its file, since all files of the package are imported on first
use. A component of an installed package is listed from the package's metadata and imported when it is first used.
"""

import ast
import hashlib
import importlib
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from synthbench.errors import ContractError, UnknownName, UsageError
from synthbench.options import VALUES, Value, coerce, parse_term, resolve
from synthbench.plugins import (
    BARE_NAME,
    REGISTRIES,
    Offer,
    is_built_in,
    offers,
    origin_of,
    package_of,
    written,
)

T = TypeVar("T")

CONTROL = "control"
"""Family of the mechanisms without learned mixing, whose scores are only shown for comparison."""

NOT_HASHED = frozenset({*sys.stdlib_module_names, "synthbench", "torch"})
"""Top-level modules that no plugin's hash covers; rows record the versions of synthbench and PyTorch instead."""

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of folders for installed packages, whose code is identified by the version of its distribution."""

_HASHES: WeakKeyDictionary[type[Any], str] = WeakKeyDictionary()


class Registry(Mapping[str, type[T]]):
    """Mapping from the names of one kind of component, such as tasks, to their classes.

    Args:
        kind: Name of the kind for messages, in the singular, such as ``task``.
        room: Package whose modules register the built-in components when they are imported, such as
            ``synthbench.tasks``. Other packages declare components in the entry-point group ``synthbench.`` plus the
            last part of this name.
    """

    def __init__(self, kind: str, room: str) -> None:
        """Create an empty registry; the package ``room`` is imported on first use."""
        self.kind = kind
        self._room = room
        self._units: dict[str, type[T]] = {}
        self._faults: dict[str, str] = {}
        self._is_loaded = False
        REGISTRIES.append(self)

    def register(self, unit: type[Any]) -> None:
        """Register a class under its ``name``, or ``distribution/name`` if it comes from an installed plugin package.

        Raises:
            UsageError: If the name or version is malformed, or if the name belongs to another class.
        """
        name = getattr(unit, "name", None)
        package = package_of(unit.__module__)
        bare = name.removeprefix(f"{package}/") if isinstance(name, str) else name
        if not isinstance(bare, str) or not BARE_NAME.fullmatch(bare):
            raise UsageError(
                f"{self.kind} {unit.__qualname__} has the name {name!r}; "
                "allowed: lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit"
            )
        if not unit.__module__.startswith(f"{self._room}."):
            self._load()  # a built-in unit has its name before any other
        number = getattr(unit, "version", 1)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise UsageError(f"{self.kind} {bare!r} has the version {number!r}; allowed: whole numbers from 1")
        name = unit.name = f"{package}/{bare}" if package else bare
        known = self._units.setdefault(name, unit)
        if known is not unit and not _is_reloaded(known, unit):
            raise UsageError(f"two {self.kind}s are called {name!r}: {_full_name(known)} and {_full_name(unit)}")
        self._units[name] = unit

    def __getitem__(self, name: str) -> type[T]:
        """Return the class called ``name``.

        Raises:
            UnknownName: If there is no such component; the message suggests the nearest names.
        """
        self._load()
        if name not in self._units and name in self._offers():
            self._import(self._offers()[name])
        try:
            return self._units[name]
        except KeyError:
            raise UnknownName(self.kind, name, self) from None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in alphabetical order, without importing other packages."""
        self._load()
        return iter(sorted({*self._units, *self._offers()}))

    def __len__(self) -> int:
        """Count the names."""
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        """Tell whether a component has this name, without importing other packages."""
        self._load()
        return name in self._units or name in self._offers()

    def resolve(self, name: str) -> str:
        """Return the registered name of a component, given its name or table label in any spelling.

        If nothing matches, ``name`` is returned unchanged. Installed plugin packages are not imported for the lookup.
        Components of a package that is not imported yet are found by name, but not by label.

        Raises:
            UsageError: If several components match ``name``.
        """
        return name if name in self else resolve(self.kind, name, {known: self._label(known) for known in self})

    def configured(self, term: str) -> tuple[type[T], dict[str, Value]]:
        """Return the class and the option values that a term such as ``slay`` or ``slay:R=3`` stands for.

        Raises:
            UnknownName: If the component or an option does not exist.
            UsageError: If ``term`` is malformed, or if a value has the wrong type or is out of range.
        """
        name, arguments = parse_term(term)
        unit = self[name]
        return unit, coerce(self.kind, unit, arguments)

    def _label(self, name: str) -> str:
        label = getattr(self._units.get(name), "label", None)
        return label if isinstance(label, str) else name

    def broken(self) -> dict[str, str]:
        """Return the error message of each unusable component, by name.

        This imports all packages that declare components.
        """
        self._load()
        faults = {}
        for name, offer in self._offers().items():
            try:
                self._import(offer)
            except ContractError as problem:
                faults[name] = str(problem)
        return faults

    def usable(self) -> list[str]:
        """List the names of all usable components; this imports all packages that declare components."""
        faults = self.broken()
        return [name for name in self if name not in faults]

    def is_built_in(self, name: str) -> bool:
        """Tell whether a component comes with synthbench, without importing other packages."""
        self._load()
        return name in self._units and self._units[name].__module__.startswith(f"{self._room}.")

    def registered(self) -> list[type[T]]:
        """List the classes registered so far, without importing anything."""
        return list(self._units.values())

    def registered_by(self, module: str) -> list[str]:
        """List the components that a module or a package registered, in alphabetical order."""
        return sorted(name for name, unit in self._units.items() if f"{unit.__module__}.".startswith(f"{module}."))

    def _offers(self) -> dict[str, Offer]:
        return offers(self._room.rpartition(".")[2])

    def _import(self, offer: Offer) -> None:
        """Import the module of a component that a package offers; a decorator in the module registers the component.

        Raises:
            ContractError: If the import fails or has failed before, or the module registers no such component.
        """
        if offer.name in self._faults:
            raise ContractError(self._faults[offer.name])
        if offer.name in self._units:
            return
        try:
            found = offer.load()
        except ContractError as problem:
            self._faults[offer.name] = f"{self.kind} {problem}"
            raise ContractError(self._faults[offer.name]) from problem
        if self._units.get(offer.name) is not found:
            self._faults[offer.name] = (
                f"{self.kind} {offer.name!r} is broken: {offer.value} is no {self.kind} that is registered under this "
                "name; the class needs the decorator, and the name that its package declares"
            )
            raise ContractError(self._faults[offer.name])

    def _load(self) -> None:
        if self._is_loaded:
            return
        package = importlib.import_module(self._room)
        for module in pkgutil.walk_packages(package.__path__, prefix=f"{self._room}."):
            if not module.name.rpartition(".")[2].startswith("_"):
                importlib.import_module(module.name)
        self._is_loaded = True


def resolve_among(registries: Sequence[Registry[Any]], name: str) -> str:
    """Find the registered name for a name or label in the first registry that has a match.

    If no registry has a match, return ``name``.
    """
    if any(name in registry for registry in registries):
        return name
    return next((meant for registry in registries if (meant := registry.resolve(name)) in registry), name)


def code_hash(unit: type[Any]) -> str:
    """Hash a component's source code to 12 hex digits; comments, docstrings and layout have no effect.

    For a built-in component, the source of the class is hashed. For any other component, the modules that register it,
    or that define its class or a base class, are hashed. Modules of synthbench, PyTorch and the standard library are
    ignored. For a base class in another installed package, the version of that package is hashed instead.

    Raises:
        UsageError: If the source code cannot be found.
    """
    if unit not in _HASHES:
        _HASHES[unit] = hash_of(unit)
    return _HASHES[unit]


def hash_of(unit: type[Any], *more: str) -> str:
    """Hash a component's source, as in :func:`code_hash`, together with further texts."""
    text = "\n".join([*map(bare_source, _sources(unit)), *more])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def set_code_hash(unit: type[Any], value: str) -> None:
    """Set the result of :func:`code_hash` for a class whose behaviour depends on more than its own source."""
    _HASHES[unit] = value


def bare_source(source: str) -> str:
    """Return Python source with comments, docstrings and layout removed."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _sources(unit: type[Any]) -> list[str]:
    if is_built_in(unit):
        return [inspect.getsource(unit)]
    by_module: dict[str, list[type]] = {}
    for one in dict.fromkeys((*unit.__mro__, *written(unit).__mro__)):
        if one.__module__ == unit.__module__ or one.__module__.partition(".")[0] not in NOT_HASHED:
            by_module.setdefault(one.__module__, []).append(one)
    return [_source(classes, is_own=module == unit.__module__) for module, classes in by_module.items()]


def _source(classes: list[type], *, is_own: bool) -> str:
    """Return the text that :func:`code_hash` hashes for the module in which ``classes`` are defined."""
    module = sys.modules.get(classes[0].__module__)
    if not is_own and INSTALLED & {*Path(getattr(module, "__file__", None) or "").parts}:
        return repr((origin_of(classes[0]),))  # a string alone would be taken for a docstring
    try:
        return inspect.getsource(module or classes[0])
    except (OSError, TypeError):
        return _session_source(classes, vars(module) if module else {})


def _session_source(classes: list[type], names: Mapping[str, Any]) -> str:
    """Return the source of notebook classes, and of every class, function and plain value that they use."""
    # A notebook has no module file, but its cells can be found from the functions in them.
    texts: dict[str, str] = {}
    pending: list[tuple[str, Any]] = [(one.__qualname__, written(one)) for one in classes]
    while pending:
        name, thing = pending.pop()
        thing = inspect.unwrap(thing)
        if isinstance(thing, VALUES):
            texts[name] = repr((name, thing))
        elif name in texts or getattr(thing, "__module__", None) != classes[0].__module__:
            continue
        elif isinstance(thing, type):
            facts = {key: fact for key, fact in vars(thing).items() if isinstance(fact, VALUES) and key[:2] != "__"}
            texts[name] = repr((name, facts))
            pending += [(base.__qualname__, base) for base in thing.__bases__]
            pending += [(f"{name}.{key}", function) for key, function in functions_of(thing).items()]
        elif inspect.isfunction(thing):
            texts[name] = _function_source(name, thing)
            pending += [(other, names[other]) for other in _global_names(texts[name]) if other in names]
    return "\n".join(texts[name] for name in sorted(texts))


def functions_of(unit: type) -> dict[str, Any]:
    """List the functions that a class defines, including those behind properties and class methods."""
    functions = {}
    for name, value in vars(unit).items():
        inner = next((getattr(value, key) for key in ("__func__", "fget", "func") if hasattr(value, key)), value)
        function = inspect.unwrap(inner)
        if inspect.isfunction(function) and function.__code__.co_filename != "<string>":  # not those of a dataclass
            functions[name] = function
    return functions


def _function_source(name: str, function: Any) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise UsageError(f"the source of {name} cannot be found; define it in a file or a notebook") from None
    try:
        ast.parse(text)
    except SyntaxError:  # a lambda comes with half of the statement around it
        return repr((text,))
    return text


def _global_names(source: str) -> set[str]:
    """List the names that a function reads and does not bind itself."""
    nodes = list(ast.walk(ast.parse(source)))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return read - bound - {node.arg for node in nodes if isinstance(node, ast.arg)}


def version_of(unit: type[Any]) -> str:
    """Return a component's version, such as ``2``; it is part of the run ids of all runs with the component.

    If the class of a component from outside synthbench declares no version, the hash of its source is appended:
    ``1+3f9a0c11d2e4``. Every edit of the code then changes the version and the run ids. A version in a base class does
    not prevent this.
    """
    declared = str(getattr(unit, "version", 1))
    return declared if is_built_in(unit) or "version" in vars(unit) else f"{declared}+{code_hash(unit)}"


def _is_reloaded(known: type[Any], unit: type[Any]) -> bool:
    """Tell whether ``unit`` is a new version of ``known``, made by running its file or notebook cell again."""
    if (known.__module__, _full_name(known)) != (unit.__module__, _full_name(unit)):
        return False
    module = sys.modules.get(unit.__module__)
    if module is None or module.__name__ == "__main__" or written(known) is written(unit):
        return True
    is_first_time = module.__spec__ is None or getattr(module.__spec__, "_initializing", False)
    return not (is_first_time and getattr(module, unit.__qualname__, None) is written(known))


def _full_name(unit: type[Any]) -> str:
    return f"{written(unit).__module__}.{written(unit).__qualname__}"
