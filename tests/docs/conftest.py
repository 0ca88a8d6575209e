"""What the tests of the scripts of the documentation share."""

import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> Iterator[Callable[[str], SimpleNamespace]]:
    """What a script defines, by its name; its folder is on the path as when it runs, and forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield lambda name: SimpleNamespace(**runpy.run_path(str(DOCS / f"{name}.py")))
    for path in DOCS.glob("*.py"):
        sys.modules.pop(path.stem, None)
