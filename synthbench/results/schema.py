"""The columns of the results store, with name, type, unit and meaning, and the checks that every row must pass.

Only nullable columns are ever added, so every version of this schema can read the rows of all earlier versions.

To add a column:

- raise ``SCHEMA_VERSION`` and add a nullable entry to ``RUN_COLUMNS`` with that number as ``since``. The text
  ``meaning`` must say when the value is null. Make the entry with the function named after the value's origin, such
  as ``result_or_null`` for a value that training decides;
- set the value in ``runner/rows.py``, or in ``runner/environment.py`` if it describes the machine or the software. A
  result is null in the row of a failed run;
- add a limit to ``trust/audit.py`` if some values would be implausible;
- name the column in ``tests/runner/runs.py`` if it may differ between runs that are otherwise the same;
- run ``python docs/generate.py``, which updates ``results/README.md``, and write a store of the new version:
  ``python tests/golden/stores/write.py tests/golden/stores/VERSION-COMMIT``.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pyarrow as pa

from synthbench.canonical import json_entries, run_id_of, sha256
from synthbench.errors import UnknownName, UsageError
from synthbench.plugins import NAME

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 6

Status = Literal["ok", "diverged", "oom", "timeout", "error", "contract", "unsupported"]
STATUSES: tuple[Status, ...] = ("ok", "diverged", "oom", "timeout", "error", "contract", "unsupported")

MAX_STRING_BYTES = 2**20
"""Limit on the length of a string in a row, in bytes, since a store may come from a stranger."""

ColumnType = Literal[
    "string", "name", "term", "json", "numbers", "bool", "int32", "int64", "float32", "float64", "timestamp"
]  # fmt: skip
"""Types of values. A ``name`` is text such as ``string-copy``, a ``term`` is a name with or without arguments, and
``json`` is strict JSON text. ``numbers`` is the JSON text of an object whose values are finite numbers or null."""

DecidedBy = Literal["configuration", "training", "circumstances"]
"""Origin of a value. ``verify`` checks, for every row, the values decided by the configuration and the code. It
retrains a sample of the rows to check the values decided by training. Circumstances are all other values, such as the
time and the machine."""

TERM = re.compile(rf"{NAME.pattern}(:\w+=[\w.+-]+(,\w+=[\w.+-]+)*)?", re.ASCII)
"""Pattern of a term: a name, with arguments or without, like ``aether:norm=pre``."""

_PATTERNS: dict[ColumnType, re.Pattern[str]] = {"name": NAME, "term": TERM}

# All other types are text.
_ARROW: dict[ColumnType, pa.DataType] = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True)
class Column:
    """Description of one column."""

    name: str
    type: ColumnType
    unit: str
    meaning: str
    is_nullable: bool = False
    choices: tuple[str, ...] = ()
    decided_by: DecidedBy = "configuration"
    since: int = 1
    """The schema version that introduced the column, which may be null in rows of earlier versions."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return _ARROW.get(self.type, pa.string())

    def allowed(self) -> str:
        """Describe the allowed values in words, e.g. ``float64 or null``."""
        described = "one of " + ", ".join(self.choices) if self.choices else self.type
        return described + (" or null" if self.is_nullable else "")


or_null = partial(Column, is_nullable=True)
result = partial(Column, decided_by="training")
result_or_null = partial(result, is_nullable=True)
circumstance = partial(Column, decided_by="circumstances")
circumstance_or_null = partial(circumstance, is_nullable=True)

_BOUND_KINDS = ("exact", "bound")

RUN_COLUMNS = (
    # What the row is
    circumstance("run_id", "string", "", "identity: hash of config_json, 16 hex digits"),
    circumstance("schema_version", "int32", "", "version of this table that the row was written under"),
    or_null("role", "string", "", "`tuning`: it chose a rate, scored on validation; else null", choices=("tuning",)),
    Column("suite", "name", "", "the suite, e.g. `smoke`, `paper`, `core`"),
    Column("suite_version", "string", "", "e.g. `2026.1`; a table never mixes two"),
    Column("is_full", "bool", "", "false if limits or fewer steps were asked for; such a row is never ranked"),
    result("status", "string", "", "how the run ended", choices=STATUSES),
    result_or_null("error_type", "string", "", "class of the error; null if there was none"),
    circumstance_or_null("error_message", "string", "", "first 500 characters; null if there was no error"),
    # Task
    Column("task", "name", "", "registered name"),
    Column("task_category", "name", "", "the folder that holds the task"),
    Column("task_version", "string", "", "declared version; if a plugin declares none, `1+` and its task_code_hash"),
    circumstance_or_null("task_code_hash", "string", "", "hash of the source; information only; null if unknown"),
    Column("task_source", "string", "", "key of the paper"),
    Column("task_args", "json", "", "options and length; on a ladder the unit of its load, and its levels"),
    or_null("task_size", "name", "", "size requested by name, in old rows; else null"),
    Column("seq_len", "int64", "tokens", "length that was trained on; on a ladder that of the last level"),
    Column("vocab_size", "int64", "tokens", "number of token ids, also of output classes"),
    result_or_null("n_train", "int64", "sequences", "training sequences drawn; null if the run was killed first"),
    Column("n_eval", "int64", "sequences", "test sequences that the score is, or would have been, taken over"),
    # Mechanism and the model around it
    Column("mech", "name", "", "registered name"),
    Column("mech_label", "string", "", "what a table prints"),
    Column("mech_family", "string", "", "which idea it descends from"),
    Column("mech_source", "string", "", "key of the paper"),
    Column("mech_version", "string", "", "declared version; if a plugin declares none, `1+` and its mech_code_hash"),
    circumstance("mech_origin", "string", "", "`builtin`, `distribution==version` or a file's name"),
    or_null("plugins_loaded", "json", "", "origins of the plugins in its process; null if none, or not known"),
    Column("mech_args", "json", "", "hyper-parameters"),
    or_null("match", "string", "", "`--match` asked: `state=4096 of slay:P=8`; `mech_args` is what it found; or null"),
    or_null(
        "condition",
        "string",
        "",
        "`stock`: the layer as its authors build it; `bare`: the recurrence or the scores alone; `2026.1` and null: "
        "as it was before there were conditions",
        choices=("stock", "bare", "2026.1"),
        since=5,
    ),
    circumstance_or_null("note", "string", "", "a doubt about the configuration; else null", since=6),
    circumstance("mech_code_hash", "string", "", "hash of the source; information only"),
    circumstance("causal_checked", "bool", "", "the causality check passed at this code hash"),
    Column("block", "term", "", "the layer around the mechanism: `aether:norm=pre`"),
    circumstance_or_null("block_code_hash", "string", "", "hash of the source; information only; null if unknown"),
    Column("positions", "term", "", "how the order of tokens reaches the mechanism: `rope:base=500`"),
    circumstance_or_null("positions_code_hash", "string", "", "hash of the source; information only; null if unknown"),
    Column("d_model", "int32", "", "width"),
    Column("n_layers", "int32", "count", "blocks"),
    Column("n_heads", "int32", "count", "heads"),
    result_or_null("n_params", "int64", "count", "whole model; null if it was never built"),
    result_or_null("n_params_mixer", "int64", "count", "the mechanism of all blocks; null like n_params"),
    result_or_null("state_size", "int64", "elements", "of a layer after seq_len tokens; null if never built"),
    # Seeds and how runs were trained together
    Column("seed", "int64", "", "root seed of the run"),
    Column("data_seed", "int64", "", "derived from seed: the data streams"),
    Column("init_seed", "int64", "", "derived from seed: the initial parameters"),
    circumstance("ensemble_size", "int32", "count", "runs trained as one program"),
    circumstance("ensemble_index", "int32", "", "which of them this is, from 0"),
    result("member_strategy", "string", "", "form of batching", choices=("fold", "stack", "loop")),
    # Score
    Column(
        "metric_name",
        "string",
        "",
        "`accuracy`, `accuracy of prototypes`, `minus bits per token`, or `height over rungs`: a ladder's score",
    ),
    result_or_null("score", "float64", "fraction or bits", "higher is better; null unless ok or diverged"),
    result_or_null("skill", "float64", "fraction", "(score - floor) / (ceiling - floor); null if none, as in bits"),
    Column("floor", "float64", "as the score", "of the best predictor that sees no input: one constant a position"),
    Column("floor_kind", "string", "", "bound: the true floor may be higher", choices=_BOUND_KINDS),
    Column("ceiling", "float64", "as the score", "of the best causal predictor"),
    Column("ceiling_kind", "string", "", "bound: the true ceiling may be lower", choices=_BOUND_KINDS),
    or_null("local_ceiling", "float64", "fraction", "of the best rule of token and position, measured; or null"),
    result_or_null("score_ood", "float64", "fraction", "mean over the tests `x2`, `x4`, ... in metrics; null if none"),
    result("metrics", "numbers", "", "all other metrics by name, as JSON: finite numbers, NaN as null; `{}` if none"),
    result_or_null("n_eval_examples", "int64", "count", "scored targets of the test; null without a score"),
    result_or_null("n_correct", "int64", "count", "those predicted correctly; null without a score"),
    result_or_null("train_loss", "float64", "nats", "last training loss; null if no step was taken"),
    result_or_null("eval_loss", "float64", "nats", "loss of the final evaluation; null if none"),
    result_or_null("best_eval_loss", "float64", "nats", "lowest loss of any evaluation; null if none"),
    # Protocol
    result_or_null("steps", "int64", "steps", "steps taken; null if the run was killed"),
    Column("steps_planned", "int64", "steps", "steps asked for"),
    result_or_null("steps_to_threshold", "int64", "steps", "first evaluation at the threshold; null if never"),
    Column("batch_size", "int32", "sequences", "sequences a step"),
    Column("optimizer", "string", "", "name"),
    or_null("lr", "float64", "", "learning rate, at its peak; null if none had been chosen yet"),
    result_or_null("lr_first", "float64", "", "learning rate of the first step; null if none was taken", since=4),
    result_or_null("lr_last", "float64", "", "learning rate of the last step; null if none was taken", since=4),
    Column("weight_decay", "float64", "", "weight decay"),
    Column("tuning_trials", "int32", "count", "learning rates of which one was chosen to train this row"),
    Column("tuning_rule", "string", "", "how one of them was chosen"),
    Column("config_json", "json", "", "the complete resolved configuration"),
    Column("config_hash", "string", "", "hash of config_json"),
    # Machine
    Column("device_type", "string", "", "`cpu`, `cuda`, `mps`"),
    circumstance("device_name", "string", "", "model; of a CPU with family, model, stepping: `AMD EPYC (25.1.1)`"),
    Column("dtype", "string", "", "type of the parameters"),
    circumstance("amp", "bool", "", "mixed precision"),
    circumstance("compiled", "bool", "", "compiled or captured"),
    circumstance("deterministic", "bool", "", "deterministic algorithms only"),
    circumstance("tf32", "bool", "", "TF32 products allowed"),
    circumstance("num_threads", "int32", "count", "torch's threads for one operation on the CPU"),
    circumstance("n_visible_devices", "int32", "count", "accelerators that the run could see"),
    circumstance("wall_s", "float64", "s", "whole job with all runs that it trained, monotonic clock"),
    circumstance("queue_s", "float64", "s", "between plan and start"),
    circumstance_or_null("train_s", "float64", "s", "training of the job's runs; null if the run was killed"),
    circumstance_or_null("eval_s", "float64", "s", "evaluation of the job's runs; null if the run was killed"),
    circumstance_or_null("data_s", "float64", "s", "waiting for batches; null if the run was killed"),
    circumstance_or_null("step_ms_median", "float64", "ms", "one step of the ensemble after warm-up; null if too few"),
    circumstance_or_null("tokens_per_s", "float64", "tokens/s", "of the whole job after warm-up; null if too few"),
    circumstance_or_null("peak_mem_bytes", "int64", "bytes", "of the device or the process; null if unknown"),
    circumstance_or_null("flops_estimate", "float64", "FLOP", "of the whole run; null if unknown"),
    circumstance("started_at", "timestamp", "UTC", "wall clock"),
    circumstance("finished_at", "timestamp", "UTC", "wall clock; of two rows with one run_id the later counts"),
    circumstance("host_hash", "string", "", "salted hash of the host's name"),
    circumstance("executor", "string", "", "`inline`, `pool`, ..."),
    circumstance("attempt", "int32", "", "1 is the first try"),
    # Software
    circumstance("synthbench_version", "string", "", "version"),
    circumstance_or_null("git_sha", "string", "", "commit of the checkout, or SYNTHBENCH_COMMIT; null without"),
    circumstance_or_null("git_dirty", "bool", "", "uncommitted changes; false with SYNTHBENCH_COMMIT; or null"),
    circumstance("python", "string", "", "version"),
    circumstance("torch", "string", "", "version"),
    circumstance("numpy", "string", "", "version"),
    circumstance_or_null("cuda", "string", "", "version; null without CUDA"),
    circumstance("os", "string", "", "system and release"),
    circumstance("packages", "json", "", "versions of the plugin's and other relevant distributions"),
    # Trust
    circumstance_or_null("verified_by", "string", "", "who ran it again, how, when; filled on reading; or null"),
    circumstance_or_null("migrated_from", "string", "", "`schema:run_id:row_sha256` of the row before; or null"),
    circumstance_or_null("curve_sha256", "string", "", "over the learning curve; null if the run has none"),
    circumstance("row_sha256", "string", "", "over all other columns that are not null"),
)

CURVE_COLUMNS = (
    Column("run_id", "string", "", "the run that the point belongs to"),
    Column("step", "int64", "steps", "steps taken"),
    Column("split", "name", "", "which stream was scored: `train`, `validation`, `test`, ..."),
    Column("metric", "name", "", "e.g. `loss`, `accuracy`"),
    Column("value", "float32", "as the metric", "the value; NaN is kept"),
    Column("wall_s", "float64", "s", "since the run began, monotonic clock"),
    Column("tokens", "int64", "tokens", "trained on so far"),
)

VERIFICATION_COLUMNS = (
    Column("run_id", "string", "", "the run that was run again"),
    Column("row_sha256", "string", "", "checksum of its row as it was then: another row of this run is not verified"),
    Column("verdict", "string", "", "how near the re-run came", choices=("bitwise", "tolerance")),
    Column("verified_by", "string", "", "who says so"),
    Column("verified_at", "timestamp", "UTC", "wall clock; of two verifications of one row the later is shown"),
    Column("synthbench_version", "string", "", "version that ran it again"),
    Column("device_name", "string", "", "model name of the device that ran it again"),
    or_null("score", "float64", "fraction", "score of the re-run; null if it has none"),
)
"""Columns of the table of verifications; it is separate, so that a verified row keeps its id and checksum."""


def split_match(match: str) -> tuple[str, str]:
    """Split the column ``match``, such as ``state=4096 of slay:P=8``, into the requested size and the mechanism."""
    asked, _, term = match.partition(" of ")
    return asked, term


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.arrow_type, nullable=column.is_nullable) for column in columns])


RUNS: pa.Schema = _schema(RUN_COLUMNS)
CURVES: pa.Schema = _schema(CURVE_COLUMNS)
VERIFICATIONS: pa.Schema = _schema(VERIFICATION_COLUMNS)


def run_id(identity: dict[str, Any]) -> str:
    """Compute a run's id: 16 hex digits of a hash of everything that determines the run's result.

    Args:
        identity: Configuration of the run, as JSON values. Validate the types first, since 64 and 64.0 give different
            ids.
    """
    return run_id_of(json_entries(identity))


def skill(score: float | None, floor: float, ceiling: float) -> float | None:
    """Rescale a score: the floor becomes 0, the ceiling 1. None if there is no score, or if floor equals ceiling."""
    if score is None or floor == ceiling:
        return None
    return (score - floor) / (ceiling - floor)


def row_sha256(row: Mapping[str, Any]) -> str:
    """Compute a row's checksum, the hash of all its columns except ``row_sha256`` itself.

    Null values are left out, so a row keeps its checksum when later versions add nullable columns. Since 1 and 1.0 have
    different hashes, convert the row with :func:`table_of` first, which gives each number the type of its column.
    """
    stated = {name: value for name, value in row.items() if value is not None and name != "row_sha256"}
    return sha256(json.dumps(stated, sort_keys=True, separators=(",", ":"), default=utc_text))


def curve_sha256(curve: Mapping[str, Sequence[Any]]) -> str:
    """Compute the checksum of one run's learning curve, from all columns of its points except ``run_id``.

    Args:
        curve: For each column, the list of its values, with one value per point.
    """
    points = list(zip(*(curve[column.name] for column in CURVE_COLUMNS if column.name != "run_id"), strict=True))
    return sha256(json.dumps(points, separators=(",", ":")))


def table_of(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Convert rows to an Arrow table that has exactly the given columns.

    Raises:
        UnknownName: If a row has a key that is not a column.
        UsageError: If a row lacks a column, or if a value has the wrong type.
    """
    names = {column.name for column in columns}
    for row in rows:
        for name in row:
            if name not in names:
                raise UnknownName("column", name, names)
        if missing := [column.name for column in columns if column.name not in row]:
            raise UsageError("the row lacks " + ", ".join(missing))
    arrays = [_array(column, [row[column.name] for row in rows]) for column in columns]
    return pa.Table.from_arrays(arrays, schema=_schema(columns))


def check_values(columns: Iterable[Column], row: Mapping[str, Any]) -> None:
    """Check the values in a row beyond their types: nulls, allowed values, names, valid JSON and lengths of strings.

    Raises:
        UsageError: If a value is not allowed; the message names its column.
    """
    for column in columns:
        value = row[column.name]
        if value is None:
            if not column.is_nullable:
                _refuse(column, value)
        elif isinstance(value, str):
            if len(value) * 4 > MAX_STRING_BYTES and len(value.encode()) > MAX_STRING_BYTES:
                raise UsageError(f"column {column.name!r} has a string of more than {MAX_STRING_BYTES} bytes")
            pattern = _PATTERNS.get(column.type)
            if (
                (column.choices and value not in column.choices)
                or (pattern is not None and not pattern.fullmatch(value))
                or (column.type in ("json", "numbers") and not _is_json(value, of_numbers=column.type == "numbers"))
            ):
                _refuse(column, value)


def to_frame(table: pa.Table) -> "pd.DataFrame":
    """Convert an Arrow table to a pandas data frame; null and NaN both become missing values.

    Integer and boolean columns that allow nulls get the pandas types ``Int64`` and ``boolean``.
    """
    # Without this option, integers in a column with nulls would pass through float64.
    frame: pd.DataFrame = table.to_pandas(integer_object_nulls=True)
    for field in table.schema:
        if field.nullable and pa.types.is_integer(field.type):
            frame[field.name] = frame[field.name].astype("Int64")
        elif field.nullable and pa.types.is_boolean(field.type):
            frame[field.name] = frame[field.name].astype("boolean")
    return frame


def _array(column: Column, values: list[Any]) -> pa.Array:
    for value in values:
        # Arrow would read True as 1, cut 1.5 to 1, and take a time without a zone for UTC.
        is_mistaken = isinstance(value, bool) and column.type != "bool"
        is_cut = column.type in ("int32", "int64") and not isinstance(value, Integral | None)
        is_naive = isinstance(value, datetime) and value.tzinfo is None
        if is_mistaken or is_cut or is_naive:
            _refuse(column, value)
    try:
        return pa.array(values, column.arrow_type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"column {column.name!r}: {error}; allowed: {column.allowed()}") from error


def _refuse(column: Column, value: object) -> NoReturn:
    raise UsageError(f"column {column.name!r} is {repr(value)[:200]}; allowed: {column.allowed()}")


def _is_json(text: str, *, of_numbers: bool) -> bool:
    try:
        content = _STRICT_JSON.decode(text)
    except (ValueError, RecursionError):
        return False
    return not of_numbers or (isinstance(content, dict) and all(map(_is_finite, content.values())))


def _is_finite(value: object) -> bool:
    # Not math.isfinite, which fails for a whole number of 400 digits.
    return value is None or (isinstance(value, int | float) and abs(value) <= sys.float_info.max)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


# Created once: json.loads with options would create a decoder at every call.
_STRICT_JSON = json.JSONDecoder(parse_constant=_no_constant)


def utc_text(value: datetime) -> str:
    """Format a time as checksums require: ISO 8601 in UTC with microseconds."""
    return value.astimezone(UTC).isoformat(timespec="microseconds")
