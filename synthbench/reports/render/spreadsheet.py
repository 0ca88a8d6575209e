"""Numbers for other programs: CSV that spreadsheets do not run as formulas, and strict JSON."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from synthbench.reports.render import visible

Value = str | int | float | None

_STARTS = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")
"""Characters that may begin a formula; spreadsheets in some languages accept the full-width forms."""


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Value]]) -> str:
    """Format a header and lines as CSV; floats get six significant digits, and missing numbers become empty fields.

    Text that begins like a formula gets an apostrophe in front, so that no spreadsheet program executes it.

    Source: OWASP, CSV Injection.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_inert, header))
    writer.writerows(map(_field, line) for line in lines)
    return text.getvalue()


def json_text(value: object) -> str:
    """Format a value as ASCII JSON; numbers that are missing or not finite become null, and keys keep their order.

    Floats have nine significant digits, since the last digits of a float64 depend on the processor.
    """
    return json.dumps(_strict(value), indent=1, allow_nan=False) + "\n"


def _strict(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    # pandas' NA is no float, so it becomes null below.
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.9g}")
    return value if value is None or isinstance(value, str | int) else None


def _field(value: Value) -> str | int:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    if value is None:
        return ""
    return _inert(value) if isinstance(value, str) else value


@lru_cache(maxsize=2**12)
def _inert(text: str) -> str:
    text = visible(text, keep="\t\n")
    return f"'{text}" if text.startswith(_STARTS) else text
