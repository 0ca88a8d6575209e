"""A quick look at many rows at once: which of them have to be looked at one by one.

:func:`suspects` may name a row too many, never one too few.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool

from synthbench.errors import UsageError
from synthbench.results.schema import Column, check_values

MAX_TEXT_BYTES = 2**16
"""A row with more text than this is always looked at by itself."""

# The years 1 to 9999 in microseconds: what lies outside, Python cannot name.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def is_readable(table: pa.Table) -> bool:
    """Whether every value of a table can be had in Python: text in UTF-8, times in years of four digits."""
    try:
        table.validate(full=True)
    except pa.ArrowException:
        return False
    return all(_has_four_digit_years(column) for column in table.columns if pa.types.is_timestamp(column.type))


def suspects(columns: Iterable[Column], table: pa.Table) -> Bool[np.ndarray, " rows"]:
    """Which rows of a readable table ``check_values`` might refuse; those with very much text are among them."""
    is_suspect = np.zeros(table.num_rows, dtype=bool)
    text_bytes = np.zeros(table.num_rows, dtype=np.int64)
    for column in columns:
        values = table[column.name].combine_chunks()
        if not column.is_nullable and values.null_count:
            is_suspect |= _as_numpy(values.is_null())
        if pa.types.is_string(values.type):
            text_bytes += _as_numpy(pc.binary_length(values).fill_null(0))
            if column.type == "string" and not column.choices:
                continue  # only its length counts
            distinct = values.dictionary_encode()
            refused = [index for index, word in enumerate(distinct.dictionary.to_pylist()) if _is_refused(column, word)]
            if refused:
                is_suspect |= np.isin(_as_numpy(distinct.indices.fill_null(-1)), refused)
    return is_suspect | (text_bytes > MAX_TEXT_BYTES)


def _is_refused(column: Column, value: str) -> bool:
    try:
        check_values((column,), {column.name: value})
    except UsageError:
        return True
    return False


def _has_four_digit_years(moments: pa.ChunkedArray) -> bool:
    ends = pc.min_max(moments.cast(pa.int64())).as_py()  # a comparison with a number would import pandas
    return ends["min"] is None or (ends["min"] >= _FIRST_US and ends["max"] <= _LAST_US)


def _as_numpy(array: pa.Array) -> np.ndarray:
    return np.asarray(array.to_numpy(zero_copy_only=False))
