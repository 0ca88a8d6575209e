"""The canonical JSON text of a run's configuration, and the run id, a hash of this text."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: object) -> str:
    """Convert a value to JSON text with sorted keys and without optional spaces, so that equal values give equal texts.

    Raises:
        ValueError: If the value contains NaN or an infinity.
    """
    return _CANONICAL.encode(value)


def json_entries(identity: Mapping[str, Any]) -> dict[str, str]:
    """Return each entry of a run's identity (the settings that its run id is computed from) as JSON text, by name.

    >>> json_entries({"seed": 0, "task": "copy"})
    {'seed': '"seed":0', 'task': '"task":"copy"'}

    Raises:
        ValueError: If a value is NaN or infinite.
    """
    return {name: canonical_json({name: value})[1:-1] for name, value in identity.items()}


def run_id_of(entries: Mapping[str, str]) -> str:
    """Compute the id of a run: a hash of the :func:`json_entries` of its identity."""
    return sha256("{" + ",".join([entries[name] for name in sorted(entries)]) + "}")[:16]


def sha256(text: str) -> str:
    """Hash a text to 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()
