"""Held-out tests, which measure the scores of models that ran foreign code (code that does not come with synthbench).

The judge, which is the process of the command, draws new sequences and keeps their targets secret. Each question is one
sequence up to a scored position, so the worker that trained the model gets neither targets nor later tokens. If a task
reads all answers at the last position, its questions are whole sequences. The worker writes the model's answers and the
rows of results into the folder of its job (the runs that it trains). The judge accepts only the rows of this job, and
replaces their scores by its own measurements.
"""

import hashlib
import json
import math
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.lib.format import open_memmap

from synthbench.bits import BITS, bits_of
from synthbench.canonical import canonical_json
from synthbench.levels import LADDER_SCORE, ladder_score, levels_in, metrics_of_levels
from synthbench.plugins import is_built_in
from synthbench.results import Store
from synthbench.results.schema import skill
from synthbench.results.store import HELD, mark_in_use
from synthbench.runner.plan import Job
from synthbench.runner.rows import with_remark
from synthbench.tasks import IGNORE, TASKS, Task
from synthbench.training.cell import Cell, Run
from synthbench.training.ensemble import SequenceModel
from synthbench.training.sequences import sequences_of
from synthbench.training.stream import in_pieces

SAID = "worker.score"
"""Name of the metric that records the score claimed by the worker, for information only."""

BUCKET = 16
"""Number of neighbouring positions whose questions are answered in one batch, padded with zeros to one length."""

MOST_DRAWS = 64
"""Limit on the batches drawn for one test; one batch may give too few questions."""


@dataclass(frozen=True, eq=False)
class Questions:
    """The questions of one test: each is a sequence, and one scored position at which the model must answer.

    The sequence is cut off after this position, unless the task reads all answers at the last position.
    """

    inputs: Int[np.ndarray, "count length"]
    """Input tokens; zeros follow after the scored position."""
    places: Int[np.ndarray, " count"]
    """Scored position of each question."""
    targets: Int[np.ndarray, " count"]
    num_probabilities: int
    """Number of log-probabilities in an answer; 0 if the answer is a token."""


class Result(NamedTuple):
    """Measurements of one test, made by the process that scores the answers."""

    num_correct: int
    num_questions: int
    loss: float | None
    """Mean loss in nats per question; None if answers are tokens."""
    standard_error: float
    """Standard error of the accuracy, or of the loss in bits."""

    @property
    def accuracy(self) -> float:
        """Fraction of correct answers."""
        return self.num_correct / max(1, self.num_questions)


def questions_of(cell: Cell, salt: str) -> dict[int, Questions]:
    """Draw the questions (new sequences) of a run's held-out tests, and return them by test number.

    A ladder (a task's series of levels) has one test per level, numbered from 1. Without a ladder, there is only test
    1. A test has as many questions as its suite has test sequences.

    Args:
        cell: The cell (task × mechanism) of the run; its mechanism is not used.
        salt: Secret text that seeds the sequences; the process that answers must not know it.
    """
    tests = cell.tests if cell.levels else {1: cell.tests[1]}
    count = cell.suite.evaluation.test_sequences
    return {number: _draw(cell, number, *test, count, f"{salt}:{number}") for number, test in tests.items()}


def _draw(cell: Cell, number: int, task: Task, length: int, count: int, salt: str) -> Questions:
    """Draw up to ``count`` questions, each about one scored position; all scored positions are equally likely."""
    seed = int.from_bytes(hashlib.sha256(salt.encode()).digest())
    rng = np.random.default_rng(seed)
    parts: list[tuple[np.ndarray, ...]] = []
    most = 0
    for draw in range(MOST_DRAWS):
        drawn = sequences_of(task, length, "test", seed + draw, num_batches=1, batch_size=count, count=count)
        labels = cell.levels[number - 1].new_targets(drawn.targets) if cell.levels else drawn.targets
        is_scored = labels != IGNORE
        num_scored = is_scored.sum(1)
        most = most or int(num_scored.max())
        # A sequence with twice as many scored positions is used twice as often.
        chosen = np.flatnonzero(rng.random(count) * most < num_scored)
        place = (rng.random(is_scored.shape) * is_scored)[chosen].argmax(1)
        visible = place + 1 if task.readout == "position" else np.full_like(place, length)
        inputs = np.where(np.arange(length) < visible[:, None], drawn.inputs[chosen], 0)
        parts.append((inputs, place, labels[chosen, place]))
        if sum(len(places) for _, places, _ in parts) >= count:
            break
    asked, at, right = (np.concatenate(arrays)[:count] for arrays in zip(*parts, strict=True))
    return Questions(asked, at, right, _num_probabilities(cell))


def write_inputs(questions: Mapping[int, Questions], folder: Path, run_id: str) -> None:
    """Write files with the inputs and scored positions of a run's questions for the worker, but not the targets."""
    for number, some in questions.items():
        for kind, array in (("inputs", some.inputs), ("places", some.places)):
            with _file(folder, run_id, number, kind).open("wb") as file:
                np.save(file, array, allow_pickle=False)


@torch.no_grad()
def answer(model: SequenceModel, runs: Sequence[Run], folder: Path, device: torch.device) -> None:
    """Let the trained model answer the questions in a folder, and write its answers there.

    If the folder has no questions, nothing is written.

    Args:
        model: Model that computes all runs at once.
        runs: The runs, in the order of the first dimension (the run axis) of the model's tensors.
        folder: Folder of the job that contains the runs.
        device: Device of the model.
    """
    was_training = model.training
    model.eval()
    for number in runs[0].cell.tests:
        if all(_file(folder, run.run_id, number, "places").exists() for run in runs):
            _answer(model, runs, number, folder, device)
    model.train(was_training)


def _answer(model: SequenceModel, runs: Sequence[Run], number: int, folder: Path, device: torch.device) -> None:
    # Memory-mapped, so that no pickled object is ever loaded.
    asked, places = (
        [open_memmap(_file(folder, run.run_id, number, kind), mode="r") for run in runs]
        for kind in ("inputs", "places")
    )
    answers = [_no_answers(len(at), _num_probabilities(run.cell)) for at, run in zip(places, runs, strict=True)]
    every = np.unique(np.concatenate(places))
    for near in np.split(every, np.flatnonzero(np.diff(every // BUCKET)) + 1):
        here = [np.flatnonzero(np.isin(at, near)) for at in places]
        num_visible = int(near[-1]) + 1 if runs[0].cell.task.readout == "position" else asked[0].shape[-1]
        tokens = np.zeros((len(runs), max(map(len, here)), num_visible), np.int64)
        for index, chosen in enumerate(here):
            tokens[index, : len(chosen)] = asked[index][chosen, :num_visible]
        given = torch.from_numpy(tokens).to(device)
        columns = torch.from_numpy(near).to(device)
        logits = torch.cat([model(piece, columns).float().cpu() for piece, _ in in_pieces(given, given)], 1)
        for index, chosen in enumerate(here):
            own = logits[index, np.arange(len(chosen)), np.searchsorted(near, places[index][chosen])]
            count = runs[index].cell.task.vocab_size
            told = own[:, :count].log_softmax(-1) if answers[index].ndim > 1 else own.argmax(-1)
            answers[index][chosen] = told.numpy()
    for run, own_answers in zip(runs, answers, strict=True):
        own_answers.tofile(_file(folder, run.run_id, number, "answers"))


def results_of(questions: Mapping[int, Questions], folder: Path, run_id: str) -> dict[int, Result] | None:
    """Score a worker's answers and return the results by test number; None if answers are missing or malformed."""
    results = {}
    for number, some in questions.items():
        expected = _no_answers(len(some.places), some.num_probabilities)
        path = _file(folder, run_id, number, "answers")
        if path.is_symlink() or not path.is_file() or path.stat().st_size != expected.nbytes:
            return None
        answers = np.fromfile(path, expected.dtype).reshape(expected.shape)
        if some.num_probabilities:
            losses = _losses(answers.astype(np.float64), some.targets)
            if not np.isfinite(losses).all():
                return None
            is_right, loss = answers.argmax(-1) == some.targets, float(losses.mean())
            error = bits_of(float(losses.std()) / math.sqrt(len(losses)))
        else:
            is_right, loss = answers == some.targets, None
            error = _standard_error(is_right)
        results[number] = Result(int(is_right.sum()), len(is_right), loss, error)
    return results


def _losses(logits: Float[np.ndarray, "count classes"], targets: Int[np.ndarray, " count"]) -> np.ndarray:
    """Compute losses in nats from answers, each of which has a log-probability for every token.

    The answers are normalised first, since a worker may claim probabilities that sum to more than 1.
    """
    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(-1, keepdims=True)
        losses: np.ndarray = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(targets)), targets]
    return losses


def _standard_error(is_right: Bool[np.ndarray, " count"]) -> float:
    """Compute the standard error of a fraction of correct answers.

    At least one answer is assumed to be right and one wrong, so the error is never 0.
    """
    count = max(2, len(is_right))
    share = min(max(is_right.sum() / count, 1 / count), 1 - 1 / count)
    return math.sqrt(share * (1 - share) / count)


def _num_probabilities(cell: Cell) -> int:
    return cell.task.vocab_size if cell.is_in_bits else 0


def _no_answers(count: int, num_probabilities: int) -> np.ndarray:
    return np.zeros((count, num_probabilities), "<f4") if num_probabilities else np.zeros(count, "<i4")


def _file(folder: Path, run_id: str, number: int, kind: str) -> Path:
    return folder / f"{run_id}.{number}.{kind}"


def measured(row: Mapping[str, Any], results: Mapping[int, Result] | None) -> dict[str, Any]:
    """Return a row with the score that the judge (this process) measured, instead of the score that the worker claims.

    The row of a failed run is returned unchanged.

    Args:
        row: The row as the worker wrote it.
        results: Results of the held-out tests, by the number of the test. None if the model left no valid answers; then
            the returned row has no score.
    """
    if row["status"] != "ok":
        return dict(row)
    metrics = json.loads(row["metrics"])
    levels = levels_in(metrics)
    is_ladder = row["metric_name"].endswith(LADDER_SCORE)
    if results is None or (is_ladder and len(levels) != len(results)):
        return _refused(row, "its model left no answers to the questions of its held-out test")
    num_correct = sum(result.num_correct for result in results.values())
    num_questions = sum(result.num_questions for result in results.values())
    changed: dict[str, Any] = {"n_correct": num_correct, "n_eval_examples": num_questions}
    score = num_correct / max(1, num_questions)
    metrics[SAID] = row["score"]
    if is_ladder:
        levels = [level._replace(score=results[number].accuracy) for number, level in enumerate(levels, start=1)]
        metrics |= metrics_of_levels(levels)
        score = ladder_score(levels)
    elif (loss := results[1].loss) is not None:
        metrics["accuracy"] = score
        score, changed["eval_loss"] = -bits_of(loss), loss
    reached = None if row["metric_name"].endswith(BITS) else skill(score, row["floor"], row["ceiling"])
    return with_remark({**row, **changed, "score": score, "skill": reached, "metrics": canonical_json(metrics)})


def standard_error_of(row: Mapping[str, Any], results: Mapping[int, Result]) -> float:
    """Compute the standard error of a measured score, in the unit of the score: a fraction or bits."""
    levels = levels_in(json.loads(row["metrics"])) if row["metric_name"].endswith(LADDER_SCORE) else []
    if not levels:
        return results[1].standard_error
    errors = [results[number].standard_error / (of.ceiling - of.base) for number, of in enumerate(levels, start=1)]
    return math.hypot(*errors) / len(errors)


def _refused(row: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the row with status ``contract`` (a component broke a rule) and without a score."""
    nothing = dict.fromkeys(("score", "skill", "score_ood", "n_eval_examples", "n_correct", "eval_loss"))
    broken = {"status": "contract", "error_type": "ContractError", "error_message": reason, "metrics": "{}"}
    return {**row, **nothing, **broken}


def is_foreign(cell: Cell) -> bool:
    """Tell whether a component of a cell (its task, mechanism, block or positions) does not come with synthbench."""
    return not all(map(is_built_in, cell.components))


def needs_held_out_test(cell: Cell) -> bool:
    """Return True if a cell (task × mechanism) runs foreign (not built-in) code on a built-in task.

    The process of the command then measures the score, on secret questions. A plugin's own task needs no such test,
    because its author decides the questions anyway.
    """
    return is_foreign(cell) and TASKS.is_built_in(cell.task_name)


def folder_of(job: Job, results: Path, driver: str) -> Path:
    """Return the folder of the store into which the worker writes a job's rows.

    A job with foreign (not built-in) code has a temporary store of its own.
    """
    if not any(map(is_foreign, job.cells)):
        return results
    return folder_named(results, driver, (*job.missing, *job.untuned)[0].run_id)


def folder_named(results: Path, driver: str, run_id: str = "") -> Path:
    """Return the temporary folder of a command or, given the id of a job's first run, the job's folder inside it."""
    return results / "_tmp" / f"held-out-{driver}" / run_id


class HeldOutTest:
    """Tests on secret new sequences, for jobs that run foreign (not built-in) code.

    The targets, and the secret that seeds the sequences, never leave this process.

    Args:
        results: Folder of the store that receives the rows.
        driver: Id of the command, which is part of the paths of its folders; :meth:`close` removes these folders.
    """

    def __init__(self, results: Path, driver: str) -> None:
        self._results, self._driver = results, driver
        self._salt = secrets.token_hex(16)
        self._held: BinaryIO | None = None

    def begin(self, job: Job) -> None:
        """Make the folder of a job, and write the questions for its runs on built-in tasks.

        If all components are built in, this method does nothing.
        """
        folder = folder_of(job, self._results, self._driver)
        if folder == self._results:
            return
        if self._held is None:
            # Mark the command's folder as in use, so that it is not deleted while a job waits in a cluster's queue.
            own = folder_named(self._results, self._driver)
            own.mkdir(parents=True, exist_ok=True)
            self._held = (own / HELD).open("wb")
            mark_in_use(self._held)
        Store.open(folder, create=True)
        for run in job.runs:
            if needs_held_out_test(run.cell):
                write_inputs(self._questions(run), folder, run.run_id)

    def take(self, job: Job) -> list[dict[str, Any]]:
        """Move the rows that a worker wrote for a job into the store, and return them.

        On built-in tasks, scores are replaced by the scores that this process measured, except in tuning runs (which
        only serve to choose a learning rate). Rows of other runs are ignored. For a job of built-in components, the
        list is empty.
        """
        folder = folder_of(job, self._results, self._driver)
        if folder == self._results:
            return []
        runs = {run.run_id: run for run in (*job.missing, *job.untuned)}
        made = Store.open(folder, create=False)
        rows = made.find(runs)
        for run_id, row in rows.items():
            if needs_held_out_test(runs[run_id].cell) and not runs[run_id].is_tuning:
                results = results_of(self._questions(runs[run_id]), folder, run_id)
                rows[run_id] = measured(row, results)
        points = {run_id: frame.drop(columns="run_id") for run_id, frame in made.curves(rows).groupby("run_id")}
        curves: dict[Any, Any] = {run_id: frame.to_dict("records") for run_id, frame in points.items()}
        Store.open(self._results, create=True).write_all((row, curves.get(name, [])) for name, row in rows.items())
        shutil.rmtree(folder, ignore_errors=True)
        return list(rows.values())

    def close(self) -> None:
        """Remove the folders of all jobs."""
        if self._held is not None:
            self._held.close()
        shutil.rmtree(folder_named(self._results, self._driver), ignore_errors=True)

    def _questions(self, run: Run) -> dict[int, Questions]:
        return questions_of(run.cell, f"{self._salt}:{run.run_id}")
