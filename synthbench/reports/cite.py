"""BibTeX of what a table shows."""

from collections.abc import Iterable

from synthbench import sources
from synthbench.errors import UnknownName


def cite(keys: Iterable[str]) -> tuple[str, list[str]]:
    """BibTeX of some sources, and the keys that have no entry: those of plugins, in alphabetical order."""
    all_keys = set(keys)
    known = set(filter(_is_known, all_keys))
    return sources.bibtex(known), sorted(all_keys - known)


def _is_known(key: str) -> bool:
    try:
        sources.bibtex([key])
    except UnknownName:
        return False
    return True
