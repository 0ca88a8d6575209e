"""Rows as they are, for other programs: one line a run, every column of the store."""

from collections.abc import Callable
from datetime import datetime

import pyarrow as pa

from synthbench.reports.spreadsheet import Value, csv_text, json_text
from synthbench.results.files import encode


def _csv(rows: pa.Table) -> str:
    lines = zip(*(map(_field, column.to_pylist()) for column in rows.columns), strict=True)
    return csv_text(rows.column_names, lines)


def _json(rows: pa.Table) -> str:
    return json_text([{name: _field(value) for name, value in row.items()} for row in rows.to_pylist()])


def _field(value: datetime | Value) -> Value:
    return value.isoformat() if isinstance(value, datetime) else value


DUMPS: dict[str, Callable[[pa.Table], str | bytes]] = {
    "csv": _csv,
    "json": _json,
    "parquet": lambda rows: encode("runs", rows),
}
"""By format: CSV with six digits a number and JSON without NaN are for reading; Parquet is exact, checksums hold."""
