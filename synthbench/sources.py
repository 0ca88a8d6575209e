"""The papers on which components are based, by key, with their BibTeX entries."""

from collections.abc import Iterable
from importlib.resources import files

AUTHORS = "The synthbench developers"


def of_suite(suite: str, version: str) -> str:
    """Write the BibTeX entry of synthbench, with a note on the suite that was used."""
    return (
        "@software{synthbench,\n"
        f"  author = {{{{{AUTHORS}}}}},\n"
        "  title = {synthbench: synthetic sequence tasks for attention mechanisms},\n"
        "  year = {2026},\n"
        f"  note = {{Suite {suite}, version {version}}},\n"
        "}\n"
    )


def _entries() -> dict[str, str]:
    text = files("synthbench").joinpath("sources.bib").read_text(encoding="utf-8")
    entries = ("@" + entry.strip() for entry in text.split("\n@")[1:])
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}


def describe(key: str) -> str:
    """Return the BibTeX entry of a source, or the key alone if ``sources.bib`` has no entry for it."""
    return _entries().get(key, key)


def bibtex(keys: Iterable[str]) -> str:
    """Return the BibTeX entries of sources in ``sources.bib``, each once, in alphabetical order of their keys."""
    entries = _entries()
    return "\n\n".join(entries[key] for key in sorted(set(keys))) + "\n"
