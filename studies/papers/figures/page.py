"""Draw figures of the SLAY, Neural Matter Networks and REWA papers from our own code, and write their page.

``python -m studies.papers.figures.page`` writes ``README.md``, its pictures, and some numbers of each picture in
``numbers.json``; ``--check`` compares them. ``--out FOLDER`` instead writes an SVG, a PDF and a CSV file for each
figure.
"""

import argparse
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from studies.papers.figures import losses, nmn, slay_errors, slay_kernels, slay_weights  # noqa: F401 - have figures
from studies.papers.figures.figure import FIGURES, Figure
from synthbench import options
from synthbench.errors import UsageError
from synthbench.reports.render.figures.drawing import Drawing, mark_in, render

HERE = Path(__file__).parent
PAGE, NUMBERS = HERE / "README.md", HERE / "numbers.json"


def page() -> Iterator[str]:
    """Blocks of the page: every figure with its caption."""
    yield "# Figures"
    yield "<!-- Written by studies/papers/figures/page.py from the code; edit that. -->"
    yield (
        "The figures of three papers, drawn from the code of this package, and losses from its rows. The papers' "
        "captions name no seeds and few options, so the captions here give our choices, and where the figure differs "
        "from the paper. Unless a caption says otherwise, d = 16, ε = 1e-3, and queries, keys and values are N(0, 1). "
        "Mechanisms have their defaults, features are from seed 0, and bands are the middle four fifths of 20 draws. "
        "From a checkout, this writes SVG, PDF and the numbers as CSV, the same bytes on every call:"
    )
    yield "```\npython -m studies.papers.figures.page --figure 'nmn-10*' --out figures\n```"
    yield (
        "Without `--figure` it draws all figures, in a minute; without `--out` it writes this page and its pictures. "
        "[reproducing.md](../../../docs/reproducing.md) has the figures that are missing here."
    )
    for paper, prefix in (("SLAY", "slay-"), ("Neural Matter Networks", "nmn-"), ("REWA", "rewa-")):
        yield f"## {paper}"
        for name in sorted(name for name in FIGURES if name.startswith(prefix)):
            yield f"### {FIGURES[name].title}"
            yield f"![{name}]({name}.svg)"
            yield FIGURES[name].caption


def select(patterns: Sequence[str]) -> list[Figure]:
    """Choose figures by name or glob, in alphabetical order, as ``run --task`` chooses tasks; by default all.

    Raises:
        UnknownName: If a pattern matches no figure.
        UsageError: If a pattern is malformed.
    """
    return [FIGURES[name] for name in options.select("figure", patterns or ["all"], sorted(FIGURES), str)]


def files(drawing: Drawing) -> dict[str, bytes]:
    """Draw a figure: its pictures and its numbers by file type, the same bytes on every call."""
    pictures = render(drawing)
    # Without its indentation an SVG file is a tenth smaller.
    return {**pictures, "svg": re.sub(rb"\n +", b"\n", pictures["svg"]), "csv": drawing.numbers.encode()}


def in_short(drawing: Drawing) -> dict[str, Any]:
    """Keep the header and at most a hundred lines of the numbers, evenly spaced, as in the CSV."""
    header, *lines = drawing.numbers.splitlines()
    return {"mark": drawing.mark, "count": len(lines), "lines": [header, *lines[:: -(-len(lines) // 100)]]}


def agrees(drawing: Drawing, kept: Mapping[str, Any]) -> bool:
    """Return whether a figure still has its stored numbers, with a tolerance of a thousandth.

    One number in a hundred may differ more, because of rounding: numbers near 0, and keys on the border between two
    regions.
    """
    now = in_short(drawing)
    tables = [pd.read_csv(io.StringIO("\n".join(of["lines"]))) for of in (now, kept)]
    labels, kept_labels = (table.select_dtypes(exclude="number") for table in tables)
    if now["count"] != kept["count"] or not labels.equals(kept_labels) or re.search(r"\b(inf|nan)\b", drawing.numbers):
        return False
    numbers, kept_numbers = (table.select_dtypes("number").to_numpy() for table in tables)
    is_close = np.isclose(numbers, kept_numbers, rtol=1e-3, atol=0)
    return bool(is_close[~np.isnan(kept_numbers)].mean() > 0.99)


def stale() -> Iterator[str]:
    """Name the figures whose stored numbers or pictures differ from the code, and the page if it differs."""
    kept = json.loads(NUMBERS.read_text(encoding="utf-8"))
    marks = {path.stem: mark_in(path.read_bytes()) for path in HERE.glob("*.svg")}
    for name in sorted({*FIGURES, *kept, *marks}):
        is_whole = name in FIGURES and name in kept and marks.get(name) == kept[name]["mark"].encode()
        if not is_whole or not agrees(FIGURES[name].drawing(), kept[name]):
            yield name
    if PAGE.read_text(encoding="utf-8") != "\n\n".join(page()) + "\n":
        yield PAGE.name


def main(arguments: Sequence[str]) -> int:
    """Write the page with its pictures and numbers, check them, or write figures elsewhere; return the exit code."""
    parser = argparse.ArgumentParser(description="Draw the figures of the source papers")
    parser.add_argument("--check", action="store_true", help="exit with 1 if page, pictures or numbers are stale")
    parser.add_argument("--out", type=Path, help="write figures into this folder, as SVG, PDF and CSV")
    parser.add_argument("--figure", action="append", default=[], help="with --out: a name or glob; repeatable")
    given = parser.parse_args(arguments)
    if given.check:
        names = list(stale())
        sys.stdout.writelines(f"stale: {name}\n" for name in names)
        return int(bool(names))
    if given.figure and given.out is None:
        parser.error("--figure needs --out")
    folder, kinds = (HERE, ["svg"]) if given.out is None else (given.out, ["svg", "pdf", "csv"])
    try:
        drawings = [one.drawing() for one in select(given.figure)]
        folder.mkdir(parents=True, exist_ok=True)
        for drawing in drawings:
            contents = files(drawing)
            for kind in kinds:
                path = folder / f"{drawing.name}.{kind}"
                path.write_bytes(contents[kind])
                sys.stdout.write(f"{path}\n")
    except (OSError, UsageError) as problem:
        parser.error(str(problem))
    if given.out is None:
        kept = {drawing.name: in_short(drawing) for drawing in drawings}
        NUMBERS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        PAGE.write_text("\n\n".join(page()) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
