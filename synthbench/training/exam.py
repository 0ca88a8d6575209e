"""A second test of models that ran somebody else's code: its answers never reach the process that has the model.

Whoever judges draws new sequences, keeps their targets, and hands out the inputs. The process that trained the model
writes down what it predicts. So neither what it says of its own score counts, nor what it can know of its test.

Every sequence has a twin that another sequence continues from some position on. What is predicted before that position
has to be the same for both: a model that looks ahead gives itself away, whatever its process says of causality.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int

from synthbench.tasks import IGNORE
from synthbench.training.cell import Member
from synthbench.training.ensemble import SequenceModel
from synthbench.training.evaluate import evaluate
from synthbench.training.sequences import sequences_of, write_archive
from synthbench.training.stream import DeviceBlock

_ANSWERS = np.dtype("<i4")


@dataclass(frozen=True, eq=False)
class Paper:
    """The sequences of one test, for one member."""

    inputs: Int[np.ndarray, "asked length"]
    """The sequences and their twins, shuffled."""
    columns: Int[np.ndarray, " columns"]
    """Positions at which anything is scored."""
    targets: Int[np.ndarray, "count columns"]
    order: Int[np.ndarray, " asked"]
    """Where in ``inputs`` the sequences stand, then their twins."""
    is_before: Bool[np.ndarray, "count columns"]
    """What a sequence and its twin have to give alike."""


@dataclass(frozen=True)
class Mark:
    """What the answers to one paper are worth."""

    accuracy: float
    standard_error: float
    """Over sequences; at least that of one target more or less."""
    changed: float
    """Share of the predictions that other tokens behind them change."""


def papers_of(member: Member, salt: str, most: int | None = None) -> dict[int, Paper]:
    """New sequences for every rung that a member is tested on, or for its test, by number from 1.

    Args:
        member: One that is reported.
        salt: Decides the sequences; unknown to the process that will answer.
        most: Sequences of a paper; None for as many as the suite tests on.
    """
    cell = member.cell
    tests = cell.tests if cell.rungs else {1: cell.tests[1]}
    count = cell.suite.evaluation.test_sequences
    count = count if most is None else min(count, most)
    papers = {}
    for number, (task, length) in tests.items():
        digest = hashlib.sha256(f"{salt}:{member.run_id}:{number}".encode()).digest()
        drawn = sequences_of(task, length, "test", int.from_bytes(digest), num_batches=1, batch_size=count, count=count)
        targets = cell.rungs[number - 1].new_targets(drawn.targets) if cell.rungs else drawn.targets
        columns = np.flatnonzero((targets != IGNORE).any(axis=0))
        rng = np.random.default_rng(int.from_bytes(digest))
        # What is read from the last token may depend on all of them: then nothing has to stay.
        last_cut = length if task.readout == "position" else 1
        cuts = rng.integers(min(1, last_cut - 1), last_cut, size=(count, 1))
        twins = np.where(np.arange(length) < cuts, drawn.inputs, np.roll(drawn.inputs, 1, axis=0))
        order = rng.permutation(2 * count)
        inputs = np.empty((2 * count, length), np.int64)
        inputs[order] = np.concatenate([drawn.inputs, twins])
        kept = targets[:, columns]
        papers[number] = Paper(inputs, columns, kept, order, (columns < cuts) & (kept != IGNORE))
    return papers


def hand_out(papers: Mapping[int, Paper], folder: Path, run_id: str) -> None:
    """Write the inputs of a member's papers, and nothing else of them, where a worker finds them."""
    arrays = {f"inputs.{number}": paper.inputs for number, paper in papers.items()}
    arrays |= {f"columns.{number}": paper.columns for number, paper in papers.items()}
    write_archive(_questions(folder, run_id), arrays)


def take_back(folder: Path, run_id: str) -> None:
    """Remove what lies in a folder of a member's papers and answers."""
    for path in folder.glob(f"{run_id}.*"):
        path.unlink(missing_ok=True)


def answer(model: SequenceModel, members: Sequence[Member], folder: Path, device: torch.device) -> None:
    """Write what a model of some members predicts for the papers that lie in a folder, if any do."""
    paths = [_questions(folder, member.run_id) for member in members]
    if not all(path.exists() for path in paths):
        return
    asked = []
    for path in paths:
        with np.load(path, allow_pickle=False) as arrays:
            asked.append(dict(arrays))
    numbers = [int(name.partition(".")[2]) for name in asked[0] if name.startswith("inputs.")]
    readout = members[0].cell.task.readout
    for number in numbers:
        inputs = np.stack([arrays[f"inputs.{number}"] for arrays in asked])
        columns = np.unique(np.concatenate([arrays[f"columns.{number}"] for arrays in asked]))
        num_visible = columns[-1] + 1 if readout == "position" else inputs.shape[-1]
        unknown = np.full((*inputs.shape[:2], len(columns)), IGNORE)
        visible = np.ascontiguousarray(inputs[None, ..., :num_visible])
        block = DeviceBlock(*(torch.from_numpy(array).to(device) for array in (visible, unknown[None], columns)))
        predicted: list[torch.Tensor] = []
        evaluate(model, [block], predicted=predicted)
        for member, arrays, tokens in zip(members, asked, torch.cat(predicted, 1).numpy(), strict=True):
            own = np.searchsorted(columns, arrays[f"columns.{number}"])
            np.ascontiguousarray(tokens[:, own], _ANSWERS).tofile(_answers(folder, member.run_id, number))


def marks_of(papers: Mapping[int, Paper], folder: Path, run_id: str) -> list[Mark] | None:
    """Mark the answers that a worker left, paper by paper; None if it left none that fit the papers."""
    marks = []
    for number, paper in papers.items():
        path, shape = _answers(folder, run_id, number), (len(paper.inputs), len(paper.columns))
        if not path.is_file() or path.stat().st_size != math.prod(shape) * _ANSWERS.itemsize:
            return None
        answers = np.fromfile(path, _ANSWERS).reshape(shape)[paper.order]
        marks.append(_mark(paper, *np.split(answers, 2)))
    return marks


def _mark(paper: Paper, answers: Int[np.ndarray, "count columns"], of_twins: Int[np.ndarray, "count columns"]) -> Mark:
    is_scored = paper.targets != IGNORE
    scored = is_scored.sum(1)
    correct = ((answers == paper.targets) & is_scored).sum(1)
    accuracy = correct.sum() / scored.sum()
    # Positions of a sequence fail together, so sequences are what is counted.
    error = math.sqrt(((correct - accuracy * scored) ** 2).sum()) / scored.sum()
    changed = (answers != of_twins)[paper.is_before]
    return Mark(float(accuracy), max(error, 1 / scored.sum()), float(changed.mean()) if changed.size else 0.0)


# What a killed driver leaves of them is cleared away with other files that are half written.
def _questions(folder: Path, run_id: str) -> Path:
    return folder / f"{run_id}.partial"


def _answers(folder: Path, run_id: str, number: int) -> Path:
    return folder / f"{run_id}.{number}.partial"
