"""A figure's words, and the function that computes its numbers from the mechanisms and layers of the package."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

from studies.papers.figures.curves import Curves
from studies.papers.figures.maps import Maps
from synthbench.reports.render.figures.drawing import Drawing

Content = Curves | Maps
"""Numbers, and how they are drawn."""


class Figure(NamedTuple):
    """A figure of a paper, drawn again."""

    title: str
    caption: str
    """Text below it, with the arguments and seeds that it is made with."""
    drawing: Callable[[], Drawing]
    """Compute the numbers, in seconds at most, and join them with the words and the way to draw them."""


FIGURES: dict[str, Figure] = {}
"""Figures by name; a name consists of the paper, the figure's number and its subject, as in ``slay-04-alignment``."""


def figure(name: str) -> Callable[[Callable[[], Content]], Callable[[], Content]]:
    """Register a function that computes a figure's numbers; its docstring is the title and the caption."""

    def register(content: Callable[[], Content]) -> Callable[[], Content]:
        title, _, text = inspect.cleandoc(content.__doc__ or "").partition(".\n\n")
        caption = " ".join(text.split())

        def drawing() -> Drawing:
            found = content()
            return Drawing(name, title, caption, found.header, found.lines, found.draw)

        FIGURES[name] = Figure(title, caption, drawing)
        return content

    return register
