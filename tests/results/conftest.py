from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The place of a store."""
    return tmp_path / "results"
