"""Runs a sample of somebody's rows again, exactly as the rows say, and tells whether the same comes out.

What is run again is what ``config_json`` says, never a suite by its name: the file of a suite may have changed. It is
run as a job like any other, into a store that is thrown away, and the new rows are compared with the old ones.
"""

import json
import math
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import ValidationError

from synthbench import __version__, plugins
from synthbench.blocks import BLOCKS
from synthbench.errors import ContractError, UsageError
from synthbench.knobs import coerce, term_of
from synthbench.mechanisms import MECHANISMS
from synthbench.positions import POSITIONS
from synthbench.registry import version_of
from synthbench.results import Store
from synthbench.results.audit import digest, faults, sample
from synthbench.results.schema import RUN_COLUMNS
from synthbench.runner.config import Cell, Member
from synthbench.runner.environment import resolve_device
from synthbench.runner.plan import Job, Plan
from synthbench.runner.rows import Attempt, Failure, failure_row
from synthbench.runner.run import Request, make_executor
from synthbench.runner.worker import Circumstances
from synthbench.suites import Suite, load_suite, suite_names
from synthbench.suites.config import TuningSettings
from synthbench.tasks import TASKS

Row = Mapping[str, Any]
Points = list[tuple[Any, ...]]
"""A learning curve."""

STANDARD_ERRORS = 4.0
"""How far a score may be off elsewhere, in standard errors of a difference of two scores on test sets of this size."""
SEED_DEVIATIONS = 3.0
"""The same in standard deviations over the seeds of the row's cell; whichever is more is allowed.

Measured with every gradient of every step off by 3e-7 of itself, a few units in the last place, as on another device:
most trainings of the paper suite end with the very same score, and those that follow another path end up to 2.7
deviations away, three seeds giving the deviation. In standard errors of the test set the same are up to 72 away.
"""
LARGEST_TOLERANCE = 0.1
"""Where a re-run elsewhere is further off than this it confirms nothing, however much the seeds of a cell scatter."""

SAME_NUMBERS = (
    *("device_type", "device_name", "num_threads", "dtype", "amp", "compiled", "tf32", "deterministic"),
    *("synthbench_version", "torch", "numpy", "cuda", "ensemble_size", "ensemble_index"),
)
"""Columns that, where they are equal on a CPU, make a re-run equal to the last bit."""

RESULTS = (
    *("status", "error_type", "member_strategy", "n_params", "n_params_mixer", "state_size", "n_train", "score"),
    *("skill", "score_ood", "n_eval_examples", "n_correct", "train_loss", "eval_loss", "best_eval_loss"),
    *("steps", "steps_to_threshold", "lr_first", "lr_last"),
)
"""Columns that a training decides; beside them the metrics and the learning curve."""

CIRCUMSTANCES = (
    *("run_id", "schema_version", "error_message", "causal_checked", "ensemble_size", "ensemble_index", "metrics"),
    *("mech_origin", "device_name", "num_threads", "amp", "compiled", "deterministic", "tf32", "n_visible_devices"),
    *("wall_s", "queue_s", "train_s", "eval_s", "data_s", "step_ms_median", "tokens_per_s", "peak_mem_bytes"),
    *("flops_estimate", "started_at", "finished_at", "host_hash", "executor", "attempt", "synthbench_version"),
    *("git_sha", "git_dirty", "python", "torch", "numpy", "cuda", "os", "packages", "verified_by", "curve_sha256"),
    "row_sha256",
)
"""Columns that neither the configuration and the code nor the training decide. All others are checked in every row."""

ADDED_LATER = ("lr_first", "lr_last")
"""Those of them that are null in rows that were written before there were such columns."""

EVERYWHERE = ("status", "n_params", "n_params_mixer", "state_size", "n_eval_examples")
"""Those of them that are equal on every device."""

Verdict = Literal["bitwise", "tolerance", "undecided", "differs", "not run"]
"""``undecided``: on another device or with other versions, and the seeds of its cell scatter too much to tell."""


class CannotVerify(Exception):  # noqa: N818 -- not an error: the row may be right, and nobody can tell here
    """A row that cannot be run again here; its message says why."""


@dataclass(frozen=True)
class Rerun:
    """A row of the sample, or of the group that was trained with one, and what came out now."""

    run_id: str
    row_sha256: str
    task: str
    mechanism: str
    seed: int
    recorded: float | None
    again: float | None
    tolerance: float
    """How far the scores may be apart where not every bit can be expected to agree."""
    verdict: Verdict
    detail: str
    device_name: str

    @property
    def difference(self) -> float | None:
        """Now less recorded."""
        return None if self.recorded is None or self.again is None else self.again - self.recorded

    @property
    def is_confirmed(self) -> bool:
        """Whether the same came out."""
        return self.verdict in ("bitwise", "tolerance")


@dataclass
class Verification:
    """What was found out about some rows."""

    num_rows: int
    digest: str
    faults: list[tuple[str, str]] = field(default_factory=list)
    """What is wrong with a row or a file, by run id or name."""
    unverifiable: dict[str, str] = field(default_factory=dict)
    """Why a row cannot be run again here, by run id."""
    reruns: list[Rerun] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, all rows could be run again, some were, and all of these came out the same."""
        is_sound = bool(self.reruns) and not self.faults and not self.unverifiable
        return is_sound and all(rerun.is_confirmed for rerun in self.reruns)

    def summary(self) -> str:
        """The whole in one line."""
        counts = Counter(rerun.verdict for rerun in self.reruns)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "none"
        return (
            f"{self.num_rows} rows checked, {len(self.faults)} faults, {len(self.unverifiable)} cannot be verified; "
            f"run again: {verdicts}; digest {self.digest}"
        )

    def confirmed(self, name: str) -> list[dict[str, Any]]:
        """What :meth:`synthbench.results.Store.verify` records of the rows that came out the same.

        Args:
            name: Who says so.
        """
        now = datetime.now(UTC)
        return [
            {
                "run_id": rerun.run_id,
                "row_sha256": rerun.row_sha256,
                "verdict": rerun.verdict,
                "verified_by": name,
                "verified_at": now,
                "synthbench_version": __version__,
                "device_name": rerun.device_name,
                "score": rerun.again,
            }
            for rerun in self.reruns
            if rerun.is_confirmed
        ]


@dataclass(frozen=True)
class Sampling:
    """Which rows are run again, and on what.

    A sampled row brings the whole group that was trained with it: it takes no longer, and the last bits depend on it.
    """

    fraction: float = 0.05
    """Share of the rows, above 0 and up to 1; at least one row."""
    salt: str = ""
    """Draws another sample; the rows' own hash alone decides it otherwise."""
    limit: int | None = None
    """At most so many rows."""
    device: str = "auto"
    """``auto`` is the row's own kind of device where this machine has one."""
    timeout_s: float | None = None
    """Seconds after which a job is killed; None for no limit."""
    workers: int | None = None
    """Worker processes; None for one a core."""
    plugins: Sequence[str] = ()
    """Files and modules that the units are in, besides those of synthbench and of installed packages."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: If a number is out of range.
        """
        if not 0 < self.fraction <= 1:
            raise UsageError(f"fraction is {self.fraction}; allowed: above 0, up to 1")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit is {self.limit}; allowed: 1 and more")

    def device_of(self, row: Row) -> torch.device:
        """Where a row is run again."""
        if self.device != "auto":
            return resolve_device(self.device)
        try:
            return resolve_device(row["device_type"])
        except UsageError:
            return resolve_device("auto")


def verify(
    store: Store, sampling: Sampling, *, on_plan: Callable[[int], None] = lambda _num_rows: None
) -> Verification:
    """Check every row of a store, then run a sample again and compare.

    Args:
        store: The rows.
        sampling: Which of them are run again.
        on_plan: Called with the number of rows that will be.

    Raises:
        UsageError: If there is no such device.
        StoreError: If the store cannot be read.
        ContractError: If a plugin cannot be loaded.
    """
    plugins.load(sampling.plugins)
    rows = store.table().to_pylist()
    found = Verification(len(rows), digest(rows))
    found.faults = [(file.file, file.reason) for file in store.quarantined]
    now = datetime.now(UTC)
    sound = []
    for row in rows:
        wrong = faults(row, now)
        found.faults += [(row["run_id"], fault) for fault in wrong]
        if not wrong:
            sound.append(row)
    groups = _Groups(sound)
    for row in sound:
        try:
            found.faults += [(row["run_id"], fault) for fault in _against_the_code(row, groups)]
        except CannotVerify as reason:
            found.unverifiable[row["run_id"]] = str(reason)
    at_fault = {name for name, _ in found.faults}
    drawn = sample(rows, sampling.fraction, sampling.salt)[: sampling.limit]
    jobs = groups.jobs(name for name in drawn if name not in at_fault | found.unverifiable.keys())
    on_plan(sum(len(rows_of_job) for _, rows_of_job in jobs))
    found.reruns = _run_again(jobs, groups, store, sampling)
    return found


class _Groups:
    """Rows by the cell that they belong to and by the members that were trained as one program."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows: dict[str, Row] = {row["run_id"]: row for row in rows}
        self._configs = {name: json.loads(row["config_json"]) for name, row in self.rows.items()}
        self._of_cell: dict[str, list[Row]] = {}
        self._together: dict[tuple[Any, ...], list[Row]] = {}
        self._cells: dict[str, Cell | str] = {}
        for row in rows:
            self._of_cell.setdefault(self._cell_key(row), []).append(row)
            self._together.setdefault(self._group_key(row), []).append(row)

    def cell(self, row: Row) -> Cell:
        """The cell of a row, rebuilt from its configuration.

        Raises:
            CannotVerify: If the code that is installed cannot make it, or makes another.
        """
        key = self._cell_key(row)
        if key not in self._cells:
            try:
                self._cells[key] = _rebuilt(self._configs[row["run_id"]], row)
            except CannotVerify as reason:
                self._cells[key] = str(reason)
        cell = self._cells[key]
        if isinstance(cell, str):
            raise CannotVerify(cell)
        return cell

    def group(self, row: Row) -> list[Row]:
        """The rows that were trained with this one, itself among them; only itself if they are not all here."""
        together = sorted(self._together[self._group_key(row)], key=lambda one: int(one["ensemble_index"]))
        is_whole = [one["ensemble_index"] for one in together] == list(range(row["ensemble_size"]))
        return together if is_whole else [row]

    def deviation(self, row: Row) -> float:
        """Standard deviation of the scores over the seeds of a row's cell at its learning rate; 0 if there is one."""
        scores = [one["score"] for one in self._of_cell[self._cell_key(row)] if one["lr"] == row["lr"]]
        known = [score for score in scores if score is not None]
        return float(np.std(known, ddof=1)) if len(known) > 1 else 0.0

    def jobs(self, run_ids: Iterable[str]) -> list[tuple[Job, list[Row]]]:
        """A job for every group that has one of these rows, and the rows that it makes again."""
        jobs, seen = [], set()
        for name in run_ids:
            if name in seen:
                continue
            group = self.group(self.rows[name])
            seen |= {row["run_id"] for row in group}
            jobs.append((self._job(group), group))
        return jobs

    def _job(self, group: Sequence[Row]) -> Job:
        cell = self.cell(group[0])
        if cell.suite.tuning is None:
            members = tuple(_member(row) for row in group)
            return Job(cell, members, members, len(members))
        if group[0]["role"] is None:
            # The worker chooses the learning rate again: from the tuning rows, and trains those that are not here.
            members = tuple(Member(row["seed"], None) for row in group)
            known = {member: self.rows.get(cell.run_id(member)) for member in cell.tuning_members()}
            skills = {member: row["skill"] for member, row in known.items() if row is not None}
            return Job(cell, members, members, len(members), skills)
        wanted = {_member(row) for row in group}
        rates = tuple(dict.fromkeys(row["lr"] for row in group))
        seeds = tuple(sorted({row["seed"] for row in group}))
        suite = cell.suite.model_copy(
            update={
                "training": cell.suite.training.model_copy(update={"learning_rates": rates}),
                "tuning": TuningSettings(seeds=seeds),
            }
        )
        cell = Cell(**{name: getattr(cell, name) for name in Cell.__dataclass_fields__} | {"suite": suite})
        others = {member: None for member in cell.tuning_members() if member not in wanted}
        return Job(cell, (), (), len(group), others)

    def _cell_key(self, row: Row) -> str:
        config = self._configs[row["run_id"]]
        of_cell = {name: config[name] for name in sorted(config) if name not in ("seed", "learning_rate")}
        return json.dumps([of_cell, row["is_full"], row["task_size"]])

    def _group_key(self, row: Row) -> tuple[Any, ...]:
        return self._cell_key(row), row["host_hash"], row["started_at"], row["ensemble_size"]


def _member(row: Row) -> Member:
    return Member(row["seed"], row["lr"], is_tuning=row["role"] is not None)


def _rebuilt(config: Mapping[str, Any], row: Row) -> Cell:
    """The cell that a configuration describes, from the units that are installed."""
    try:
        for kind, registry in (("task", TASKS), ("mech", MECHANISMS), ("block", BLOCKS), ("positions", POSITIONS)):
            installed = version_of(registry[config[kind]])
            if installed != config[f"{kind}_version"]:
                raise CannotVerify(
                    f"other version: {registry.kind} {config[kind]!r} is {config[f'{kind}_version']} in the row and "
                    f"{installed} here"
                )
        given = dict(config["task_args"])
        length = given.pop("length")
        return Cell(
            suite=_suite(config, row),
            task_name=config["task"],
            size=row["task_size"],
            length=length,
            task_arguments=coerce("task", TASKS[config["task"]], given),
            mechanism_name=config["mech"],
            mechanism_arguments=coerce("mechanism", MECHANISMS[config["mech"]], config["mech_args"]),
            device_type=config["device_type"],
            is_full=row["is_full"],
        )
    except (ContractError, UsageError) as problem:
        raise CannotVerify(f"other version: {problem}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise CannotVerify(f"its configuration cannot be read: {type(problem).__name__} {problem}"[:300]) from None


def _suite(config: Mapping[str, Any], row: Row) -> Suite:
    """A suite with the protocol of one configuration and with nothing else in it."""
    tuning = config.get("tuning")
    content = {
        "name": config["suite"],
        "version": config["suite_version"],
        "description": "rebuilt from a row",
        "model": {
            **config["model"],
            "block": term_of(BLOCKS[config["block"]], config["block_args"]),
            "positions": term_of(POSITIONS[config["positions"]], config["positions_args"]),
        },
        "training": {
            **config["training"],
            "learning_rates": tuning["learning_rates"] if tuning else [config["learning_rate"]],
        },
        "evaluation": config["evaluation"],
        "seeds": [config["seed"]],
        "tasks": {config["task"]: {}},
        "mechanisms": {config["mech"]: {}},
    }
    try:
        suite = Suite.model_validate_json(json.dumps(content))
        if row["role"] is not None:
            return suite.model_copy(update={"tuning": TuningSettings(seeds=(config["seed"],))})
        if tuning:
            return suite.model_copy(update={"tuning": TuningSettings(seeds=tuple(tuning["seeds"]))})
    except ValidationError as problem:
        raise CannotVerify(f"its configuration is not one of this version: {problem.errors()[0]['msg']}") from None
    return suite


def _against_the_code(row: Row, groups: _Groups) -> list[str]:
    """What a row says that its configuration and the code that is installed say otherwise; trains nothing."""
    cell = groups.cell(row)
    try:
        config = json.loads(row["config_json"])
        member = Member(config["seed"], config.get("learning_rate", row["lr"]), is_tuning=row["role"] is not None)
        said = failure_row(cell, [member], 0, Failure("", "", ""), _NOWHERE) | {"device_type": cell.device_type}
    except Exception as problem:  # noqa: BLE001 - what a stranger's configuration does to a unit, nobody knows
        raise CannotVerify(f"it cannot be built here: {type(problem).__name__}: {problem}"[:300]) from None
    if said["config_json"] != row["config_json"]:
        raise CannotVerify("other version: this one writes another configuration for the same run")
    skipped = {*CIRCUMSTANCES, *RESULTS, *(("tuning_trials", "tuning_rule") if row["role"] else ())}
    wrong = [
        f"{column.name} is {row[column.name]!r}; the code says {said[column.name]!r}"
        for column in RUN_COLUMNS
        # A column that was added after the row was written is null in it.
        if column.name not in skipped
        and not (column.is_nullable and row[column.name] is None)
        and not _equal(row[column.name], said[column.name], 1e-9)
    ]
    return wrong + _not_full(row, cell.suite)


def _not_full(row: Row, suite: Suite) -> list[str]:
    """Where a row calls itself full: what of its protocol is not that of the suite, if this version is installed."""
    if not row["is_full"] or suite.name not in suite_names():
        return []
    own = load_suite(suite.name)
    if own.version != suite.version:
        return []
    own = own.model_copy(update={"model": own.model.model_copy(update=_surroundings(suite))})
    if row["role"] is not None:  # what it was tuned among is not in its configuration
        own, suite = (
            one.model_copy(
                update={"tuning": None, "training": one.training.model_copy(update={"learning_rates": (1.0,)})}
            )
            for one in (own, suite)
        )
    if own.tuning is None and suite.tuning is None:  # of several rates each makes a row
        rates = {"learning_rates": own.training.learning_rates}
        if set(suite.training.learning_rates) <= set(own.training.learning_rates):
            suite = suite.model_copy(update={"training": suite.training.model_copy(update=rates)})
    return [
        f"is_full is True, but {part} is not that of suite {suite.name!r} {suite.version}"
        for part in ("model", "training", "evaluation", "tuning")
        if getattr(own, part) != getattr(suite, part)
    ]


def _surroundings(suite: Suite) -> dict[str, Any]:
    """What ``--block`` and ``--positions`` may change in a full run."""
    return {name: getattr(suite.model, name) for name in ("block", "positions", "positions_otherwise")}


def _run_again(jobs: Sequence[tuple[Job, list[Row]]], groups: _Groups, store: Store, sampling: Sampling) -> list[Rerun]:
    by_device: dict[str, list[Job]] = {}
    for job, rows in jobs:
        by_device.setdefault(str(sampling.device_of(rows[0])), []).append(job)
    expected = {row["run_id"]: row for _, rows in jobs for row in rows}
    with tempfile.TemporaryDirectory(prefix="synthbench-verify-") as folder:
        scratch = Path(folder)
        Store.open(scratch, create=True)
        for device, some in by_device.items():
            request = Request(timeout_s=sampling.timeout_s, workers=sampling.workers)
            executor = make_executor(request, Plan(tuple(some), len(some), 0), torch.device(device))
            circumstances = Circumstances(
                results=scratch,
                device=device,
                executor=executor.name,
                planned_at=time.time(),
                plugins=[plugins.resolved(plugin) for plugin in sampling.plugins],
            )
            for _ in executor.run(some, circumstances, threading.Event()):
                pass
        made = Store.open(scratch, create=False)
        again = {row["run_id"]: row for row in made.table().to_pylist()}
        curves, curves_again = _curves(store, expected), _curves(made, expected)
    return [
        _rerun(row, again.get(name), (curves.get(name), curves_again.get(name)), _tolerance(row, groups.deviation(row)))
        for name, row in expected.items()
    ]


def _rerun(row: Row, again: Row | None, curves: tuple[Points | None, Points | None], tolerance: float) -> Rerun:
    verdict, detail = _judged(row, again, curves, tolerance)
    return Rerun(
        run_id=row["run_id"],
        row_sha256=row["row_sha256"],
        task=row["task"],
        mechanism=row["mech"],
        seed=row["seed"],
        recorded=row["score"],
        again=again["score"] if again else None,
        tolerance=tolerance,
        verdict=verdict,
        detail=detail,
        device_name=again["device_name"] if again else "",
    )


def _curves(store: Store, run_ids: Iterable[str]) -> dict[str, Points]:
    """The points of each run, without the seconds."""
    frame = store.curves(run_ids)
    return {
        str(name): list(points[["step", "split", "metric", "value", "tokens"]].itertuples(index=False, name=None))
        for name, points in frame.groupby("run_id", sort=False)
    }


def _tolerance(row: Row, deviation: float) -> float:
    """How far a score may be off on another device or with other versions; a fraction like the score.

    Other rounding sends a training along another path, and a path is a draw from what the seeds draw from. So the
    re-run may be off by what two seeds of the cell differ by, and by what two test sets of this size differ by.
    """
    if row["score"] is None:
        return 0.0
    # A score of exactly 0 or 1 has an error too: that of one target more or less.
    count = row["n_eval_examples"]
    share = min(max(row["score"], 1 / count), 1 - 1 / count) if count > 1 else 0.5
    standard_error = math.sqrt(2 * share * (1 - share) / count)
    return max(STANDARD_ERRORS * standard_error, SEED_DEVIATIONS * deviation)


def _judged(
    row: Row, again: Row | None, curves: tuple[Points | None, Points | None], tolerance: float
) -> tuple[Verdict, str]:
    """What became of a row, and in what it is the same or not."""
    if again is None:
        return "not run", "it made no row"
    if limited := [one["status"] for one in (row, again) if one["status"] in ("timeout", "oom")]:
        return "not run", f"{limited[0]}: a limit of one machine says nothing of another"
    changed = _changed(row, again)
    curve, curve_again = curves
    if curve is not None and not _equal_points(curve, curve_again or []):
        changed.append("curve")
    if not changed:
        without = "" if curve is not None or row["curve_sha256"] is None else "; its learning curve is not here"
        return "bitwise", f"every number{without}"
    other = [name for name in SAME_NUMBERS if row[name] != again[name]]
    if not other and (again["device_type"] == "cpu" or again["deterministic"]):
        return "differs", f"same device and versions, other {', '.join(changed)}"
    return _judged_elsewhere(row, again, changed, f"other {', '.join(other) or 'order of sums'}", tolerance)


def _judged_elsewhere(row: Row, again: Row, changed: list[str], reason: str, tolerance: float) -> tuple[Verdict, str]:
    """The same where not every bit can be expected to agree, for a reason."""
    if certain := [name for name in changed if name in EVERYWHERE]:
        return "differs", ", ".join(f"{name} is {row[name]} and now {again[name]}" for name in certain)
    distance = 0.0 if row["score"] is None else abs(row["score"] - again["score"])
    if distance > tolerance:
        return "differs", f"{reason}, which explains {tolerance:.4f}"
    return "tolerance" if distance <= LARGEST_TOLERANCE else "undecided", reason


def _changed(row: Row, again: Row) -> list[str]:
    """Columns of results that are not the same."""
    changed = [
        name
        for name in (*RESULTS, "lr")  # chosen in training where the suite tunes
        if not (row[name] is None and name in ADDED_LATER) and not _equal(row[name], again[name])
    ]
    metrics, metrics_again = json.loads(row["metrics"]), json.loads(again["metrics"])
    changed += [f"metrics.{name}" for name, value in metrics.items() if not _equal(value, metrics_again.get(name))]
    return changed


def _equal(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Equality in which NaN equals NaN."""
    if isinstance(one, float) and isinstance(other, int | float):
        return (math.isnan(one) and math.isnan(other)) or abs(one - other) <= tolerance or one == other
    return bool(one == other)


def _equal_points(one: Points, other: Points) -> bool:
    return len(one) == len(other) and all(
        _equal(a, b) for first, second in zip(one, other, strict=True) for a, b in zip(first, second, strict=True)
    )


_NOWHERE = Attempt(
    device=torch.device("cpu"),
    executor="",
    number=1,
    queue_s=0.0,
    causal_checked=False,
    started_at=datetime.fromtimestamp(0, UTC),
    began=0.0,
)
"""For rows of which only what needs no training is read."""
