"""Rows looked up in the plans of the installed suites: the cell that has a row, and the job that makes it again."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import torch

from synthbench.blocks import BLOCKS
from synthbench.canonical import canonical_json
from synthbench.contract.trial import Trial
from synthbench.errors import ContractError, SynthbenchError, UsageError
from synthbench.heights import rungs_in
from synthbench.knobs import absent_values, coerce, term_of
from synthbench.mechanisms import MECHANISMS
from synthbench.positions import POSITIONS
from synthbench.registry import version_of
from synthbench.results.schema import RUN_COLUMNS
from synthbench.runner.exam import is_foreign
from synthbench.runner.match import misses
from synthbench.runner.plan import Job, shortened, surrounded
from synthbench.runner.rows import Failure, Provenance, failure_row
from synthbench.suites import BEFORE, EXTRA, Suite, extended, load_suite, suite_names
from synthbench.tasks import TASKS, rung_bounds
from synthbench.terms import MOVED
from synthbench.training import identity
from synthbench.training.cell import Cell, Member
from synthbench.training.ladder import sized_in
from synthbench.training.ladder_scores import with_committed_baselines
from synthbench.training.train import init_generator
from synthbench.trust.audit import LARGEST
from synthbench.trust.compare import Row, equal

T = TypeVar("T")

SIZES_OF_MODEL = {
    "n_params": "num_parameters", "n_params_mixer": "num_parameters_mixer", "state_size": "state_elements"
}  # fmt: skip
"""Results that need no training, so they are checked in every row: the columns, and the fields of a model's size."""

WORDS = {"task": ("task_category", "task_source"), "mech": ("mech_label", "mech_family", "mech_source")}
"""Columns that name things: a change of words is none of a result, and asks for no new version."""

SIZES = ("task_args", "mech_args", "match", "d_model", "steps_planned", "is_full")
"""Columns that a cell is looked up by, beside the names in its configuration: the audit has bounded each of them."""

OF_RUN = ("seed", "learning_rate", "role", "tuning")
"""What a configuration says of its run only; the rest it shares with the other runs of its cell."""


class CannotVerify(Exception):  # noqa: N818 -- not an error: the row may be right, and nobody can tell here
    """A row that cannot be run again here; its message says why."""


class Groups:
    """Rows by the cell that they belong to, and by the program that they were trained in."""

    def __init__(self, rows: Sequence[Row], trial: Trial | None = None) -> None:
        """Take rows that are sound by themselves, and the process that has the code of others, if any need some."""
        self._trial = trial
        self._sizes: dict[Cell, dict[str, int]] = {}
        self.rows: dict[str, Row] = {row["run_id"]: row for row in rows}
        self._configs = {name: json.loads(row["config_json"]) for name, row in self.rows.items()}
        self._of_cell: dict[str, list[Row]] = {}
        self._batches: dict[str, list[Row]] = {}
        """The batched run of each row, where all of its rows are here."""
        self._cells: dict[str, Cell | CannotVerify] = {}
        for row in rows:
            self._of_cell.setdefault(self._cell_key(row), []).append(row)
        # A driver that was killed leaves some rows of a batched run; the next one trains all of it again and adds the
        # others. So what is not whole by the time of its start may be whole without it.
        for traits in (self._batch, self._batch_of_cell, self._batch_of_program):
            batches: dict[tuple[Any, ...], list[Row]] = {}
            for row in rows:
                if row["run_id"] not in self._batches:
                    batches.setdefault(traits(row), []).append(row)
            for batch in batches.values():
                batch.sort(key=lambda row: int(row["ensemble_index"]))
                if [row["ensemble_index"] for row in batch] == list(range(batch[0]["ensemble_size"])):
                    self._batches |= {row["run_id"]: batch for row in batch}

    def member(self, row: Row) -> Member:
        """The planned run whose id a row has.

        Raises:
            CannotVerify: If no installed suite, with the components that are installed, has such a run.
        """
        key, config = self._cell_key(row), self._configs[row["run_id"]]
        if key not in self._cells:
            try:
                with _what_is_not_here():
                    self._cells[key] = self._matched(_cell(config, row), row)
            except CannotVerify as reason:
                self._cells[key] = reason
        cell = self._cells[key]
        if isinstance(cell, CannotVerify):
            raise CannotVerify(*cell.args)
        with _what_is_not_here():
            return _member(cell, config, row)

    def sizes_of(self, cell: Cell) -> dict[str, int]:
        """What a row says of the size of its model, which every seed shares."""
        if cell not in self._sizes:
            self._sizes[cell] = self._asked(_sizes_of, cell) if is_foreign(cell) else _sizes_of(cell)
        return self._sizes[cell]

    def _matched(self, cell: Cell, row: Row) -> Cell:
        """The cell with the width that a row says its match took, if it does."""
        if row["match"] is None:
            return cell
        model = cell.suite.model.model_copy(update={"model_dim": row["d_model"]})
        widened = replace(cell, suite=cell.suite.model_copy(update={"model": model}), match=row["match"])
        try:
            missed = self._asked(misses, widened, cell.suite)
        except SynthbenchError as problem:
            missed = str(problem)
        if missed:
            raise CannotVerify(f"match is {row['match']!r}: {missed}")
        return widened

    def _asked(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function that builds models gives, where there is the code of all of them."""
        if self._trial is None:
            return function(*arguments)
        return self._trial.attempt("a model", function, *arguments)

    def group(self, row: Row) -> list[Row]:
        """The rows that were trained with this one, itself among them; only itself if they are not all here."""
        together = self._batches.get(row["run_id"], [row])
        return together if self._is_one_program(together) else [row]

    def is_whole(self, row: Row) -> bool:
        """Whether the runs that were batched with this one are here, or are those that its suite has beside it.

        Where seeds are added, those before are trained again beside them, and only missing rows are written. On a GPU
        runs of several tasks share a program, in batches that depend on what was asked for.
        """
        size = row["ensemble_size"]
        if len(self.group(row)) == size or row["device_type"] != "cpu":
            return True
        try:
            member = self.member(row)
        except CannotVerify:
            return True  # which is said of it elsewhere
        cell = member.cell
        beside = cell.tuning_members() if member.is_tuning else cell.members(cell.suite.seeds)
        planned = [other.run_id for other in beside]
        start = planned.index(row["run_id"]) - row["ensemble_index"] if row["run_id"] in planned else -1
        return start >= 0 and start % size == 0 and start + size <= len(planned)

    def _is_one_program(self, rows: Sequence[Row]) -> bool:
        """Whether members of these rows' cells can train together, whatever the rows say."""
        try:
            cells = {self.member(row).cell for row in rows}
        except CannotVerify:
            return False
        return len(cells) == 1 or len({cell.program for cell in cells}) == 1

    def siblings(self, row: Row) -> list[str]:
        """The run ids of a row's cell at its learning rate, one a seed; its own among them."""
        return [other["run_id"] for other in self._of_cell[self._cell_key(row)] if other["lr"] == row["lr"]]

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
        members = tuple(self.member(row) for row in group)
        cells = tuple(dict.fromkeys(member.cell for member in members))
        tuning = [member for cell in cells for member in cell.tuning_members()]
        if members[0].is_tuning:
            return Job(cells, (), (), len(group), {member: None for member in tuning if member not in members})
        # The worker chooses the learning rates again: from the tuning rows, and trains those that are not here.
        known = {member: self.rows.get(member.run_id) for member in tuning}
        skills = {member: row["skill"] for member, row in known.items() if row is not None}
        return Job(cells, members, members, len(members), skills)

    def _cell_key(self, row: Row) -> str:
        config = self._configs[row["run_id"]]
        of_cell = {name: config[name] for name in sorted(config) if name not in OF_RUN}
        return json.dumps([of_cell, row["role"], *(row[name] for name in SIZES)])

    def _batch(self, row: Row) -> tuple[Any, ...]:
        """What only rows share that were trained together; they may be of several tasks."""
        return *self._batch_of_program(row), row["host_hash"], row["started_at"]

    def _batch_of_cell(self, row: Row) -> tuple[Any, ...]:
        return *self._batch_of_program(row), self._cell_key(row)

    def _batch_of_program(self, row: Row) -> tuple[Any, ...]:
        config = self._configs[row["run_id"]]
        return (
            json.dumps([config.get(name) for name in ("mech", "mech_args", "role")]),
            row["suite"],
            row["ensemble_size"],
        )


@contextmanager
def _what_is_not_here() -> Iterator[None]:
    """Turn whatever a stranger's row does to the code that is installed into a reason."""
    try:
        yield
    except CannotVerify:
        raise
    except (ContractError, UsageError) as problem:
        raise CannotVerify(f"other version: {problem}") from None
    except Exception as problem:  # noqa: BLE001 - what a configuration does to a component, nobody knows
        raise CannotVerify(f"it cannot be built here: {type(problem).__name__}: {problem}"[:300]) from None


def _cell(config: Mapping[str, Any], row: Row) -> Cell:
    """The planned cell that a row names; whether the row's id is one of its ids is not asked yet."""
    suite, name, mechanism = _suite(config, row), config["task"], config["mech"]
    task = {} if suite.ladder is not None else json.loads(row["task_args"])
    length, options = sized_in(suite, name, task)
    # No model is built, as the plan does: what it costs is known once the id is found.
    cell = Cell(
        suite=suite if name in suite.tasks else extended(suite, {name: {}}),
        task_name=name,
        length=length,
        task_arguments=options,
        mechanism_name=mechanism,
        mechanism_arguments=absent_values(MECHANISMS[mechanism])
        | coerce("mechanism", MECHANISMS[mechanism], json.loads(row["mech_args"])),
        device_type=config["device_type"],
        is_full=row["is_full"],
    )
    if cell.longest > LARGEST["seq_len"]:
        raise CannotVerify(f"it is tested on {cell.longest} tokens; allowed: up to {LARGEST['seq_len']}")
    return cell


def _suite(config: Mapping[str, Any], row: Row) -> Suite:
    """The installed suite of a row, with the surroundings that the row says, and shortened if the row is."""
    if (trained_by := config.get("training_version", 1)) != identity.TRAINING_VERSION:
        raise _other_version("training", trained_by, identity.TRAINING_VERSION)
    for kind, registry in (("task", TASKS), ("mech", MECHANISMS), ("block", BLOCKS), ("positions", POSITIONS)):
        installed = version_of(registry[config[kind]])
        if installed != config[f"{kind}_version"]:
            raise _other_version(f"{registry.kind} {config[kind]!r}", config[f"{kind}_version"], installed)
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
    suite = surrounded(
        suite,
        block=term_of(BLOCKS[config["block"]], config["block_args"]),
        positions=term_of(POSITIONS[config["positions"]], config["positions_args"]),
        condition=None if is_moved and row["condition"] == BEFORE else row["condition"],
    )
    if row["is_full"]:
        return suite
    steps, limit = row["steps_planned"], config["evaluation"]["test_sequences"]
    return shortened(
        suite,
        steps=None if steps == suite.training.steps else steps,
        limit=None if limit == suite.evaluation.test_sequences else limit,
    )


def _other_version(what: str, in_row: object, here: object) -> CannotVerify:
    return CannotVerify(
        f"other version: {what} is {in_row} in the row and {here} here; checked: its checksums, its name and that its "
        "figures fit each other"
    )


def _member(cell: Cell, config: Mapping[str, Any], row: Row) -> Member:
    """The run of a cell whose id a row has."""
    for member in cell.members([config["seed"]]) if row["role"] is None else cell.tuning_members():
        if member.run_id == row["run_id"]:
            return replace(member, learning_rate=member.learning_rate or row["lr"])  # chosen in training
    planned = json.loads(canonical_json(cell.identity))
    names = sorted({*planned, *config} - {*OF_RUN})
    other = [name[:80] for name in names if planned.get(name) != config.get(name)]
    raise CannotVerify(
        f"no {'full' if cell.is_full else 'shortened'} run of suite {cell.suite.name!r} {cell.suite.version} has its "
        f"id; config_json has another {', '.join(other or OF_RUN)}"
    )


def against_the_code(row: Row, groups: Groups) -> list[str]:
    """What a row says that its configuration and the code that is installed say otherwise; trains nothing.

    Raises:
        CannotVerify: If no installed suite has such a run, or it cannot be built.
    """
    member = groups.member(row)
    with _what_is_not_here():
        said = failure_row([member], 0, Failure("", "", ""), _NOWHERE) | {"device_type": member.cell.device_type}
    with _what_is_not_here():
        if row["n_params"] is not None:
            said |= groups.sizes_of(member.cell)
        # Beside built-in components a process loads nothing that could change them.
        said["plugins_loaded"] = row["plugins_loaded"] if is_foreign(member.cell) else None
    if row["suite"].removesuffix(EXTRA) in MOVED:  # the row was made under the old name
        said |= {name: row[name] for name in ("suite", "suite_version")}
        said |= {"condition": BEFORE} if row["condition"] == BEFORE else {}
    # Another source of the same version may call the same things by other names.
    words = {name for kind, names in WORDS.items() if is_of_other_source(row, member.cell, kind) for name in names}
    return _against_the_rungs(row, member.cell) + [
        f"{column.name} is {row[column.name]!r}; the code says {said[column.name]!r}"
        for column in RUN_COLUMNS
        # A column that was added after the row was written is null in it.
        if (column.decided_by == "configuration" or column.name in SIZES_OF_MODEL)
        and column.name not in words
        and not (column.is_nullable and row[column.name] is None)
        and not equal(row[column.name], said[column.name], 1e-9)
    ]


def _against_the_rungs(row: Row, cell: Cell) -> list[str]:
    """What the metrics of a row say of its rungs that the code says otherwise: loads, bases and ceilings.

    Bases of built-in tasks are those of the day of the row: readers count its score from the committed ones.
    """
    stated = [
        (rung.load, rung.base, rung.ceiling) for rung in rungs_in(json.loads(with_committed_baselines(row)["metrics"]))
    ]
    with _what_is_not_here():
        bounds = [(rung, rung_bounds(rung)) for rung in cell.rungs if row["status"] == "ok"]
    expected = [(float(rung.load), bound.base, bound.ceiling) for rung, bound in bounds]
    if len(stated) != len(expected):
        return [f"metrics have {len(stated)} rungs; the code says {len(expected)}"]
    pairs = enumerate(zip(stated, expected, strict=True), start=1)
    return [
        f"rung {number} has load, base and ceiling {here}; the code says {there}"
        for number, (here, there) in pairs
        if not all(math.isclose(value, other, abs_tol=1e-9) for value, other in zip(here, there, strict=True))
    ]


def _sizes_of(cell: Cell) -> dict[str, int]:
    size = cell.model(init_generator(0)).size(cell.length)
    return {column: getattr(size, name) for column, name in SIZES_OF_MODEL.items()}


def of_other_source(row: Row, cell: Cell) -> list[str]:
    """Components of a row that have another source here, under the same version: ``mech slay``."""
    config = json.loads(row["config_json"])
    return [f"{kind} {config[kind]}" for kind in cell.code if is_of_other_source(row, cell, kind)]


def is_of_other_source(row: Row, cell: Cell, kind: str) -> bool:
    """Whether a component of a row, ``task``, ``mech``, ``block`` or ``positions``, has another source here."""
    return row[f"{kind}_code_hash"] not in (None, cell.code[kind])


_NOWHERE = Provenance(
    device=torch.device("cpu"),
    executor="",
    number=1,
    queue_s=0.0,
    causal_checked=False,
    started_at=datetime.fromtimestamp(0, UTC),
    began=0.0,
)
"""For rows that are read only for what needs no training."""
