from pathlib import Path

import pyarrow.compute as pc
import pytest

from synthbench.results import Store, published
from synthbench.trust import beside


@pytest.fixture(scope="session")
def _few_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the packaged rows of four mechanisms, which is read in a tenth of the time."""
    few = Store.open(tmp_path_factory.mktemp("few"), create=True)
    few.add(
        Store.open(published(), create=False)
        .table()
        .filter(pc.field("mech").isin(["softmax", "linear", "gla", "mamba1"]))
    )
    return few.root


@pytest.fixture
def _few_packaged(_few_rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only these rows come with synthbench."""
    monkeypatch.setattr(beside, "published", lambda: _few_rows)
