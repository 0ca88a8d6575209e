"""Settings that all tests of benches share."""

from collections.abc import Iterator

import pytest

from synthbench.bench import instruments


@pytest.fixture(autouse=True, scope="module")
def _small_roof() -> Iterator[None]:
    """Measure the rates of a device by small operations; no test depends on them, and large ones take half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(instruments.SQUARE, "cpu", 32)
        patch.setitem(instruments.COPIED, "cpu", 2**10)
        yield
