"""Numbers in float64."""

from collections.abc import Iterator

import pytest
import torch

from synthbench.process import settings_restored


@pytest.fixture
def double() -> Iterator[None]:
    """Create tables and parameters in float64."""
    with settings_restored():
        torch.set_default_dtype(torch.float64)
        yield
