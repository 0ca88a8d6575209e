"""Make untrusted strings from rows (results of runs) harmless, make anchors from them, and check links.

The templates escape markup; this module handles invisible characters, lengths, URL schemes and equal anchors.
"""

import re
from collections.abc import Hashable, Iterable
from typing import TypeVar
from urllib.parse import urlsplit

from synthbench.reports.render import visible

K = TypeVar("K", bound=Hashable)

LONGEST_NAME = 80
"""Largest number of characters that are printed of a name."""
LONGEST_TEXT = 4000
"""Largest number of characters that are printed of any other text."""

_KEPT = "\n\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"


def plain(text: str, longest: int = LONGEST_TEXT) -> str:
    """Replace invisible characters, except line breaks and spaces, by their code points, and cut a long text."""
    shown = visible(text, keep=_KEPT)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def name(text: str) -> str:
    """Put a name on one line, cut if it is too long."""
    return plain(" ".join(text.split()), LONGEST_NAME) or "(no name)"


def sentence(text: str) -> str:
    """Put a generated sentence that contains untrusted names on one line, and cut words that are too long."""
    return " ".join(name(word) for word in text.split())


def is_link(text: str) -> bool:
    """Return whether a text is a safe link: an https address with a host and without invisible characters."""
    if not re.fullmatch(r"https://[!-~]+", text):
        return False
    try:
        return bool(urlsplit(text).hostname)
    except ValueError:
        return False


def anchors(prefix: str, names: Iterable[tuple[K, str]]) -> dict[K, str]:
    """Make a distinct HTML id for each key from the prefix and the plain characters of the key's name.

    If an id is already taken, a number is added.
    """
    taken: dict[K, str] = {}
    for key, text in names:
        stem = f"{prefix}-{re.sub(r'[^a-z0-9._]+', '-', text.lower()[:LONGEST_NAME]).strip('-') or 'unnamed'}"
        number, anchor = 1, stem
        while anchor in taken.values():
            number += 1
            anchor = f"{stem}-{number}"
        taken[key] = anchor
    return taken
