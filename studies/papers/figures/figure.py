"""A figure's words, and the function that computes its numbers from the mechanisms and layers of the package."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from studies.papers.figures.curves import Curves
from studies.papers.figures.maps import Maps
from synthbench.reports.render.figures.drawing import Drawing

Content = Curves | Maps
"""Numbers, and how they are drawn."""


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, drawn again."""

    name: str
    """The paper, the number there, the subject: ``slay-04-alignment``."""
    title: str
    caption: str
    """Text below it, with the arguments and seeds that it is made with."""
    content: Callable[[], Content]
    """Compute the numbers: seconds at most."""

    def drawing(self) -> Drawing:
        """Compute the numbers now, and join them with the words and the way to draw them."""
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
