"""Rows of schemas 3 and 4 in the form of schema 5: their ids hashed the name and version of a suite too.

A row belongs to a protocol, not to a suite, so a task can enter a suite or leave it without a training. The columns
``suite`` and ``suite_version`` stay. :func:`migrated` gives a row its new id, and :func:`former` undoes it and checks
the old checksum.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from synthbench.canonical import canonical_json, sha256
from synthbench.results.schema import RUNS, row_sha256

LAST_BY_SUITE = 4
"""The last schema whose ids hashed the suite; a migrated row is one of the next."""
SUITE = ("suite", "suite_version")
"""The keys of a configuration, and the columns, that name the suite."""

_FORMER = re.compile(r"([0-9]+):([0-9a-f]{16}):([0-9a-f]{64})(?: (.+))?")
"""Schema, id and checksum that a row had before; then what it said itself of an earlier migration."""


def is_older(table: pa.Table) -> bool:
    """Return whether any row of a table has to be migrated."""
    oldest = pc.min(table["schema_version"]).as_py()
    return oldest is not None and bool(oldest <= LAST_BY_SUITE)


def migrated(table: pa.Table) -> pa.Table:
    """The same rows with the ids of this schema; a table without older rows is returned as it is.

    Args:
        table: Rows under ``RUNS`` that hold, whose checksums are right.
    """
    if not is_older(table):
        return table
    rows = table.to_pylist()
    return pa.Table.from_pylist(
        [_migrated(row) if row["schema_version"] <= LAST_BY_SUITE else row for row in rows], schema=RUNS
    )


def former(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row that a migrated one was, to the last bit; None if it is not the row that it says it was.

    Whoever can write a row can write ``migrated_from``, so its old id and checksum are computed again.
    """
    stated = _FORMER.fullmatch(row["migrated_from"] or "")
    if stated is None:
        return None
    text = row["config_json"]
    if stated[2] != row["run_id"]:
        text = canonical_json(_object(text) | {name: row[name] for name in SUITE})
    before = {
        **row,
        **_named(text),
        "schema_version": int(stated[1]),
        "migrated_from": stated[4],
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
    without = {name: value for name, value in config.items() if name not in SUITE}
    before = f"{row['schema_version']}:{row['run_id']}:{row['row_sha256']}"
    made = {
        **row,
        **(_named(canonical_json(without)) if without != config else {}),
        "schema_version": LAST_BY_SUITE + 1,
        "migrated_from": " ".join(filter(None, [before, row["migrated_from"]])),
    }
    return made | {"row_sha256": row_sha256(made)}


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
