"""Which installed packages own the files of ``synthbench``.

Another project's distribution, ``synthbench-eval``, installs a package and a command of the same name. pip overwrites
files of one with those of the other and reports success, so the command line asks first.
"""

from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

import synthbench

DISTRIBUTION = "synthbench-attention"


def is_overwritten() -> bool:
    """Whether another package's ``synthbench/__init__.py`` stands in place of ours, which names its distribution."""
    return getattr(synthbench, "DISTRIBUTION", None) != DISTRIBUTION


def foreign(installed: Iterable[Distribution] | None = None) -> list[str]:
    """Names and versions of other installed distributions that have files in ``synthbench/``.

    Args:
        installed: The distributions to look at; all of this environment if left out.
    """
    return sorted(
        f"{each.name} {each.version}"
        for each in (distributions() if installed is None else installed)
        if each.name != DISTRIBUTION and any(str(file) == "synthbench/__init__.py" for file in each.files or ())
    )


def conflict() -> str:
    """One line that says which package is in the way, and what to do; empty if none is."""
    others = foreign()
    if not others and not is_overwritten():
        return ""
    names = " and ".join(others) or "another package"
    return (
        f"{names} installs files under the same name, synthbench, and one package has overwritten the other; give each "
        f"an environment of its own, then install ours again: pip install --force-reinstall --no-deps {DISTRIBUTION}"
    )
