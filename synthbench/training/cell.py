"""Cells and runs, which hold all settings that decide a result; the hash of these settings is the id of its row.

A cell is a mechanism on a task of a suite; a run is a cell with a seed and a learning rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch

from synthbench.blocks import BLOCKS, Block
from synthbench.canonical import canonical_json, json_entries, run_id_of
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS, Attention, Layer, Mechanism
from synthbench.options import Value, arguments_of, with_defaults
from synthbench.positions import POSITIONS, PositionEncoding
from synthbench.registry import code_hash, version_of
from synthbench.suites import Suite
from synthbench.tasks import TASKS, Level, Task
from synthbench.training import identity
from synthbench.training.ensemble import OWN, SequenceModel
from synthbench.training.ladder import LadderSchedule, beyond, ladder_schedule


@dataclass(frozen=True)
class Run:
    """One training run: a cell (a mechanism on a task) with a seed and a learning rate.

    Each run makes one row of results. If separate runs tune the learning rate, ``learning_rate`` of a reported run is
    None until that rate is chosen.
    """

    cell: "Cell"
    seed: int
    learning_rate: float | None
    is_tuning: bool = False

    @property
    def run_id(self) -> str:
        """The id of the run's row, 16 hex digits: the hash of :attr:`identity`."""
        return run_id_of({**self.cell.common_entries, **json_entries(self._own_identity)})

    @property
    def identity(self) -> dict[str, Any]:
        """The complete configuration, defaults included; its hash is the id of the run's row."""
        return {**self.cell.identity, **self._own_identity}

    @property
    def _own_identity(self) -> dict[str, Any]:
        return identity.of_run(self.cell.suite, self.seed, self.learning_rate, is_tuning=self.is_tuning)


@dataclass(frozen=True, eq=False)
class Cell:
    """One cell of a table of results: a mechanism on a task with a given length, in a suite.

    ``task_arguments`` and ``mechanism_arguments`` hold the options that the suite or the command line sets; all other
    options keep their defaults. ``is_full`` is False if ``--steps`` or ``--limit`` shortened the training or the test.
    """

    suite: Suite
    task_name: str
    length: int
    task_arguments: dict[str, Value]
    mechanism_name: str
    mechanism_arguments: dict[str, Value]
    device_type: str
    is_full: bool = True
    match: str | None = None
    """The size to which the mechanism was resized, as in ``state=4096 of slay:P=8``; None if it was not resized."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle names of classes, not classes: a worker process finds the classes, perhaps after loading a plugin."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"code": self.code}

    @cached_property
    def task(self) -> Task:
        """The task with its options; in a suite with ladders, the options are those of the last (hardest) level."""
        if self.levels:
            return self.levels[-1].task
        return TASKS[self.task_name](**self.task_arguments)

    @cached_property
    def ladder_schedule(self) -> LadderSchedule | None:
        """The levels of the task's ladder, their order and batch sizes in training; None in a suite without ladders."""
        if self.suite.ladder is None:
            return None
        return ladder_schedule(self.suite, self.task_name)

    @property
    def levels(self) -> Sequence[Level]:
        """The levels of the task's ladder, easiest first; empty in a suite without ladders."""
        return () if self.ladder_schedule is None else self.ladder_schedule.levels

    @cached_property
    def tests(self) -> dict[int, tuple[Task, int]]:
        """The task and length of each test.

        On a ladder (the levels of a task), the keys are the numbers of the levels, from 1. Otherwise, a key is the
        ratio of the length or load (difficulty) to the trained one: 1 for the test at the trained size.
        """
        if self.levels:
            return {number: (level.task, level.length) for number, level in enumerate(self.levels, start=1)}
        stretches = {
            factor: self.task.stretched(self.length, factor) for factor in self.suite.evaluation.stretches or ()
        }
        return {1: (self.task, self.length), **stretches}

    @cached_property
    def beyond(self) -> dict[int, Level]:
        """Test levels that are longer than all trained levels; empty in a suite without ladders.

        The keys are lengths, in multiples of the longest trained length. These levels affect neither the score nor the
        id of a run.
        """
        return beyond(self.levels) if self.levels else {}

    @property
    def is_in_bits(self) -> bool:
        """True if the score is the negated bits per token; False on a ladder, where the score uses accuracies."""
        return self.ladder_schedule is None and self.task.measure == "bits"

    @property
    def longest(self) -> int:
        """Number of tokens of the longest test sequence; on a ladder, the suite's limit on the length."""
        if self.suite.ladder is not None:
            return self.suite.ladder.longest
        return max(length for _, length in self.tests.values())

    @property
    def mechanism(self) -> type[Mechanism]:
        """The mechanism's class."""
        return MECHANISMS[self.mechanism_name]

    @cached_property
    def code(self) -> dict[str, str]:
        """Hash of the source code of each component (such as task or block), as loaded where the cell was made.

        The hashes are pickled with the cell, so that another process can compare them with its own :meth:`code_here`.
        """
        return self.code_here()

    def code_here(self) -> dict[str, str]:
        """Compute the hash of the source code of each component (such as task or block) in this process."""
        return dict(zip(("task", "mech", "block", "positions"), map(code_hash, self.components), strict=True))

    @property
    def components(self) -> tuple[type[Any], ...]:
        """The classes of the task, mechanism, block and position encoding, in this order."""
        return TASKS[self.task_name], self.mechanism, self.block[0], self.positions[0]

    def mechanism_fields(self) -> dict[str, Any]:
        """Collect the arguments with which the mechanism is built, except its random generator."""
        model = self.suite.model
        return {
            **self.mechanism_arguments,
            "model_dim": model.model_dim,
            "num_heads": model.num_heads,
            "max_length": self.longest,
            "bias": model.bias,
        }

    @property
    def layers(self) -> list[Layer]:
        """The class of each layer's mechanism, with the arguments of the class except the random generator."""
        return self.mechanism.layers_of(self.mechanism_fields(), self.num_layers)

    @property
    def num_layers(self) -> int:
        """Number of blocks in a model: the block's option ``layers`` if it is set, else the suite's number."""
        return int(self.block[1].get("layers", 0)) or self.suite.model.num_layers

    def model(self, generator: torch.Generator, factor: int = 1, shift: int = 0) -> SequenceModel:
        """Build an untrained model for the sequences of one test; all parameters are drawn from ``generator``.

        ``factor`` is the key of the test in :attr:`tests`. On a ladder (the levels of a task), one model with
        ``factor`` 1 serves all trained levels; for longer levels, ``factor`` is a key of :attr:`beyond`. ``shift`` is
        added to the positions of all tokens.

        Raises:
            UsageError: If ``shift`` is not 0, but the position encoding is a learned table without entries for later
                positions.
        """
        if shift and not self.positions[0].extends:
            raise UsageError(
                f"coordinates move by {shift}; allowed with positions {self.positions[0].name!r}: 0, as their table "
                f"ends with the {self.tests[factor][1]} tokens of a sequence"
            )
        if self.ladder_schedule is None:
            task, length = self.tests[factor]
        else:
            task, length = (self.task, self.length) if factor == 1 else self.beyond[factor][:2]
        return SequenceModel(
            self.suite.model.model_copy(update={"positions": self._positions_term}),
            task.vocab_size,
            length,
            self.layers,
            generator,
            coordinates=torch.from_numpy(task.coordinates(length) + shift).to(torch.get_default_dtype()),
            readout=task.readout,
        )

    @cached_property
    def resolved_task_arguments(self) -> dict[str, Any]:
        """The length and all options of the task, including default values.

        On a ladder, each level has its own length and options; the result then holds the levels and the unit of their
        load (difficulty).
        """
        return identity.task_options(self.suite, TASKS[self.task_name], self.length, self.task_arguments)

    @cached_property
    def resolved_mechanism_arguments(self) -> dict[str, Value]:
        """Every hyper-parameter of the mechanism, defaults included."""
        return arguments_of(self.mechanism(**self.mechanism_fields()))

    @cached_property
    def block(self) -> tuple[type[Block], dict[str, Value]]:
        """The class of the block around the mechanism, and all options of the block, including default values.

        If the option ``layers`` equals the suite's number of layers, it is dropped, so that it does not change row ids.
        """
        unit, given = BLOCKS.configured(self.suite.model.block)
        if given.get("layers") == self.suite.model.num_layers:
            del given["layers"]
        return unit, with_defaults(unit, given)

    @cached_property
    def positions(self) -> tuple[type[PositionEncoding], dict[str, Value]]:
        """The class of the position encoding, and the encoding's hyper-parameters, defaults included."""
        unit, given = POSITIONS.configured(self._positions_term)
        return unit, with_defaults(unit, given)

    @property
    def _positions_term(self) -> str:
        model = self.suite.model
        if model.positions == OWN:
            has_from_authors = {layer.own_positions for layer, _values in self.layers}
            return OWN if len(has_from_authors) > 1 else has_from_authors.pop()
        unit, _ = POSITIONS.configured(model.positions)
        has_nothing_to_turn = unit.rotates and not issubclass(self.mechanism, Attention)
        return model.positions_otherwise or model.positions if has_nothing_to_turn else model.positions

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The configuration that decides the results of the cell's runs, without seed and learning rate."""
        parts = (
            ("task", self.task_name, self.resolved_task_arguments),
            ("mech", self.mechanism_name, self.resolved_mechanism_arguments),
            ("block", self.block[0].name, self.block[1]),
            ("positions", self.positions[0].name, self.positions[1]),
        )
        named: dict[str, Any] = {}
        for (kind, name, arguments), unit in zip(parts, self.components, strict=True):
            named |= {kind: name, f"{kind}_version": version_of(unit), f"{kind}_args": arguments}
        return named | identity.of_protocol(self.suite, device_type=self.device_type, match=self.match)

    @property
    def note(self) -> str | None:
        """A warning if the position encoding rotates, but rotations mean nothing to this mechanism; otherwise None."""
        positions, reason = self.positions[0], getattr(self.mechanism, "rotation_note", "")
        return (
            f"positions {positions.name!r} mean nothing to {self.mechanism.name}: {reason}"
            if positions.rotates and reason
            else None
        )

    @cached_property
    def program(self) -> str:
        """A text that is equal for cells whose runs can be trained together, as one model.

        The text holds :attr:`identity` without the task, and the shapes of the task's sequences and batches. For a
        plugin's task, the text also holds the task's name, so that a failure cannot affect other tasks.
        """
        shape = [self.length, self.longest, self.task.readout, self.task.coordinates(self.length).tolist()]
        if self.ladder_schedule is not None:
            shape += [[level.length for level in self.ladder_schedule.levels], self.ladder_schedule.batch_sizes]
        around = {name: part for name, part in self.identity.items() if not name.startswith("task")}
        foreign = None if TASKS.is_built_in(self.task_name) else self.task_name
        return canonical_json({**around, "shape": shape, "foreign": foreign})

    def runs(self, seeds: Sequence[int]) -> list[Run]:
        """Make one reported run per seed and learning rate of the suite.

        If separate runs (:meth:`tuning_runs`) choose the learning rate, make only one reported run per seed.
        """
        if self.suite.tuning is not None:
            return [Run(self, seed, None) for seed in seeds]
        return [Run(self, seed, rate) for rate in self.suite.training.learning_rates for seed in seeds]

    def tuning_runs(self) -> list[Run]:
        """Make the runs that only serve to choose a learning rate: one per rate and tuning seed, or none."""
        if self.suite.tuning is None:
            return []
        rates, seeds = self.suite.training.learning_rates, self.suite.tuning.seeds
        return [Run(self, seed, rate, is_tuning=True) for rate in rates for seed in seeds]

    @cached_property
    def common_entries(self) -> dict[str, str]:
        """The JSON text of each value in :attr:`identity`, computed once for all runs of the cell."""
        return json_entries(self.identity)
