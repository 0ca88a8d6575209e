"""Rows of the store of results, for other programs: one line per run, with every column of the store."""

from collections.abc import Callable
from datetime import datetime

import pyarrow as pa

from synthbench.reports.render.spreadsheet import Value, csv_text, json_text
from synthbench.results import RUNS
from synthbench.results.store import encode


def _parquet(rows: pa.Table) -> bytes:
    # The verifier is stored beside the rows and is not part of their checksums.
    place = RUNS.get_field_index("verified_by")
    return encode("runs", rows.set_column(place, RUNS.field(place), pa.nulls(rows.num_rows, pa.string())))


def _field(value: datetime | Value) -> Value:
    return value.isoformat() if isinstance(value, datetime) else value


DUMPS: dict[str, Callable[[pa.Table], str | bytes]] = {
    "csv": lambda rows: csv_text(
        rows.column_names, zip(*(map(_field, one.to_pylist()) for one in rows.columns), strict=True)
    ),
    "json": lambda rows: json_text([{name: _field(value) for name, value in row.items()} for row in rows.to_pylist()]),
    "parquet": _parquet,
}
"""Writers by format. CSV and JSON are rounded, and JSON has null for NaN. Parquet is exact, so checksums stay valid."""
