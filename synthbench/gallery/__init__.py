"""The figures of the SLAY and the Neural Matter Networks papers, drawn from our own units.

One module a group of figures. Each figure is a function that computes numbers; ``figure`` gives it a name and words.
Captions of the papers that have no numbers leave open what is drawn with which arguments; what is chosen here stands
in the captions of ours.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from synthbench.errors import StoreError, UnknownName
from synthbench.gallery import (  # noqa: F401 - they register their figures
    denominators,
    geometry,
    neurons,
    quadrature,
    reconstruction,
    response,
    selectivity,
)
from synthbench.gallery.figure import FIGURES, Figure, select
from synthbench.reports.render.figures.drawing import PICTURES, render

__all__ = ["FIGURES", "Figure", "files", "save", "select"]


def files(figure: Figure, formats: Sequence[str] = PICTURES) -> dict[str, bytes]:
    """Draw a figure: its pictures and its numbers as CSV by file name, the same bytes on every call.

    Raises:
        UnknownName: If there is no such format.
    """
    for kind in formats:
        if kind not in PICTURES:
            raise UnknownName("format", kind, PICTURES)
    drawing = figure.drawing()
    pictures = render(drawing)
    # Without its indentation an SVG file is a tenth smaller.
    pictures["svg"] = re.sub(rb"\n +", b"\n", pictures["svg"])
    contents = {kind: pictures[kind] for kind in formats} | {"csv": drawing.numbers.encode()}
    return {f"{figure.name}.{kind}": content for kind, content in contents.items()}


def save(figure: Figure, folder: Path, formats: Sequence[str] = PICTURES) -> list[str]:
    """Write the files of a figure; their names.

    Raises:
        UnknownName: If there is no such format.
        StoreError: If the folder cannot be written.
    """
    contents = files(figure, formats)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
    except OSError as problem:
        raise StoreError(f"figures cannot be written to {str(folder)!r}: {problem}") from None
    return list(contents)
