"""The basis of all figures: style, safe labels, and the way to bytes.

A figure is drawn with the object-oriented interface of matplotlib under a style of its own, so neither the user's
settings nor another thread changes it. Positions are given in inches, so the same numbers give the same bytes. The
colours are those of Okabe and Ito, which readers with any colour vision can tell apart; lines and points also differ in
dashes and shapes, for print without colour.
"""

import hashlib
import io
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter

from synthbench.reports.render.spreadsheet import Value, csv_text

PICTURES = ("svg", "pdf")

SINGLE, DOUBLE = 3.4, 7.0
"""Inches: the width of one column of a page, and of both."""
TEXT, SMALL = 6.5, 5.5
"""Sizes in points."""
PITCH = 0.095
"""Inches from one small line of text to the next."""
LONGEST = 26
"""Characters of a label; one that is longer is cut."""

COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
Dashes = Literal["-", "--", "-."] | tuple[float, tuple[float, ...]]
DASHES: tuple[Dashes, ...] = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 2, 2, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
PALE = "#B8B8B8"
"""For everything without a colour of its own."""
DARK = "#4D4D4D"

_STYLE: dict[str, object] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "lines.linewidth": 0.9,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    # A dollar sign in an untrusted label is a dollar sign.
    "text.parse_math": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "synthbench",
    # Type 42: journals refuse type 3.
    "pdf.fonttype": 42,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Drawing:
    """A figure with the numbers that are drawn in it."""

    name: str
    """Stem of its files, unique within a report."""
    title: str
    caption: str
    header: tuple[str, ...]
    lines: tuple[tuple[Value, ...], ...]
    """The numbers, line by line under the header."""
    draw: Callable[[], Figure]
    """Draw it; called under the style of all figures."""

    @cached_property
    def numbers(self) -> str:
        """The numbers as CSV."""
        return csv_text(self.header, self.lines)

    @property
    def mark(self) -> str:
        """A hash of the numbers and words, written into every picture, to tell what it was drawn from."""
        whole = f"{self.title}\n{self.caption}\n{self.numbers}"
        return f"synthbench-{hashlib.sha256(whole.encode()).hexdigest()[:16]}"


class Look(NamedTuple):
    """How the line of a mechanism is drawn."""

    colour: str
    dashes: Dashes
    marker: str


def render(drawing: Drawing) -> dict[str, bytes]:
    """The pictures of a drawing by file type: always the same bytes, independent of time and settings."""
    metadata = {
        "svg": {"Date": None, "Creator": None, "Source": drawing.mark},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None, "Keywords": drawing.mark},
    }
    contents = {}
    with _style():
        figure = drawing.draw()
        for kind in PICTURES:
            content = io.BytesIO()
            figure.savefig(content, format=kind, metadata=metadata[kind])
            contents[kind] = content.getvalue()
    # Two decimals, a hundredth of a point: files are smaller, and the last bits of a processor do not show.
    contents["svg"] = _DECIMALS.sub(
        lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip(".").encode(), contents["svg"]
    )
    return contents


def files_of(drawing: Drawing) -> dict[str, str | bytes]:
    """The pictures of a drawing and its numbers, by file name."""
    contents: dict[str, str | bytes] = {"csv": drawing.numbers, **render(drawing)}
    return {f"figures/{drawing.name}.{kind}": content for kind, content in contents.items()}


def mark_in(picture: bytes) -> bytes | None:
    """The mark of the drawing that a picture was made of; None if it has none."""
    mark = re.search(rb"synthbench-[0-9a-f]{16}", picture)
    return mark[0] if mark else None


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """The looks of at most seven mechanisms; all others are drawn pale."""
    return dict(zip(labels, itertools.starmap(Look, zip(COLOURS, DASHES, MARKERS, strict=False)), strict=False))


def shown(text: str) -> str:
    """A label on one line, cut if it is long; a sign that the font lacks becomes its code point."""
    one_line = " ".join(text.split())
    cut = one_line if len(one_line) <= LONGEST else f"{one_line[: LONGEST - 1]}…"
    visible = "".join(sign if sign.isprintable() and ord(sign) in _glyphs() else f"U+{ord(sign):04X}" for sign in cut)
    # A legend leaves out labels that begin with an underscore.
    return f" {visible}" if visible.startswith("_") else visible


@lru_cache(maxsize=4096)
def width_of(text: str, size: float = SMALL) -> float:
    """Width in inches of a label."""
    with _style():
        return float(TextPath((0, 0), text, size=size).get_extents().width) / 72 if text.strip() else 0.0


def widest(labels: Sequence[str], size: float = SMALL) -> float:
    """Width in inches of the widest of some labels; 0 if there is none."""
    return max((width_of(label, size) for label in labels), default=0.0)


def place(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches from the lower left corner of the figure."""
    whole_width, whole_height = figure.get_size_inches()
    return figure.add_axes((left / whole_width, bottom / whole_height, width / whole_width, height / whole_height))


def width_of_panels(num_panels: int) -> float:
    """Width in inches of a figure of a number of panels."""
    return SINGLE if num_panels <= 2 else DOUBLE


def panels(
    titles: Sequence[str], y_label: str, *, below: float, x_label: str = "", height: float = 1.15, above: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """A figure of small panels of one kind, a panel per title, with the same two axes.

    In inches: ``height`` of a panel, room ``below`` all of them for a legend, and room ``above`` each row of panels for
    a second line of the titles.
    """
    width = width_of_panels(len(titles))
    left, right, top, gap_x, gap_y = 0.42, 0.08, 0.2 + above, 0.15, 0.36 + above
    bottom = 0.3 if x_label else 0.2
    num_columns = min(4, len(titles))
    num_lines = -(-len(titles) // num_columns)
    panel_width = (width - left - right - gap_x * (num_columns - 1)) / num_columns
    total = below + bottom + top + num_lines * height + (num_lines - 1) * gap_y
    figure = Figure(figsize=(width, total))
    axes = []
    for index, title in enumerate(titles):
        line, column = divmod(index, num_columns)
        axis = place(
            figure,
            left + column * (panel_width + gap_x),
            below + bottom + (num_lines - 1 - line) * (height + gap_y),
            panel_width,
            height,
        )
        # A title with a given place is not moved out of the way of ticks above it; there are none.
        axis.set_title(shown(title), pad=3, loc="left", y=1)
        axis.grid(axis="y", color="#E6E6E6", linewidth=0.4)
        if column:
            axis.tick_params(labelleft=False)
        else:
            axis.set_ylabel(y_label, labelpad=2)
        if index + num_columns >= len(titles):
            axis.set_xlabel(x_label, labelpad=1)
        axes.append(axis)
    return figure, axes


def strokes(
    axis: Axes, starts: Iterable[tuple[float, float]], ends: Iterable[tuple[float, float]], **style: Any
) -> None:
    """Draw straight strokes of one style as a single path with gaps, so that the file has the style only once."""
    points = [point for start, end in zip(starts, ends, strict=True) for point in (start, end, (math.nan, math.nan))]
    axis.plot([x for x, _y in points], [y for _x, y in points], **style)


def compact(number: float) -> str:
    """A round number as a tick says it: ``500``, ``16k``, ``2M``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


COMPACT = FuncFormatter(lambda number, _position: compact(number))
PERCENT = FuncFormatter(lambda number, _position: f"{100 * number:g}")
PLAIN = FuncFormatter(lambda number, _position: f"{number:g}".replace("-", "−"))


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)  # type: ignore[arg-type]
        yield


_DECIMALS = re.compile(rb'(?<=[ "])-?[0-9]+\.[0-9]{3,}(?=[ "\n])')
"""A coordinate in an SVG file; the factors of its transformations stand between brackets."""


@cache
def _glyphs() -> frozenset[int]:
    """The code points that the font can print."""
    font = FT2Font(font_manager.findfont("DejaVu Sans"))
    return frozenset(font.get_charmap())
