"""From rows back to the jobs that made them: what a configuration says, built by the code that is installed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from synthbench.blocks import BLOCKS
from synthbench.canonical import canonical_json
from synthbench.errors import ContractError, SynthbenchError, UsageError
from synthbench.knobs import coerce, term_of
from synthbench.mechanisms import MECHANISMS
from synthbench.positions import POSITIONS
from synthbench.registry import version_of
from synthbench.results.schema import RUN_COLUMNS
from synthbench.runner.match import misses
from synthbench.runner.plan import Job
from synthbench.runner.rows import Failure, Provenance, failure_row
from synthbench.suites import EXTRA, Suite, load_suite, suite_names
from synthbench.suites.config import TuningSettings
from synthbench.tasks import TASKS
from synthbench.training import identity
from synthbench.training.cell import Cell, Member
from synthbench.training.ladder import sized_in
from synthbench.trust.agreement import RESULTS, Row, equal
from synthbench.trust.audit import LARGEST

CIRCUMSTANCES = (
    *("run_id", "schema_version", "error_message", "causal_checked", "ensemble_size", "ensemble_index", "metrics"),
    *("mech_origin", "device_name", "num_threads", "amp", "compiled", "deterministic", "tf32", "n_visible_devices"),
    *("wall_s", "queue_s", "train_s", "eval_s", "data_s", "step_ms_median", "tokens_per_s", "peak_mem_bytes"),
    *("flops_estimate", "started_at", "finished_at", "host_hash", "executor", "attempt", "synthbench_version"),
    *("git_sha", "git_dirty", "python", "torch", "numpy", "cuda", "os", "packages", "verified_by", "curve_sha256"),
    *("row_sha256", "migrated_from", *(f"{kind}_code_hash" for kind in ("task", "mech", "block", "positions"))),
)
"""Columns that neither the configuration and the code nor the training decide. All others are checked in every row."""


WORDS = {"task": ("task_category", "task_source"), "mech": ("mech_label", "mech_family", "mech_source")}
"""Columns that name things: a change of words is none of a result, and asks for no new version."""


class CannotVerify(Exception):  # noqa: N818 -- not an error: the row may be right, and nobody can tell here
    """A row that cannot be run again here; its message says why."""


class Groups:
    """Rows by the cell that they belong to, and by the program that they were trained in."""

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
        together = self._together[self._group_key(row)]
        if len(together) != row["ensemble_size"]:
            return [row]
        together = sorted(together, key=lambda one: int(one["ensemble_index"]))
        is_whole = [one["ensemble_index"] for one in together] == list(range(len(together)))
        return together if is_whole and self._is_one_program(together) else [row]

    def _is_one_program(self, rows: Sequence[Row]) -> bool:
        """Whether members of these rows' cells can train together, whatever the rows say."""
        try:
            cells = dict.fromkeys(self.cell(row) for row in rows)
        except CannotVerify:
            return False
        return len(cells) == 1 or len({cell.program for cell in cells}) == 1

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
        cells = tuple(dict.fromkeys(self.cell(row) for row in group))
        if cells[0].suite.tuning is None:
            members = tuple(_member(self.cell(row), row) for row in group)
            return Job(cells, members, members, len(members))
        if group[0]["role"] is None:
            # The worker chooses the learning rates again: from the tuning rows, and trains those that are not here.
            members = tuple(Member(self.cell(row), row["seed"], None) for row in group)
            known = {one: self.rows.get(one.run_id) for cell in cells for one in cell.tuning_members()}
            skills = {member: row["skill"] for member, row in known.items() if row is not None}
            return Job(cells, members, members, len(members), skills)
        rates = tuple(dict.fromkeys(row["lr"] for row in group))
        seeds = tuple(sorted({row["seed"] for row in group}))
        narrowed = {cell: replace(cell, suite=_tuning_at(cell.suite, rates, seeds)) for cell in cells}
        wanted = {_member(narrowed[self.cell(row)], row) for row in group}
        every = (member for cell in narrowed.values() for member in cell.tuning_members())
        others = {member: None for member in every if member not in wanted}
        return Job(tuple(narrowed.values()), (), (), len(group), others)

    def _cell_key(self, row: Row) -> str:
        config = self._configs[row["run_id"]]
        of_cell = {name: config[name] for name in sorted(config) if name not in ("seed", "learning_rate")}
        return json.dumps([of_cell, row["is_full"], row["task_size"]])

    def _group_key(self, row: Row) -> tuple[Any, ...]:
        """What only rows share that were trained together; they may be of several tasks."""
        config = self._configs[row["run_id"]]
        around = ("suite", "mech", "mech_args", "role")
        of_group = [config.get(name) for name in around]
        return json.dumps(of_group), row["host_hash"], row["started_at"], row["ensemble_size"]


def _member(cell: Cell, row: Row) -> Member:
    return Member(cell, row["seed"], row["lr"], is_tuning=row["role"] is not None)


def _tuning_at(suite: Suite, rates: tuple[float, ...], seeds: tuple[int, ...]) -> Suite:
    """A suite that tunes among some rates on some seeds."""
    training = suite.training.model_copy(update={"learning_rates": rates})
    return suite.model_copy(update={"training": training, "tuning": TuningSettings(seeds=seeds)})


def _rebuilt(config: Mapping[str, Any], row: Row) -> Cell:
    """The cell that a configuration describes, from the units that are installed."""
    try:
        if (trained_by := config.get("training_version", 1)) != identity.TRAINING_VERSION:
            raise CannotVerify(
                f"other version: training is {trained_by} in the row and {identity.TRAINING_VERSION} here; checked: "
                "its checksums, its name and that its figures fit each other"
            )
        for kind, registry in (("task", TASKS), ("mech", MECHANISMS), ("block", BLOCKS), ("positions", POSITIONS)):
            installed = version_of(registry[config[kind]])
            if installed != config[f"{kind}_version"]:
                raise CannotVerify(
                    f"other version: {registry.kind} {config[kind]!r} is {config[f'{kind}_version']} in the row and "
                    f"{installed} here; checked: its checksums, its name and that its figures fit each other"
                )
        suite = _suite(config, row)
        given = dict(config["task_args"])
        if suite.ladder is not None:
            _, length, options = sized_in(suite, config["task"], {})
        else:
            length = given.pop("length")
            options = coerce("task", TASKS[config["task"]], given)
        return Cell(
            suite=suite,
            task_name=config["task"],
            size=row["task_size"],
            length=length,
            task_arguments=options,
            mechanism_name=config["mech"],
            mechanism_arguments=coerce("mechanism", MECHANISMS[config["mech"]], config["mech_args"]),
            device_type=config["device_type"],
            is_full=row["is_full"],
            match=_match_in(config),
        )
    except (ContractError, UsageError) as problem:
        raise CannotVerify(f"other version: {problem}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise CannotVerify(f"its configuration cannot be read: {type(problem).__name__} {problem}"[:300]) from None


def _match_in(config: Mapping[str, Any]) -> str | None:
    match = config.get("match")
    if not isinstance(match, str | None):
        raise TypeError(f"match is {match!r}")
    return match


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
        **({"ladder": config["ladder"]} if "ladder" in config else {}),
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


def against_the_code(row: Row, groups: Groups) -> list[str]:
    """What a row says that its configuration and the code that is installed say otherwise; trains nothing."""
    cell = groups.cell(row)
    try:
        config = json.loads(row["config_json"])
        if others := _other_sizes(cell, config, row):  # what they cost nobody has looked at: nothing is computed
            return others
        member = Member(cell, config["seed"], config.get("learning_rate", row["lr"]), is_tuning=row["role"] is not None)
        said = failure_row([member], 0, Failure("", "", ""), _NOWHERE) | {"device_type": cell.device_type}
    except Exception as problem:  # noqa: BLE001 - what a stranger's configuration does to a unit, nobody knows
        raise CannotVerify(f"it cannot be built here: {type(problem).__name__}: {problem}"[:300]) from None
    if said["config_json"] != row["config_json"]:
        raise CannotVerify("other version: this one writes another configuration for the same run")
    skipped = {*CIRCUMSTANCES, *RESULTS, *(("tuning_trials", "tuning_rule") if row["role"] else ())}
    # Another source of the same version may call the same things by other names.
    skipped |= {name for kind, names in WORDS.items() if is_of_other_source(row, cell, kind) for name in names}
    wrong = [
        f"{column.name} is {row[column.name]!r}; the code says {said[column.name]!r}"
        for column in RUN_COLUMNS
        # A column that was added after the row was written is null in it.
        if column.name not in skipped
        and not (column.is_nullable and row[column.name] is None)
        and not equal(row[column.name], said[column.name], 1e-9)
    ]
    return wrong + _not_full(row, cell)


def of_other_source(row: Row, cell: Cell) -> list[str]:
    """Components of a row that have another source here, under the same version: ``mech slay``."""
    config = json.loads(row["config_json"])
    return [f"{kind} {config[kind]}" for kind in cell.code if is_of_other_source(row, cell, kind)]


def is_of_other_source(row: Row, cell: Cell, kind: str) -> bool:
    """Whether a component of a row, ``task``, ``mech``, ``block`` or ``positions``, has another source here."""
    return row[f"{kind}_code_hash"] not in (None, cell.code[kind])


def _other_sizes(cell: Cell, config: Mapping[str, Any], row: Row) -> list[str]:
    """Sizes of a configuration that are not those of its row, whose columns the audit has found to be sane."""
    model, training, evaluation = cell.suite.model, cell.suite.training, cell.suite.evaluation
    sizes = {
        **{name: canonical_json(config[name]) for name in ("task_args", "mech_args")},
        "seq_len": cell.length,
        "batch_size": training.batch_size,
        "steps_planned": training.steps,
        "d_model": model.model_dim,
        "n_layers": model.num_layers,
        "n_heads": model.num_heads,
    }
    wrong = [
        f"{column} is {row[column]!r} and {size!r} in config_json"
        for column, size in sizes.items()
        if row[column] != size
    ]
    most = {
        "n_eval": (evaluation.test_sequences, evaluation.curve_sequences or 0),
        "seq_len": tuple(factor * cell.length for factor in evaluation.stretches or ()),
    }
    if cell.course is not None:
        most |= {"seq_len": (cell.longest,), "batch_size": tuple(cell.course.batch_sizes)}
    return wrong + [
        f"config_json evaluates with {size} as {column}; allowed: up to {LARGEST[column]}"
        for column, found in most.items()
        for size in found
        if size > LARGEST[column]
    ]


def _not_full(row: Row, cell: Cell) -> list[str]:
    """Where a row calls itself full: what of its protocol is not that of the suite, if this version is installed."""
    suite = cell.suite
    name = suite.name.removesuffix(EXTRA)  # tasks that a suite does not list have its protocol
    if not row["is_full"] or name not in suite_names():
        return []
    own = load_suite(name)
    if own.version != suite.version:
        return []
    own = own.model_copy(update={"model": own.model.model_copy(update=_surroundings(suite))})
    if cell.match is not None:
        try:
            missed = misses(cell, own)
        except SynthbenchError as problem:
            missed = str(problem)
        if missed:
            return [f"match is {cell.match!r}: {missed}"]
        width = {"model_dim": suite.model.model_dim}
        own = own.model_copy(update={"model": own.model.model_copy(update=width)})
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
        for part in ("model", "training", "evaluation", "tuning", "ladder")
        if getattr(own, part) != getattr(suite, part)
    ]


def _surroundings(suite: Suite) -> dict[str, Any]:
    """What ``--block`` and ``--positions`` may change in a full run."""
    return {name: getattr(suite.model, name) for name in ("block", "positions", "positions_otherwise")}


_NOWHERE = Provenance(
    device=torch.device("cpu"),
    executor="",
    number=1,
    queue_s=0.0,
    causal_checked=False,
    started_at=datetime.fromtimestamp(0, UTC),
    began=0.0,
)
"""For rows of which only what needs no training is read."""
