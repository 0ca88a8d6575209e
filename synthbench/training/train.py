"""Trains runs as one program: those of a cell, or of several whose tasks have sequences of one shape."""

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
from synthbench.positions import LearnedRotation
from synthbench.registry import is_built_in
from synthbench.tasks import IGNORE, Level, Split, floor_and_ceiling, level_bounds
from synthbench.training.capture import CapturedStep
from synthbench.training.cell import Cell, Run
from synthbench.training.decode import decoded_scores
from synthbench.training.ensemble import (
    ModelSize,
    SequenceModel,
    Strategy,
    inherit,
    slowest,
    stack_models,
    strategy_of,
)
from synthbench.training.evaluate import METRIC_SEQUENCES, Score, evaluate, layer_metrics, summed_losses
from synthbench.training.optimiser import RunAdamW, make_optimiser
from synthbench.training.schedule import make_schedule
from synthbench.training.seeding import KeptBlocks, init_seed
from synthbench.training.stream import DeviceBlock, device_blocks, in_pieces

SEQUENCES_BEYOND = 128
"""Test sequences beyond the trained length, times the factor: few, as they are long; 64 and 32 of them."""
TOKENS_BEYOND = {"cpu": 8192, "cuda": 1 << 18}
"""Tokens of those that pass through the model at once.

More than elsewhere on a CPU, where few long sequences at once cost an LSTM six times as much. Fewer on a GPU, where
scores of 1,024 tokens take more memory.
"""


@dataclass(frozen=True)
class CurvePoint:
    """One number of a learning curve."""

    step: int
    split: str
    metric: str
    value: float
    wall_s: float


@dataclass
class RunResult:
    """The result of one run.

    ``score`` is that of the test, or of the last validation for one that tunes; None if it diverged. ``stretched`` has
    those of the tests on longer or more loaded sequences, by factor.
    """

    run: Run
    size: ModelSize
    score: Score | None = None
    stretched: dict[int, Score] = field(default_factory=dict)
    levels: list[LevelScore] = field(default_factory=list)
    """On a ladder, what ``score`` is made of: its accuracy is the height over the number of levels."""
    beyond: dict[int, Score | None] = field(default_factory=dict)
    """On a ladder, the scores beyond the trained length, by factor; None where the model reads no more tokens."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    predictions: Int[np.ndarray, "sequences length"] | None = None
    """Tokens predicted in the test, where asked for; arbitrary at positions that are not scored."""
    validation: list[Score] = field(default_factory=list)
    train_loss: float = math.nan
    diverged_at: int | None = None
    stopped_at: int | None = None
    """The step after which it was trained no further, solved."""
    rates: list[float] = field(default_factory=list)
    """The learning rate of every step that it was trained."""
    steps_to_threshold: int | None = None
    curve: list[CurvePoint] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """True if there is nothing left to train."""
        return self.diverged_at is not None or self.stopped_at is not None


@dataclass
class GroupResult:
    """The results of the runs that were trained together, and what the training cost."""

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
    """The generator from which a run's parameters and frozen features are drawn."""
    return torch.Generator().manual_seed(init_seed(seed))


def build_models(runs: Sequence[Run], factor: int = 1, shift: int = 0) -> list[SequenceModel]:
    """One model a run, each drawn from the run's own ``init`` stream, for the sequences of one of the tests."""
    return [run.cell.model(init_generator(run.seed), factor, shift) for run in runs]


class Trainer:
    """The program of some runs: model, optimiser and streams of all."""

    def __init__(
        self,
        runs: Sequence[Run],
        device: torch.device,
        *,
        is_captured: bool = True,
        kept: KeptBlocks | None = None,
        tokens_at_once: int | None = None,
    ) -> None:
        """Build the runs' models and stack them.

        Args:
            runs: Each with a learning rate; of one cell, or of cells that share a :attr:`Cell.program`.
            device: Where.
            is_captured: Whether a CUDA device may replay steps from a graph. It does not where a curriculum changes
                what is computed, or ``SYNTHBENCH_GRAPHS=off`` is in the environment.
            kept: Blocks of data that were drawn before.
            tokens_at_once: Size of the pieces of a step, see :func:`in_pieces`.
        """
        self.runs, self.device, self.kept = list(runs), device, kept
        cell = runs[0].cell
        self.suite = cell.suite
        models = build_models(runs)
        self.mechanisms = [mechanism for mechanism, _ in cell.layers]
        self.sizes = [model.size(cell.length) for model in models]
        self.strategies = [strategy_of(*layer) for layer in cell.layers]
        self.model = stack_models(models, self.strategies).to(device)
        self.tokens_at_once = tokens_at_once
        self.rates = [run.learning_rate for run in runs if run.learning_rate is not None]
        self.schedule = make_schedule(self.suite.training)
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
        """One gradient step of every run; returns their losses [runs], in nats.

        The losses are summed, so no gradient crosses from one run to another and one that diverges harms none. The
        gradient is that of the whole batch, summed over the pieces in which it passes through the model.
        """
        self.optimiser.advance()
        take = self.captured or self._step
        return take(inputs, targets, columns)

    def _step(self, inputs: torch.Tensor, targets: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """The part of a step that runs on the device."""
        num_scored = (targets != IGNORE).flatten(1).sum(1).clamp(min=1)
        total = torch.zeros(len(targets), device=targets.device)
        self.optimiser.zero_grad()
        for piece, labels in in_pieces(inputs, targets, self.tokens_at_once):
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
        """The batches of a stream one by one, each a block of one; for all runs by default."""
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
        """The batch of every step; on a ladder each from the stream of its level."""
        course, training = self.runs[0].cell.course, self.suite.training
        if course is None:
            yield from self.batches("train", training.steps, training.batch_size)
            return
        streams = [
            self.batches("train", num_batches, batch_size, factor=number)
            for number, (num_batches, batch_size) in enumerate(
                zip(course.num_batches, course.batch_sizes, strict=True), start=1
            )
        ]
        for level in course.order:
            yield next(streams[level])

    def validation_batches(self) -> Iterator[DeviceBlock]:
        """The sequences of every point of the learning curve; none on a ladder."""
        training, evaluation = self.suite.training, self.suite.evaluation
        if evaluation.curve_sequences is None:
            return
        num_points = -(-training.steps // evaluation.curve_every)
        yield from self.batches("validation", num_points, evaluation.curve_sequences)

    def stretched(self, runs: Sequence[Run], factor: int, shift: int = 0) -> SequenceModel:
        """The trained models of a cell's runs, for a test on longer, more loaded or moved sequences."""
        trained = self.model
        if len(runs) < len(self.runs):
            # First without the tokens of other tasks: what is longer may know more tokens of its own.
            trained = self._rebuilt(runs, 1, self.model, [self.runs.index(run) for run in runs])
        return self._rebuilt(runs, factor, trained, shift=shift)

    def _rebuilt(
        self,
        runs: Sequence[Run],
        factor: int,
        trained: SequenceModel,
        places: Sequence[int] | None = None,
        shift: int = 0,
    ) -> SequenceModel:
        """The models of some runs built anew, with what those at some places of a trained one have learned."""
        model = stack_models(build_models(runs, factor, shift), self.strategies).to(self.device)
        inherit(model, trained, places)
        return model


def train_group(
    runs: Sequence[Run],
    device: torch.device,
    *,
    keeps_predictions: bool = False,
    kept: KeptBlocks | None = None,
    on_trained: Callable[[SequenceModel], None] = lambda _model: None,
) -> GroupResult:
    """Train runs together and evaluate each; the test stream is opened once, at the end.

    Args:
        runs: Each with a learning rate; all of them reported, or all tuning. Of one cell, or of cells that share a
            :attr:`Cell.program`.
        device: Where.
        keeps_predictions: Whether the results have what reported runs predicted in the test.
        kept: Blocks of data that were drawn before; what is drawn now is added.
        on_trained: Called with the model of reported runs, after their test.
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
    """Take every step, with a point of the learning curve at the end of each interval."""
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
    """The same batches; the time spent waiting for them is added to ``data_s``."""
    while True:
        began = time.perf_counter()
        batch = next(batches, None)
        result.data_s += time.perf_counter() - began
        if batch is None:
            return
        yield batch


def _record(result: RunResult, step: int, losses: np.ndarray, score: Score | None, wall_s: float) -> None:
    """Add a point to a run's curve, or end the curve where its loss is no longer a number."""
    if result.is_done:
        return
    result.train_loss = float(losses.mean())
    result.curve.append(CurvePoint(step, "train", "loss", result.train_loss, wall_s))
    if not np.isfinite(losses).all():
        result.diverged_at = step
    if score is None:
        return
    result.validation.append(score)
    result.curve += [
        CurvePoint(step, "validation", "loss", score.loss, wall_s),
        CurvePoint(step, "validation", "accuracy", score.accuracy, wall_s),
    ]
    if not math.isfinite(score.loss):
        result.diverged_at = step
    cell = result.run.cell
    threshold = cell.suite.evaluation.threshold
    is_first = result.diverged_at is None and result.steps_to_threshold is None
    if is_first and threshold is not None and _has_reached(score, cell, threshold):
        result.steps_to_threshold = step


def _has_reached(score: Score, cell: Cell, skill: float) -> bool:
    """Return whether a score on sequences as trained on has a skill; not in bits, or if floor and ceiling are equal."""
    if cell.task.measure == "bits":
        return False
    floor, ceiling = (bound.value for bound in floor_and_ceiling(cell.task, cell.length))
    return ceiling > floor and score.accuracy >= floor + skill * (ceiling - floor)


def _stop_solved(trainer: Trainer, result: GroupResult) -> None:
    """Stop training the runs whose latest validation is as good as the suite asks."""
    stop_at = trainer.suite.training.stop_at
    if stop_at is None:
        return
    for index, run in enumerate(result.runs):
        if not run.is_done and _has_reached(run.validation[-1], run.run.cell, stop_at):
            run.stopped_at = result.steps
            # A single run needs no freezing: there is nobody left to train.
            if isinstance(trainer.optimiser, RunAdamW):
                trainer.optimiser.freeze(index)


def _validate_further(trainer: Trainer, result: GroupResult) -> None:
    """Score the runs on sequences, on a ladder of every level, that only help to choose a learning rate."""
    began = time.perf_counter()
    if trainer.runs[0].cell.levels:
        scores = [score for score, _ in on_levels(trainer, "validation")]
    else:
        num_sequences = trainer.suite.evaluation.validation_sequences or 0
        scores = evaluate(trainer.model, trainer.batches("validation", 1, num_sequences))
    for run, score in zip(result.runs, scores, strict=True):
        run.validation.append(score)
        if not math.isfinite(score.loss) and run.diverged_at is None:
            run.diverged_at = result.steps
    result.eval_s += time.perf_counter() - began


def _test(trainer: Trainer, result: GroupResult, *, keeps_predictions: bool) -> None:
    """Score the runs that did not diverge on the test streams, which nothing else reads."""
    if all(run.diverged_at is not None for run in result.runs):
        return
    began = time.perf_counter()
    is_ladder = bool(trainer.runs[0].cell.levels)
    if is_ladder:
        scores = _test_on_levels(trainer, result)
    else:
        scores = _scores(trainer, result, keeps_predictions=keeps_predictions)
    all_metrics: list[dict[str, float]] = [{} for _ in scores]
    if any(mechanism.metrics is not Mixer.metrics for mechanism in trainer.mechanisms):
        all_metrics = layer_metrics(trainer.model, next(trainer.batches("validation", 1, METRIC_SEQUENCES)))
    decoded = _decoded(trainer)
    for run, score, metrics, of_answers in zip(result.runs, scores, all_metrics, decoded, strict=True):
        if run.diverged_at is None:
            run.score = score
            run.metrics |= metrics | of_answers
    for cell in dict.fromkeys(run.cell for run in trainer.runs):
        of_cell = [run for run in result.runs if run.run.cell is cell]
        if is_ladder:
            _test_beyond(trainer, of_cell)
        else:
            _test_stretched(trainer, of_cell)
            _test_shifted(trainer, of_cell)
    result.eval_s += time.perf_counter() - began


def _scores(trainer: Trainer, result: GroupResult, *, keeps_predictions: bool) -> list[Score]:
    """The score of every run on its test stream; what those that did not diverge predicted is noted if asked for."""
    block = next(trainer.batches("test", 1, trainer.suite.evaluation.test_sequences))
    predicted: list[torch.Tensor] | None = [] if keeps_predictions else None
    tasks = [run.cell.task for run in trainer.runs]
    scores = evaluate(trainer.model, [block], predicted=predicted, tasks=tasks)
    if predicted is not None:
        columns = block.columns.cpu().numpy()
        for run, tokens in zip(result.runs, torch.cat(predicted, 1).numpy(), strict=True):
            if run.diverged_at is None:
                run.predictions = np.zeros((len(tokens), run.run.cell.length), tokens.dtype)
                run.predictions[:, columns] = tokens
    return scores


def _test_on_levels(trainer: Trainer, result: GroupResult) -> list[Score]:
    """The score of every run over all levels; notes the score on each for those that did not diverge."""
    scores = []
    for run, (score, levels) in zip(result.runs, on_levels(trainer, "test"), strict=True):
        scores.append(score)
        if run.diverged_at is None and not math.isfinite(score.loss):
            run.diverged_at = result.steps
        if run.diverged_at is None:
            run.levels = levels
    return scores


def on_levels(trainer: Trainer, split: Literal["validation", "test"]) -> list[tuple[Score, list[LevelScore]]]:
    """Every run's score over all levels, its accuracy the height over their number; and its score on each level."""
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
    """Measure every run when it reads its own answers: ``decoded.tokens``, on a level ``rung1.decoded...``.

    Empty if no answer has several tokens.
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
    """Score a cell's runs on longer or more loaded sequences, which may be as long for no other cell."""
    runs = [result.run for result in results]
    cell = runs[0].cell
    for factor in list(cell.tests)[1:]:
        # As many tokens in every test, about.
        num_sequences = max(1, cell.suite.evaluation.test_sequences // factor)
        batches = trainer.batches("test", 1, num_sequences, runs=runs, factor=factor)
        for result, score in zip(results, evaluate(trainer.stretched(runs, factor), batches), strict=True):
            if result.diverged_at is None:
                result.stretched[factor] = score


def _test_shifted(trainer: Trainer, results: Sequence[RunResult]) -> None:
    """Repeat the test of a cell's runs with all coordinates moved, and measure how their rotations see offsets.

    Null where positions are a table, which has no places to move to.
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
    # A mechanism whose runs run one after the other keeps its rotations out of sight.
    rotations = [part for part in trainer.model.modules() if isinstance(part, LearnedRotation)] if shifts else []
    if rotations:
        ir_spec = torch.stack([rotation.irreducibility(shifts).mean(-1) for rotation in rotations]).mean(0).tolist()
        for result in kept:
            result.metrics["ir_spec"] = ir_spec[trainer.runs.index(result.run)]


def _test_beyond(trainer: Trainer, results: Sequence[RunResult]) -> None:
    """Score a cell's runs on levels longer than any that they were trained on."""
    runs = [result.run for result in results]
    cell = runs[0].cell
    for factor in cell.beyond:
        num_sequences = max(1, min(cell.suite.evaluation.test_sequences, SEQUENCES_BEYOND) // factor)
        scores = _scores_beyond(trainer, runs, factor, num_sequences) if cell.positions[0].extends else None
        for index, result in enumerate(results):
            if result.diverged_at is None:
                result.beyond[factor] = None if scores is None else scores[index]


def _scores_beyond(trainer: Trainer, runs: Sequence[Run], factor: int, num_sequences: int) -> list[Score] | None:
    """The scores of a cell's runs on one such level; None if the mechanism reads no more than ``max_length`` tokens.

    A built-in mechanism says so by a :class:`UsageError`. Somebody else's may raise anything, which must not cost the
    run its row.
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
    """Return whether an exception says that the memory did not suffice."""
    # On a CPU a failed allocation is a plain RuntimeError.
    return isinstance(problem, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(problem)
