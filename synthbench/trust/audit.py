"""Find contradictions within a result row, without the code that made the row and without training again.

A row has already passed the checks of its schema and checksum, but a forger can make a row that passes them. The checks
here test that the row's id is the hash of its configuration, that its numbers are consistent, and that no value is
harmfully large. Only training again can show that the numbers are true.
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from synthbench.bits import BITS, bits_of
from synthbench.canonical import sha256
from synthbench.levels import LADDER_SCORE, ladder_score, levels_in
from synthbench.results.migration import canonical_object, former
from synthbench.results.schema import RUN_COLUMNS, run_id, skill
from synthbench.trust.compare import equal

MAX_TEXT = 1000
"""Limit on the length of a text in a row, in characters; JSON may be longer."""
MAX_JSON = 2**16
"""Limit on the length of a JSON text in a row, in characters."""

LARGEST = {
    "seq_len": 2**16,
    "vocab_size": 2**20,
    "batch_size": 2**14,
    "steps_planned": 10**7,
    "n_eval": 2**20,
    "d_model": 2**14,
    "n_layers": 2**8,
    "n_heads": 2**10,
    "ensemble_size": 2**12,
    "tuning_trials": 2**10,
}
"""Limits on values of a protocol; nothing larger is built, so that no row can exhaust the memory."""

MAX_ARGUMENT = 2**16
"""Largest whole number among the arguments of a task or a mechanism."""

CLOCK_SKEW = timedelta(days=1)
"""Limit on how far a row's clock may be ahead; the latest row of a run is used, so a future date would always win."""

_TOLERANCE = 1e-9
"""Differences up to this are taken as rounding errors."""

_SCORES = ("score", "floor", "ceiling", "local_ceiling", "score_ood")
_NOT_NEGATIVE = tuple(
    column.name
    for column in RUN_COLUMNS
    if pa.types.is_integer(column.arrow_type) or pa.types.is_floating(column.arrow_type)
    if column.name not in (*_SCORES, "skill")
)
"""Columns whose numbers are finite and not negative, except for the training loss of a run that diverged."""
_PARTS = (("steps", "steps_planned"), ("steps_to_threshold", "steps"), ("n_correct", "n_eval_examples"))
"""Pairs of a count and the total that it cannot exceed."""
_MEASURED = ("score", "n_correct", "n_eval_examples", "eval_loss")
"""Columns that are not null if and only if the status of the row is ``ok``."""


def digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Compute one hash (64 hex digits) of many rows, from their run ids and checksums; their order has no effect.

    For a row migrated from an older schema, the original id and checksum are used, so migration does not change the
    hash.
    """
    written = (former(row) or row for row in rows)
    names = sorted(f"{row['run_id']}:{row['row_sha256']}" for row in written)
    return sha256("\n".join(names))


def sample(rows: Sequence[Mapping[str, Any]], fraction: float, salt: str = "") -> list[str]:
    """Draw a sample of run ids; equal rows and an equal salt always give the same sample.

    A change to any row changes the sample. So a forger could change rows until no forged row is drawn, unless the
    verifier chooses a salt after the rows were submitted.

    Args:
        rows: All rows, in any order.
        fraction: Fraction of the rows to draw, above 0 and at most 1; at least one row is drawn.
        salt: Any text, chosen by the verifier.

    Returns:
        Run ids in the order in which they are drawn: the first n of them are a sample of size n.
    """
    root = digest(rows)
    drawn = sorted((row["run_id"] for row in rows), key=lambda name: sha256(f"{root}:{salt}:{name}"))
    return drawn[: math.ceil(fraction * len(drawn))]


def faults(row: Mapping[str, Any], now: datetime) -> list[str]:
    """List contradictions between the values in a row; the list is empty if there are none.

    Args:
        row: A row of a results store; its columns, types and checksum must already be checked.
        now: The present time, with a time zone. A row must not have finished more than ``CLOCK_SKEW`` later.
    """
    oversized = list(_oversized(row))
    if oversized:  # its content is not read any further
        return oversized
    return [*_of_configuration(row), *_of_numbers(row), *_of_outcome(row), *_of_times(row, now)]


def _oversized(row: Mapping[str, Any]) -> Iterator[str]:
    for column in RUN_COLUMNS:
        value = row[column.name]
        if isinstance(value, str):
            most = MAX_JSON if column.type in ("json", "numbers") else MAX_TEXT
            if len(value) > most:
                yield f"{column.name} has {len(value)} characters; allowed: up to {most}"
            elif column.name != "error_message" and not value.isprintable():
                yield f"{column.name} has characters that cannot be printed: {value[:80]!r}"
        elif column.name in LARGEST and not 0 < value <= LARGEST[column.name]:
            yield f"{column.name} is {value}; allowed: 1 to {LARGEST[column.name]}"
    for name in ("task_args", "mech_args"):
        for argument, value in _object(row[name]).items():
            if (number := _whole_number(value)) is not None and abs(number) > MAX_ARGUMENT:
                yield f"{name} has {argument} = {value}; allowed: up to {MAX_ARGUMENT}"


def _whole_number(value: object) -> int | None:
    """Return an argument (an integer or its text) as an integer; None for other values."""
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None


def _of_configuration(row: Mapping[str, Any]) -> Iterator[str]:
    config = _object(row["config_json"])
    if not canonical_object(row["config_json"]):
        yield "config_json is not an object in canonical form"
    elif (name := run_id(config)) != row["run_id"]:
        yield f"run_id is not the hash of its configuration, which is {name}"
    for key, value in config.items():
        # Terms also have arguments in their columns: ``aether:norm=pre``.
        if isinstance(value, str | int) and key in row and value not in (row[key], str(row[key]).partition(":")[0]):
            yield f"{key} is {row[key]!r}, and {value!r} in config_json"
    if sha256(row["config_json"])[:16] != row["config_hash"]:
        yield f"config_hash {row['config_hash']!r} is not the hash of config_json"
    if row["migrated_from"] is not None and former(row) is None:
        yield f"it is not the row that it says it was migrated from: {row['migrated_from']!r}"


def _of_numbers(row: Mapping[str, Any]) -> Iterator[str]:
    scores = (-sys.float_info.max, 0.0) if _is_in_bits(row) else (0.0, 1.0)
    for name, (least, most) in {
        **dict.fromkeys(_SCORES, scores),
        **dict.fromkeys(_NOT_NEGATIVE, (0.0, sys.float_info.max)),
    }.items():
        may_be_nan = name == "train_loss" and row["status"] == "diverged"
        if row[name] is not None and not may_be_nan and not least <= row[name] <= most:
            yield f"{name} is {row[name]}; allowed: {least:g} to {most:g}"
    if row["floor"] > row["ceiling"] + _TOLERANCE:
        yield f"floor {row['floor']} is above ceiling {row['ceiling']}"
    if not 0 <= row["ensemble_index"] < row["ensemble_size"]:
        yield f"ensemble_index is {row['ensemble_index']} of {row['ensemble_size']}"
    for part, whole in _PARTS:
        if None not in (row[part], row[whole]) and not 0 <= row[part] <= row[whole]:
            yield f"{part} is {row[part]}, {whole} is {row[whole]}"


def _of_outcome(row: Mapping[str, Any]) -> Iterator[str]:
    expected = None if _is_in_bits(row) else skill(row["score"], row["floor"], row["ceiling"])
    if not equal(row["skill"], expected, _TOLERANCE):
        yield f"skill is {row['skill']}; score, floor and ceiling make it {expected}"
    if row["score"] is not None and row["n_eval_examples"] is not None:
        of_score = (
            _of_levels if row["metric_name"].endswith(LADDER_SCORE) else _of_bits if _is_in_bits(row) else _of_counts
        )
        yield from of_score(row)
    for name in _MEASURED:
        if (row[name] is None) == (row["status"] == "ok"):
            yield f"status is {row['status']!r} and {name} is {row[name]}"
    if (row["error_type"] is None) != (row["status"] == "ok"):
        yield f"status is {row['status']!r} and error_type is {row['error_type']!r}"
    if row["status"] == "ok" and not row["causal_checked"]:
        yield "it has a score, but its mechanism was not checked for causality"


def _is_in_bits(row: Mapping[str, Any]) -> bool:
    return bool(row["metric_name"].endswith(BITS))


def _of_bits(row: Mapping[str, Any]) -> Iterator[str]:
    expected = None if row["eval_loss"] is None else -bits_of(row["eval_loss"])
    if not equal(row["score"], expected, _TOLERANCE):
        yield f"score is {row['score']}, but a loss of {row['eval_loss']} makes it {expected}"


def _of_counts(row: Mapping[str, Any]) -> Iterator[str]:
    share = (row["n_correct"] or 0) / row["n_eval_examples"] if row["n_eval_examples"] else math.nan
    if not equal(row["score"], share, _TOLERANCE):
        yield f"score is {row['score']}, but {row['n_correct']} of {row['n_eval_examples']} are correct: {share}"


def _of_levels(row: Mapping[str, Any]) -> Iterator[str]:
    levels = levels_in(_object(row["metrics"]))
    if not levels or not all(0 <= level.base < level.ceiling <= 1 and 0 <= level.score <= 1 for level in levels):
        yield "metrics has no levels whose accuracies and bases are fractions below their ceilings"
    elif not equal(row["score"], share := ladder_score(levels), _TOLERANCE):
        yield f"score is {row['score']}, but its {len(levels)} levels make it {share}"


def _of_times(row: Mapping[str, Any], now: datetime) -> Iterator[str]:
    if row["started_at"] - row["finished_at"] > CLOCK_SKEW:
        yield f"it finished at {row['finished_at']} and began at {row['started_at']}"
    if row["finished_at"] > now + CLOCK_SKEW:
        yield f"finished_at is {row['finished_at']}, in the future"


def _object(text: str) -> dict[str, Any]:
    """Parse valid JSON text; return an empty object if its value is not an object."""
    value = json.loads(text)
    return value if isinstance(value, dict) else {}
