"""Write a working plugin: one file with its test, or a package."""

import keyword
import os
import re
import tomllib
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from synthbench.errors import UnknownName, UsageError
from synthbench.plugins import SETTINGS, settings_in
from synthbench.suites import suite_names
from synthbench.tasks import TASKS

GROUPS = {"mech": "mechanisms", "task": "tasks"}
"""Entry-point group of each kind of plugin; the kind is the first word after ``synthbench new``."""

NEXT_STEPS = (
    "synthbench check {name}",
    "synthbench run --suite ./{name}.toml",
    "synthbench report --suite {name}",
    "synthbench run --suite smoke --task {name}",
)
"""Commands to suggest after writing the file of a task."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_LOAD = """from synthbench.plugins import load

load([str(Path(__file__).with_name("{name}.py"))])
"""


def write(kind: str, name: str, folder: Path, *, is_package: bool, is_module: bool = False) -> list[Path]:
    """Write the template of a plugin: a file, listed in the folder's ``synthbench.toml``, or a package in a subfolder.

    Args:
        kind: ``mech`` or ``task``.
        name: Name of the component and of its Python module.
        folder: An existing folder.
        is_package: True to write an installable package (a folder with ``pyproject.toml``) instead of a single file.
        is_module: True to write the mechanism as a plain ``nn.Module``.

    Returns:
        The files that were written or changed.

    Raises:
        UsageError: If the kind or the name is not allowed, if the name is taken, or if a file already exists. Nothing
            is written in these cases.
    """
    if kind not in GROUPS:
        raise UnknownName("kind of plugin", kind, GROUPS)
    if is_module and kind != "mech":
        raise UsageError(f"--module is given with {kind!r}; allowed: mech")
    if keyword.iskeyword(name):
        raise UsageError(f"name is {name!r}, a keyword of Python, which no module can be called; choose another")
    if not _NAME.fullmatch(name):
        raise UsageError(f"name is {name!r}; allowed: lower-case letters, digits and '_', beginning with a letter")
    if not is_package and (owner := _owner(kind, name, folder)):
        raise UsageError(f"name is {name!r}, which belongs to {owner}; choose another")
    template = "module" if is_module else kind
    contents = _package(kind, name, folder, template) if is_package else _file(kind, name, folder, template)
    for path in contents:
        if path.exists() and path.name != SETTINGS:
            raise UsageError(f"{path} exists already; choose another name, or remove it")
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(contents)


def _owner(kind: str, name: str, folder: Path) -> str | None:
    """Describe what already has a name (a component, a suite or a module); None if the name is free."""
    from synthbench.mechanisms import MECHANISMS

    if name == "synthbench":  # its file would be imported in place of the package
        return "the package itself"
    if name in (TASKS if kind == "task" else MECHANISMS):
        return f"a built-in {kind}"
    if kind == "task" and name in suite_names():
        return "a suite"
    # Programs that run in the folder would import a file of this name in place of the module.
    spec = find_spec(name)
    is_own = spec is None or spec.origin is None or Path(spec.origin).parent == folder.resolve()
    return None if is_own else "a module that Python finds already"


def _file(kind: str, name: str, folder: Path, template: str) -> dict[Path, str]:
    given = {"unit": name, "preamble": "from pathlib import Path\n\n", "load": _LOAD.format(name=name)}
    suite = {folder / f"{name}.toml": _filled("suite.toml", kind, name)} if kind == "task" else {}
    return {
        folder / f"{name}.py": _filled(f"{template}.py", kind, name),
        folder / f"test_{name}.py": _filled(f"test_{template}.py", kind, name, **given),
        **suite,
        folder / SETTINGS: _settings(folder, f"{name}.py"),
    }


def _package(kind: str, name: str, folder: Path, template: str) -> dict[Path, str]:
    distribution = name.replace("_", "-").strip("-")
    root = folder / distribution
    given = {"unit": f"{distribution}/{name}", "preamble": "", "load": ""}
    return {
        root / "pyproject.toml": _filled("pyproject.toml", kind, name, distribution=distribution),
        root / f"{name}.py": _filled(f"{template}.py", kind, name),
        root / f"test_{name}.py": _filled(f"test_{template}.py", kind, name, **given),
    }


def _filled(template: str, kind: str, name: str, **given: str) -> str:
    text = files("synthbench.cli").joinpath("templates", f"{template}.txt").read_text(encoding="utf-8")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    return Template(text).substitute(
        name=name, class_name=class_name, kind="mechanism" if kind == "mech" else kind, group=GROUPS[kind], **given
    )


def _settings(folder: Path, plugin: str) -> str:
    """Return the text of a folder's ``synthbench.toml`` with a plugin added and the rest unchanged.

    Raises:
        UsageError: If the list of plugins in the file cannot be extended.
    """
    path = folder / SETTINGS
    if not path.exists():
        return (
            f'# Plugins that synthbench loads in this folder. They are run with your rights.\nplugins = ["{plugin}"]\n'
        )
    named = settings_in(path).get("plugins", [])
    before = path.read_text(encoding="utf-8")
    after = re.sub(r"^plugins\s*=\s*\[", f'plugins = ["{plugin}", ', before, count=1, flags=re.MULTILINE)
    if not isinstance(named, list) or tomllib.loads(after).get("plugins") != [plugin, *named]:
        raise UsageError(f'{os.fspath(path)} has no list of plugins that can be extended; add "{plugin}" to it first')
    return after
