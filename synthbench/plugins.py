"""Plugins that no package has to install: a file, a module, or those that a working folder names.

A plugin is Python code, and loading it runs it. Nothing here looks for code that nobody named: a plugin is loaded if
``--plugin`` names it, or ``synthbench.toml`` in the current folder does::

    plugins = ["my_idea.py"]
"""

import hashlib
import importlib
import os
import sys
import tomllib
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from synthbench.entry_points import is_enabled, package_of, reason
from synthbench.errors import ContractError, UnknownName, UsageError
from synthbench.places import last_line
from synthbench.registry import BUILT_IN, Registry, origin_of

SETTINGS = "synthbench.toml"
"""The file of a working folder that names its plugins."""

_loaded: dict[str, str] = {}
"""Hash of the content by path: a file that did not change is not run twice."""


def resolved(plugin: str) -> str:
    """What names a plugin in any folder: the absolute path of a file, or the name of a module.

    Raises:
        UsageError: If there is no such file, or the name is neither that of a file nor of a module.
    """
    if plugin.endswith(".py"):
        path = Path(plugin).absolute()
        if not path.is_file():
            others = [other.name for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
            nearest = get_close_matches(path.name, others, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise UsageError(f"no plugin file {plugin!r}{hint}")
        return os.fspath(path)
    if not all(part.isidentifier() for part in plugin.split(".")):
        raise UsageError(f"plugin is {plugin!r}; allowed: a file that ends in .py, or the name of a module")
    return plugin


def of_folder(folder: Path) -> list[str]:
    """The plugins that a working folder names, resolved; none if it has no settings or plugins are switched off.

    Raises:
        UnknownName: If the settings have an unknown key.
        UsageError: If they cannot be read, or name a file that does not exist.
    """
    path = folder / SETTINGS
    if not is_enabled() or not path.exists():
        return []
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise UsageError(f"{path} cannot be read: {problem}") from None
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
    """The plugins of the current folder, then those named on the command line.

    Raises:
        UsageError: If a file does not exist, or the folder's settings are malformed.
    """
    return [*of_folder(Path.cwd()), *map(resolved, given or [])]


def load(plugins: Sequence[str]) -> list[str]:
    """Run plugins, whose decorators register their units; one that is there already and did not change is left alone.

    Args:
        plugins: Files and modules.

    Returns:
        Their names as they hold in any folder and any process.

    Raises:
        UsageError: If there is no such file or module, or two units have one name.
        ContractError: If one cannot be loaded, whatever it raises, or registers nothing.
    """
    names = list(dict.fromkeys(map(resolved, plugins)))
    for name in names:
        module = _load_file(Path(name)) if name.endswith(".py") else _load_module(name)
        if not units_of(module):
            raise ContractError(f"plugin {name!r} registers nothing; a class needs @mechanism, @task or the like")
    return names


def units_of(module: str) -> list[tuple[str, str]]:
    """Kind and name of every unit that a module registered."""
    return [(registry.kind, name) for registry in Registry.all for name in registry.registered_by(module)]


def needed_for(modules: Collection[str], plugins: Sequence[str]) -> list[str]:
    """The plugins that register the units of some modules; all of them where one cannot be told.

    Units of an installed package need none: they are imported when they are asked for.
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
    """Where the units that are registered in this process and do not come with synthbench are from."""
    units = (unit for registry in Registry.all for unit in registry.registered())
    return sorted({origin for unit in units if (origin := origin_of(unit)) != BUILT_IN})


def module_of(plugin: str) -> str:
    """The module under which a resolved plugin is loaded: for a file, its stem and a hash of its path."""
    if not plugin.endswith(".py"):
        return plugin
    return f"synthbench_plugin_{Path(plugin).stem}_{hashlib.sha256(plugin.encode()).hexdigest()[:8]}"


def hint_for(name: str) -> str:
    """What to add to ``no mechanism called ...`` if a file in the current folder has this name."""
    # Not Path.is_file, which raises for a name that is too long for a file.
    is_there = name.isidentifier() and os.path.isfile(f"{name}.py")  # noqa: PTH113
    return f"; there is a file {name}.py: --plugin {name}.py loads it" if is_there else ""


def _load_file(path: Path) -> str:
    name = module_of(os.fspath(path))
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise UsageError(f"plugin file {os.fspath(path)!r} cannot be read: {problem.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    if _loaded.get(name) == digest:
        return name
    module = ModuleType(name)
    module.__file__ = os.fspath(path)
    sys.modules[name] = module  # dataclasses look their module up while it is loaded
    try:
        # Not through an import: that would take bytecode from before an edit within the same second.
        exec(compile(content, path, "exec"), vars(module))  # noqa: S102 - the user named the file
    except UsageError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as problem:  # foreign code may raise anything
        del sys.modules[name]
        raise ContractError(f"plugin {os.fspath(path)!r} is broken: {_located(problem, path)}") from problem
    _loaded[name] = digest
    return name


def _load_module(name: str) -> str:
    try:
        importlib.import_module(name)
    except UsageError:
        raise
    except (Exception, SystemExit) as problem:
        if isinstance(problem, ModuleNotFoundError) and f"{name}.".startswith(f"{problem.name}."):
            raise UsageError(f"no module {name!r} for a plugin; allowed: one that Python finds, or a file") from None
        raise ContractError(f"plugin {name!r} is broken: {reason(problem)}") from problem
    return name


def _located(problem: BaseException, path: Path) -> str:
    """The reason, and the last line of the file that led to it."""
    line = last_line(problem, {os.fspath(path)}).rpartition(":")[2]
    return reason(problem) + (f" (line {line})" if line else "")
