"""What a figure is here: its words, and a function that computes its numbers from our own units."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from matplotlib.figure import Figure as Canvas

from synthbench.errors import UnknownName
from synthbench.reports.render.figures.drawing import Drawing
from synthbench.reports.render.spreadsheet import Value


class Content(Protocol):
    """Numbers, and how they are drawn."""

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def lines(self) -> tuple[tuple[Value, ...], ...]:
        """The numbers that are drawn."""

    def draw(self) -> Canvas:
        """Draw them, under the style of all figures."""


@dataclass(frozen=True)
class Figure:
    """A figure of the gallery."""

    name: str
    """The paper, the number there, what it shows: ``slay-04-alignment``."""
    title: str
    caption: str
    """What it shows, and with which arguments and seeds it is made."""
    content: Callable[[], Content]
    """Compute the numbers: seconds at most."""

    def drawing(self) -> Drawing:
        """The numbers, computed now, with the words and the way to draw them."""
        content = self.content()
        return Drawing(self.name, self.title, self.caption, content.header, content.lines, content.draw)


FIGURES: dict[str, Figure] = {}
"""By name."""


def figure(name: str, title: str, caption: str) -> Callable[[Callable[[], Content]], Callable[[], Content]]:
    """Put a function that computes a figure's numbers among the figures."""

    def register(content: Callable[[], Content]) -> Callable[[], Content]:
        FIGURES[name] = Figure(name, title, caption, content)
        return content

    return register


def select(patterns: Sequence[str]) -> list[Figure]:
    """The figures whose names match any of some globs, in alphabetical order; all if there is no glob.

    Raises:
        UnknownName: If a glob matches none.
    """
    chosen: set[str] = set()
    for pattern in patterns or ["*"]:
        found = {name for name in FIGURES if fnmatchcase(name, pattern)}
        if not found:
            raise UnknownName("figure", pattern, FIGURES)
        chosen |= found
    return [FIGURES[name] for name in sorted(chosen)]
