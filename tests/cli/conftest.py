from pathlib import Path

import pyarrow.compute as pc
import pytest

from synthbench.results import Store, published
from synthbench.trust import beside


@pytest.fixture(scope="session")
def few_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the packaged rows of five mechanisms, which is read in a tenth of the time."""
    is_few = pc.field("mech").isin(["softmax", "linear", "gla", "lstm", "mamba1"])
    few = Store.open(tmp_path_factory.mktemp("few"), create=True)
    few.add(Store.open(published(), create=False).table().filter(is_few))
    return few.root


@pytest.fixture
def _few_packaged(few_rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only these rows come with synthbench."""
    monkeypatch.setattr(beside, "published", lambda: few_rows)
