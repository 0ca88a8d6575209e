"""What a figure is here: its words, and a function that computes its numbers from our own units."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from synthbench.errors import UnknownName
from synthbench.gallery.curves import Curves
from synthbench.gallery.maps import Maps
from synthbench.reports.render.figures.drawing import Drawing

Content = Curves | Maps
"""Numbers, and how they are drawn."""


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


def figure(name: str) -> Callable[[Callable[[], Content]], Callable[[], Content]]:
    """Put a function that computes a figure's numbers among the figures: its docstring is the title and the caption."""

    def register(content: Callable[[], Content]) -> Callable[[], Content]:
        title, _, caption = inspect.cleandoc(content.__doc__ or "").partition(".\n\n")
        FIGURES[name] = Figure(name, title, " ".join(caption.split()), content)
        return content

    return register


def select(patterns: Sequence[str]) -> list[Figure]:
    """The figures whose names match any of some globs, in alphabetical order; all if there is no glob.

    Raises:
        UnknownName: If a glob matches none.
    """
    chosen: set[str] = set()
    for pattern in patterns or ["*"]:
        matching = {name for name in FIGURES if fnmatchcase(name, pattern)}
        if not matching:
            raise UnknownName("figure", pattern, FIGURES)
        chosen |= matching
    return [FIGURES[name] for name in sorted(chosen)]
