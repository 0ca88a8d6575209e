"""Foreign components: tasks, mechanisms and so on from other packages, files, modules or notebooks.

A package declares its components as entry points, ``name = "module:Class"``, in a group such as
``synthbench.mechanisms``. The components' full names, ``distribution/name``, are read from the package's metadata.
Names without a slash belong to synthbench, to files that the user names, and to notebooks. Using a component imports
its module, which runs the package's code.

A file or module is loaded, and its code run, if ``--plugin`` names it or the current folder's ``synthbench.toml`` lists
it::

    plugins = ["my_idea.py"]
"""

import hashlib
import importlib
import importlib.metadata
import inspect
import os
import re
import signal
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from synthbench.errors import ContractError, SynthbenchError, UnknownName, UsageError

REGISTRIES: list[Any] = []
"""Every :class:`synthbench.registry.Registry` of this process; each registry adds itself."""

while_imported: Callable[[], AbstractContextManager[None]] = nullcontext
"""Makes the context in which plugins are imported; :mod:`synthbench.process` sets it, to restore changed settings.

Otherwise, the first job of a worker would run with other settings than the next one, and a relative path would name a
file in another folder."""

GROUPS = ("tasks", "mechanisms", "positions", "blocks", "suites")
SWITCH = "SYNTHBENCH_PLUGINS"
"""Environment variable; ``off`` hides the components of all packages and the plugins of the working folder."""

STANDS_FOR = "_synthbench_unit"
"""Name of the attribute in which a plain ``nn.Module`` class keeps the mechanism made from the class. If an entry point
names the class, this mechanism is loaded."""

BARE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Pattern of a bare name, one without a distribution."""
_UNIT = rf"{BARE_NAME.pattern}(/{BARE_NAME.pattern})?"
NAME = re.compile(rf"{_UNIT}(\+{_UNIT})*")
"""Pattern of a component's name, with or without a distribution, or of several such names joined by ``+`` (one per
layer)."""


@dataclass(frozen=True)
class Offer:
    """A component that a package declares in its metadata, and that is imported only when it is used."""

    name: str
    """``distribution/name``."""
    value: str
    """``module:Class``."""
    fault: str | None = None
    """Reason why the component cannot be used, found in the package's metadata alone; None if there is none."""

    def load(self) -> object:
        """Import the module and return the declared component.

        Raises:
            ContractError: If the import fails with any exception; the message gives the reason.
        """
        if self.fault is not None:
            raise ContractError(f"{self.name!r} is broken: {self.fault}")
        try:
            with while_imported():
                found = importlib.metadata.EntryPoint(self.name, self.value, "").load()
        except BaseException as problem:
            raise_interrupt(problem)
            raise ContractError(f"{self.name!r} is broken: {reason(problem)}") from problem
        return vars(found).get(STANDS_FOR, found) if isinstance(found, type) else found


def is_enabled() -> bool:
    """Return True if plugins of installed packages and of the working folder are used, which is the default.

    Raises:
        UsageError: If the environment variable ``SYNTHBENCH_PLUGINS`` is neither ``on`` nor ``off``.
    """
    value = os.environ.get(SWITCH, "on")
    if value not in ("on", "off"):
        raise UsageError(f"{SWITCH} is {value!r}; allowed: on, off")
    return value == "on"


def offers(group: str) -> dict[str, Offer]:
    """Return the components that installed packages declare in a group such as ``mechanisms``, sorted by name."""
    return _offers(group) if is_enabled() else {}


def package_of(module: str) -> str | None:
    """Return the name of the installed distribution to which a component's module belongs; None if there is none.

    Only distributions that declare components as entry points are found, even if plugins are switched off.
    """
    if module.partition(".")[0] == "synthbench":
        return None
    return _distributions().get(module.partition(".")[0])


def reason(problem: BaseException) -> str:
    """Describe an exception in one line, its type first."""
    text = " ".join(f"{type(problem).__name__}: {text_of(problem)}".split()).removesuffix(":")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def text_of(problem: BaseException) -> str:
    """Return the message of an exception; foreign code may define an exception whose ``__str__`` fails."""
    try:
        return str(problem)
    except BaseException as another:  # noqa: BLE001
        raise_interrupt(another)
        return f"its message cannot be read, as __str__ raises {type(another).__name__}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, as opposed to a ``KeyboardInterrupt`` that foreign code raises by itself."""


def raise_interrupt(problem: BaseException) -> None:
    """Raise ``problem`` again if it is the user's Ctrl-C; otherwise, do nothing.

    While this package handles Ctrl-C, the user's Ctrl-C is an :class:`Interrupted`. A plain ``KeyboardInterrupt`` then
    comes from foreign code, and is not raised again. With any other handler of Ctrl-C, every ``KeyboardInterrupt`` is
    raised again.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_ours = handler == signal.SIG_IGN or str(getattr(handler, "__module__", "")).startswith("synthbench.")
    if isinstance(problem, Interrupted if is_ours else KeyboardInterrupt):
        raise problem


def _entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=f"synthbench.{group}"))


def _distribution_name(point: importlib.metadata.EntryPoint) -> str:
    """Return the distribution's name in lower case, with each series of ``-``, ``_``, ``.`` replaced by a hyphen."""
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
        found[name] = Offer(name, point.value, fault)
    return dict(sorted(found.items()))


@lru_cache
def _distributions() -> dict[str, str]:
    points = [point for group in GROUPS for point in _entry_points(group)]
    return {point.module.partition(".")[0]: _distribution_name(point) for point in points if point.dist}


# Files and modules.

SETTINGS = "synthbench.toml"
"""Name of the file in a working folder that lists the plugins to load there."""

_loaded: dict[str, str] = {}
"""Hash of the content of each loaded file, by module name, so that an unchanged file is not run twice."""


def resolved(plugin: str) -> str:
    """Return a plugin's name in a form that is valid in any working folder: a file's absolute path, or a module's name.

    Raises:
        UsageError: If the file does not exist, or if ``plugin`` is neither a file that ends in ``.py`` nor a valid
            module name.
    """
    if plugin.endswith(".py"):
        path = Path(plugin).absolute()
        if not path.is_file():
            raise no_file("plugin file", plugin)
        return os.fspath(path)
    if not all(part.isidentifier() for part in plugin.split(".")):
        raise UsageError(f"plugin is {plugin!r}; allowed: a file that ends in .py, or the name of a module")
    return plugin


def no_file(kind: str, name: str) -> UsageError:
    """Build the error for a name that is not a plain file; the error suggests a similar name in the same folder."""
    path = Path(name).absolute()
    if path.exists():
        return UsageError(f"{kind} {name!r} is no plain file")
    if not path.parent.is_dir():
        return UsageError(f"no {kind} {name!r}: there is no folder {os.fspath(Path(name).parent)!r}")
    nearest = get_close_matches(path.name, [other.name for other in path.parent.glob(f"*{path.suffix}")], n=1)
    return UsageError(f"no {kind} {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))


def settings_in(path: Path) -> dict[str, Any]:
    """Read a folder's settings file, ``synthbench.toml``.

    Raises:
        UsageError: If the file cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise UsageError(f"{path} cannot be read: {problem}") from None


def of_folder(folder: Path) -> list[str]:
    """List the plugins that a folder's ``synthbench.toml`` names, in the form that :func:`resolved` returns.

    The list is empty if the file is missing, or if plugins are switched off.

    Raises:
        UnknownName: If the file has an unknown key.
        UsageError: If the file cannot be read, or if it names a plugin file that does not exist.
    """
    path = folder / SETTINGS
    if not is_enabled() or not path.exists():
        return []
    settings = settings_in(path)
    for key in settings:
        if key != "plugins":
            raise UnknownName(f"key in {SETTINGS}", key, ["plugins"])
    plugins = settings.get("plugins", [])
    if not isinstance(plugins, list) or not all(isinstance(plugin, str) for plugin in plugins):
        raise UsageError(f"{SETTINGS}: plugins is {plugins!r}; allowed: a list of files and modules")
    try:
        return [resolved(os.fspath(folder / plugin) if plugin.endswith(".py") else plugin) for plugin in plugins]
    except UsageError as problem:
        raise UsageError(f"{path}: {problem}") from None


def named(given: Sequence[str] | None) -> list[str]:
    """List the plugins in the current folder's ``synthbench.toml``, then the ``given`` plugins of the command line.

    Raises:
        UsageError: If a plugin file does not exist, or if ``synthbench.toml`` is malformed.
    """
    return [*of_folder(Path.cwd()), *map(resolved, given or [])]


def file_of(target: str) -> list[str]:
    """Return a list with the path of the plugin file ``target``; the list is empty if ``target`` is a component's name.

    ``target`` is the argument of ``synthbench check``.

    Raises:
        UsageError: If the file does not exist.
    """
    return [resolved(target)] if target.endswith(".py") else []


def load(plugins: Sequence[str]) -> None:
    """Import plugins, which registers their components; a file that is already loaded is run again only if it changed.

    Args:
        plugins: Paths of plugin files, and names of Python modules.

    Raises:
        UsageError: If a file or module does not exist, or if a plugin raises a ``UsageError``, for example because two
            components have the same name.
        ContractError: If a plugin raises any other exception, or if it registers nothing.
    """
    for name in dict.fromkeys(map(resolved, plugins)):
        try:
            with while_imported():
                if name.endswith(".py"):
                    _run_file(name)
                else:
                    importlib.import_module(name)
        except UsageError:
            raise
        except BaseException as problem:
            raise_interrupt(problem)
            if isinstance(problem, ModuleNotFoundError) and f"{name}.".startswith(f"{problem.name}."):
                raise UsageError(
                    f"no module {name!r} for a plugin; allowed: one that Python finds, or a file"
                ) from None
            line = last_line(problem, {name}).rpartition(":")[2]  # none if the plugin is no file
            where = f" (line {line})" if line else ""
            raise ContractError(f"plugin {name!r} is broken: {reason(problem)}{where}") from problem
        if not components_of(module_of(name)):
            raise ContractError(f"plugin {name!r} registers nothing; a class needs @mechanism, @task or the like")


def components_of(module: str) -> list[tuple[str, str]]:
    """List the kind and name of every component that a module registered."""
    return [(registry.kind, name) for registry in REGISTRIES for name in registry.registered_by(module)]


def needed_for(modules: Collection[str], plugins: Sequence[str]) -> list[str]:
    """List those ``plugins`` that must be loaded before the components defined in ``modules`` can be used.

    Modules of installed packages need no plugin, because they are imported when a component is used. If any other of
    the ``modules`` belongs to no plugin, all plugins are listed, because each of them may import it.
    """
    of_module = {
        module: [plugin for plugin in plugins if f"{module}.".startswith(f"{module_of(plugin)}.")]
        for module in modules
        if package_of(module) is None
    }
    if not all(of_module.values()):
        return list(plugins)
    return [plugin for plugin in plugins if any(plugin in found for found in of_module.values())]


def loaded() -> list[str]:
    """List the origins (see :func:`origin_of`) of the registered components that do not come with synthbench."""
    units = (unit for registry in REGISTRIES for unit in registry.registered())
    return sorted({origin for unit in units if (origin := origin_of(unit)) != BUILT_IN})


def module_of(plugin: str) -> str:
    """Return the module name under which a resolved plugin is loaded; for a file, it contains a hash of the path."""
    if not plugin.endswith(".py"):
        return plugin
    return f"synthbench_plugin_{Path(plugin).stem}_{hashlib.sha256(plugin.encode()).hexdigest()[:8]}"


def hint_for(name: str) -> str:
    """Return a hint for the error ``no mechanism called 'x'``; empty unless the current folder has a file ``x.py``."""
    # Not Path.is_file, which raises for a name that is too long for a file.
    is_there = name.isidentifier() and os.path.isfile(f"{name}.py")  # noqa: PTH113
    return f"; there is a file {name}.py: --plugin {name}.py loads it" if is_there else ""


def is_loaded(plugin: str) -> bool:
    """Tell whether this process has loaded a resolved plugin; a file that has changed since then does not count."""
    if plugin.endswith(".py"):
        return _loaded.get(module_of(plugin)) == hashlib.sha256(_content(plugin)).hexdigest()
    return plugin in sys.modules


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise UsageError(f"plugin file {file!r} cannot be read: {problem.strerror}") from None


def _run_file(file: str) -> None:
    """Run a plugin file as a module, unless its present content has already been run."""
    name, content = module_of(file), _content(file)
    digest = hashlib.sha256(content).hexdigest()
    if _loaded.get(name) == digest:
        return
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # dataclasses look up their module while it is loaded
    try:
        # Not by an import, which would use old bytecode if the file was edited within the same second.
        exec(compile(content, file, "exec"), vars(module))  # noqa: S102 - the user named the file
    except BaseException:
        del sys.modules[name]
        raise
    _loaded[name] = digest


# The origin of a component, and the file and line of its code for messages.

BUILT_IN = "builtin"
"""The origin of a component that comes with synthbench."""

LONGEST = 300
"""Limit on the characters shown of an exception's message."""

OURS = frozenset({"synthbench", "torch", "builtins", "abc"})
"""Top-level modules whose lines are never shown to an author as the place of an error."""


def place_of(unit: type) -> str:
    """Return the file and line where a class is defined, as in ``my_idea.py:12``.

    The text is empty if the class has no file, or if it comes from synthbench, PyTorch or Python's builtins.
    """
    author_class = written(unit)
    if _is_ours(author_class):
        return ""
    try:
        file, line = inspect.getfile(author_class), inspect.getsourcelines(author_class)[1]
    except (OSError, TypeError):
        return ""
    return f"{Path(file).name}:{line}"


def raised_at(problem: BaseException, unit: type) -> str:
    """Return the innermost traceback line in the files of a class and its bases, ``my_idea.py:12``; empty if none."""
    modules = [sys.modules.get(one.__module__) for one in written(unit).__mro__ if not _is_ours(one)]
    return last_line(problem, {file for module in modules if (file := getattr(module, "__file__", None))})


def last_line(problem: BaseException, files: set[str]) -> str:
    """Return the innermost traceback line that lies in one of ``files``, as in ``my_idea.py:12``; empty if none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(problem.__traceback__)]
    inside = [f"{Path(file).name}:{line}" for file, line in frames if file in files]
    return inside[-1] if inside else ""


def described(problem: BaseException, unit: type) -> str:
    """Describe an exception in one line: type, message, and the line of :func:`raised_at` or else :func:`place_of`."""
    place = raised_at(problem, unit) or place_of(unit)
    return reason(problem) + (f" ({place})" if place else "")


@contextmanager
def blamed(what: str, unit: type, hint: Callable[[BaseException], str] = lambda _problem: "") -> Iterator[None]:
    """Turn an exception of foreign code in the ``with`` block into a one-line error that says what has failed.

    Args:
        what: What fails, such as ``mechanism 'x' cannot be built``.
        unit: The component's class, whose line the error names.
        hint: Function that returns a text to add at the end of the error.

    Raises:
        ContractError: If the ``with`` block raises any exception that is not a :class:`SynthbenchError`.
    """
    try:
        yield
    except SynthbenchError:
        raise
    except BaseException as problem:
        raise_interrupt(problem)
        raise ContractError(f"{what}: {described(problem, unit)}{hint(problem)}") from problem


def written(unit: type) -> type:
    """Return the class that a component's author wrote: the ``nn.Module`` that ``unit`` was made of, or ``unit``."""
    wrapped = getattr(unit, "module_class", unit)
    return wrapped if isinstance(wrapped, type) else unit


def _is_ours(unit: type) -> bool:
    return unit.__module__.partition(".")[0] in OURS


def is_built_in(unit: type[Any]) -> bool:
    """Tell whether a component comes with synthbench."""
    return unit.__module__.partition(".")[0] == "synthbench"


_distributions_of_modules = cache(importlib.metadata.packages_distributions)


def origin_of(unit: type[Any]) -> str:
    """Return a component's origin: ``builtin``, ``distribution==version``, a file's name, or ``notebook``."""
    if is_built_in(unit):
        return BUILT_IN
    for distribution in _distributions_of_modules().get(unit.__module__.partition(".")[0], []):
        return f"{distribution}=={importlib.metadata.version(distribution)}"
    try:
        return Path(inspect.getfile(unit)).name
    except (OSError, TypeError):
        return "notebook"
