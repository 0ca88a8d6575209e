"""Makes the record of a run: its row of results, its learning curve and, on request, its predictions."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from synthbench import plugins
from synthbench.bits import BITS, bits_of
from synthbench.canonical import canonical_json, sha256
from synthbench.errors import StoreError
from synthbench.levels import LADDER_SCORE, levels_in, metrics_of_levels
from synthbench.options import term_of
from synthbench.plugins import origin_of
from synthbench.registry import version_of
from synthbench.results.schema import RUN_COLUMNS, skill
from synthbench.results.store import make_writable
from synthbench.runner.environment import hardware, peak_memory_bytes, software
from synthbench.runner.estimates import cost_columns
from synthbench.runner.request import RunContext
from synthbench.tasks import IGNORE, Bound, floor_and_ceiling, local_ceiling, references, shortcut_accuracies
from synthbench.training.cell import Cell, Run
from synthbench.training.evaluate import Score
from synthbench.training.identity import DTYPE
from synthbench.training.ladder_scores import metrics_beyond
from synthbench.training.seeding import data_seed, init_seed
from synthbench.training.sequences import sequences_of, write_archive
from synthbench.training.train import GroupResult, RunResult

STANDARD_ERRORS = 5.0
"""Number of standard errors above the ceiling beyond which a score gets a remark."""


@dataclass(frozen=True)
class Provenance:
    """Context in which a row is made, such as device, executor and time."""

    context: RunContext
    number: int
    queue_s: float = 0.0
    causal_checked: bool = False
    started_at: datetime = field(default_factory=partial(datetime.now, UTC))
    began: float = field(default_factory=time.monotonic)
    """``time.monotonic()`` at the start."""
    is_deterministic: bool = False

    @property
    def device(self) -> torch.device:
        """The device that trains the runs."""
        return torch.device(self.context.device)

    def finished_at(self, run_id: str) -> datetime:
        """Return the present time; if the row replaces an older row, at least 1 ms after that row's finishing time."""
        now, replaced = datetime.now(UTC), self.context.replaced
        return max(now, replaced[run_id] + timedelta(milliseconds=1)) if run_id in replaced else now


@dataclass(frozen=True)
class Failure:
    """Reason for a missing score."""

    status: str
    error_type: str
    message: str
    trace: str | None = None
    """The traceback, for messages; it is not stored in the row."""


def row_and_curve(
    result: GroupResult, index: int, provenance: Provenance
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Make the row of results and the learning curve of a run that has ended normally or diverged.

    Args:
        result: Results of runs that were trained together, as one model.
        index: Index of the run among these runs, from 0.
        provenance: Context in which the row is made, such as device, executor and time.
    """
    run = result.runs[index]
    cell = run.run.cell
    training = cell.suite.training
    score = run.score
    tokens_a_step = len(result.runs) * num_tokens(cell, training.steps) / training.steps
    step_ms = result.step_ms_median if math.isfinite(result.step_ms_median) else None
    eval_losses = [point.loss for point in run.validation if math.isfinite(point.loss)]
    stretched = [_counted(cell, longer) for longer in run.stretched.values()]
    row = _common([trained.run for trained in result.runs], index, provenance)
    row |= {
        "status": "ok" if score else "diverged",
        "error_type": None if score else "Diverged",
        "error_message": None if score else f"the loss was not finite at step {run.diverged_at}",
        "member_strategy": result.strategy,
        "compiled": result.is_captured,
        "n_params": run.size.num_parameters,
        "n_params_mixer": run.size.num_parameters_mixer,
        "state_size": run.size.state_elements,
        "n_train": num_sequences(cell, run.stopped_at or result.steps),
        "score": _counted(cell, score) if score else None,
        "skill": skill(score.accuracy, row["floor"], row["ceiling"]) if score and not cell.is_in_bits else None,
        "score_ood": sum(stretched) / len(stretched) if stretched else None,
        "metrics": canonical_json(_metrics(cell, run)),
        "n_eval_examples": score.num_scored if score else None,
        "n_correct": score.num_correct if score else None,
        "train_loss": run.train_loss,
        "eval_loss": score.loss if score else None,
        "best_eval_loss": min(eval_losses, default=None),
        "steps": run.diverged_at or run.stopped_at or result.steps,
        "lr_first": run.rates[0],
        "lr_last": run.rates[-1],
        "steps_to_threshold": run.steps_to_threshold,
        "train_s": result.train_s,
        "eval_s": result.eval_s,
        "data_s": result.data_s,
        "step_ms_median": step_ms,
        "tokens_per_s": tokens_a_step / (step_ms / 1e3) if step_ms else None,
    }
    curve = [{"run_id": row["run_id"], **asdict(point), "tokens": num_tokens(cell, point.step)} for point in run.curve]
    return with_remark(row), curve


def with_remark(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a row, with a remark in its column ``note`` if a score is suspiciously high.

    A score is suspiciously high if it is more than five standard errors above the ceiling (the best possible score). On
    a ladder, each level is compared with its own ceiling.
    """
    levels = levels_in(json.loads(row["metrics"]))
    reached = [(level.score, level.ceiling) for level in levels] or [(row["score"], row["ceiling"])]
    for score, ceiling in reached:
        if score is not None and score > ceiling + STANDARD_ERRORS * _standard_error(ceiling, row["n_eval"]):
            remark = f"the score {score:.4f} is above the ceiling of the task, {ceiling:.4f}"
            return {**row, "note": "; ".join(filter(None, (row["note"], remark)))}
    return dict(row)


def _standard_error(ceiling: float, num_sequences: int) -> float:
    """Compute the standard error of a score whose expected value is the ceiling.

    For scores in bits, the score of each sequence is assumed to have variance 1.
    """
    spread = ceiling * (1 - ceiling) if 0 <= ceiling <= 1 else 1.0
    return math.sqrt(spread / num_sequences)


def failure_row(runs: Sequence[Run], index: int, failure: Failure, provenance: Provenance) -> dict[str, Any]:
    """Make the row of a run that could not be trained: its status says why, and its score is null, never 0."""
    return {
        **dict.fromkeys(
            column.name for column in RUN_COLUMNS if column.is_nullable and column.decided_by != "configuration"
        ),
        **_common(runs, index, provenance),
        "status": failure.status,
        "error_type": failure.error_type,
        "error_message": failure.message[:500],
        "member_strategy": "loop",
        "metrics": "{}",
    }


def _counted(cell: Cell, score: Score) -> float:
    """Return the number that a row states as its score: the accuracy, or minus the bits per token.

    On a ladder (a task's series of levels), ``score.accuracy`` is the score from 0 to 1 over all levels.
    """
    return -bits_of(score.loss) if cell.is_in_bits else score.accuracy


def _tuning_rule(cell: Cell) -> str:
    suite = cell.suite
    if suite.tuning is not None:
        return f"highest mean validation skill over seeds {', '.join(map(str, suite.tuning.seeds))}"
    # Does not state the number of rates: a row must not change if only its run is made again.
    if suite.evaluation.validation_sequences is not None:
        best = "lowest validation loss" if cell.is_in_bits else "highest validation accuracy"
        return f"of the rows of a seed, that with the {best}"
    return "none: one fixed rate"


def num_sequences(cell: Cell, num_steps: int) -> int:
    """Count the sequences that a run has read after a number of steps."""
    return (
        num_steps * cell.suite.training.batch_size
        if cell.ladder_schedule is None
        else cell.ladder_schedule.sequences(num_steps)
    )


def num_tokens(cell: Cell, num_steps: int) -> int:
    """Count the tokens that a run has read after a number of steps."""
    return (
        num_sequences(cell, num_steps) * cell.length
        if cell.ladder_schedule is None
        else cell.ladder_schedule.tokens(num_steps)
    )


def _metrics(cell: Cell, run: RunResult) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {**run.metrics}
    if run.validation:
        metrics["validation_accuracy"] = run.validation[-1].accuracy
    if cell.ladder_schedule is not None:
        reached = {factor: None if score is None else score.accuracy for factor, score in run.beyond.items()}
        return metrics | metrics_of_levels(run.levels) | metrics_beyond(cell.levels, reached)
    metrics |= {f"reference.{name}": reached for name, reached in references(cell.task, cell.length).items()}
    if cell.is_in_bits:
        return metrics | _metrics_in_bits(run)
    metrics |= {
        f"shortcut.{name}": reached.value for name, reached in shortcut_accuracies(cell.task, cell.length).items()
    }
    for factor, score in run.stretched.items():
        task, length = cell.tests[factor]
        floor, ceiling = (bound.value for bound in floor_and_ceiling(task, length))
        metrics |= {
            f"x{factor}.score": score.accuracy,
            f"x{factor}.floor": floor,
            f"x{factor}.ceiling": ceiling,
            f"x{factor}.skill": skill(score.accuracy, floor, ceiling),
        }
    if run.score:
        metrics["score_std_over_sequences"] = run.score.std_over_sequences
    return metrics


def _metrics_in_bits(run: RunResult) -> dict[str, float | None]:
    """Collect the metrics of a run that is scored in bits per token.

    They are the bits in validation, in longer tests and at each kind of position, and each kind's share of the scored
    positions. Accuracy and calibration error are included.
    """
    metrics: dict[str, float | None] = {}
    if run.validation:
        metrics["validation_bits"] = bits_of(run.validation[-1].loss)
    metrics |= {f"x{factor}.bits": bits_of(score.loss) for factor, score in run.stretched.items()}
    if run.score:
        metrics |= {"accuracy": run.score.accuracy, "calibration_error": run.score.calibration_error}
        for name, kind in run.score.kinds.items():
            metrics[f"{name}.bits"] = bits_of(kind.loss) if kind.num_scored else None
            metrics[f"{name}.share"] = kind.num_scored / max(run.score.num_scored, 1)
    return metrics


def _bounds_of(cell: Cell) -> tuple[Bound, Bound, Bound | None]:
    """Return floor, ceiling and local ceiling of a cell (task × mechanism), in the unit of the score.

    The local ceiling is the accuracy of the best rule that sees only a token and its position; it is None for scores in
    bits. On a ladder (a task's series of levels), the three are 0, 1 and 0.
    """
    if cell.ladder_schedule is not None:  # the ladder score already allows for the base of each level
        return Bound(0.0), Bound(1.0), Bound(0.0)
    local = None if cell.is_in_bits else local_ceiling(cell.task, cell.length)
    return *floor_and_ceiling(cell.task, cell.length), local


def _common(runs: Sequence[Run], index: int, provenance: Provenance) -> dict[str, Any]:
    run = runs[index]
    cell = run.cell
    suite = cell.suite
    training, evaluation = suite.training, suite.evaluation
    task, mechanism = cell.task, cell.mechanism
    floor, ceiling, local = _bounds_of(cell)
    metric = LADDER_SCORE if cell.ladder_schedule is not None else BITS if cell.is_in_bits else "accuracy"
    config = canonical_json(run.identity)
    return {
        "run_id": run.run_id,
        "role": "tuning" if run.is_tuning else None,
        "suite": suite.name,
        "suite_version": suite.version,
        "is_full": cell.is_full,
        **cost_columns(cell),
        **{f"{kind}_code_hash": code for kind, code in cell.code.items()},
        "task_version": version_of(type(task)),
        "task_source": task.source,
        "vocab_size": task.vocab_size,
        "mech_label": mechanism.label,
        "mech_source": mechanism.source,
        "mech_version": version_of(mechanism),
        "mech_origin": origin_of(mechanism),
        "plugins_loaded": canonical_json(found) if (found := plugins.loaded()) else None,
        "match": cell.match,
        "condition": suite.condition,
        "note": cell.note,
        "causal_checked": provenance.causal_checked,
        "block": term_of(*cell.block),
        "positions": term_of(*cell.positions),
        "n_heads": suite.model.num_heads,
        "seed": run.seed,
        "data_seed": data_seed(task, cell.length, run.seed),
        "init_seed": init_seed(run.seed),
        "ensemble_size": len(runs),
        "ensemble_index": index,
        "n_eval": evaluation.curve_sequences if run.is_tuning else evaluation.test_sequences,
        "metric_name": f"validation {metric}" if run.is_tuning else metric,
        "floor": floor.value,
        "floor_kind": floor.kind,
        "ceiling": ceiling.value,
        "ceiling_kind": ceiling.kind,
        "local_ceiling": None if local is None else local.value,
        "optimizer": training.optimizer,
        "lr": run.learning_rate,
        "weight_decay": training.weight_decay,
        "tuning_trials": 1 if suite.tuning is None else len(training.learning_rates),
        "tuning_rule": _tuning_rule(cell),
        "config_json": config,
        "config_hash": sha256(config)[:16],
        "dtype": DTYPE,
        "amp": False,
        "compiled": False,
        "wall_s": time.monotonic() - provenance.began,
        "queue_s": provenance.queue_s,
        "peak_mem_bytes": peak_memory_bytes(provenance.device),
        "started_at": provenance.started_at,
        "finished_at": provenance.finished_at(run.run_id),
        "executor": provenance.context.executor,
        "attempt": provenance.number,
        **dict.fromkeys(("task_size", "flops_estimate", "verified_by", "migrated_from")),
        **software(),
        **hardware(provenance.device),
        "deterministic": provenance.is_deterministic,
    }


# Predictions of trained models on their tests, one file per run, for questions that a score does not answer.

NOT_SCORED = -1
"""Prediction at positions that are not scored. No target is -1, so prediction and target differ there."""


def prepare_folder(folder: Path) -> None:
    """Make the folder for predictions, and test before any training that files can be written there.

    Raises:
        StoreError: If no file can be written there.
    """
    try:
        make_writable(folder)
    except OSError as problem:
        reason = "not a folder" if isinstance(problem, FileExistsError) else problem.strerror
        raise StoreError(f"cannot write predictions to {folder}: {reason}") from problem


def predictions_file(folder: Path, run_id: str) -> Path:
    """Return the path of the predictions of a run."""
    return folder / f"{run_id}.npz"


def write_predictions(folder: Path, result: RunResult) -> None:
    """Write the test sequences and predictions of a run to a file; do nothing if the run kept no predictions.

    The arrays ``inputs``, ``targets`` and ``predictions`` are int64 [test sequences, length]. ``(predictions ==
    targets).sum()`` equals ``n_correct`` of the row, unless the score comes from a held-out test. ``metadata`` is JSON
    text with facts about the task, the ``run_id`` and the complete configuration (``config``).

    Raises:
        StoreError: If the file cannot be written; no partial file is left behind.
    """
    if result.predictions is None:
        return
    run = result.run
    count = len(result.predictions)
    drawn = sequences_of(run.cell.task, run.cell.length, "test", run.seed, num_batches=1, batch_size=count, count=count)
    metadata = {**drawn.metadata, "run_id": run.run_id, "config": run.identity}
    arrays = {
        "inputs": drawn.inputs,
        "targets": drawn.targets,
        "predictions": np.where(drawn.targets == IGNORE, NOT_SCORED, result.predictions),
        "metadata": np.array(canonical_json(metadata)),
    }
    write_archive(predictions_file(folder, run.run_id), arrays)
