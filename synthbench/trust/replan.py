"""Plan the runs of installed suites anew, find the run with the id of a given row, and train it again."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from synthbench.blocks import BLOCKS
from synthbench.canonical import canonical_json
from synthbench.errors import ContractError, SynthbenchError, UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.options import MOVED, absent_values, coerce, term_of
from synthbench.plugins import reason
from synthbench.positions import POSITIONS
from synthbench.process import settings_restored
from synthbench.registry import Registry, version_of
from synthbench.results.schema import RUN_COLUMNS
from synthbench.runner.match import misses, with_width
from synthbench.runner.plan import Job, shorten, with_block_and_positions
from synthbench.runner.request import RunContext
from synthbench.runner.rows import Failure, Provenance, failure_row
from synthbench.runner.worker import execute
from synthbench.suites import BEFORE, EXTRA, Suite, load_suite, suite_names, with_tasks
from synthbench.tasks import TASKS
from synthbench.training import identity
from synthbench.training.cell import Cell, Run
from synthbench.training.ladder import sized_in
from synthbench.trust.audit import LARGEST
from synthbench.trust.compare import Row, equal

COMPONENTS: Mapping[str, Registry[Any]] = {
    "task": TASKS, "mech": MECHANISMS, "block": BLOCKS, "positions": POSITIONS
}  # fmt: skip
"""The registry of each kind of component, by the configuration key that names such a component."""

SIZES = ("task_args", "mech_args", "match", "d_model", "steps_planned", "is_full")
"""Columns that identify a cell, together with the names in its configuration; the audit limits their values."""

OF_RUN = ("seed", "learning_rate", "role", "tuning")
"""Keys of a configuration whose values differ between the runs of a cell; all other values are shared."""

WORDS = ("task_category", "task_source", "mech_label", "mech_family", "mech_source")
"""Descriptive columns, which are not compared: other copies of the same version may word them differently."""


class CannotVerify(Exception):  # noqa: N818 -- not an error: the row may be right, and nobody can tell here
    """Exception for a row that cannot be run again with the installed code; the message says why."""


class Checked(NamedTuple):
    """Result of checking rows against the plans of their suites, without any training."""

    unverifiable: dict[str, str]
    """Reasons why rows cannot be run again here, by run id."""
    faults: list[tuple[str, str]]
    """Pairs of a run id and a difference between the row and its plan."""


def is_foreign(row: Row, keys: Iterable[str] = COMPONENTS) -> bool:
    """Return True if a row names a component that does not come with synthbench; nothing is imported to find out.

    Args:
        row: A row in which :func:`synthbench.trust.audit.faults` found nothing.
        keys: Kinds of components to look at. Default: all four (task, mechanism, block and position encoding).
    """
    config = json.loads(row["config_json"])
    return not all(COMPONENTS[key].is_built_in(part) for key in keys for part in str(config.get(key)).split("+"))


def check(rows: Sequence[Row]) -> Checked:
    """Compare rows with the runs that their suites plan; the rows' components must be loaded in this process."""
    groups = Groups(rows)
    found = Checked({}, [])
    for row in rows:
        try:
            found.faults.extend((row["run_id"], fault) for fault in _against_the_plan(row, groups.run(row)))
        except CannotVerify as reason:
            found.unverifiable[row["run_id"]] = str(reason)
    return found


def run_again(rows: Sequence[Row], run_ids: Sequence[str], context: RunContext) -> None:
    """Repeat, in this process, runs that were trained together; their components must already be loaded.

    Args:
        rows: Rows of these runs, and rows of the tuning runs from which their learning rates were chosen.
        run_ids: Ids of the runs to repeat.
        context: Settings of the re-runs, such as the device, and the store to which rows are written.
    """
    groups = Groups(rows)
    with settings_restored():
        torch.set_num_threads(1)  # as a worker has, so that the last bits agree
        execute(groups.job([groups.rows[name] for name in run_ids]), context, 1)


class Groups:
    """Groups of rows, formed in two ways: by cell (same mechanism, task and suite) and by batch (trained together)."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Group rows in which the audit has found no faults."""
        self.rows: dict[str, Row] = {row["run_id"]: row for row in rows}
        self._configs = {name: json.loads(row["config_json"]) for name, row in self.rows.items()}
        self._of_cell: dict[str, list[Row]] = {}
        self._batches: dict[str, list[Row]] = {}
        """For each run id, the rows of the run's batch; a batch is kept only if all of its rows are here."""
        self._cells: dict[str, Cell | CannotVerify] = {}
        for row in rows:
            self._of_cell.setdefault(self._cell_key(row), []).append(row)
        # A killed command leaves only some rows of a batch; the next one trains all of it again and adds the others. So
        # a batch that is incomplete by its starting time may be complete without regard to it.
        for traits in zip(*map(self._traits, rows), strict=True):
            batches: dict[tuple[Any, ...], list[Row]] = {}
            for row, trait in zip(rows, traits, strict=True):
                if row["run_id"] not in self._batches:
                    batches.setdefault(trait, []).append(row)
            for batch in batches.values():
                batch.sort(key=lambda row: int(row["ensemble_index"]))
                if [row["ensemble_index"] for row in batch] == list(range(batch[0]["ensemble_size"])):
                    self._batches |= {row["run_id"]: batch for row in batch}

    def run(self, row: Row) -> Run:
        """Return the run of a row: the run that the row's suite, as installed, plans under the same run id.

        Raises:
            CannotVerify: If the suite or a component is not installed, or if no planned run has this run id.
        """
        key, config = self._cell_key(row), self._configs[row["run_id"]]
        if key not in self._cells:
            try:
                with _what_is_not_here():
                    self._cells[key] = _cell(config, row)
            except CannotVerify as reason:
                self._cells[key] = reason
        cell = self._cells[key]
        if isinstance(cell, CannotVerify):
            raise CannotVerify(*cell.args)
        with _what_is_not_here():
            return _run(cell, config, row)

    def group(self, row: Row) -> list[Row]:
        """Return a row and all rows that were trained together with it.

        If some of these rows are missing, or if their configurations do not allow training as one program, return only
        the row itself. Rows with foreign code must have the same cell. What the rows state about their batch could be
        forged, so it is not trusted.
        """
        batch = self._batches.get(row["run_id"], [row])
        if len({self._cell_key(other) for other in batch}) == 1:
            return batch
        if any(map(is_foreign, batch)):
            return [row]
        try:
            programs = {self.run(other).cell.program for other in batch}
        except CannotVerify:
            return [row]
        return batch if len(programs) == 1 else [row]

    def siblings(self, row: Row) -> list[str]:
        """Return the ids of all rows that have the configuration of the given row, except perhaps for the seed."""
        return [other["run_id"] for other in self._of_cell[self._cell_key(row)] if other["lr"] == row["lr"]]

    def batches(self, run_ids: Iterable[str]) -> list[list[Row]]:
        """Return each group of rows trained together that contains at least one of the given rows."""
        groups, seen = [], set()
        for name in run_ids:
            if name not in seen:
                group = self.group(self.rows[name])
                seen |= {row["run_id"] for row in group}
                groups.append(group)
        return groups

    def job(self, group: Sequence[Row]) -> Job:
        """Return the job (work for one worker process) that repeats the runs of a group of rows."""
        runs = tuple(self.run(row) for row in group)
        cells = tuple(dict.fromkeys(run.cell for run in runs))
        tuning = [run for cell in cells for run in cell.tuning_runs()]
        if runs[0].is_tuning:
            return Job(cells, (), (), len(group), {run: None for run in tuning if run not in runs})
        # The worker chooses the learning rates again from the tuning rows; it trains those that are missing.
        known = {run: self.rows.get(run.run_id) for run in tuning}
        skills = {run: row["skill"] for run, row in known.items() if row is not None}
        return Job(cells, runs, runs, len(runs), skills)

    def _cell_key(self, row: Row) -> str:
        config = self._configs[row["run_id"]]
        of_cell = {name: config[name] for name in sorted(config) if name not in OF_RUN}
        return json.dumps([of_cell, row["role"], *(row[name] for name in SIZES)])

    def _traits(self, row: Row) -> tuple[tuple[Any, ...], ...]:
        """Return three keys of a row; rows that were trained together have at least one of them in common.

        Each key holds mechanism, suite and number of runs trained together. The first key also holds host and starting
        time, and the second key the cell. The keys are tried in this order.
        """
        config = self._configs[row["run_id"]]
        mechanism = json.dumps([config.get(name) for name in ("mech", "mech_args", "role")])
        program = (mechanism, row["suite"], row["ensemble_size"])
        return (*program, row["host_hash"], row["started_at"]), (*program, self._cell_key(row)), program


@contextmanager
def _what_is_not_here() -> Iterator[None]:
    """Convert any error that a row causes in the installed code into :class:`CannotVerify`."""
    try:
        yield
    except CannotVerify:
        raise
    except (ContractError, UsageError) as problem:
        raise CannotVerify(f"other version: {problem}") from None
    except Exception as problem:  # noqa: BLE001 - what a configuration does to a component, nobody knows
        raise CannotVerify(f"it cannot be built here: {reason(problem)}") from None


def tested_by(row: Row) -> Cell:
    """Return a cell (mechanism on a task) with a row's suite and task; it can draw the row's test sequences again.

    The cell has the row's mechanism without options, since the test does not depend on options.

    Raises:
        CannotVerify: If the suite or the task is not installed in the row's version.
    """
    with _what_is_not_here():
        config = json.loads(row["config_json"])
        return _of_task(_suite(config, row), config, row)


def _of_task(suite: Suite, config: Mapping[str, Any], row: Row) -> Cell:
    name = config["task"]
    length, options = sized_in(suite, name, {} if suite.ladder is not None else json.loads(row["task_args"]))
    # Unlike in a plan, no model is built: its cost is unknown before the id is found.
    cell = Cell(
        suite=suite if name in suite.tasks else with_tasks(suite, {name: {}}),
        task_name=name,
        length=length,
        task_arguments=options,
        mechanism_name=config["mech"],
        mechanism_arguments={},
        device_type=config["device_type"],
        is_full=row["is_full"],
    )
    if cell.longest > LARGEST["seq_len"]:
        raise CannotVerify(f"it is tested on {cell.longest} tokens; allowed: up to {LARGEST['seq_len']}")
    return cell


def _cell(config: Mapping[str, Any], row: Row) -> Cell:
    """Build the cell (mechanism and task in a suite) that a row names; the row's id is not compared yet."""
    for key in COMPONENTS:
        _require_version(key, config)
    suite = with_block_and_positions(
        _suite(config, row),
        block=term_of(BLOCKS[config["block"]], config["block_args"]),
        positions=term_of(POSITIONS[config["positions"]], config["positions_args"]),
        condition=None
        if row["suite"].removesuffix(EXTRA) in MOVED and row["condition"] == BEFORE
        else row["condition"],
    )
    mechanism = MECHANISMS[config["mech"]]
    options = absent_values(mechanism) | coerce("mechanism", mechanism, json.loads(row["mech_args"]))
    cell = replace(_of_task(suite, config, row), mechanism_arguments=options)
    return cell if row["match"] is None else _matched(cell, row)


def _matched(cell: Cell, row: Row) -> Cell:
    """Return the cell with a row's model width, if the model then has the size that the row's ``match`` requests.

    Raises:
        CannotVerify: If it has another size.
    """
    widened = replace(with_width(cell, row["d_model"]), match=row["match"])
    try:
        missed = misses(widened, cell.suite)
    except SynthbenchError as problem:
        missed = str(problem)
    if missed:
        raise CannotVerify(f"match is {row['match']!r}: {missed}")
    return widened


def _suite(config: Mapping[str, Any], row: Row) -> Suite:
    """Return the installed suite of a row, with fewer steps or test sequences if the row's run was shortened."""
    if (trained_by := config.get("training_version", 1)) != identity.TRAINING_VERSION:
        raise _other_version("training", trained_by, identity.TRAINING_VERSION)
    _require_version("task", config)
    name = was = row["suite"].removesuffix(EXTRA)
    if is_moved := was in MOVED:  # its id tells whether the suite that took its place has this run
        name = MOVED[was][0].removesuffix(EXTRA)
    if name not in suite_names():  # never the path of a file
        raise CannotVerify(f"suite {name!r} is not installed; allowed: {', '.join(suite_names())}")
    suite = load_suite(name)
    if row["suite_version"] != (version := BEFORE if is_moved else suite.version):
        raise _other_version(f"suite {was!r}", row["suite_version"], version)
    if is_moved and suite.ladder is not None:
        suite = suite.model_copy(update={"ladder": suite.ladder.model_copy(update={"extended": False})})
    if row["is_full"]:
        return suite
    steps, limit = row["steps_planned"], config["evaluation"]["test_sequences"]
    return shorten(
        suite,
        steps=None if steps == suite.training.steps else steps,
        limit=None if limit == suite.evaluation.test_sequences else limit,
    )


def _require_version(key: str, config: Mapping[str, Any]) -> None:
    registry = COMPONENTS[key]
    installed = version_of(registry[config[key]])
    if installed != config[f"{key}_version"]:
        raise _other_version(f"{registry.kind} {config[key]!r}", config[f"{key}_version"], installed)


def _other_version(what: str, in_row: object, here: object) -> CannotVerify:
    return CannotVerify(
        f"other version: {what} is {in_row} in the row and {here} here; checked: its checksums, its name and that its "
        "figures fit each other"
    )


def _run(cell: Cell, config: Mapping[str, Any], row: Row) -> Run:
    """Find, among the runs of a cell, the run that has a row's id."""
    for run in cell.runs([config["seed"]]) if row["role"] is None else cell.tuning_runs():
        if run.run_id == row["run_id"]:
            return replace(run, learning_rate=run.learning_rate or row["lr"])  # chosen in training
    planned = json.loads(canonical_json(cell.identity))
    names = sorted({*planned, *config} - {*OF_RUN})
    other = [name[:80] for name in names if planned.get(name) != config.get(name)]
    raise CannotVerify(
        f"no {'full' if cell.is_full else 'shortened'} run of suite {cell.suite.name!r} {cell.suite.version} has its "
        f"id; config_json has another {', '.join(other or OF_RUN)}"
    )


def _against_the_plan(row: Row, run: Run) -> list[str]:
    """List where a row differs from its planned run in values known before training, such as floor and ceiling."""
    # Only values that need no training are compared.
    nowhere = Provenance(RunContext(Path(), device="cpu", executor="", planned_at=0.0), number=1)
    with _what_is_not_here():
        planned = failure_row([run], 0, Failure("", "", ""), nowhere) | {
            "device_type": run.cell.device_type,
            "plugins_loaded": row["plugins_loaded"] if is_foreign(row) else None,
        }
    left_out = {*WORDS, *(("suite", "suite_version", "condition") if row["suite"].removesuffix(EXTRA) in MOVED else ())}
    return [
        f"{column.name} is {row[column.name]!r}; the plan says {planned[column.name]!r}"
        for column in RUN_COLUMNS
        # A column that was added after the row was written is null in it.
        if column.decided_by == "configuration"
        and column.name not in left_out
        and not (column.is_nullable and row[column.name] is None)
        and not equal(row[column.name], planned[column.name], 1e-9)
    ]
