"""A quick look at many rows misses none that a look at each would refuse."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from synthbench.results.reading import is_readable, suspects

from synthbench.errors import UsageError
from synthbench.results import CURVES, RUNS
from synthbench.results.schema import (
    CURVE_COLUMNS,
    MAX_STRING_BYTES,
    RUN_COLUMNS,
    check_values,
)

MakeRow = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", None),
        ("lr", None),
        ("role", "tuning"),
        ("role", "x"),
        ("metrics", '{"loss":NaN}'),
        ("metrics", "[" * 100_000),
        ("task", "../b"),
        ("suite", ""),
        ("block", "aether:norm=pre"),
        ("block", "🙂"),
        ("error_message", "x" * (MAX_STRING_BYTES + 1)),
        ("error_message", "é" * 40_000),
        ("git_dirty", None),
    ],
)
def test_whatever_a_look_at_one_row_refuses_is_suspect(make_row: MakeRow, name: str, value: object) -> None:
    rows = [make_row(seed=1), make_row(seed=2) | {name: value}, make_row(seed=3)]

    are_suspect = suspects(RUN_COLUMNS, pa.Table.from_pylist(rows, schema=RUNS)).tolist()

    assert (are_suspect[0], are_suspect[2]) == (False, False)
    try:
        check_values(RUN_COLUMNS, rows[1])
    except UsageError:
        assert are_suspect[1]
    else:
        # A text that is long but allowed is looked at once more, nothing else is.
        assert are_suspect[1] == (isinstance(value, str) and len(value) > 10_000)


def test_a_point_of_a_curve_with_an_odd_name_is_suspect() -> None:
    point = {"step": 1, "split": "train", "metric": "loss", "value": 0.5, "wall_s": 1.0, "tokens": 1}
    point |= {"run_id": "0" * 16}
    points = [point, point | {"split": "<b>"}, point | {"step": None}]

    assert suspects(CURVE_COLUMNS, pa.Table.from_pylist(points, schema=CURVES)).tolist() == [False, True, True]


def test_text_that_is_no_text_and_times_that_python_cannot_name_are_not_readable() -> None:
    offsets, content = pa.py_buffer(np.array([0, 1], np.int32).tobytes()), pa.py_buffer(b"\xff")
    times = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", tz="UTC"))

    assert is_readable(pa.table({"one": ["é"], "other": [datetime(9999, 12, 31, tzinfo=UTC)]}))
    assert is_readable(pa.table({"one": pa.array([], pa.timestamp("us", tz="UTC"))}))
    assert not is_readable(pa.table({"one": pa.Array.from_buffers(pa.string(), 1, [None, offsets, content])}))
    assert not is_readable(pa.table({"one": times}))
