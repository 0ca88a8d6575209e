"""Turns a request into a plan: its cells (task × mechanism), and jobs to train the runs that have no row of results."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from synthbench import plugins
from synthbench.errors import UnknownName, UsageError
from synthbench.mechanisms import MECHANISMS, condition_options, options_of
from synthbench.options import LARGEST, Selection, coerce, parse_term, registered, require_current, select, split_terms
from synthbench.process import usual_settings
from synthbench.results import Store, published
from synthbench.results.schema import RUNS
from synthbench.runner.environment import commit_warning
from synthbench.runner.estimates import TIMED, Estimates
from synthbench.runner.match import all_matched
from synthbench.runner.request import Request
from synthbench.runner.rows import predictions_file
from synthbench.suites import BEFORE, CONDITIONS, EXTRA, Suite, load_suite, with_tasks
from synthbench.tasks import TASKS
from synthbench.training.cell import Cell, Run
from synthbench.training.ensemble import OWN
from synthbench.training.ladder import sized_in
from synthbench.training.stream import TOKENS_AT_ONCE

GPU_GROUP_SIZE = 64
"""Number of runs that a GPU trains as one program, since kernel launches, not arithmetic, limit its speed."""

RERUNS = ("none", "failed", "all")

_SEQUENCES = ("test_sequences", "curve_sequences", "validation_sequences")

_DECISIVE = (
    *("run_id", "skill", "status", "deterministic", "task_code_hash", "mech_code_hash"),  # whether a row is done
    *("suite", "finished_at"),
)
_READ = tuple(dict.fromkeys((*_DECISIVE, *TIMED)))


@dataclass(frozen=True)
class Job:
    """A part of a plan that one worker trains: the runs of one cell (task × mechanism), or of several similar cells.

    Several cells share a job only if they can be trained together, as one model (:attr:`Cell.program`). At most
    ``group_size`` runs are trained together. ``missing`` lists the runs without a row. It does not affect the groups,
    so a resumed command trains the same groups as an uninterrupted command.

    If the suite tunes learning rates, a job contains all runs of its cells. ``tuning_skills`` has the skill of each
    tuning run (a run for the choice of a learning rate) that has a row; None if the row has no score.
    """

    cells: tuple[Cell, ...]
    runs: tuple[Run, ...]
    missing: tuple[Run, ...]
    group_size: int
    tuning_skills: Mapping[Run, float | None] = field(default_factory=dict)

    @property
    def untuned(self) -> tuple[Run, ...]:
        """The tuning runs (those that serve to choose a learning rate) that have no row yet."""
        every = (run for cell in self.cells for run in cell.tuning_runs())
        return tuple(run for run in every if run not in self.tuning_skills)

    def with_rates(self, learning_rates: Mapping[Cell, float]) -> "Job":
        """Return a copy of the job in which each run has the learning rate chosen for its cell (task × mechanism)."""
        runs, missing = (
            tuple(replace(run, learning_rate=learning_rates[run.cell]) for run in some)
            for some in (self.runs, self.missing)
        )
        return replace(self, runs=runs, missing=missing)

    @property
    def groups(self) -> list[tuple[Run, ...]]:
        """The groups of runs that are trained together, as one model, and include at least one run of ``missing``."""
        missing = set(self.missing)
        starts = range(0, len(self.runs), self.group_size)
        groups = [self.runs[start : start + self.group_size] for start in starts]
        return [group for group in groups if not missing.isdisjoint(group)]

    @property
    def trained(self) -> list[Run]:
        """All runs that the job trains, including the tuning runs that have no row yet."""
        return [*self.untuned, *(run for group in self.groups for run in group)]


@dataclass(frozen=True, repr=False)
class Plan:
    """The jobs of a command, longest first, and how many rows are planned and already done."""

    jobs: tuple[Job, ...]
    num_planned: int
    num_done: int
    runs: Mapping[str, Run] = field(default_factory=dict)
    """All planned runs by run id, including those already done."""
    estimates: Estimates = field(default_factory=Estimates)
    """Estimates of how long runs take."""
    num_failed: int = 0
    """Number of rows without a score among those already done."""
    replaced: Mapping[str, datetime] = field(default_factory=dict)
    """Finishing times of the stored rows that are made again, by run id; the new rows must finish later to be used."""
    notices: tuple[str, ...] = ()
    """Remarks for the user before the first job, one sentence each."""

    def __repr__(self) -> str:
        return f"Plan({self.num_missing} of {self.num_planned} rows are missing, in {len(self.jobs)} jobs)"

    @property
    def num_missing(self) -> int:
        """Number of rows that are still to be written."""
        return self.num_planned - self.num_done

    @property
    def num_trainings(self) -> int:
        """Number of trainings in all jobs, including tuning runs."""
        return sum(len(job.trained) for job in self.jobs)


class Selected(NamedTuple):
    """A request's tasks, mechanisms and suite.

    The suite has the requested position encoding and block (the parts of a model's layer around the mechanism).
    """

    suite: Suite
    tasks: Selection
    mechanisms: Selection


@usual_settings("cpu")
def plan_request(request: Request, device: torch.device, selected: Selected | None = None) -> Plan:
    """Plan a request: list the runs that it asks for, and make jobs for the runs that have no row in the store yet.

    Args:
        request: What to run, and how.
        device: The device that will train the runs.
        selected: The result of :func:`select_components`; None to compute it here.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store exists and cannot be read.
    """
    if request.rerun not in RERUNS:
        raise UsageError(f"rerun is {request.rerun!r}; allowed: {', '.join(RERUNS)}")
    if request.group_size is not None and request.group_size < 1:
        raise UsageError(f"group size is {request.group_size}; allowed: 1 and more")
    cells, seeds = cells_and_seeds(request, device, selected)
    known = RUNS.empty_table().select(list(_READ))
    if request.results.joinpath("store.json").exists():
        # Rows are read, not only listed, so a damaged one is run again.
        known = Store.open(request.results, create=False).columns(_READ)
    stored = {row["run_id"]: row for row in known.select(list(_DECISIVE)).to_pylist()}
    sources = {(cell.code["task"], cell.code["mech"]) for cell in cells}
    done = {name: row["skill"] for name, row in stored.items() if _is_done(row, request, sources)}
    timed = known.select(list(TIMED))
    is_timed = device.type in timed["device_type"].to_pylist()
    plan = make_plan(
        cells,
        seeds,
        done,
        request.group_size,
        is_across_tasks=request.group_size is not None or device.type == "cuda",
        estimates=Estimates(timed.to_pandas()) if is_timed else _estimates_of(published()),
    )
    of_plan = [stored[name] for name in plan.runs if name in stored]
    rows = [row for row in of_plan if row["run_id"] in done]
    return replace(
        plan,
        num_failed=sum(row["status"] != "ok" for row in rows),
        replaced={row["run_id"]: row["finished_at"] for row in of_plan if row["run_id"] not in done},
        notices=tuple(_notices(request, plan, cells, rows)),
    )


@cache
def _estimates_of(packaged: Path) -> Estimates:
    """Make estimates from the rows that come with synthbench, once per process: reading them takes .3 s."""
    return Estimates(Store.open(packaged, create=False).columns(TIMED).to_pandas())


def count_status(request: Request, device: torch.device) -> list[dict[str, Any]]:
    """Count the done, failed and missing rows of a request, for each task category and then for all tasks together."""
    cells, seeds = cells_and_seeds(request, device)
    has_store = request.results.joinpath("store.json").exists()
    statuses = Store.open(request.results, create=False).statuses() if has_store else {}
    counts: dict[str, Counter[str]] = {}
    for cell in cells:
        ends = (statuses.get(run.run_id, "missing") for run in cell.runs(seeds))
        counts.setdefault(cell.task.category(), Counter()).update(ends)
    counts["all"] = sum(counts.values(), Counter())
    return [
        {
            "category": group,
            "planned": count.total(),
            "done": count["ok"],
            "failed": count.total() - count["ok"] - count["missing"],
            "missing": count["missing"],
        }
        for group, count in counts.items()
    ]


# The cells that a request names, without the rows that the store has.


def select_components(request: Request) -> Selected:
    """Load the plugins of a request and look up its suite, tasks and mechanisms.

    Tasks and mechanisms of installed packages are imported only if the request's names or patterns require it.

    Raises:
        UsageError: If a name or a suite is not allowed.
        ContractError: If a plugin cannot be loaded.
    """
    plugins.load(request.plugins)
    require_current(request.suite)
    suite = with_block_and_positions(
        load_suite(request.suite.removesuffix(EXTRA)),
        block=request.block,
        positions=request.positions,
        condition=request.condition,
    )
    if request.rates:
        suite = restrict_rates(suite, request.rates)
    tasks = select_tasks(suite, request.tasks)
    if request.suite.endswith(EXTRA) and (listed := [name for name in tasks if name in suite.tasks]):
        raise UsageError(
            f"task {listed[0]!r} is one of suite {suite.name!r}; allowed in {request.suite!r}: registered tasks that "
            f"{suite.name!r} does not list, named one by one"
        )
    return Selected(suite, tasks, select_mechanisms(suite, list(request.mechanisms) or [",".join(suite.mechanisms)]))


def cells_and_seeds(
    request: Request, device: torch.device, selected: Selected | None = None
) -> tuple[list[Cell], Sequence[int]]:
    """Return the cells (task × mechanism) that a request asks for, and the root seeds of their runs.

    The request may shorten the training, resize the models or select a part of the plan; the cells reflect this.

    Raises:
        UsageError: If a name, argument or value is not allowed.
    """
    suite, tasks, mechanisms = selected or select_components(request)
    if suite.ladder is not None and request.predictions is not None:
        raise UsageError(
            f"predictions is {str(request.predictions)!r}; allowed: none in suite {suite.name!r}, whose models are "
            "tested on many levels"
        )
    shorter = shorten(suite, steps=request.steps, limit=request.limit)
    cells = make_cells(shorter, tasks, mechanisms, device_type=device.type, is_full=shorter == suite)
    if suite.training.schedule == "geometric-curriculum":
        _require_phases(cells)
    if request.only is not None:
        cells = [cell for cell in cells if (cell.task_name, cell.mechanism_name) in request.only]
    if request.match is not None:
        cells = all_matched(cells, request.match)
    if request.shard is not None:
        cells = in_shard(cells, request.shard)
    return cells, list(request.seeds) or suite.seeds


def _is_done(row: Mapping[str, Any], request: Request, sources: Collection[tuple[str, str]]) -> bool:
    """Return whether a stored row is kept, so that its run is not trained again.

    ``sources`` holds the hashes of the installed code, as pairs (task, mechanism).
    """
    if request.rerun == "all" or (request.deterministic and not row["deterministic"]):
        return False
    if row["status"] == "ok":
        return True
    # A failure stands as long as the code that failed is installed: after a fix, the run gets another chance.
    source = row["task_code_hash"], row["mech_code_hash"]
    return request.rerun != "failed" and (source in sources or None in source)


def _notices(request: Request, plan: Plan, cells: Sequence[Cell], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield remarks for the user before the first job; ``rows`` are the planned rows that already have results."""
    extra = {cell.task_name: cell for cell in cells if cell.suite.name.endswith(EXTRA)}
    if extra:
        cell = next(iter(extra.values()))
        report = ["synthbench", "report", "--suite", cell.suite.name]
        if request.results != Request.results:
            report += ["--results", str(request.results)]
        shown = f"; `{shlex.join(report)}` shows them" if cell.is_full else ""  # no table shows shortened runs
        yield f"not in suite {cell.suite.name.removesuffix(EXTRA)!r}, so not in its tables: {', '.join(extra)}{shown}"
    scored = [row["run_id"] for row in rows if row["status"] == "ok"]
    if folder := request.predictions:
        lacking = sum(not predictions_file(folder, name).exists() for name in scored)
        if lacking:
            yield f"{lacking} of the rows already done have no predictions in {folder}; --rerun all makes them"
    if request.positions is not None:
        yield from dict.fromkeys(cell.note for cell in cells if cell.note is not None)
    others = Counter(row["suite"] for row in rows if row["suite"] != plan.runs[row["run_id"]].cell.suite.name)
    for name, count in sorted(others.items()):
        yield f"{count} of the rows already done are of suite {name!r}, which has the same protocol"
    if (warning := commit_warning()) is not None:
        yield warning
    if num_failed := len(rows) - len(scored):
        yield f"{num_failed} of the rows already done failed; --rerun failed makes them again"


def shorten(suite: Suite, *, steps: int | None, limit: int | None) -> Suite:
    """Return a copy of a suite with ``steps`` training steps, and at most ``limit`` sequences per evaluation.

    None keeps the suite's own number.

    Raises:
        UsageError: If ``steps`` or ``limit`` is below 1 or above ``LARGEST``.
    """
    for name, value in (("steps", steps), ("limit", limit)):
        if value is not None and not 1 <= value <= LARGEST:
            raise UsageError(f"{name} is {value}; allowed: 1 to {LARGEST}")
    training, evaluation = suite.training, suite.evaluation
    if steps is not None:
        fewer = {"steps": steps}
        if training.warmup_steps is not None:
            fewer["warmup_steps"] = min(training.warmup_steps, max(1, steps // 10))
        if training.decay_steps is not None:
            fewer["decay_steps"] = min(training.decay_steps, max(1, steps // 3))
        training = training.model_copy(update=fewer)
    if limit is not None:
        sizes = {name: getattr(evaluation, name) for name in _SEQUENCES}
        evaluation = evaluation.model_copy(update={name: size and min(limit, size) for name, size in sizes.items()})
    return suite.model_copy(update={"training": training, "evaluation": evaluation})


def with_block_and_positions(
    suite: Suite, *, block: str | None, positions: str | None, condition: str | None = None
) -> Suite:
    """Return a copy of a suite with another block, position encoding or condition; None keeps the suite's own.

    The condition is ``stock`` (layers as their authors build them) or ``bare`` (only the recurrence or the attention
    scores). If ``condition`` is given for an older suite that has none, each mechanism gets its authors' position
    encoding, unless ``positions`` is given too.

    Raises:
        UnknownName: If the condition does not exist.
    """
    if condition is not None and condition not in (*CONDITIONS, suite.condition):
        raise UnknownName("condition", condition, dict.fromkeys((*CONDITIONS, suite.condition)))
    if condition not in (None, suite.condition) and suite.condition == BEFORE and positions is None:
        positions = OWN
    changes = {name: term for name, term in (("block", block), ("positions", positions)) if term is not None}
    return suite.model_copy(
        update={"model": suite.model.model_copy(update=changes), "condition": condition or suite.condition}
    )


def restrict_rates(suite: Suite, rates: Sequence[float]) -> Suite:
    """Return a copy of a suite that trains with only some of its learning rates; runs with these rates keep their ids.

    Raises:
        UsageError: If the suite lacks one of the rates, or if a rate appears twice. It is also raised if the suite
            tunes its rates: each id then depends on all rates.
    """
    if suite.tuning is not None:
        raise UsageError(
            f"rates are {_listed(rates)}; allowed: none in suite {suite.name!r}, which tunes over all of its rates"
        )
    tried = suite.training.learning_rates
    if unknown := [rate for rate in rates if rate not in tried]:
        raise UsageError(f"a rate is {unknown[0]!r}; allowed in suite {suite.name!r}: {_listed(tried)}")
    if len(set(rates)) < len(rates):
        raise UsageError(f"rates are {_listed(rates)}; allowed: each once")
    some = tuple(rate for rate in tried if rate in rates)
    return suite.model_copy(update={"training": suite.training.model_copy(update={"learning_rates": some})})


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(map(str, rates))


def select_tasks(suite: Suite, expressions: Sequence[str]) -> Selection:
    """Select tasks by expressions, such as a name, or ``@category`` for all tasks of a category.

    Tasks of the suite come first. Other tasks are selected only by their exact names. An installed package is imported
    only if one of its tasks is named.
    """
    unlisted = [name for name in TASKS if name not in suite.tasks]
    return select("task", expressions, list(suite.tasks), lambda name: TASKS[name].category(), unlisted=unlisted)


def select_mechanisms(suite: Suite, expressions: Sequence[str]) -> Selection:
    """Select mechanisms by name, by pattern, ``@family`` for a family, or ``all``.

    Installed packages are imported only if one of their mechanisms is named, or if a pattern, a family or ``all`` is
    given. In the latter three cases, mechanisms that cannot be imported are skipped.
    """
    terms, named = _registered(expressions)
    broken = set[str]()
    if not named <= set(MECHANISMS):
        every_broken = MECHANISMS.broken().keys()
        terms, named = _registered(expressions)  # an imported package adds the labels of its mechanisms
        broken = every_broken - named
    hybrids = sorted(name for name in named if "+" in name and name in MECHANISMS)
    names = [*suite.mechanisms, *(name for name in MECHANISMS if name not in {*suite.mechanisms, *broken}), *hybrids]
    return select("mechanism", terms, names, lambda name: MECHANISMS[name].family)


def _registered(expressions: Sequence[str]) -> tuple[list[str], set[str]]:
    """Split expressions into terms such as ``slay:P=8``, and replace labels by registered names.

    Return the terms, and the set of names in them.
    """
    terms = [registered(term, MECHANISMS.resolve) for text in expressions for term in split_terms(text)]
    return terms, {parse_term(term.removeprefix("!"))[0] for term in terms}


def make_cells(suite: Suite, tasks: Selection, mechanisms: Selection, *, device_type: str, is_full: bool) -> list[Cell]:
    """Make one cell per pair of task and mechanism; options from the command line override the options of the suite.

    If tasks are not listed in the suite, their cells belong to a copy of the suite that lists only these tasks
    (:func:`~synthbench.suites.with_tasks`).

    Raises:
        UnknownName: If a task, a block, a position encoding or an option does not exist.
        UsageError: If a value is out of range, or a task cannot draw sequences of its length. Also if a task is scored
            in bits, not by skill, but the suite chooses learning rates by skill.
    """
    if suite.tuning is not None and (in_bits := [name for name in tasks if TASKS[name].measure == "bits"]):
        raise UsageError(
            f"task {in_bits[0]!r} is scored in bits, and suite {suite.name!r} chooses learning rates by skill; "
            "allowed: a suite without tuning, such as 'text'"
        )
    sizes = {name: sized_in(suite, name, given) for name, given in tasks.items()}
    extra = with_tasks(suite, {name: given for name, given in tasks.items() if name not in suite.tasks})
    cells = [
        Cell(
            suite=extra if task in extra.tasks else suite,
            task_name=task,
            length=length,
            task_arguments=task_arguments,
            mechanism_name=mechanism,
            mechanism_arguments=coerce("mechanism", MECHANISMS[mechanism], options_in(suite, mechanism) | given),
            device_type=device_type,
            is_full=is_full,
        )
        for task, (length, task_arguments) in sizes.items()
        for mechanism, given in mechanisms.items()
    ]
    for cell in {cell.mechanism_name: cell for cell in cells}.values():
        cell.model(torch.Generator())  # what cannot be built is refused before anything is trained
    return cells


def _require_phases(cells: Sequence[Cell]) -> None:
    """Refuse mechanisms that do not have several geometries, for a suite with a curriculum.

    The curriculum adds a mechanism's geometries one after another in training.

    Raises:
        UsageError: If a mechanism does not have several geometries.
    """
    for cell in cells:
        if not _has_phases(cell):
            built_in = [name for name in MECHANISMS if MECHANISMS.is_built_in(name)]
            others = {name: replace(cell, mechanism_name=name, mechanism_arguments={}) for name in built_in}
            allowed = ", ".join(name for name, other in others.items() if _has_phases(other))
            raise UsageError(
                f"mechanism {cell.mechanism_name!r} does not have several geometries, which the curriculum of suite "
                f"{cell.suite.name!r} adds one after another; allowed: {allowed}"
            )


def _has_phases(cell: Cell) -> bool:
    return any(layer.mixer.has_phases for layer in cell.model(torch.Generator()).layers)


def options_in(suite: Suite, mechanism: str) -> dict[str, Any]:
    """Return the options that a suite sets for a mechanism, by its condition or in its list of mechanisms.

    The condition is ``stock`` (layers as their authors build them) or ``bare`` (only the recurrence or the attention
    scores). The list has priority over the condition.
    """
    return condition_options(MECHANISMS[mechanism], suite.condition) | options_of(mechanism, suite.mechanisms)


def in_shard(cells: Sequence[Cell], shard: str) -> list[Cell]:
    """Select the cells (task × mechanism) of one part of the plan; ``shard`` names it: ``2/3`` is the second of three.

    Each cell is in exactly one part, with all its runs, since these are trained together. The part of a cell does not
    depend on seeds or on finished rows.

    Raises:
        UsageError: If the text is malformed, or there is no such part.
    """
    part, slash, parts = shard.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise UsageError(f"shard is {shard!r}; allowed: i/n with i from 1 to n, as in 2/3")
    return [cell for cell in cells if int(cell.runs([0])[0].run_id, 16) % int(parts) == int(part) - 1]


def make_plan(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    done: Mapping[str, float | None],
    group_size: int | None = None,
    *,
    is_across_tasks: bool = False,
    estimates: Estimates | None = None,
) -> Plan:
    """Group the runs of cells into jobs, each for one worker; jobs whose runs all have rows are left out.

    The jobs that take longest come first, so that no long job starts near the end.

    Args:
        cells: Cells (task × mechanism) to train.
        seeds: Root seeds. A cell has one run per seed and learning rate; if the suite tunes learning rates, it has one
            run per seed.
        done: Skill of each run that is already done, by run id; None for a run without skill.
        group_size: Limit on the number of runs that are trained together, as one model. Default:
            :func:`default_group_size`.
        is_across_tasks: True if runs of several cells may be trained together, provided that all of them fit into one
            group.
        estimates: Estimates of the times of runs; None to compare amounts of work.

    Raises:
        UsageError: If the suite uses one of the seeds to tune learning rates.
    """
    estimates = estimates or Estimates()
    ids: dict[Cell, dict[Run, str]] = {}
    for cell in cells:
        if cell.suite.tuning is not None and (shared := set(seeds) & set(cell.suite.tuning.seeds)):
            raise UsageError(f"seed {min(shared)} is one that suite {cell.suite.name!r} tunes on; allowed: any other")
        ids[cell] = {run: run.run_id for run in cell.runs(seeds)}
    planned = {run_id: run for of_cell in ids.values() for run, run_id in of_cell.items()}
    jobs: list[Job] = []
    for together in _sharing(ids, group_size) if is_across_tasks else [[cell] for cell in cells]:
        run_ids = {run: run_id for cell in together for run, run_id in ids[cell].items()}
        runs, size = tuple(run_ids), group_size or default_group_size(together[0])
        tuning_ids = {run: run.run_id for cell in together for run in cell.tuning_runs()}
        skills = {run: done[run_id] for run, run_id in tuning_ids.items() if run_id in done}
        in_job = len(runs) if tuning_ids else size  # all runs of a cell that tunes, as its rate is chosen once
        for start in range(0, len(runs), in_job):
            of_job = runs[start : start + in_job]
            if missing := tuple(run for run in of_job if run_ids[run] not in done):
                jobs.append(Job(tuple(together), of_job, missing, size, skills))
    cost = {cell: estimates.cost(cell) for cell in cells}
    jobs.sort(key=lambda job: -sum(cost[run.cell] for run in job.trained))  # equal ones stay in the suite's order
    num_missing = sum(len(job.missing) for job in jobs)
    return Plan(tuple(jobs), len(planned), len(planned) - num_missing, planned, estimates)


def default_group_size(cell: Cell) -> int:
    """Return the limit on runs that are trained together; it depends only on device type and tokens per step."""
    if cell.device_type == "cuda":
        return GPU_GROUP_SIZE
    ladder = cell.suite.ladder
    tokens = cell.suite.training.batch_size * cell.length if ladder is None else ladder.batch_tokens
    return max(1, TOKENS_AT_ONCE["cpu"] // tokens)


def _sharing(ids: Mapping[Cell, Mapping[Run, str]], group_size: int | None) -> list[list[Cell]]:
    """Group cells (task × mechanism) that can train as one program.

    A group has at most ``group_size`` runs, unless its only cell has more; None means the result of
    :func:`default_group_size`.
    """
    groups: list[list[Cell]] = []
    open_groups: dict[str, tuple[list[Cell], int]] = {}
    for cell, runs in ids.items():
        group, count = open_groups.get(cell.program, ([], 0))
        if not group or count + len(runs) > (group_size or default_group_size(cell)):
            group, count = [], 0
            groups.append(group)
        group.append(cell)
        open_groups[cell.program] = group, count + len(runs)
    return groups
