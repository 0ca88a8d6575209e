"""What a trained model predicted on its test, a file a run: for questions that a score does not answer."""

import tempfile
from pathlib import Path

import numpy as np

from synthbench.canonical import canonical_json
from synthbench.errors import StoreError
from synthbench.tasks import IGNORE
from synthbench.training.sequences import sequences_of, write_archive
from synthbench.training.train import MemberResult

NOT_SCORED = -1
"""Stands where nothing is scored; no target is -1, so what agrees with the targets is what the score counts."""


def prepare(folder: Path) -> None:
    """Make a folder for predictions before anything is trained.

    Raises:
        StoreError: If no file can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Permission bits do not bind root and say nothing about a read-only mount: only writing tells.
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"probe")
    except OSError as problem:
        raise StoreError(f"cannot write predictions to {folder}: {problem.strerror}") from problem


def path_of(folder: Path, run_id: str) -> Path:
    """The file of a run."""
    return folder / f"{run_id}.npz"


def write(folder: Path, result: MemberResult) -> None:
    """Write the test sequences of a member and what was predicted for them, if it has predictions.

    ``inputs``, ``targets`` and ``predictions`` are int64 [test sequences, length]; ``(predictions == targets).sum()``
    is ``n_correct`` of the row. ``metadata`` is a JSON text: what is known of the task, ``run_id``, and ``config``,
    the row's complete configuration.

    Raises:
        StoreError: If the file cannot be written; nothing is left half done.
    """
    if result.predictions is None:
        return
    member = result.member
    count = len(result.predictions)
    drawn = sequences_of(
        member.cell.task, member.cell.length, "test", member.seed, num_batches=1, batch_size=count, count=count
    )
    metadata = {**drawn.metadata, "run_id": member.run_id, "config": member.identity}
    arrays = {
        "inputs": drawn.inputs,
        "targets": drawn.targets,
        "predictions": np.where(drawn.targets == IGNORE, NOT_SCORED, result.predictions),
        "metadata": np.array(canonical_json(metadata)),
    }
    write_archive(path_of(folder, member.run_id), arrays)
