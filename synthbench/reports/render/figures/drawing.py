"""The basis of all figures: style, safe labels, and conversion to bytes.

Figures use matplotlib's object-oriented interface and layout, with a style of their own. So neither the user's settings
nor other threads affect them, and the same numbers give the same bytes. The colours are those of Okabe and Ito, which
readers with any colour vision can distinguish. Lines and points also differ in dashes and shapes, for print without
colour.
"""

import hashlib
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter

from synthbench.reports.render.spreadsheet import Value, csv_text

PICTURES = ("svg", "pdf")

SINGLE, DOUBLE = 3.4, 7.0
"""Widths of a figure across one column and across two columns of a page, in inches."""
TEXT, SMALL = 6.5, 5.5
"""Sizes of text, in points."""
LONGEST = 26
"""Largest number of characters of a label; longer labels are cut."""

COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
Dashes = Literal["-", "--", "-."] | tuple[float, tuple[float, ...]]
DASHES: tuple[Dashes, ...] = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 2, 2, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
PALE = "#B8B8B8"
"""The colour of mechanisms without a colour of their own."""
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
    """Stem of the figure's file names, unique within a report."""
    title: str
    caption: str
    header: tuple[str, ...]
    lines: tuple[tuple[Value, ...], ...]
    """The numbers, line by line under the header."""
    draw: Callable[[], Figure]
    """Function that makes the figure; it is called under the common style of all figures."""

    @cached_property
    def numbers(self) -> str:
        """The drawn numbers as CSV."""
        return csv_text(self.header, self.lines)

    @property
    def mark(self) -> str:
        """A hash of the title, caption and numbers, written into every picture to identify what it was drawn from."""
        whole = f"{self.title}\n{self.caption}\n{self.numbers}"
        return f"synthbench-{hashlib.sha256(whole.encode()).hexdigest()[:16]}"


class Look(NamedTuple):
    """The style of a mechanism's line."""

    colour: str
    dashes: Dashes
    marker: str


def render(drawing: Drawing) -> dict[str, bytes]:
    """Draw the pictures, and return their bytes by file type.

    The bytes do not depend on the time or the user's settings.
    """
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
    # Two decimals, a hundredth of a point, make files smaller and hide rounding differences between processors.
    contents["svg"] = _DECIMALS.sub(
        lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip(".").encode(), contents["svg"]
    )
    return contents


def files_of(drawing: Drawing) -> dict[str, str | bytes]:
    """Return the pictures of a drawing and its numbers, by file name."""
    contents: dict[str, str | bytes] = {"csv": drawing.numbers, **render(drawing)}
    return {f"figures/{drawing.name}.{kind}": content for kind, content in contents.items()}


def mark_in(picture: bytes) -> bytes | None:
    """Read the hash from ``Drawing.mark`` that is written into a picture; None if the picture has no hash."""
    mark = re.search(rb"synthbench-[0-9a-f]{16}", picture)
    return mark[0] if mark else None


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """Map the first seven labels to line styles; lines with other labels are drawn pale."""
    return dict(zip(labels, itertools.starmap(Look, zip(COLOURS, DASHES, MARKERS, strict=False)), strict=False))


def shown(text: str) -> str:
    """Put a label on one line and cut it if it is long; characters that the font lacks become code points."""
    one_line = " ".join(text.split())
    cut = one_line if len(one_line) <= LONGEST else f"{one_line[: LONGEST - 1]}…"
    visible = "".join(sign if sign.isprintable() and ord(sign) in _glyphs() else f"U+{ord(sign):04X}" for sign in cut)
    # A legend leaves out labels that begin with an underscore.
    return f" {visible}" if visible.startswith("_") else visible


@lru_cache(maxsize=4096)
def width_of(text: str) -> float:
    """Return the width of a label in inches."""
    with _style():
        return float(TextPath((0, 0), text, size=SMALL).get_extents().width) / 72 if text.strip() else 0.0


def widest(labels: Sequence[str]) -> float:
    """Return the width of the widest label in inches; 0 if there is none."""
    return max(map(width_of, labels), default=0.0)


def panels(
    titles: Sequence[str],
    y_label: str,
    legend: Sequence[tuple[str, Artist]],
    *,
    x_label: str = "",
    height: float = 1.5,
    width: float | None = None,
    key: Mapping[str, Any] | None = None,
) -> tuple[Figure, list[Axes]]:
    """Create a figure with a grid of similar panels, at most four in a row, and a legend below them.

    Args:
        titles: Title of each panel, which may be empty.
        y_label: Label of every y axis, shown beside the first panel of each row.
        legend: Entries of the legend: label and handle of each entry.
        x_label: Label of every x axis, shown below the lowest panel of each column.
        height: Height of a panel including its labels, in inches.
        width: Width of the figure, in inches. Default: one page column for up to two panels, two page columns for more.
        key: Further arguments of matplotlib's ``Figure.legend``.
    """
    width = width or (SINGLE if len(titles) <= 2 else DOUBLE)
    labels, handles = zip(*legend, strict=True) if legend else ((), ())
    num_in_line = max(1, int(width / (0.45 + widest(labels))))
    num_columns = min(4, len(titles))
    num_lines = -(-len(titles) // num_columns)
    legend_height = 0.1 + 1.45 * SMALL / 72 * -(-len(labels) // num_in_line)
    figure = Figure(figsize=(width, num_lines * height + legend_height), layout="constrained")
    axes = figure.subplots(num_lines, num_columns, sharey=True, squeeze=False).ravel().tolist()
    for unused in axes[len(titles) :]:
        unused.remove()
    for index, (title, axis) in enumerate(zip(titles, axes, strict=False)):
        axis.set_title(shown(title) if title else "", pad=3, loc="left")
        axis.grid(color="#E6E6E6", linewidth=0.4, axis="y" if len(titles) > 1 else "both")
        axis.set_ylabel("" if index % num_columns else y_label, labelpad=2)
        axis.set_xlabel(x_label if index + num_columns >= len(titles) else "", labelpad=1)
    if handles:
        look = {"handlelength": 2.8, "columnspacing": 1.2} | dict(key or {})
        figure.legend(handles, labels, loc="outside lower center", ncols=num_in_line, labelspacing=0.35, **look)
    return figure, axes[: len(titles)]


def compact(number: float) -> str:
    """Format a round number as a short tick label: ``500``, ``16k``, ``2M``."""
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
"""A coordinate in an SVG file; factors of transformations do not match, since they are in brackets."""


@cache
def _glyphs() -> frozenset[int]:
    """Return the code points that the font can print."""
    font = FT2Font(font_manager.findfont("DejaVu Sans"))
    return frozenset(font.get_charmap())
