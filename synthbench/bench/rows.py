"""Rows of measurements: Parquet tables of their own, since nothing in them was trained."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from synthbench.errors import StoreError
from synthbench.runner.environment import hardware, software


def save(rows: Sequence[Mapping[str, Any]], file: Path, device: torch.device) -> None:
    """Write rows with what they were measured on; what the file held before is replaced.

    Raises:
        StoreError: If the file cannot be written.
    """
    about = {**hardware(device), **software(), "measured_at": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame([{**row, **about} for row in rows]).to_parquet(file, compression="zstd", index=False)
    except OSError as problem:
        raise StoreError(f"rows cannot be written to {str(file)!r}: {problem}") from None


def load(file: Path) -> pd.DataFrame:
    """Rows that :func:`save` wrote.

    Raises:
        StoreError: If there is no such file, or it is not Parquet.
    """
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError) as problem:
        raise StoreError(f"{str(file)!r} cannot be read: {problem}") from None
