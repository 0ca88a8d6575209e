"""Rows of measurements, in Parquet tables apart from the store of training results."""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from synthbench.errors import StoreError
from synthbench.runner.environment import hardware, software

Row = Mapping[str, Any]

SHOWN_AS: Mapping[str, str] = MappingProxyType({"members": "runs"})
"""Printed names of columns that are stored under an older name."""


class Table:
    """A table of measurements, optionally in a file.

    A new row replaces an older row of the same device that has equal values in the columns ``identity``. Each row also
    records its device and software. A table with a file reads the file's rows at the start, and writes all rows to the
    file whenever one is added.
    """

    def __init__(self, identity: Sequence[str], device: torch.device, file: Path | None = None) -> None:
        """Read the rows of the file, if it exists."""
        self._software = software()  # before anything is measured, since it may be refused
        self.identity = (*identity, "device_name")
        self.device = device
        self.file = file
        self._rows = {self._key(row): row for row in (load(file) if file is not None and file.exists() else [])}

    @property
    def rows(self) -> list[Row]:
        """Rows of this device, in the order in which they were first measured."""
        here = hardware(self.device)["device_name"]
        return [row for row in self._rows.values() if row["device_name"] == here]

    def find(self, row: Row) -> Row | None:
        """Find this device's row that agrees with ``row`` in the identity columns and in the mechanism's version.

        Return None if there is no such row.
        """
        known = self._rows.get(self._key({**row, **hardware(self.device)}))
        return known if known is not None and known.get("mech_version") == row.get("mech_version") else None

    def add(self, row: Row) -> Row:
        """Add a row that was just measured, and return it.

        Raises:
            StoreError: If the file cannot be written; its earlier contents are kept.
        """
        measured_at = datetime.now(UTC).isoformat(timespec="seconds")
        whole = {**row, **hardware(self.device), **self._software, "measured_at": measured_at}
        self._rows[self._key(whole)] = whole
        if self.file is not None:
            self._save(self.file)
        return row

    def _save(self, file: Path) -> None:
        draft = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(list(self._rows.values())).to_parquet(draft, compression="zstd", index=False)
            draft.replace(file)
        except OSError as problem:
            raise StoreError(f"rows cannot be written to {str(file)!r}: {problem}") from None

    def _key(self, row: Row) -> tuple[Any, ...]:
        try:
            return tuple(row[name] for name in self.identity)
        except KeyError as missing:
            raise StoreError(f"{str(self.file)!r} has rows without {missing}: not those of this bench") from None


def load(file: Path) -> list[Row]:
    """Load the rows of a file, in the order in which they were first measured; missing values are None.

    Raises:
        StoreError: If the file does not exist or is not Parquet.
    """
    try:
        rows: list[Row] = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowException) as problem:
        raise StoreError(f"{str(file)!r} cannot be read: {problem}") from None
    return rows
