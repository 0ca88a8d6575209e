"""The held-out test of models that ran somebody else's code: what the judging process measures is their score.

The judge draws new sequences and keeps their targets. Each question is the part of one sequence that ends at a scored
place, so no process with a plugin ever holds a later token or a target. The worker writes its answers into the folder
of its job, beside its rows. The judge takes the rows of that job only, and puts its own measure in place of theirs.
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
from synthbench.registry import is_built_in
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
"""The metric that has what the worker says of its own score: a remark."""

QUESTIONS_A_SEQUENCE = 2
"""Questions for each test sequence of the suite: they are half as long, so the test takes no longer than the first."""

MOST_DRAWS = 64
"""Times that sequences are drawn for the questions of a level that scores few of them."""


@dataclass(frozen=True, eq=False)
class Questions:
    """The questions of one test: each is a sequence up to one of its scored places."""

    inputs: Int[np.ndarray, "count length"]
    """Behind the place of a question there is nothing but zeros."""
    places: Int[np.ndarray, " count"]
    targets: Int[np.ndarray, " count"]
    num_probabilities: int
    """Logarithms of probabilities that answer a question; 0 where a token does."""


class Result(NamedTuple):
    """Measurements of the judge in one test."""

    num_correct: int
    num_questions: int
    loss: float | None
    """In nats a question; None where an answer is a token."""
    standard_error: float
    """Of the accuracy, or of the loss in bits."""

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.num_correct / max(1, self.num_questions)


def questions_of(cell: Cell, salt: str) -> dict[int, Questions]:
    """Draw the questions of a run, by number of the test: the levels of a ladder from 1, or 1.

    Args:
        cell: Only its suite and its task are used.
        salt: Decides the sequences; unknown to the process that will answer.
    """
    tests = cell.tests if cell.levels else {1: cell.tests[1]}
    count = QUESTIONS_A_SEQUENCE * cell.suite.evaluation.test_sequences
    return {number: _draw(cell, number, *test, count, f"{salt}:{number}") for number, test in tests.items()}


def _draw(cell: Cell, number: int, task: Task, length: int, count: int, salt: str) -> Questions:
    """Draw one scored place of each of some sequences; all scored places of all sequences are equally likely."""
    seed = int.from_bytes(hashlib.sha256(salt.encode()).digest())
    rng = np.random.default_rng(seed)
    inputs, places, targets = [np.empty((0, length), np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    most = 0
    for draw in range(MOST_DRAWS):
        drawn = sequences_of(task, length, "test", seed + draw, num_batches=1, batch_size=count, count=count)
        labels = cell.levels[number - 1].new_targets(drawn.targets) if cell.levels else drawn.targets
        is_scored = labels != IGNORE
        num_scored = is_scored.sum(1)
        most = most or int(num_scored.max())
        # A sequence with twice as many scored places is asked twice as often.
        chosen = np.flatnonzero(rng.random(count) * most < num_scored)
        place = (rng.random(is_scored.shape) * is_scored)[chosen].argmax(1)
        visible = place + 1 if task.readout == "position" else np.full_like(place, length)
        inputs.append(np.where(np.arange(length) < visible[:, None], drawn.inputs[chosen], 0))
        places.append(place)
        targets.append(labels[chosen, place])
        if sum(map(len, places)) >= count:
            break
    num_probabilities = task.vocab_size if task.measure == "bits" and not cell.levels else 0
    asked, at, right = (np.concatenate(parts)[:count] for parts in (inputs, places, targets))
    return Questions(asked, at, right, num_probabilities)


def write_inputs(questions: Mapping[int, Questions], folder: Path, run_id: str) -> None:
    """Write what a worker may see of the questions of a run."""
    for number, some in questions.items():
        for kind, array in (("inputs", some.inputs), ("places", some.places)):
            with _file(folder, run_id, number, kind).open("wb") as file:
                np.save(file, array, allow_pickle=False)


@torch.inference_mode()
def answer(model: SequenceModel, runs: Sequence[Run], folder: Path, device: torch.device) -> None:
    """Write what the model of some runs answers to the questions that lie in a folder, if there are any.

    Args:
        model: Of all runs.
        runs: In the order of the model.
        folder: Of their job.
        device: That of the model.
    """
    was_training = model.training
    model.eval()
    for number in runs[0].cell.tests:
        if all(_file(folder, run.run_id, number, "places").exists() for run in runs):
            _answer(model, runs, number, folder, device)
    model.train(was_training)


def _answer(model: SequenceModel, runs: Sequence[Run], number: int, folder: Path, device: torch.device) -> None:
    # Mapped, so that no object of a file is ever made.
    asked, places = (
        [open_memmap(_file(folder, run.run_id, number, kind), mode="r") for run in runs]
        for kind in ("inputs", "places")
    )
    is_prefix = runs[0].cell.task.readout == "position"
    tasks = [run.cell.task for run in runs]
    answers = [_no_answers(len(at), _num_probabilities(run)) for at, run in zip(places, runs, strict=True)]
    for place in np.unique(np.concatenate(places)).tolist():
        here = [np.flatnonzero(at == place) for at in places]
        num_visible = place + 1 if is_prefix else asked[0].shape[-1]
        tokens = np.zeros((len(runs), max(map(len, here)), num_visible), np.int64)
        for index, chosen in enumerate(here):
            tokens[index, : len(chosen)] = asked[index][chosen, :num_visible]
        given = torch.from_numpy(tokens).to(device)
        column = torch.tensor([place], device=device)
        logits = torch.cat([model(piece, column)[..., 0, :] for piece, _ in in_pieces(given, given)], 1).float().cpu()
        for index, chosen in enumerate(here):
            own = logits[index, : len(chosen)]
            told = own[:, : tasks[index].vocab_size].log_softmax(-1) if answers[index].ndim > 1 else own.argmax(-1)
            answers[index][chosen] = told.numpy()
    for run, own_answers in zip(runs, answers, strict=True):
        own_answers.tofile(_file(folder, run.run_id, number, "answers"))


def results_of(questions: Mapping[int, Questions], folder: Path, run_id: str) -> dict[int, Result] | None:
    """Measure the answers that a worker left, by number of the test; None if it left none that fit the questions."""
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
    """Losses in nats of what may be no distribution: it is made one, or a worker could promise more than 1."""
    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(-1, keepdims=True)
        losses: np.ndarray = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(targets)), targets]
    return losses


def _standard_error(is_right: Bool[np.ndarray, " count"]) -> float:
    """Standard error of a share of right answers; at least that of one more or less."""
    count = max(2, len(is_right))
    share = min(max(is_right.sum() / count, 1 / count), 1 - 1 / count)
    return math.sqrt(share * (1 - share) / count)


def _num_probabilities(run: Run) -> int:
    cell = run.cell
    return cell.task.vocab_size if cell.task.measure == "bits" and not cell.levels else 0


def _no_answers(count: int, num_probabilities: int) -> np.ndarray:
    return np.zeros((count, num_probabilities), "<f4") if num_probabilities else np.zeros(count, "<i4")


def _file(folder: Path, run_id: str, number: int, kind: str) -> Path:
    return folder / f"{run_id}.{number}.{kind}"


def measured(row: Mapping[str, Any], results: Mapping[int, Result] | None) -> dict[str, Any]:
    """Replace the score that a worker claims with the score that the judge measured.

    Args:
        row: As the worker wrote it.
        results: By number of the test; None if its model left no answers that fit.
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
    """Give the standard error of a measured score: that of a fraction or of bits, as the score is."""
    levels = levels_in(json.loads(row["metrics"])) if row["metric_name"].endswith(LADDER_SCORE) else []
    if not levels:
        return results[1].standard_error
    errors = [results[number].standard_error / (of.ceiling - of.base) for number, of in enumerate(levels, start=1)]
    return math.hypot(*errors) / len(errors)


def _refused(row: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Turn a row into one that broke the contract."""
    nothing = dict.fromkeys(("score", "skill", "score_ood", "n_eval_examples", "n_correct", "eval_loss"))
    broken = {"status": "contract", "error_type": "ContractError", "error_message": reason, "metrics": "{}"}
    return {**row, **nothing, **broken}


def is_foreign(cell: Cell) -> bool:
    """Tell whether a component of a cell does not come with synthbench."""
    return not all(map(is_built_in, cell.components))


def needs_held_out_test(cell: Cell) -> bool:
    """Tell whether the judge measures the score of a cell: it runs somebody else's code on a task of synthbench.

    The author of a task sets its questions anyway.
    """
    return is_foreign(cell) and TASKS.is_built_in(cell.task_name)


def folder_of(job: Job, results: Path, driver: str) -> Path:
    """Give the store that a job writes its rows to: one of its own if it runs somebody else's code."""
    if not any(map(is_foreign, job.cells)):
        return results
    return folder_named(results, driver, (*job.missing, *job.untuned)[0].run_id)


def folder_named(results: Path, driver: str, run_id: str = "") -> Path:
    """Give the folder of the jobs of a driver, or of the job whose first run has this id."""
    return results / "_tmp" / f"held-out-{driver}" / run_id


class HeldOutTest:
    """The held-out tests of a command, and the rows of its jobs that run somebody else's code.

    What decides the questions stays in this process.

    Args:
        results: The store that takes the rows.
        driver: Names the folders of the jobs; removed by :meth:`close`.
    """

    def __init__(self, results: Path, driver: str) -> None:
        self._results, self._driver = results, driver
        self._salt = secrets.token_hex(16)
        self._held: BinaryIO | None = None

    def begin(self, job: Job) -> None:
        """Make the folder of a job, with the questions for its runs; nothing for one of built-in components."""
        folder = folder_of(job, self._results, self._driver)
        if folder == self._results:
            return
        self._hold()
        Store.open(folder, create=True)
        for run in job.runs:
            if needs_held_out_test(run.cell):
                write_inputs(self._questions(run), folder, run.run_id)

    def take(self, job: Job) -> list[dict[str, Any]]:
        """Move the rows of a job into the store, with the judge's scores; nothing for one of built-in components.

        Only rows of runs that the job had to do are taken.
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
        """Remove the folders."""
        if self._held is not None:
            self._held.close()
        shutil.rmtree(folder_named(self._results, self._driver), ignore_errors=True)

    def _questions(self, run: Run) -> dict[int, Questions]:
        return questions_of(run.cell, f"{self._salt}:{run.run_id}")

    def _hold(self) -> None:
        """Mark the folder in use: a job may wait for days in the queue of a cluster."""
        if self._held is None:
            folder = folder_named(self._results, self._driver)
            folder.mkdir(parents=True, exist_ok=True)
            self._held = (folder / HELD).open("wb")
            mark_in_use(self._held)
