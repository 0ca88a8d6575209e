"""Write or check the page of a study; the scripts of all studies share these functions."""

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from synthbench.reports.selection import Selection, select
from synthbench.results import Store
from synthbench.trust.beside import Joined, join

ROOT = Path(__file__).parents[1]
MARKS = "<!-- tables, written from the rows -->", "<!-- end of tables -->"


def store() -> Store:
    """Open the store of the committed rows."""
    return Store.open(ROOT / "results", create=False)


@cache
def joined() -> Joined:
    """Read the committed rows, with scores counted from the committed baselines."""
    return join(ROOT / "results")


def selected(suite: str, mechanisms: Collection[str] | None = None) -> Selection:
    """Select the committed rows that a report of a suite shows; rows of other suites with its protocol count too."""
    return select(joined().seen_from(suite).rows, suite, mechanisms=mechanisms)


def write(script: str, page: Iterable[str]) -> NoReturn:
    """Write or check the page beside a script, and exit; a note below the title names the script.

    Args:
        script: The file of the script.
        page: Blocks of the page, the title first.
    """
    (title, *blocks), path = page, Path(script)
    note = f"<!-- Written by {path.relative_to(ROOT).as_posix()} from the rows; edit that. -->"
    sys.exit(main({path.with_name("README.md"): "\n\n".join([title, note, *blocks]) + "\n"}))


def fill(script: str, blocks: Iterable[str], marks: tuple[str, str] = MARKS) -> NoReturn:
    """Write or check the blocks between two marks in the page beside a script, and exit."""
    page = Path(script).with_name("README.md")
    sys.exit(main({page: filled(page, blocks, marks)}))


def filled(page: Path, blocks: Iterable[str], marks: tuple[str, str] = MARKS) -> str:
    """Return the text of a page with new blocks between two marks; the rest of the page is written by hand."""
    before, rest = page.read_text(encoding="utf-8").split(marks[0])
    return "\n\n".join([before + marks[0], *blocks, marks[1] + rest.split(marks[1])[1]])


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of a data frame, with the values of the columns as attributes."""
    yield from frame.itertuples()


def asks_to_check() -> bool:
    """Return whether ``--check`` is given on the command line.

    Raises:
        SystemExit: With code 2, for any other argument.
    """
    parser = argparse.ArgumentParser(description="Writes the pages of a study")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a page differs")
    return bool(parser.parse_args().check)


def main(files: Mapping[Path, str]) -> int:
    """Write files that differ and print their names; with ``--check``, only print them, and return 1 if any differs.

    Raises:
        SystemExit: With code 2, for any other argument.
    """
    is_check = asks_to_check()
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if not is_check:
            path.write_text(files[path], encoding="utf-8")
        sys.stdout.write(f"{'stale: ' if is_check else ''}{path.relative_to(ROOT)}\n")
    return int(is_check and bool(stale))
