"""Rows of schemas 1 and 2 in the form of schema 3: their ids hashed the source of their components, now the version.

Up to schema 2 the version of a component was ``1+3f9a0c11d2e4``, the declared one and a hash of its source, and both
were part of a row's id. Of a built-in component only the declared one still is. :func:`migrated` gives a row its new
id and keeps all that it said before, so that :func:`former` can undo it and check its old checksum.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from synthbench.canonical import canonical_json, sha256
from synthbench.results.schema import RUNS, row_sha256

LAST_BY_SOURCE = 2
"""The last schema whose ids hashed the source of built-in components; a migrated row is one of the next."""

_TASKS = """
a4_z5_words a5_words addition anbncn bigram binary_addition bottleneck_compression bucket_sort composite_recall
compression copy counting cycle_navigation distant_match duplicate_string dyck even_pairs first_token fuzzy_recall
grid_neighbours histogram in_context_language in_context_recall induction induction_first induction_latest
induction_majority khop_induction kv_recall listops long_copy majority memorization missing_duplicate modular
modular_arithmetic modular_brackets mqar multihop ngram_lookup noisy_copy noisy_recall odds_first overwrite_recall
parity parity_final parity_running pattern periodic_pattern planted_counting planted_majority pointer_chasing
retrieval reverse reverse_string s3_words s5_swaps s5_words selective_copy selective_copying shuffle_dyck
solve_equation sort stack stack_manipulation string_copy tree_compose tree_copy tree_mirror z60_words
"""
_MECHANISMS = """
based cosformer deltanet gla identity linear local lstm mamba2 mean performer performer-exp retention rewa-adaptive
rewa-density rewa-euclidean rewa-fisher rewa-fourier rewa-functional rewa-geometric rewa-hyperbolic rewa-lsh
rewa-mixture rewa-operator rewa-oscillatory rewa-path rewa-riemannian rewa-spherical rff slay slay-exact slay-hadamard
slay-laplace slay-maclaurin slay-nystrom slay-sketch slay-tensorsketch softmax yat yat-spherical yat-sum
"""
BUILT_IN = {
    "task": frozenset(_TASKS.split()),
    "mech": frozenset(_MECHANISMS.split()),
    "block": frozenset({"aether", "attention_only", "transformer"}),
    "positions": frozenset({"espr", "learned", "none", "rope", "string"}),
}
"""What came with synthbench while schema 2 was written: a fact of the past, nothing is ever added."""

_BY_SOURCE = re.compile(r"([0-9]+)\+([0-9a-f]{12})")
_FORMER = re.compile(r"([0-9]+):([0-9a-f]{16}):([0-9a-f]{64})")
_IN_COLUMNS = ("task", "mech")
"""Components whose version has a column of its own beside that in ``config_json``."""
_TOUCHED = (
    *("run_id", "schema_version", "config_json", "config_hash", "migrated_from", "row_sha256"),
    *("task", "task_version", "mech", "mech_version", "task_code_hash", "block_code_hash", "positions_code_hash"),
)
"""Columns that a row's migration reads or writes."""


def is_older(table: pa.Table) -> bool:
    """Whether any row of a table has to be migrated."""
    oldest = pc.min(table["schema_version"]).as_py()
    return oldest is not None and bool(oldest <= LAST_BY_SOURCE)


def migrated(table: pa.Table) -> pa.Table:
    """The same rows with the ids of this schema; a table without older rows is returned as it is.

    Args:
        table: Rows under ``RUNS`` that hold, whose checksums are right.
    """
    if not is_older(table):
        return table
    of_old = pc.less_equal(table["schema_version"], LAST_BY_SOURCE).to_numpy()
    rows = table.select(_TOUCHED).to_pylist()
    rows = [_migrated(row) if is_old else row for row, is_old in zip(rows, of_old, strict=True)]
    table = _with(table, {name: [row[name] for row in rows] for name in _TOUCHED})
    # Of the other rows the checksum is not touched: a checksum that was wrong must stay wrong.
    sums = table["row_sha256"].to_numpy().copy()
    sums[of_old] = [row_sha256(row) for row in table.filter(pa.array(of_old)).to_pylist()]
    return _with(table, {"row_sha256": sums})


def _with(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    for name, values in columns.items():
        place = RUNS.get_field_index(name)
        table = table.set_column(place, RUNS.field(place), pa.array(values, RUNS.field(place).type))
    return table


def former(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row that a migrated one was, to the last bit; None if it is not the row that it says it was.

    Whoever can write a row can write ``migrated_from``, so its old id and checksum are computed again.
    """
    stated = _FORMER.fullmatch(row["migrated_from"] or "")
    if stated is None:
        return None
    config = _object(row["config_json"])
    hashes = {kind: row[f"{kind}_code_hash"] for kind in BUILT_IN}
    versions = {f"{kind}_version": _with_source(config.get(f"{kind}_version"), hashes[kind]) for kind in BUILT_IN}
    text = canonical_json(config | {name: version for name, version in versions.items() if name in config})
    before = {
        **row,
        **_named(text if config else row["config_json"]),
        **{f"{kind}_version": _with_source(row[f"{kind}_version"], hashes[kind]) for kind in _IN_COLUMNS},
        **{f"{kind}_code_hash": None for kind in BUILT_IN if kind != "mech"},
        "schema_version": int(stated[1]),
        "migrated_from": None,
        "verified_by": None,  # filled on reading
    }
    before["row_sha256"] = row_sha256(before)
    return before if (before["run_id"], before["row_sha256"]) == (stated[2], stated[3]) else None


def stated_name(migrated_from: str | None) -> tuple[str, str] | None:
    """Id and checksum that a row says it was written under; None if it says nothing of the kind."""
    stated = _FORMER.fullmatch(migrated_from or "")
    return None if stated is None else (stated[2], stated[3])


def _migrated(row: dict[str, Any]) -> dict[str, Any]:
    config = _object(row["config_json"])
    declared = {kind: _declared(kind, config.get(kind), config.get(f"{kind}_version")) for kind in BUILT_IN}
    versions = {f"{kind}_version": version for kind, (version, code) in declared.items() if code is not None}
    return {
        **row,
        **(_named(canonical_json(config | versions)) if versions else {}),
        **{f"{kind}_version": _declared(kind, row[kind], row[f"{kind}_version"])[0] for kind in _IN_COLUMNS},
        **{f"{kind}_code_hash": code for kind, (_, code) in declared.items() if kind != "mech"},
        "schema_version": LAST_BY_SOURCE + 1,
        "migrated_from": f"{row['schema_version']}:{row['run_id']}:{row['row_sha256']}",
    }


def _declared(kind: str, name: Any, version: Any) -> tuple[Any, str | None]:
    """The version without its source, and the hash of the source; what is not built in keeps both in one."""
    parts = _BY_SOURCE.fullmatch(version) if isinstance(version, str) else None
    if parts is None or not isinstance(name, str) or name not in BUILT_IN[kind]:
        return version, None
    return parts[1], parts[2]


def _with_source(version: Any, code_hash: str | None) -> Any:
    return version if code_hash is None or not str(version).isdecimal() else f"{version}+{code_hash}"


def _named(config_json: str) -> dict[str, str]:
    digest = sha256(config_json)[:16]
    return {"config_json": config_json, "config_hash": digest, "run_id": digest}


def _object(text: str) -> dict[str, Any]:
    """The object in a canonical JSON text; empty for any other: such a row keeps its name, and the audit names it."""
    value = json.loads(text)
    try:
        return value if isinstance(value, dict) and canonical_json(value) == text else {}
    except ValueError:  # 1e999 is JSON, and infinite
        return {}
