"""Find other installed packages that own files of ``synthbench``.

The distribution ``synthbench-eval`` of another project also installs a package and a command named ``synthbench``. If
pip installs both distributions, the one installed later silently overwrites files of the other. So every command first
checks whether ``synthbench/__init__.py`` has been overwritten.
"""

from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

import synthbench

DISTRIBUTION = "synthbench-attention"


def is_overwritten() -> bool:
    """Tell whether another package has overwritten the file ``synthbench/__init__.py`` of this project."""
    return getattr(synthbench, "DISTRIBUTION", None) != DISTRIBUTION


def foreign(installed: Iterable[Distribution] | None = None) -> list[str]:
    """List the other installed distributions (name and version) that contain ``synthbench/__init__.py``.

    Args:
        installed: Distributions to examine; all distributions of this environment if None.
    """
    return sorted(
        f"{each.name} {each.version}"
        for each in (distributions() if installed is None else installed)
        if each.name != DISTRIBUTION and any(str(file) == "synthbench/__init__.py" for file in each.files or ())
    )


def conflict() -> str:
    """Return one line that names the conflicting package and the remedy, or an empty text if there is no conflict."""
    others = foreign()
    if not others and not is_overwritten():
        return ""
    names = " and ".join(others) or "another package"
    return (
        f"{names} installs files under the same name, synthbench, and one package has overwritten the other; give each "
        f"an environment of its own, then install ours again: pip install --force-reinstall --no-deps {DISTRIBUTION}"
    )
