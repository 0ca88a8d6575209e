"""Numbers for other programs: CSV that no spreadsheet takes for more than numbers and words, and strict JSON."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from synthbench.reports.render import visible

Value = str | int | float | None

_STARTS = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")
"""What a formula may begin with; the wide forms do so in some languages."""


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Value]]) -> str:
    """Lines under a header; numbers with six digits, nothing where there is no number.

    Source: OWASP, CSV Injection: text that begins like a formula goes behind an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_inert, header))
    writer.writerows(map(_field, line) for line in lines)
    return text.getvalue()


def json_text(value: object) -> str:
    """JSON in ASCII; a number that is missing or not finite is null, and keys stay in their order.

    Numbers have twelve digits: the last ones of a float64 are those of the processor.
    """
    return json.dumps(_strict(value), indent=1, allow_nan=False) + "\n"


def _strict(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    # pandas' own sign for what is missing is no float.
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.12g}")
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
