"""What is checked a column at a time is what is checked a row at a time."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthbench.errors import UsageError
from synthbench.results import CURVES, RUNS
from synthbench.results.checks import curve_checksums, curve_starts, is_readable, row_checksums, suspects
from synthbench.results.schema import (
    CURVE_COLUMNS,
    MAX_STRING_BYTES,
    RUN_COLUMNS,
    check_values,
    curve_sha256,
    row_sha256,
)

MakeRow = Callable[..., dict[str, Any]]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TIMES = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
FLOATS = st.floats() | st.sampled_from([-0.0, 1e-4, 9.999e-5, 1e9, 1e16, 5e-324, 0.1 + 0.2, 3.0, math.inf, math.nan])


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(FLOATS, FLOATS, TEXTS, TEXTS, TIMES, st.booleans()), min_size=1, max_size=20))
def test_checksums_of_rows_are_those_of_a_row_at_a_time(make_row: MakeRow, rows: list[tuple[Any, ...]]) -> None:
    made = [
        make_row(
            seed=seed, eval_loss=loss, wall_s=wall, error_message=said, host_hash=host, started_at=at, git_dirty=is_
        )
        for seed, (loss, wall, said, host, at, is_) in enumerate(rows)
    ]

    assert row_checksums(pa.Table.from_pylist(made, schema=RUNS)) == [row_sha256(row) for row in made]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), max_size=6),
    value=st.lists(st.floats(width=32), min_size=1, max_size=8),
    wall_s=st.lists(FLOATS | st.none(), min_size=1, max_size=8),
)
def test_checksums_of_curves_are_those_of_a_curve_at_a_time(
    lengths: list[int], value: list[float], wall_s: list[float | None]
) -> None:
    curves = [
        [
            {
                "run_id": f"{number:016x}",
                "step": step,
                "split": "train",
                "metric": "loss",
                "value": value[(number + step) % len(value)],
                "wall_s": wall_s[(number * step) % len(wall_s)],
                "tokens": -step,
            }
            for step in range(length)
        ]
        for number, length in enumerate(lengths)
    ]
    table = pa.Table.from_pylist([point for curve in curves for point in curve], schema=CURVES)
    expected = [curve_sha256(pa.Table.from_pylist(curve, schema=CURVES).to_pydict()) for curve in curves]

    starts = curve_starts(table)

    assert starts.tolist() == [sum(lengths[:number]) for number in range(len(lengths))]
    assert curve_checksums(table, starts) == expected


def test_curves_longer_than_what_is_joined_at_once_keep_their_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthbench.results.checks._POINTS_AT_ONCE", 3)
    monkeypatch.setattr("synthbench.results.checks._ROWS_AT_ONCE", 2)
    lengths = [2, 5, 1, 1, 1, 4]
    names = [f"{number:016x}" for number, length in enumerate(lengths) for _ in range(length)]
    count = len(names)
    table = pa.table(
        [names, range(count), ["train"] * count, ["loss"] * count, np.ones(count), np.ones(count), range(count)],
        schema=CURVES,
    )
    starts = curve_starts(table)

    parts = [table.slice(start, length).to_pydict() for start, length in zip(starts, lengths, strict=True)]
    assert curve_checksums(table, starts) == [curve_sha256(part) for part in parts]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", None),
        ("lr", None),
        ("status", "fine"),
        ("role", "tuning"),
        ("role", "x"),
        ("metrics", "{"),
        ("metrics", '{"loss":NaN}'),
        ("metrics", "[" * 100_000),
        ("task", "../b"),
        ("mech", "<script>"),
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

    found = suspects(RUN_COLUMNS, pa.Table.from_pylist(rows, schema=RUNS)).tolist()

    assert (found[0], found[2]) == (False, False)
    try:
        check_values(RUN_COLUMNS, rows[1])
    except UsageError:
        assert found[1]
    else:
        # A text that is long but allowed is looked at once more, nothing else is.
        assert found[1] == (isinstance(value, str) and len(value) > 10_000)


def test_a_point_of_a_curve_with_an_odd_name_is_suspect() -> None:
    point = {
        "run_id": "0" * 16,
        "step": 1,
        "split": "train",
        "metric": "loss",
        "value": 0.5,
        "wall_s": 1.0,
        "tokens": 1,
    }
    points = [point, point | {"split": "<b>"}, point | {"step": None}]

    assert suspects(CURVE_COLUMNS, pa.Table.from_pylist(points, schema=CURVES)).tolist() == [False, True, True]


def test_text_that_is_no_text_and_times_that_python_cannot_name_are_not_readable() -> None:
    offsets, content = pa.py_buffer(np.array([0, 1], np.int32).tobytes()), pa.py_buffer(b"\xff")
    times = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", tz="UTC"))

    assert is_readable(pa.table({"one": ["é"], "other": [datetime(9999, 12, 31, tzinfo=UTC)]}))
    assert is_readable(pa.table({"one": pa.array([], pa.timestamp("us", tz="UTC"))}))
    assert not is_readable(pa.table({"one": pa.Array.from_buffers(pa.string(), 1, [None, offsets, content])}))
    assert not is_readable(pa.table({"one": times}))
