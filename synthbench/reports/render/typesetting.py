"""Text in LaTeX: its width, line breaks and escapes."""

import re
import unicodedata
from functools import lru_cache

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # Its own command needs an encoding that is not the default.
    '"': "{''}",
    # After the end of a line these would be read as the options of that line.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # Against the ligatures ?` and !`.
    "`": "{`}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "†": r"$^\dagger$",
    "²": r"$^2$",
    "κ": r"$\kappa$",
    "ω": r"$\omega$",
    "“": "``",
    "”": "''",
}
_LONGEST_PIECE = 20
"""Letters after which even a word without a hyphen or an underscore may be broken."""

_WIDTHS = {
    sign: width
    for width, signs in {
        2.8: "!',.:;[]`il|",
        3.4: "fj- ",
        4.0: "()trs_I",
        4.5: "cez²†",
        5.1: '0123456789"“”$*/\\^ago{}~?J',
        5.6: "Sbdhnpuqkvxy",
        7.3: "BCEFLPTZwκω",
        7.9: "ADGHKNOQRUVXY&+=@<>±×−≤≥",
        8.4: "#%m",
        9.2: "M",
        10.3: "W",
    }.items()
    for sign in signs
}
"""Widths of Computer Modern Roman at 10 points, rounded up; other fonts in common use are narrower."""


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it is, on one line.

    A sign that pdflatex has no glyph for would stop it; such a sign is printed as its code point.
    """
    return "".join(_ESCAPES.get(sign, sign) for sign in _printed(text))


@lru_cache(maxsize=10_000)  # the same texts are measured for each size
def width_of(text: str) -> float:
    """Width of a text at 10 points."""
    return sum((_WIDTHS.get(sign) or _width_of_accented(sign) for sign in _printed(text)), 0.0)


def _width_of_accented(sign: str) -> float:
    return _WIDTHS.get(unicodedata.normalize("NFD", sign)[0], max(_WIDTHS.values()))


_PIECE = re.compile(rf"(?:[^\s_\-/=,;:]{{1,{_LONGEST_PIECE}}}[_\-/=,;:]?|[_\-/=,;:])\s*")


def pieces_of(text: str) -> list[str]:
    """A text cut wherever it may be broken: after spaces, underscores, hyphens and such, and in very long words."""
    return _PIECE.findall(_printed(text))


def units_of(text: str, width: float, scale: float) -> list[str]:
    """The words of a text, each with the space behind it, those that are too wide in pieces."""
    units = []
    for word in _printed(text).split():
        pieces = [word] if scale * width_of(word) <= width else pieces_of(word)
        units += [*pieces[:-1], f"{pieces[-1]} "]
    return units


def wrapped(text: str, width: float, scale: float) -> list[str]:
    """A text in lines of a width; what cannot be broken may be wider."""
    lines, used = [""], 0.0
    for unit in units_of(text, width, scale):
        added = scale * width_of(unit)
        # A hundredth of a point is what sums of such numbers may be wrong by, and nobody sees it.
        if lines[-1] and used + added > width + 0.01:
            lines.append("")
            used = 0.0
        lines[-1] += unit
        used += added + scale * _WIDTHS[" "] * unit.endswith(" ")
    return [line.strip() for line in lines]


@lru_cache(maxsize=10_000)
def _printed(text: str) -> str:
    """A text as it looks in print, on one line."""
    return "".join(sign if sign in _ESCAPES else _plain(sign) for sign in " ".join(text.split()))


@lru_cache(maxsize=1_000)
def _plain(sign: str) -> str:
    """A sign that the default encoding prints, or its code point."""
    is_latin = "À" <= sign <= "ÿ" and sign not in "×÷ÐðÞþ"
    if " " <= sign <= "~" or is_latin:
        return sign
    # An accent that stands alone, a full-width digit and the like have a plain form.
    plain = unicodedata.normalize("NFKC", sign)
    return plain if plain.isascii() and plain.isalnum() else f"U+{ord(sign):04X}"
