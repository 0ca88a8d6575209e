"""The cells that a request selects, and the jobs for those of their rows that are missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

import torch

from synthbench.errors import UsageError
from synthbench.knobs import coerce, parse_term
from synthbench.mechanisms import MECHANISMS
from synthbench.runner.estimates import Estimates, traits_of
from synthbench.suites import Suite, extended
from synthbench.tasks import TASKS
from synthbench.terms import Selection, select, split_terms
from synthbench.training.cell import Cell, Member
from synthbench.training.ladder import sized_in
from synthbench.training.stream import TOKENS_AT_ONCE

GPU_GROUP_SIZE = 64
"""Members that a GPU trains as one program: its steps are bound by launches, not by work."""


@dataclass(frozen=True)
class Job:
    """Members that one worker trains; ``missing`` are those whose row is to be written.

    They are of one cell, or of several that share a :attr:`Cell.program`. At most ``group_size`` of them train as one
    program. The grouping does not depend on what is missing, so a resumed sweep trains what an undisturbed one trains.
    Where the suite tunes, a job has all members of its cells, and ``tuning_skills`` has what is known of those that
    choose the learning rate: None for one that has no score.
    """

    cells: tuple[Cell, ...]
    members: tuple[Member, ...]
    missing: tuple[Member, ...]
    group_size: int
    tuning_skills: Mapping[Member, float | None] = field(default_factory=dict)

    @property
    def untuned(self) -> tuple[Member, ...]:
        """Tuning members without a row yet."""
        every = (member for cell in self.cells for member in cell.tuning_members())
        return tuple(member for member in every if member not in self.tuning_skills)

    def at_rates(self, learning_rates: Mapping[Cell, float]) -> "Job":
        """The same job with each cell's learning rate for its members, which had none."""
        members, missing = (
            tuple(replace(member, learning_rate=learning_rates[member.cell]) for member in some)
            for some in (self.members, self.missing)
        )
        return replace(self, members=members, missing=missing)

    @property
    def groups(self) -> list[tuple[Member, ...]]:
        """The groups of members that train as one program, without those that have all their rows."""
        if len(self.members) <= self.group_size:
            return [self.members] if self.missing else []
        missing = set(self.missing)
        starts = range(0, len(self.members), self.group_size)
        groups = [self.members[start : start + self.group_size] for start in starts]
        return [group for group in groups if not missing.isdisjoint(group)]

    @property
    def trained(self) -> list[Member]:
        """The members that train before the job is done."""
        return [*self.untuned, *(member for group in self.groups for member in group)]


@dataclass(frozen=True, repr=False)
class Plan:
    """The jobs of a command, long ones first, and how many of the planned rows are there already."""

    jobs: tuple[Job, ...]
    num_planned: int
    num_done: int
    members: Mapping[str, Member] = field(default_factory=dict)
    """Of all planned rows by their ids, those already done included."""
    estimates: Estimates = field(default_factory=Estimates)
    """How long the jobs may take."""
    num_failed: int = 0
    """Of the rows already done, those without a score."""
    replaced_at: datetime | None = None
    """When the last of the rows finished that are made again: of two rows of a run the later one counts."""
    notices: tuple[str, ...] = ()
    """What the user should know before the first job, a sentence each."""

    def __repr__(self) -> str:
        return f"Plan({self.num_missing} of {self.num_planned} rows are missing, in {len(self.jobs)} jobs)"

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The ids of all planned rows."""
        return tuple(self.members)

    @property
    def num_missing(self) -> int:
        """Rows that are still to be written."""
        return self.num_planned - self.num_done

    @property
    def num_trainings(self) -> int:
        """Trainings before the last row is written, those that tune included."""
        return sum(len(job.trained) for job in self.jobs)


def shortened(suite: Suite, *, steps: int | None, limit: int | None) -> Suite:
    """The suite with fewer steps, or with at most ``limit`` sequences in every evaluation.

    Raises:
        UsageError: If a number is not positive.
    """
    for name, value in (("steps", steps), ("limit", limit)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; allowed: 1 and more")
    if steps is not None:
        fewer_steps: dict[str, int] = {"steps": steps}
        if suite.training.warmup_steps is not None:
            fewer_steps["warmup_steps"] = min(suite.training.warmup_steps, max(1, steps // 10))
        if suite.training.decay_steps is not None:
            fewer_steps["decay_steps"] = min(suite.training.decay_steps, max(1, steps // 3))
        suite = suite.model_copy(update={"training": suite.training.model_copy(update=fewer_steps)})
    if limit is not None:
        sizes = {
            key: getattr(suite.evaluation, key) for key in ("test_sequences", "curve_sequences", "validation_sequences")
        }
        fewer = {key: min(limit, size) for key, size in sizes.items() if size is not None}
        suite = suite.model_copy(update={"evaluation": suite.evaluation.model_copy(update=fewer)})
    return suite


def surrounded(suite: Suite, *, block: str | None, positions: str | None) -> Suite:
    """The suite with another block or position encoding around its mechanisms."""
    changes = {name: term for name, term in (("block", block), ("positions", positions)) if term is not None}
    return suite.model_copy(update={"model": suite.model.model_copy(update=changes)})


def select_tasks(suite: Suite, expressions: Sequence[str]) -> Selection:
    """The tasks that some expressions select, the suite's first; ``@category`` selects a category.

    A task that the suite does not list is selected by its name alone. A package is imported only if it is named.

    Raises:
        UnknownName: If a name is not registered, or a category is not in the suite.
    """
    unlisted = [name for name in TASKS if name not in suite.tasks]
    return select("task", expressions, list(suite.tasks), lambda name: TASKS[name].category(), unlisted=unlisted)


def select_mechanisms(suite: Suite, expressions: Sequence[str]) -> Selection:
    """The registered mechanisms that some expressions select, the suite's first; ``@family`` selects a family.

    A package is imported only if it is named, or if an expression is open: ``all``, a family, a pattern. An open one
    passes over what is broken.

    Raises:
        UnknownName: If a name or family is not registered.
    """
    named = {parse_term(term.removeprefix("!"))[0] for text in expressions for term in split_terms(text)}
    broken = set() if named <= set(MECHANISMS) else MECHANISMS.broken().keys() - named
    names = [*suite.mechanisms, *(name for name in MECHANISMS if name not in {*suite.mechanisms, *broken})]
    return select("mechanism", expressions, names, lambda name: MECHANISMS[name].family)


def make_cells(suite: Suite, tasks: Selection, mechanisms: Selection, *, device_type: str, is_full: bool) -> list[Cell]:
    """Task × mechanism, each with the suite's arguments and, over them, the command line's.

    Cells of tasks that the suite does not list belong to :func:`~synthbench.suites.extended` of it.

    Raises:
        UnknownName: If a task, a block, a position encoding or an argument does not exist.
        UsageError: If a value is out of range, or a task has no sequence of its length.
    """
    sizes = {name: sized_in(suite, name, given) for name, given in tasks.items()}
    extra = extended(suite, {name: given for name, given in tasks.items() if name not in suite.tasks})
    cells = [
        Cell(
            suite=extra if task in extra.tasks else suite,
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
        for task, (length, task_arguments) in sizes.items()
        for mechanism, given in mechanisms.items()
    ]
    for cell in {cell.mechanism_name: cell for cell in cells}.values():
        cell.model(torch.Generator())  # what cannot be built is refused before anything is trained
    return cells


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``2/3`` as 2 and 3.

    Raises:
        UsageError: If it is malformed, or there is no such part.
    """
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise UsageError(f"shard is {text!r}; allowed: i/n with i from 1 to n, as in 2/3")
    return int(part), int(parts)


def in_shard(cells: Sequence[Cell], part: int, parts: int) -> list[Cell]:
    """The cells of one of several parts, that of ``part`` = 1 to ``parts``; every cell is in exactly one.

    A cell stays whole: its members choose a learning rate together, or train as one program. Where it goes depends on
    nothing but its identity, so neither on what is done nor on the seeds.
    """
    return [cell for cell in cells if int(cell.members([0])[0].run_id, 16) % parts == part - 1]


def make_plan(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    done: Mapping[str, float | None],
    group_size: int | None = None,
    *,
    is_across_tasks: bool = False,
    estimates: Estimates | None = None,
) -> Plan:
    """Group the members of cells into jobs and keep the jobs that lack a row.

    Those that will take longest come first, so that none begins when the workers are about to run out of jobs.

    Args:
        cells: What to train.
        seeds: Root seeds; a cell has a member for each seed, and for each learning rate unless it chooses one.
        done: Skill by run id of the rows that need no run.
        group_size: Members that train as one program; None: by the length and the device of their cells.
        is_across_tasks: Whether cells whose members fit into one program, all of them, share it.
        estimates: How long members take; None: what their work says.

    Raises:
        UsageError: If a seed is one that the suite tunes on.
    """
    estimates = estimates or Estimates()
    ids: dict[Cell, dict[Member, str]] = {}
    for cell in cells:
        if cell.suite.tuning is not None and (shared := set(seeds) & set(cell.suite.tuning.seeds)):
            raise UsageError(f"seed {min(shared)} is one that suite {cell.suite.name!r} tunes on; allowed: any other")
        ids[cell] = {member: member.run_id for member in cell.members(seeds)}
    costs: list[tuple[float, Job]] = []
    for together in _sharing(ids, group_size) if is_across_tasks else [[cell] for cell in cells]:
        of_all = {member: run_id for cell in together for member, run_id in ids[cell].items()}
        tuning_ids = {member: member.run_id for cell in together for member in cell.tuning_members()}
        skills = {member: done[run_id] for member, run_id in tuning_ids.items() if run_id in done}
        cost = {cell: estimates.cost(traits_of(cell)) for cell in together}
        size = group_size or default_group_size(together[0])
        # All members of a cell where its rate is chosen: it is chosen once.
        in_job = len(of_all) if together[0].suite.tuning is not None else size
        members = tuple(of_all)
        for start in range(0, len(members), in_job):
            of_job = members[start : start + in_job]
            missing = tuple(member for member in of_job if of_all[member] not in done)
            if missing:
                job = Job(tuple(together), of_job, missing, size, skills)
                costs.append((sum(cost[member.cell] for member in job.trained), job))
    costs.sort(key=lambda entry: -entry[0])  # stable: equal costs stay in the order of the suite
    jobs = tuple(job for _, job in costs)
    planned = {run_id: member for of_cell in ids.values() for member, run_id in of_cell.items()}
    num_missing = sum(len(job.missing) for job in jobs)
    return Plan(jobs, len(planned), len(planned) - num_missing, planned, estimates)


def default_group_size(cell: Cell) -> int:
    """Members that train as one program, of a cell or of several; it depends on nothing but their size."""
    if cell.device_type == "cuda":
        return GPU_GROUP_SIZE
    ladder = cell.suite.ladder
    tokens = cell.suite.training.batch_size * cell.length if ladder is None else ladder.batch_tokens
    return max(1, TOKENS_AT_ONCE["cpu"] // tokens)


def beside_same_data(jobs: Sequence[Job]) -> list[Job]:
    """The jobs in an order in which those that begin with the same data follow each other.

    For one worker, which keeps what it has drawn and ends no later for it. The longest job of some data is where it
    was in relation to that of others.
    """
    by_data: dict[tuple[object, ...], list[Job]] = {}
    for job in jobs:
        first = job.trained[0]
        by_data.setdefault((first.cell.task, first.cell.length, first.seed), []).append(job)
    return list(chain.from_iterable(by_data.values()))


def _sharing(ids: Mapping[Cell, Mapping[Member, str]], group_size: int | None) -> list[list[Cell]]:
    """Cells in the groups that share a program; a cell whose members do not fit beside others stands alone."""
    groups: list[list[Cell]] = []
    open_groups: dict[str, tuple[list[Cell], int]] = {}
    for cell, members in ids.items():
        group, count = open_groups.get(cell.program, ([], 0))
        if not group or count + len(members) > (group_size or default_group_size(cell)):
            group, count = [], 0
            groups.append(group)
        group.append(cell)
        open_groups[cell.program] = group, count + len(members)
    return groups
