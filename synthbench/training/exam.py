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
from numpy.lib.format import open_memmap

from synthbench.tasks import IGNORE
from synthbench.training.cell import Member
from synthbench.training.ensemble import SequenceModel
from synthbench.training.evaluate import evaluate
from synthbench.training.sequences import sequences_of
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
    num_sequences: int

    def standard_error_if(self, accuracy: float) -> float:
        """The standard error if the true accuracy is this one: few right answers by chance say too little of it."""
        binomial = math.sqrt(max(0.0, accuracy * (1 - accuracy)) / self.num_sequences)
        return max(self.standard_error, binomial)


def papers_of(member: Member, salt: str, most: int | None = None) -> dict[int, Paper]:
    """New sequences for every rung that a member is tested on, or for its test, by number from 1.

    What scores nothing, as a rung of very few sequences may, has none.

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
        if not columns.size:
            continue
        rng = np.random.default_rng(int.from_bytes(digest))
        # What is read from the last token may depend on all of them: then nothing has to stay.
        last_cut = length if task.readout == "position" else 1
        cuts = rng.integers(min(1, last_cut - 1), last_cut, size=(count, 1))
        twins = np.where(np.arange(length) < cuts, drawn.inputs, np.roll(drawn.inputs, 1, axis=0))
        order = rng.permutation(2 * count)
        inputs = np.empty((2 * count, length), np.int64)
        inputs[order] = np.concatenate([drawn.inputs, twins])
        kept = targets[:, columns]
        is_before = (columns < cuts) & (kept != IGNORE)
        papers[number] = Paper(inputs, columns, kept, order, is_before)
    return papers


def hand_out(papers: Mapping[int, Paper], folder: Path, run_id: str) -> None:
    """Write the inputs of a member's papers, and nothing else of them, where a worker finds them."""
    for number, paper in papers.items():
        for kind, array in (("inputs", paper.inputs), ("columns", paper.columns)):
            with _file(folder, run_id, number, kind).open("wb") as file:
                np.save(file, array, allow_pickle=False)


def take_back(folder: Path, run_id: str) -> None:
    """Remove what lies in a folder of a member's papers and answers."""
    for path in folder.glob(f"{run_id}.*"):
        path.unlink(missing_ok=True)


def answer(model: SequenceModel, members: Sequence[Member], folder: Path, device: torch.device) -> None:
    """Write what a model of some members predicts for the papers that lie in a folder, if any do."""
    tests = sorted(members[0].cell.tests)
    numbers = [
        number
        for number in tests
        if all(_file(folder, member.run_id, number, "columns").exists() for member in members)
    ]
    readout = members[0].cell.task.readout
    for number in numbers:
        # Mapped, so that no object of a file is ever made.
        asked, read = (
            [open_memmap(_file(folder, member.run_id, number, kind), mode="r") for member in members]
            for kind in ("inputs", "columns")
        )
        inputs = np.stack(asked)
        columns = np.unique(np.concatenate(read))
        num_visible = columns[-1] + 1 if readout == "position" else inputs.shape[-1]
        unknown = np.full((*inputs.shape[:2], len(columns)), IGNORE)
        visible = np.ascontiguousarray(inputs[None, ..., :num_visible])
        block = DeviceBlock(*(torch.from_numpy(array).to(device) for array in (visible, unknown[None], columns)))
        predicted: list[torch.Tensor] = []
        evaluate(model, [block], predicted=predicted)
        for member, own, tokens in zip(members, read, torch.cat(predicted, 1).numpy(), strict=True):
            answers = np.ascontiguousarray(tokens[:, np.searchsorted(columns, own)], _ANSWERS)
            answers.tofile(_file(folder, member.run_id, number, "answers"))


def marks_of(papers: Mapping[int, Paper], folder: Path, run_id: str) -> dict[int, Mark] | None:
    """Mark the answers that a worker left, by number of the paper; None if it left none that fit the papers."""
    marks = {}
    for number, paper in papers.items():
        path, shape = _file(folder, run_id, number, "answers"), (len(paper.inputs), len(paper.columns))
        if not path.is_file() or path.stat().st_size != math.prod(shape) * _ANSWERS.itemsize:
            return None
        answers = np.fromfile(path, _ANSWERS).reshape(shape)[paper.order]
        marks[number] = _mark(paper, *np.split(answers, 2))
    return marks


def _mark(paper: Paper, answers: Int[np.ndarray, "count columns"], of_twins: Int[np.ndarray, "count columns"]) -> Mark:
    is_scored = paper.targets != IGNORE
    scored = is_scored.sum(1)
    correct = ((answers == paper.targets) & is_scored).sum(1)
    accuracy = correct.sum() / scored.sum()
    # Positions of a sequence fail together, so sequences are what is counted.
    error = math.sqrt(((correct - accuracy * scored) ** 2).sum()) / scored.sum()
    changed = (answers != of_twins)[paper.is_before]
    share = float(changed.mean()) if changed.size else 0.0
    return Mark(float(accuracy), max(error, 1 / scored.sum()), share, len(scored))


def _file(folder: Path, run_id: str, number: int, kind: str) -> Path:
    return folder / f"{run_id}.{number}.{kind}"
