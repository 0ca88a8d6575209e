"""Find installed packages that own files of ``synthbench``.

Another project's distribution, ``synthbench-eval``, installs a package and a command of the same name. Of two such
packages, pip overwrites one's files with the other's and reports success, so the command line asks first.
"""

from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

import synthbench

DISTRIBUTION = "synthbench-attention"


def is_overwritten() -> bool:
    """Tell whether another package's ``synthbench/__init__.py`` replaced ours, which names its distribution."""
    return getattr(synthbench, "DISTRIBUTION", None) != DISTRIBUTION


def foreign(installed: Iterable[Distribution] | None = None) -> list[str]:
    """List names and versions of other installed distributions that have files in ``synthbench/``.

    Args:
        installed: The distributions to look at; all of this environment if None.
    """
    return sorted(
        f"{each.name} {each.version}"
        for each in (distributions() if installed is None else installed)
        if each.name != DISTRIBUTION and any(str(file) == "synthbench/__init__.py" for file in each.files or ())
    )


def conflict() -> str:
    """Name the package that is in the way, and the remedy, in one line; empty if none is."""
    others = foreign()
    if not others and not is_overwritten():
        return ""
    names = " and ".join(others) or "another package"
    return (
        f"{names} installs files under the same name, synthbench, and one package has overwritten the other; give each "
        f"an environment of its own, then install ours again: pip install --force-reinstall --no-deps {DISTRIBUTION}"
    )
