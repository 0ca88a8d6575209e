"""What a command asks for, and what of it is missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from synthbench.errors import UnknownName, UsageError
from synthbench.knobs import Value, coerce
from synthbench.mechanisms import MECHANISMS
from synthbench.runner.config import Cell, Member
from synthbench.runner.selection import Selection, select
from synthbench.suites import Suite
from synthbench.tasks import TASKS


@dataclass(frozen=True)
class Job:
    """Members of one cell that train together; ``missing`` are those whose row is to be written.

    The grouping does not depend on what is missing, so a resumed sweep trains what an undisturbed one trains.
    """

    cell: Cell
    members: tuple[Member, ...]
    missing: tuple[Member, ...]

    @property
    def cost(self) -> float:
        """Rough cost for ordering: tokens times what a token costs, with attention growing with the length."""
        training = self.cell.suite.training
        length = self.cell.length
        return len(self.members) * training.steps * training.batch_size * length * (1 + length / 64)


@dataclass(frozen=True)
class Plan:
    """The jobs of a command, long ones first, and how many of the planned rows are there already."""

    jobs: tuple[Job, ...]
    num_planned: int
    num_done: int

    @property
    def num_missing(self) -> int:
        """Rows that are still to be written."""
        return self.num_planned - self.num_done


def shortened(suite: Suite, *, steps: int | None, limit: int | None) -> Suite:
    """The suite with fewer steps, or with at most ``limit`` sequences in every evaluation.

    Raises:
        UsageError: If a number is not positive.
    """
    for name, value in (("steps", steps), ("limit", limit)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; allowed: 1 and more")
    if steps is not None:
        suite = suite.model_copy(update={"training": suite.training.model_copy(update={"steps": steps})})
    if limit is not None:
        fewer = {key: min(limit, getattr(suite.evaluation, key)) for key in ("test_sequences", "curve_sequences")}
        suite = suite.model_copy(update={"evaluation": suite.evaluation.model_copy(update=fewer)})
    return suite


def surrounded(suite: Suite, *, block: str | None, positions: str | None) -> Suite:
    """The suite with another block or position encoding around its mechanisms."""
    changes = {name: term for name, term in (("block", block), ("positions", positions)) if term is not None}
    return suite.model_copy(update={"model": suite.model.model_copy(update=changes)})


def select_tasks(suite: Suite, expressions: Sequence[str]) -> Selection:
    """The suite's tasks that some expressions select; ``@category`` selects a category.

    Raises:
        UnknownName: If a name or category is not in the suite.
    """
    return select("task", expressions, list(suite.tasks), lambda name: TASKS[name].category())


def select_mechanisms(suite: Suite, expressions: Sequence[str]) -> Selection:
    """The registered mechanisms that some expressions select, the suite's first; ``@family`` selects a family.

    Raises:
        UnknownName: If a name or family is not registered.
    """
    names = [*suite.mechanisms, *(name for name in MECHANISMS if name not in suite.mechanisms)]
    return select("mechanism", expressions, names, lambda name: MECHANISMS[name].family)


def make_cells(suite: Suite, tasks: Selection, mechanisms: Selection, *, device_type: str, is_full: bool) -> list[Cell]:
    """Task × mechanism, each with the suite's arguments and, over them, the command line's.

    Raises:
        UnknownName: If a task, a block, a position encoding or an argument does not exist.
        UsageError: If a value is out of range, or a task has no sequence of its length.
    """
    sized = {name: _task_arguments(name, suite.tasks[name], given) for name, given in tasks.items()}
    cells = [
        Cell(
            suite=suite,
            task_name=task,
            length=length,
            task_arguments=task_arguments,
            mechanism_name=mechanism,
            mechanism_arguments=coerce(
                "mechanism", MECHANISMS[mechanism], {**suite.mechanisms.get(mechanism, {}), **given}
            ),
            device_type=device_type,
            is_full=is_full,
        )
        for task, (length, task_arguments) in sized.items()
        for mechanism, given in mechanisms.items()
    ]
    for cell in {cell.mechanism_name: cell for cell in cells}.values():
        cell.model(torch.Generator())  # what cannot be built is refused before anything is trained
    return cells


def _task_arguments(
    name: str, of_suite: Mapping[str, object], given: Mapping[str, str]
) -> tuple[int, dict[str, Value]]:
    arguments = {"length": TASKS[name].length, **of_suite, **given}
    try:
        length = int(str(arguments.pop("length")))
    except ValueError:
        raise UsageError(f"{name}:length is {given.get('length')!r}; allowed: a whole number of tokens") from None
    try:
        coerced = coerce("task", TASKS[name], arguments)
    except UnknownName as problem:
        raise UnknownName(f"argument of task {name!r}", problem.name, ["length", *problem.allowed]) from None
    TASKS[name](**coerced).check_length(length)
    return length, coerced


def make_plan(cells: Sequence[Cell], seeds: Sequence[int], done: set[str], group_size: Callable[[Cell], int]) -> Plan:
    """Group every cell's members into jobs and keep the jobs of which a row is missing.

    Args:
        cells: What to train.
        seeds: Root seeds; a cell has a member for each seed and learning rate.
        done: Run ids that need no run.
        group_size: Members of a cell that train as one program.
    """
    jobs, num_planned, num_missing = [], 0, 0
    for cell in cells:
        members = cell.members(seeds)
        num_planned += len(members)
        size = group_size(cell)
        for start in range(0, len(members), size):
            group = tuple(members[start : start + size])
            missing = tuple(member for member in group if cell.run_id(member) not in done)
            num_missing += len(missing)
            if missing:
                jobs.append(Job(cell, group, missing))
    jobs.sort(key=lambda job: -job.cost)  # stable: equal costs stay in the order of the suite
    return Plan(tuple(jobs), num_planned, num_planned - num_missing)
