"""The columns, what a row may hold, and its two hashes."""

import math
from datetime import datetime

import pyarrow as pa
import pytest

from synthbench.errors import UsageError
from synthbench.results import schema
from synthbench.results.schema import CURVE_COLUMNS, RUN_COLUMNS, RUNS, VERIFICATION_COLUMNS
from synthbench.results.store import suspects
from tests.results.rows import Row, make_row, refused


@pytest.mark.parametrize("columns", [RUN_COLUMNS, CURVE_COLUMNS, VERIFICATION_COLUMNS])
def test_every_column_has_its_own_name_and_says_what_it_means_and_when_it_is_null(
    columns: tuple[schema.Column, ...],
) -> None:
    assert len({column.name for column in columns}) == len(columns)
    for column in columns:
        assert column.meaning
        assert not column.is_nullable or "null" in column.meaning


def test_missing_columns_are_all_named() -> None:
    row = make_row()
    del row["lr"], row["task"]

    with pytest.raises(UsageError, match="lacks task, lr"):
        schema.table_of(RUN_COLUMNS, [row])


NO_ZONE = {"started_at": datetime(2026, 1, 1)}, "column 'started_at'.* allowed: "  # noqa: DTZ001 -- that is the fault


@pytest.mark.parametrize(("change", "message"), [*refused("mistyped"), NO_ZONE])
def test_a_value_of_the_wrong_type_is_refused_by_column(change: Row, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        schema.table_of(RUN_COLUMNS, [make_row() | change])


LONG = ["[" * 100_000, '"' + "x" * schema.MAX_STRING_BYTES + '"', f'{{"a":1{"0" * 400}}}']


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *refused("value"),
        *(({"metrics": value}, "column 'metrics'") for value in LONG),
        ({"error_message": "é" * (schema.MAX_STRING_BYTES // 2 + 1)}, "column 'error_message'"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_column_and_found_in_many_rows(change: Row, message: str) -> None:
    rows = [make_row(seed=1), make_row(seed=2) | change, make_row(seed=3)]
    with pytest.raises(UsageError, match=message):
        schema.check_values(RUN_COLUMNS, rows[1])
    assert suspects(RUN_COLUMNS, pa.Table.from_pylist(rows, schema=RUNS)).tolist() == [False, True, False]


def test_a_long_message_every_status_and_what_may_be_missing_are_allowed() -> None:
    long = "é" * (schema.MAX_STRING_BYTES // 2)
    rows = [make_row(status=status, error_message=long) for status in schema.STATUSES]
    rows += [make_row(lr=None, role="tuning", block="aether:norm=pre", git_dirty=None)]

    for row in rows:
        schema.check_values(RUN_COLUMNS, row)
    assert not suspects(RUN_COLUMNS, pa.Table.from_pylist(rows, schema=RUNS)).any()


def test_every_column_but_itself_is_under_the_checksum() -> None:
    row = make_row()
    for name, value in row.items():
        other = "other" if value is None else str(value) + "0"
        is_same = schema.row_sha256(row | {name: other}) == schema.row_sha256(row)
        assert is_same == (name == "row_sha256"), name


def test_the_checksum_tells_nan_null_and_the_infinities_apart_and_not_null_from_a_column_that_was_not_there() -> None:
    row, values = make_row(), (None, math.nan, math.inf, -math.inf, 0.0, -0.0)
    without = {name: value for name, value in row.items() if name != "verified_by"}

    assert len({schema.row_sha256(row | {"eval_loss": value}) for value in values}) == len(values)
    assert schema.row_sha256(without) == schema.row_sha256(without | {"verified_by": None})


def test_a_run_id_depends_on_every_value_but_not_on_their_order_and_refuses_nan() -> None:
    # Stored ids must stay what they are: a change here orphans every row.
    assert schema.run_id({"task": "copy", "seed": 42}) == "5e0908fb4735d005"
    assert schema.run_id({"seed": 42, "task": "copy"}) == "5e0908fb4735d005"
    assert schema.run_id({"task": "copy", "seed": 43}) != "5e0908fb4735d005"
    with pytest.raises(ValueError, match="JSON compliant"):
        schema.run_id({"lr": math.nan})


def test_without_room_between_floor_and_ceiling_there_is_no_skill() -> None:
    assert schema.skill(0.5, 0.5, 0.5) is None


def test_a_frame_keeps_whole_numbers_and_booleans_where_some_are_null() -> None:
    rows = [make_row(seed=1, n_correct=2**60 + 1, git_dirty=True), make_row(seed=2, n_correct=None, git_dirty=None)]

    frame = schema.to_frame(schema.table_of(RUN_COLUMNS, rows))

    assert frame["n_correct"].dtype == "Int64"
    assert frame["git_dirty"].dtype == "boolean"
    assert frame["n_correct"][0] == 2**60 + 1
    assert frame["n_correct"].isna().tolist() == [False, True]
    assert frame["git_dirty"].isna().tolist() == [False, True]
    assert frame["seed"].dtype == "int64"
