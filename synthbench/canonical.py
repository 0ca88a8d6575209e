"""The canonical text of a configuration, and the run id made from it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: object) -> str:
    """Write one text for one value: keys sorted, no blanks, no NaN.

    Raises:
        ValueError: If the value holds NaN or an infinity.
    """
    return _CANONICAL.encode(value)


def json_entries(identity: Mapping[str, Any]) -> dict[str, str]:
    """Write the canonical text of every entry, by name: what many identities share is written once.

    >>> json_entries({"seed": 0, "task": "copy"})
    {'seed': '"seed":0', 'task': '"task":"copy"'}

    Raises:
        ValueError: If a value is NaN or infinite.
    """
    return {name: canonical_json({name: value})[1:-1] for name, value in identity.items()}


def run_id_of(entries: Mapping[str, str]) -> str:
    """Hash the :func:`json_entries` of a run's identity to its id."""
    return sha256("{" + ",".join([entries[name] for name in sorted(entries)]) + "}")[:16]


def sha256(text: str) -> str:
    """Hash a text to 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()
