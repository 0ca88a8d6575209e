"""The checks of :mod:`synthbench.results.schema` for many rows at once, a column at a time.

A row at a time they take the greater part of a millisecond a row. Nothing is checked less: :func:`suspects` may name a
row too many, never one too few, and a checksum here is that of ``row_sha256`` and ``curve_sha256``, letter by letter.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from synthbench.errors import UsageError
from synthbench.results.schema import CURVE_COLUMNS, Column, check_values, utc_text

MAX_TEXT_BYTES = 2**16
"""A row with more text than this is looked at by itself: what is joined here must stay below 2 GiB."""
_ROWS_AT_ONCE = 2**13
_POINTS_AT_ONCE = 2**19
_THREADS = 4
"""Each holds the texts of the points of its part."""

# The years 1 to 9999 in microseconds: what lies outside, Python cannot name.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999

# Between these Arrow writes the digits that Python writes, save for whole numbers.
_PLAIN_FROM, _PLAIN_TO = 1e-4, 1e9


def is_readable(table: pa.Table) -> bool:
    """Whether every value of a table can be had in Python: text in UTF-8, times in years of four digits."""
    try:
        table.validate(full=True)
    except pa.ArrowException:
        return False
    return all(_has_four_digit_years(column) for column in table.columns if pa.types.is_timestamp(column.type))


def suspects(columns: Iterable[Column], table: pa.Table) -> Bool[np.ndarray, " rows"]:
    """Which rows of a readable table ``check_values`` might refuse; those with very much text are among them."""
    found = np.zeros(table.num_rows, dtype=bool)
    text_bytes = np.zeros(table.num_rows, dtype=np.int64)
    for column in columns:
        values = table[column.name].combine_chunks()
        if not column.is_nullable and values.null_count:
            found |= _as_numpy(values.is_null())
        if pa.types.is_string(values.type):
            text_bytes += _as_numpy(pc.binary_length(values).fill_null(0))
            if column.type == "string" and not column.choices:
                continue  # only its length counts
            distinct = values.dictionary_encode()
            refused = [index for index, word in enumerate(distinct.dictionary.to_pylist()) if _is_refused(column, word)]
            if refused:
                found |= np.isin(_as_numpy(distinct.indices.fill_null(-1)), refused)
    return found | (text_bytes > MAX_TEXT_BYTES)


def row_checksums(table: pa.Table) -> list[str]:
    """``row_sha256`` of each row of a readable table without :func:`suspects`."""
    names = sorted(set(table.column_names) - {"row_sha256"})
    sums = []
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        part = table.slice(start, _ROWS_AT_ONCE)
        stated = pc.binary_join_element_wise(*_entries(part, names), ",", null_handling="skip")
        sums += [hashlib.sha256(b"{%b}" % text).hexdigest() for text in _bytes(stated)]
    return sums


def _entries(part: pa.Table, names: Iterable[str]) -> Iterator[pa.Array]:
    """What an object of JSON has of some columns, row by row; null for null.

    Columns that say the same in every row come as one with those beside them: 29 of 105 of the committed rows.
    """
    same: list[str] = []
    for name in names:
        values = part[name].combine_chunks()
        key = f"{json.dumps(name)}:"
        if _is_constant(values):
            same.append(key + _json_texts(values.slice(0, 1))[0].as_py())
            continue
        if values.null_count == len(values):
            continue
        if same:
            yield pa.repeat(",".join(same), part.num_rows)
            same = []
        yield _after(key, _json_texts(values))
    if same:
        yield pa.repeat(",".join(same), part.num_rows)


def _is_constant(values: pa.Array) -> bool:
    """Whether an array has one value, bit by bit, and no null."""
    if values.null_count:
        return False
    if pa.types.is_floating(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())  # 0 and -0 are two texts
    return bool(pc.all(pc.equal(values, values[0])).as_py())


def curve_starts(table: pa.Table) -> Int64[np.ndarray, " curves"]:
    """Where the points of another run begin, in a table of points."""
    if not table.num_rows:
        return np.zeros(0, dtype=np.int64)
    ends = pc.run_end_encode(table["run_id"].combine_chunks()).run_ends.to_numpy()
    return np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1].astype(np.int64)])


def curve_checksums(table: pa.Table, starts: Int64[np.ndarray, " curves"]) -> list[str]:
    """``curve_sha256`` of each curve of a readable table without :func:`suspects`.

    Args:
        table: Points of many runs, those of a run together.
        starts: Where each curve begins, the first at 0.
    """

    def sums_of(stretch: tuple[int, int]) -> list[str]:
        first, last = stretch
        part = table.slice(first, last - first)
        texts = [_json_texts(part[column.name].combine_chunks()).fill_null("null") for column in CURVE_COLUMNS[1:]]
        points = _after("[", pc.binary_join_element_wise(*texts, ","))
        own = starts[(starts >= first) & (starts < last)] - first
        offsets = pa.array(np.append(own, last - first), pa.int32())
        curves = pc.binary_join(pa.ListArray.from_arrays(offsets, points), "],")
        return [hashlib.sha256(b"[%b]]" % text).hexdigest() for text in _bytes(curves)]

    # Arrow lets other threads go on while it writes texts; with rows, where Python writes the most, nothing is won.
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(chain.from_iterable(threads.map(sums_of, _stretches(starts, table.num_rows))))


def _stretches(starts: Int64[np.ndarray, " curves"], stop: int) -> Iterator[tuple[int, int]]:
    """Parts of a table of points that hold whole curves."""
    first = 0
    for start in [*starts[1:].tolist(), stop]:
        if start - first >= _POINTS_AT_ONCE or start == stop:
            yield first, start
            first = start


def _json_texts(array: pa.Array) -> pa.Array:
    """What ``json.dumps`` writes for each value; null for null."""
    if pa.types.is_string(array.type):
        return _by_word(array, encode_basestring_ascii)
    if pa.types.is_timestamp(array.type):
        return _by_word(array, lambda moment: json.dumps(utc_text(moment)))
    if pa.types.is_floating(array.type):
        return _float_texts(array.cast(pa.float64()))
    return array.cast(pa.string())


def _by_word(array: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    words = array.dictionary_encode()
    return pa.array(map(write, words.dictionary.to_pylist()), pa.string()).take(words.indices)


def _float_texts(array: pa.Array) -> pa.Array:
    numbers = array.fill_null(0.5).to_numpy()
    size = np.abs(numbers)
    is_plain = (size >= _PLAIN_FROM) & (size < _PLAIN_TO) & (numbers != np.floor(numbers))
    texts = array.cast(pa.string())
    if is_plain.all():
        return texts
    others = pa.array(map(json.dumps, numbers[~is_plain].tolist()), pa.string())
    return pc.replace_with_mask(texts, pa.array(~is_plain), others)


def _after(prefix: str, texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(prefix), texts, "", null_handling="emit_null")


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


def _bytes(texts: pa.Array) -> list[bytes]:
    """The texts in UTF-8, as they lie there: nothing is decoded to be encoded again."""
    found: list[bytes] = texts.cast(pa.binary()).to_pylist()
    return found
