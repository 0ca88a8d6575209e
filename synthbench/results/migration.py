"""Migration of rows to schema 5 from schemas 3 and 4, in which run ids also depended on the suite and its version.

In schema 5, the id of a row depends only on the settings that decide its result. So a task can enter or leave a suite
without new training. The columns ``suite`` and ``suite_version`` are kept. :func:`migrated` gives rows their new ids.
:func:`former` reconstructs the original of a migrated row, and checks its id and checksum.
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
"""The last schema version in which run ids depended on the suite; a migrated row gets the next version."""
SUITE = ("suite", "suite_version")
"""The configuration keys that identify the suite, which are also names of columns."""

_FORMER = re.compile(r"([1-9][0-9]*):([0-9a-f]{16}):([0-9a-f]{64})(?: (.+))?")
"""Pattern of ``migrated_from``: schema version, id, checksum and perhaps ``migrated_from`` of the original row."""


def is_older(table: pa.Table) -> bool:
    """Return whether any row of a table has an old schema version, in which run ids depended on the suite."""
    oldest = pc.min(table["schema_version"]).as_py()
    return oldest is not None and bool(oldest <= LAST_BY_SUITE)


def migrated(table: pa.Table) -> pa.Table:
    """Convert a table's rows to schema 5, whose run ids do not depend on the suite; newer rows stay as they are.

    Args:
        table: Rows with the columns of ``RUNS``; their checksums must be correct.
    """
    if not is_older(table):
        return table
    rows = table.to_pylist()
    return pa.Table.from_pylist(
        [_migrated(row) if row["schema_version"] <= LAST_BY_SUITE else row for row in rows], schema=RUNS
    )


def former(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Reconstruct a migrated row as it was under its old run id; None if it was not migrated or does not match.

    The column ``migrated_from`` states the original run id and checksum, but it could be forged. So both are recomputed
    and compared with the column. If one of them differs, or if the column is null, the result is None.
    """
    stated = _FORMER.fullmatch(row["migrated_from"] or "")
    if stated is None:
        return None
    text = row["config_json"]
    if stated[2] != row["run_id"]:
        text = canonical_json(canonical_object(text) | {name: row[name] for name in SUITE})
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
    """Extract the run id and checksum that a row had before migration; None if ``migrated_from`` lacks them."""
    stated = _FORMER.fullmatch(migrated_from or "")
    return None if stated is None else (stated[2], stated[3])


def _migrated(row: dict[str, Any]) -> dict[str, Any]:
    config = canonical_object(row["config_json"])
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


def canonical_object(text: str) -> dict[str, Any]:
    """Parse an object from canonical JSON (with one spelling per value); return an empty object for other JSON."""
    value = json.loads(text)
    try:
        return value if isinstance(value, dict) and canonical_json(value) == text else {}
    except ValueError:  # 1e999 is JSON, and infinite
        return {}
