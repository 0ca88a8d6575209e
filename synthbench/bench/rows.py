"""Rows of measurements: Parquet tables of their own, since nothing in them was trained."""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from synthbench.errors import StoreError
from synthbench.runner.environment import hardware, software

Row = Mapping[str, Any]

SAVE_EVERY_S = 2.0
"""Seconds between saves: rows that were measured since the last one are lost when a process is killed."""


class Table:
    """Rows of one kind, known by their identity, with what they were measured on; a new row replaces an equal one.

    With a file they outlast the process: what it holds is there from the beginning, and what is added is written soon,
    at the latest when the ``with`` block ends.
    """

    def __init__(self, identity: Sequence[str], device: torch.device, file: Path | None = None) -> None:
        """Read the file, if there is one."""
        self._software = software()  # before anything is measured, since it may be refused
        self.identity = (*identity, "device_name")
        self.device = device
        self.file = file
        self._rows = {self._key(row): row for row in (load(file) if file is not None and file.exists() else [])}
        self._saved_at = 0.0
        self._is_saved = True

    # Not `Self`, which beartype cannot check under jaxtyping's import hook.
    def __enter__(self) -> "Table":  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self.save()

    @property
    def rows(self) -> list[Row]:
        """Rows of this device, the oldest first."""
        here = hardware(self.device)["device_name"]
        return [row for row in self._rows.values() if row["device_name"] == here]

    def find(self, row: Row) -> Row | None:
        """The row with the identity of this one, measured on this device and at its version of the mechanism."""
        known = self._rows.get(self._key({**row, **hardware(self.device)}))
        return known if known is not None and known.get("mech_version") == row.get("mech_version") else None

    def add(self, row: Row) -> None:
        """Take in a row that was measured just now."""
        measured_at = datetime.now(UTC).isoformat(timespec="seconds")
        whole = {**row, **hardware(self.device), **self._software, "measured_at": measured_at}
        self._rows[self._key(whole)] = whole
        self._is_saved = False
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Write the file, if there is one and anything was added.

        Raises:
            StoreError: If it cannot be written; what it held before is still there.
        """
        if self.file is None or self._is_saved:
            return
        draft = self.file.with_name(f"{self.file.name}.{os.getpid()}.tmp")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(list(self._rows.values())).to_parquet(draft, compression="zstd", index=False)
            draft.replace(self.file)
        except OSError as problem:
            raise StoreError(f"rows cannot be written to {str(self.file)!r}: {problem}") from None
        self._saved_at, self._is_saved = time.monotonic(), True

    def _key(self, row: Row) -> tuple[Any, ...]:
        try:
            return tuple(row[name] for name in self.identity)
        except KeyError as missing:
            raise StoreError(f"{str(self.file)!r} has rows without {missing}: not those of this bench") from None


def load(file: Path) -> list[Row]:
    """The rows of a file, in the order in which they were first measured; what is missing is None.

    Raises:
        StoreError: If there is no such file, or it is not Parquet.
    """
    try:
        rows: list[Row] = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowException) as problem:
        raise StoreError(f"{str(file)!r} cannot be read: {problem}") from None
    return rows
