from typing import Any

import pytest

from synthbench.bench import context
from synthbench.bench.rows import Row, Table
from tests.training.cells import CPU


def found(mechanism: str, gigabytes: float, *, table: Table | None = None, **limits: float) -> list[Row]:
    """Measure forward and backward; a table that has both gives nothing."""
    how: dict[str, Any] = {"longest": 2**20, "max_seconds": 1e6, "batch_size": 1, "dtype": "float32", **limits}
    return list(context.measure({mechanism: {}}, table or Table(context.IDENTITY, CPU), gigabytes=gigabytes, **how))


def test_what_was_found_fits_and_a_sixteenth_more_does_not_whatever_the_memory() -> None:
    lengths = []
    for budget in (2**-9, 2**-7):
        fact, _ = found("mean", budget)
        assert fact["ended"] == "memory"
        assert 15 / 16 * budget * 2**30 < fact["peak_bytes"] * 17 / 16
        assert fact["peak_bytes"] <= budget * 2**30
        lengths.append(fact["length"])

    assert lengths[1] / lengths[0] == pytest.approx(4, rel=0.15)  # the cost is linear


def test_it_says_why_it_ended() -> None:
    assert found("identity", 1.0, longest=512)[0]["ended"] == "longest"
    assert found("mean", 1.0, max_seconds=0.0)[0]["ended"] == "time"
    assert found("mean", 1e-9)[0]["length"] is None  # not even one token fits


def test_what_is_known_is_not_tried_again() -> None:
    table = Table(context.IDENTITY, CPU)
    assert len(found("identity", 1.0, longest=256, table=table)) == 2

    assert found("identity", 1.0, longest=256, table=table) == []
    assert found("identity", 1.0, longest=512, table=table)[0]["length"] == 512
