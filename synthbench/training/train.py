"""Training of several runs together, as one model.

The runs belong to one cell (a mechanism on a task), or to cells whose sequences have the same shape.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.layers import Mixer
from synthbench.levels import LevelScore, ladder_score
from synthbench.plugins import is_built_in, text_of
from synthbench.positions import LearnedRotation
from synthbench.tasks import IGNORE, Level, Split, floor_and_ceiling, level_bounds
from synthbench.training.capture import CapturedStep
from synthbench.training.cell import Cell, Run
from synthbench.training.decode import decoded_scores
from synthbench.training.ensemble import (
    ModelSize,
    SequenceModel,
    Strategy,
    copy_learned,
    slowest,
    stack_models,
    strategy_of,
)
from synthbench.training.evaluate import METRIC_SEQUENCES, Score, evaluate, layer_metrics, summed_losses
from synthbench.training.optimiser import RunAdamW, make_optimiser
from synthbench.training.schedule import Schedule
from synthbench.training.seeding import KeptBlocks, init_seed
from synthbench.training.stream import DeviceBlock, device_blocks, in_pieces

SEQUENCES_BEYOND = 128
"""Limit on the sequences of a test beyond the trained length. The limit is divided by the length, in multiples of the
longest trained length: 64 sequences at twice this length, 32 at four times."""
TOKENS_BEYOND = {"cpu": 8192, "cuda": 1 << 18}
"""Limit on the tokens that pass through the model at once in tests beyond the trained length, by device type.

On a CPU, this limit is higher than in other tests: with only a few long sequences at once, an LSTM would be six times
slower. On a GPU, the limit is lower, since attention scores of 1,024 tokens take more memory.
"""


@dataclass(frozen=True)
class CurvePoint:
    """One number of a learning curve, measured after ``step`` steps, ``wall_s`` seconds after training began."""

    step: int
    split: str
    metric: str
    value: float
    wall_s: float


@dataclass
class RunResult:
    """The result of one run.

    ``score`` is the test score or, for a run that only serves to choose the learning rate, the last validation score.
    The score is None if the run diverged. ``stretched`` holds the scores of tests with a larger length or load
    (difficulty); a key is the ratio of this length or load to the trained one.
    """

    run: Run
    size: ModelSize
    score: Score | None = None
    stretched: dict[int, Score] = field(default_factory=dict)
    levels: list[LevelScore] = field(default_factory=list)
    """On a ladder, the score on each level; the accuracy in ``score`` is their ladder score, from 0 to 1."""
    beyond: dict[int, Score | None] = field(default_factory=dict)
    """On a ladder, the scores on levels longer than all trained levels. The keys are lengths, in multiples of the
    longest trained length. A score is None if the model cannot read that many tokens."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    predictions: Int[np.ndarray, "sequences length"] | None = None
    """Tokens predicted in the test, if they were requested; arbitrary at positions that are not scored."""
    validation: list[Score] = field(default_factory=list)
    train_loss: float = math.nan
    diverged_at: int | None = None
    stopped_at: int | None = None
    """The step after which training stopped because the task was solved; None if it did not stop early."""
    rates: list[float] = field(default_factory=list)
    """The learning rate of every step on which the run was trained."""
    steps_to_threshold: int | None = None
    curve: list[CurvePoint] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """True if training of the run has ended early, because the run diverged or solved its task."""
        return self.diverged_at is not None or self.stopped_at is not None

    def check_loss(self, loss: float | np.ndarray, step: int) -> None:
        """Mark the run as diverged at a step if a loss is not finite, unless it diverged earlier."""
        if self.diverged_at is None and not np.isfinite(loss).all():
            self.diverged_at = step


@dataclass
class GroupResult:
    """The results of runs that were trained together, and the cost of training them."""

    runs: list[RunResult]
    strategy: Strategy
    is_captured: bool = False
    """True if steps were replayed from a CUDA graph."""
    steps: int = 0
    train_s: float = 0.0
    eval_s: float = 0.0
    data_s: float = 0.0
    step_ms_median: float = math.nan


def init_generator(seed: int) -> torch.Generator:
    """Make the generator that draws a run's parameters and frozen random features; ``seed`` is the run's root seed."""
    return torch.Generator().manual_seed(init_seed(seed))


def build_models(runs: Sequence[Run], factor: int = 1, shift: int = 0) -> list[SequenceModel]:
    """Build one untrained model per run, from the run's seed; ``factor`` and ``shift`` are as in :meth:`Cell.model`."""
    return [run.cell.model(init_generator(run.seed), factor, shift) for run in runs]


class Trainer:
    """The training of several runs together: one model with a leading run axis, its optimiser, and the runs' data."""

    def __init__(
        self,
        runs: Sequence[Run],
        device: torch.device,
        *,
        is_captured: bool = True,
        kept: KeptBlocks | None = None,
    ) -> None:
        """Build the models of all runs, and join them into one model with a leading run axis.

        Args:
            runs: Runs whose learning rate is set, of one cell (a mechanism on a task) or of cells with equal
                :attr:`Cell.program`.
            device: Device to train on.
            is_captured: True to replay steps from a CUDA graph where possible. This needs a CUDA device and a schedule
                that never changes what is computed; ``SYNTHBENCH_GRAPHS=off`` in the environment forbids it.
            kept: Cache of data blocks; None to keep none.
        """
        self.runs, self.device, self.kept = list(runs), device, kept
        cell = runs[0].cell
        self.suite = cell.suite
        models = build_models(runs)
        self.sizes = [model.size(cell.length) for model in models]
        self.strategies = [strategy_of(*layer) for layer in cell.layers]
        self.model = stack_models(models, self.strategies).to(device)
        self.rates = [run.learning_rate for run in runs if run.learning_rate is not None]
        self.schedule = Schedule(self.suite.training)
        is_captured = (
            is_captured
            and device.type == "cuda"
            and self.schedule.keeps_program
            and os.environ.get("SYNTHBENCH_GRAPHS") != "off"
        )
        self.optimiser = make_optimiser(
            self.model.parameters(), self.rates, self.suite.training, is_capturable=is_captured
        )
        self.captured = CapturedStep(self._step, device) if is_captured else None

    def step(self, inputs: torch.Tensor, targets: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Take one gradient step of every run; return the runs' losses [runs], in nats per target.

        No gradient passes between runs, so a diverging run harms no other run. A large batch passes through the model
        in pieces, whose gradients are added up before the step.
        """
        self.optimiser.advance()
        return (self.captured or self._step)(inputs, targets, columns)

    def _step(self, inputs: torch.Tensor, targets: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Take the part of a training step that runs on the device: loss, gradients and update."""
        num_scored = (targets != IGNORE).flatten(1).sum(1).clamp(min=1)
        total = torch.zeros(len(targets), device=targets.device)
        self.optimiser.zero_grad()
        for piece, labels in in_pieces(inputs, targets):
            losses = summed_losses(self.model(piece, columns), labels) / num_scored
            torch.autograd.backward(losses.sum())
            total += losses.detach()
        self.optimiser.update()
        return total

    def batches(
        self,
        split: Split,
        num_batches: int,
        batch_size: int,
        *,
        runs: Sequence[Run] | None = None,
        factor: int = 1,
        is_beyond: bool = False,
    ) -> Iterator[DeviceBlock]:
        """Yield the batches of a split (training, validation or test) one by one, for all runs or only for ``runs``.

        ``factor`` and ``is_beyond`` select the task and the length, as in :func:`device_blocks`.
        """
        blocks = device_blocks(
            self.runs if runs is None else runs,
            split,
            num_batches=num_batches,
            batch_size=batch_size,
            device=self.device,
            factor=factor,
            is_beyond=is_beyond,
            kept=self.kept,
        )
        for block in blocks:
            for inputs, targets in zip(block.inputs.split(1), block.targets.split(1), strict=True):
                yield block._replace(inputs=inputs, targets=targets)

    def training_batches(self) -> Iterator[DeviceBlock]:
        """Yield the batch of every step.

        On a ladder (the levels of a task), the batch is drawn from the step's level.
        """
        plan, training = self.runs[0].cell.ladder_schedule, self.suite.training
        if plan is None:
            yield from self.batches("train", training.steps, training.batch_size)
            return
        streams = [
            self.batches("train", *sizes, factor=number)
            for number, *sizes in zip(self.runs[0].cell.tests, plan.num_batches, plan.batch_sizes, strict=True)
        ]
        for level in plan.order:
            yield next(streams[level])

    def validation_batches(self) -> Iterator[DeviceBlock]:
        """Yield one validation batch for each point of the learning curve.

        On a ladder (the levels of a task), learning curves have no validation scores, so nothing is yielded.
        """
        training, evaluation = self.suite.training, self.suite.evaluation
        if evaluation.curve_sequences is None:
            return
        num_points = -(-training.steps // evaluation.curve_every)
        yield from self.batches("validation", num_points, evaluation.curve_sequences)

    def stretched(self, runs: Sequence[Run], factor: int, shift: int = 0) -> SequenceModel:
        """Return a copy of the trained model of ``runs``, all of one cell, for a larger test or for later positions.

        ``factor`` and ``shift`` are as in :meth:`Cell.model`.
        """
        trained = self.model
        if len(runs) < len(self.runs):
            # First drop the tokens of other tasks: the task of a longer test may have more tokens of its own.
            trained = stack_models(build_models(runs), self.strategies).to(self.device)
            copy_learned(trained, self.model, [self.runs.index(run) for run in runs])
        model = stack_models(build_models(runs, factor, shift), self.strategies).to(self.device)
        copy_learned(model, trained)
        return model


def train_group(
    runs: Sequence[Run],
    device: torch.device,
    *,
    keeps_predictions: bool = False,
    kept: KeptBlocks | None = None,
    on_trained: Callable[[SequenceModel], None] = lambda _model: None,
) -> GroupResult:
    """Train several runs together, as one model, and evaluate each run; test sequences are read only after training.

    Args:
        runs: Runs with known learning rates. Either all of them are reported, or all are tuning runs, which only serve
            to choose a learning rate. They belong to one cell (a mechanism on a task), or to cells with equal
            :attr:`Cell.program`.
        device: Device to train on.
        keeps_predictions: True to keep the tokens that the models predict in the test.
        kept: Cache of drawn sequences, to which newly drawn ones are added; None for no cache.
        on_trained: Function that is called with the model of all runs after the test, but not for tuning runs.
    """
    trainer = Trainer(runs, device, kept=kept)
    result = GroupResult(
        runs=[RunResult(run, size) for run, size in zip(runs, trainer.sizes, strict=True)],
        strategy=slowest(trainer.strategies),
    )
    _train(trainer, result)
    result.is_captured = trainer.captured is not None and trainer.captured.is_replaying
    if trainer.suite.evaluation.validation_sequences is not None:
        _validate_further(trainer, result)
    if runs[0].is_tuning:
        for run in result.runs:
            if run.diverged_at is None:
                run.score = run.validation[-1]
    else:
        _test(trainer, result, keeps_predictions=keeps_predictions)
        on_trained(trainer.model)
    return result


def _train(trainer: Trainer, result: GroupResult) -> None:
    """Take all training steps; extend the learning curves every ``curve_every`` steps and after the last step."""
    settings, evaluation = trainer.suite.training, trainer.suite.evaluation
    began = time.perf_counter()
    points = trainer.validation_batches()
    losses: list[torch.Tensor] = []
    step_seconds: list[float] = []
    interval_began = began
    for batch in _timed(trainer.training_batches(), result):
        share = trainer.schedule.apply(result.steps, trainer.optimiser, trainer.model)
        for run, rate in zip(result.runs, trainer.rates, strict=True):
            if not run.is_done:
                run.rates.append(share * rate)
        losses.append(trainer.step(batch.inputs[0], batch.targets[0], batch.columns))
        result.steps += 1
        if result.steps % evaluation.curve_every and result.steps != settings.steps:
            continue
        interval_losses = torch.stack(losses).double().cpu().numpy()  # waits for the device
        evaluation_began = time.perf_counter()
        step_seconds.append((evaluation_began - interval_began) / len(losses))
        point = next(points, None)
        scores = [None] * len(result.runs) if point is None else evaluate(trainer.model, [point])
        interval_began = time.perf_counter()
        result.eval_s += interval_began - evaluation_began
        for run, run_losses, score in zip(result.runs, interval_losses.T, scores, strict=True):
            _record(run, result.steps, run_losses, score, interval_began - began)
        _stop_solved(trainer, result)
        if all(run.is_done for run in result.runs):
            break
        losses = []
    result.step_ms_median = float(np.median(step_seconds)) * 1e3
    result.train_s = time.perf_counter() - began - result.eval_s - result.data_s


def _timed(batches: Iterator[DeviceBlock], result: GroupResult) -> Iterator[DeviceBlock]:
    """Yield the given batches unchanged; add the seconds spent waiting for them to ``result.data_s``."""
    while True:
        began = time.perf_counter()
        batch = next(batches, None)
        result.data_s += time.perf_counter() - began
        if batch is None:
            return
        yield batch


def _record(result: RunResult, step: int, losses: np.ndarray, score: Score | None, wall_s: float) -> None:
    """Add losses and scores at a step to a run's learning curve; mark the run as diverged if a loss is not finite."""
    if result.is_done:
        return
    result.train_loss = float(losses.mean())
    result.curve.append(CurvePoint(step, "train", "loss", result.train_loss, wall_s))
    result.check_loss(losses, step)
    if score is None:
        return
    result.validation.append(score)
    result.curve += [
        CurvePoint(step, "validation", "loss", score.loss, wall_s),
        CurvePoint(step, "validation", "accuracy", score.accuracy, wall_s),
    ]
    result.check_loss(score.loss, step)
    cell = result.run.cell
    threshold = cell.suite.evaluation.threshold
    is_first = result.diverged_at is None and result.steps_to_threshold is None
    if is_first and threshold is not None and _has_reached(score, cell, threshold):
        result.steps_to_threshold = step


def _has_reached(score: Score, cell: Cell, skill: float) -> bool:
    """Return whether a score reaches a skill (0 at the floor, 1 at the ceiling); False for tasks scored in bits."""
    if cell.task.measure == "bits":
        return False
    floor, ceiling = (bound.value for bound in floor_and_ceiling(cell.task, cell.length))
    return ceiling > floor and score.accuracy >= floor + skill * (ceiling - floor)


def _stop_solved(trainer: Trainer, result: GroupResult) -> None:
    """Stop training the runs whose latest validation score reaches the skill ``stop_at`` of the suite."""
    stop_at = trainer.suite.training.stop_at
    if stop_at is None:
        return
    for index, run in enumerate(result.runs):
        if not run.is_done and _has_reached(run.validation[-1], run.run.cell, stop_at):
            run.stopped_at = result.steps
            # A single run needs no freezing: training ends.
            if isinstance(trainer.optimiser, RunAdamW):
                trainer.optimiser.freeze(index)


def _validate_further(trainer: Trainer, result: GroupResult) -> None:
    """Score trained runs on further validation sequences; the scores of tuning runs decide the learning rate."""
    began = time.perf_counter()
    if trainer.runs[0].cell.levels:
        scores = [score for score, _ in on_levels(trainer, "validation")]
    else:
        num_sequences = trainer.suite.evaluation.validation_sequences or 0
        scores = evaluate(trainer.model, trainer.batches("validation", 1, num_sequences))
    for run, score in zip(result.runs, scores, strict=True):
        run.validation.append(score)
        run.check_loss(score.loss, result.steps)
    result.eval_s += time.perf_counter() - began


def _test(trainer: Trainer, result: GroupResult, *, keeps_predictions: bool) -> None:
    """Score all runs on the test streams, except runs that diverged."""
    if all(run.diverged_at is not None for run in result.runs):
        return
    began = time.perf_counter()
    is_ladder = bool(trainer.runs[0].cell.levels)
    scores: Sequence[Score]
    levels: Sequence[list[LevelScore]] = [[] for _ in trainer.runs]
    predictions: Sequence[np.ndarray | None] = [None] * len(trainer.runs)
    if is_ladder:
        scores, levels = zip(*on_levels(trainer, "test"), strict=True)
    else:
        scores, predictions = _scores(trainer, keeps_predictions=keeps_predictions)
    all_metrics: list[dict[str, float]] = [{} for _ in scores]
    if any(mechanism.metrics is not Mixer.metrics for mechanism, _ in trainer.runs[0].cell.layers):
        all_metrics = layer_metrics(trainer.model, next(trainer.batches("validation", 1, METRIC_SEQUENCES)))
    tested = zip(result.runs, scores, levels, predictions, all_metrics, _decoded(trainer), strict=True)
    for run, score, of_levels, predicted, metrics, of_answers in tested:
        run.check_loss(score.loss, result.steps)
        if run.diverged_at is None:
            run.score, run.levels, run.predictions = score, of_levels, predicted
            run.metrics |= metrics | of_answers
    for cell in dict.fromkeys(run.cell for run in trainer.runs):
        of_cell = [run for run in result.runs if run.run.cell is cell]
        if is_ladder:
            _test_beyond(trainer, of_cell)
        else:
            _test_stretched(trainer, of_cell)
            _test_shifted(trainer, of_cell)
    result.eval_s += time.perf_counter() - began


def _scores(trainer: Trainer, *, keeps_predictions: bool) -> tuple[list[Score], Sequence[np.ndarray | None]]:
    """Score every run on its test stream; return the scores and, if requested, each run's predicted tokens."""
    block = next(trainer.batches("test", 1, trainer.suite.evaluation.test_sequences))
    predicted: list[torch.Tensor] | None = [] if keeps_predictions else None
    tasks = [run.cell.task for run in trainer.runs]
    scores = evaluate(trainer.model, [block], predicted=predicted, tasks=tasks)
    if predicted is None:
        return scores, [None] * len(scores)
    tokens = torch.cat(predicted, 1).numpy()
    predictions = np.zeros((*tokens.shape[:2], trainer.runs[0].cell.length), tokens.dtype)
    predictions[..., block.columns.cpu().numpy()] = tokens
    return scores, list(predictions)


def on_levels(trainer: Trainer, split: Literal["validation", "test"]) -> list[tuple[Score, list[LevelScore]]]:
    """Score every run on all levels; return each run's total and its scores by level.

    The accuracy in the total is the ladder score, which measures the fraction of levels mastered, from 0 to 1.
    """
    evaluation = trainer.suite.evaluation
    num_sequences = evaluation.test_sequences if split == "test" else evaluation.validation_sequences or 0
    by_level = [
        evaluate(trainer.model, trainer.batches(split, 1, num_sequences, factor=number))
        for number in trainer.runs[0].cell.tests
    ]
    return [
        _score_of_levels(run.cell.levels, reached)
        for run, reached in zip(trainer.runs, zip(*by_level, strict=True), strict=True)
    ]


def _score_of_levels(levels: Sequence[Level], reached: Sequence[Score]) -> tuple[Score, list[LevelScore]]:
    level_scores = []
    for level, score in zip(levels, reached, strict=True):
        bound = level_bounds(level)
        level_scores.append(LevelScore(float(level.load), score.accuracy, bound.base, bound.ceiling))
    total = Score(
        accuracy=ladder_score(level_scores),
        loss=sum(score.loss for score in reached) / len(level_scores),
        num_correct=sum(score.num_correct for score in reached),
        num_scored=sum(score.num_scored for score in reached),
        std_over_sequences=0.0,
    )
    return total, level_scores


def _decoded(trainer: Trainer) -> list[dict[str, float]]:
    """Measure the accuracy of runs that read their own predictions; return metrics such as ``decoded.tokens``.

    On a ladder, each level has its own metrics, such as ``rung1.decoded.tokens``. A run has no such
    metrics if :func:`synthbench.training.decode.own_tokens` marks none of its inputs, as with answers of single tokens.
    """
    cell, evaluation = trainer.runs[0].cell, trainer.suite.evaluation
    metrics: list[dict[str, float]] = [{} for _ in trainer.runs]
    for number in cell.tests if cell.levels else (1,):
        prefix = f"rung{number}." if cell.levels else ""
        block = next(trainer.batches("test", 1, evaluation.test_sequences, factor=number))
        for of_run, scores in zip(metrics, decoded_scores(trainer.model, block), strict=True):
            if scores is not None:
                of_run |= {f"{prefix}decoded.{name}": share for name, share in scores._asdict().items()}
    return metrics


def _test_stretched(trainer: Trainer, results: Sequence[RunResult]) -> None:
    """Score the runs of a cell (a mechanism on a task) on sequences that are longer or have a higher load."""
    runs = [result.run for result in results]
    cell = runs[0].cell
    for factor in list(cell.tests)[1:]:
        # Every test has about the same number of tokens.
        num_sequences = max(1, cell.suite.evaluation.test_sequences // factor)
        batches = trainer.batches("test", 1, num_sequences, runs=runs, factor=factor)
        for result, score in zip(results, evaluate(trainer.stretched(runs, factor), batches), strict=True):
            if result.diverged_at is None:
                result.stretched[factor] = score


def _test_shifted(trainer: Trainer, results: Sequence[RunResult]) -> None:
    """Test runs of a cell with shifted token positions; measure how far learned rotations are from plain ones.

    The distance is the metric ``ir_spec``. Scores are None if the position encoding is a learned table, which
    has no entries for shifted positions.
    """
    kept = [result for result in results if result.diverged_at is None]
    cell = results[0].run.cell
    shifts = cell.suite.evaluation.shifts or ()
    for shift in shifts if kept else ():
        runs, scores = [result.run for result in kept], None
        if cell.positions[0].extends:
            batches = trainer.batches("test", 1, cell.suite.evaluation.test_sequences, runs=runs)
            scores = evaluate(trainer.stretched(runs, 1, shift), batches)
        for index, result in enumerate(kept):
            result.metrics[f"shift{shift}.score"] = None if scores is None else scores[index].accuracy
            result.metrics[f"shift{shift}.loss"] = None if scores is None else scores[index].loss
    # The rotations of mechanisms that run in a loop are not found here.
    rotations = [part for part in trainer.model.modules() if isinstance(part, LearnedRotation)] if shifts else []
    if rotations:
        ir_spec = torch.stack([rotation.irreducibility(shifts).mean(-1) for rotation in rotations]).mean(0).tolist()
        for result in kept:
            result.metrics["ir_spec"] = ir_spec[trainer.runs.index(result.run)]


def _test_beyond(trainer: Trainer, results: Sequence[RunResult]) -> None:
    """Score the runs of a cell (a mechanism on a task) on levels that are longer than all trained levels."""
    runs = [result.run for result in results]
    cell = runs[0].cell
    for factor in cell.beyond:
        num_sequences = max(1, min(cell.suite.evaluation.test_sequences, SEQUENCES_BEYOND) // factor)
        scores = _scores_beyond(trainer, runs, factor, num_sequences) if cell.positions[0].extends else None
        for index, result in enumerate(results):
            if result.diverged_at is None:
                result.beyond[factor] = None if scores is None else scores[index]


def _scores_beyond(trainer: Trainer, runs: Sequence[Run], factor: int, num_sequences: int) -> list[Score] | None:
    """Score runs on one level longer than all trained levels; None if the mechanism cannot read that many tokens.

    A built-in mechanism that cannot read them raises a :class:`UsageError`, and a plugin may raise any exception. In
    both cases, the result is None. An exception that reports a lack of memory is always passed on.
    """
    batches = trainer.batches("test", 1, num_sequences, runs=runs, factor=factor, is_beyond=True)
    try:
        return evaluate(trainer.stretched(runs, factor), batches, tokens_at_once=TOKENS_BEYOND[trainer.device.type])
    except UsageError:
        return None
    except Exception as problem:
        if all(map(is_built_in, runs[0].cell.components)) or is_out_of_memory(problem):
            raise
        return None


def is_out_of_memory(problem: BaseException) -> bool:
    """Return whether an exception reports a lack of memory."""
    # On a CPU a failed allocation is a plain RuntimeError.
    return isinstance(problem, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text_of(problem)
