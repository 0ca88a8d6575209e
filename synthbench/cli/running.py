"""``synthbench run`` and ``synthbench status``: train the missing runs, or count them."""

import heapq
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from synthbench import plugins
from synthbench.cli import options
from synthbench.cli.output import about, is_verbose, note, print_facts, say, width_of_stdout
from synthbench.errors import UsageError
from synthbench.options import RUN_SUITE, parse_rates, parse_seeds, parse_term
from synthbench.process import end_at_once

if TYPE_CHECKING:
    from synthbench.runner.plan import Plan
    from synthbench.runner.request import Request
    from synthbench.runner.run import Prepared, RunReport

INTERRUPTED = 130


@dataclass(frozen=True)
class Selection:
    """Command-line options that select the runs and the folder of their rows.

    Most of the options are fields of a ``Request``.
    """

    tasks: options.TaskTerms = None
    mechanisms: options.MechanismTerms = None
    suite: options.SuiteName = RUN_SUITE
    seeds: options.Seeds = None
    rates: Annotated[
        str | None,
        options.selecting(help="Learning rates, some of the suite's: 1e-2, or 3e-3,3e-2. Default: all of them."),
    ] = None
    block: options.BlockTerm = None
    conv: Annotated[
        int | None,
        options.modelling(
            help="Add a short causal convolution over this many tokens, such as 4, to each mechanism's input. "
            "--block NAME:conv=4,conv_on=qkv adds it to queries, keys and values."
        ),
    ] = None
    gate: Annotated[
        bool, options.modelling("--gate", help="Multiply each mechanism's output by a sigmoid of its input.")
    ] = False
    positions: options.PositionsTerm = None
    condition: options.Condition = None
    match: Annotated[
        str | None,
        options.modelling(
            help="params or state: rescale each mechanism to the parameters or the state of the suite's first; "
            "state=4096 sets the number."
        ),
    ] = None
    device: options.Device = "auto"
    results: options.Results = Path("results")
    shard: Annotated[
        str | None,
        options.selecting(help="2/3: run the second of three parts of the plan, to share it between machines."),
    ] = None
    plugins: options.Plugins = None

    def request(self) -> "Request":
        """Build a request from these options."""
        from synthbench.runner.request import Request

        given = vars(self) | {
            "tasks": tuple(self.tasks or ["all"]),
            "mechanisms": tuple(self.mechanisms or ()),
            "seeds": parse_seeds(self.seeds) if self.seeds is not None else (),
            "rates": parse_rates(self.rates) if self.rates is not None else (),
            "block": self._around(),
            "plugins": plugins.named(self.plugins),
        }
        return Request(**{name: given[name] for name in given.keys() - {"conv", "gate"}})

    def _around(self) -> str | None:
        """Return the block (the layers around a mechanism) with the requested convolution and gate, as text.

        None means the suite's block without changes.

        Raises:
            UsageError: If the block already sets the convolution or the gate.
        """
        from synthbench.suites import EXTRA, load_suite

        added = {"conv": self.conv, "gate": "true" if self.gate else None}
        block = self.block
        for name, value in added.items():
            if value is not None:
                block = block or load_suite(self.suite.removesuffix(EXTRA)).model.block
                if name in parse_term(block)[1]:
                    raise UsageError(f"{name} is given twice, by --{name} and in --block {block}; allowed: once")
                block += f"{',' if ':' in block else ':'}{name}={value}"
        return block


@dataclass(frozen=True)
class RunOptions(Selection):
    """Command-line options that select the runs, and options on how to train them."""

    steps: Annotated[
        int | None, options.executing(help="Train for fewer steps. The rows are marked and enter no report.")
    ] = None
    limit: Annotated[
        int | None, options.executing(help="Evaluate on fewer sequences. The rows are marked and enter no report.")
    ] = None
    executor: options.ExecutorName = "auto"
    address: Annotated[
        str | None,
        options.executing(
            help="With ray: host:port of a running cluster, or auto. Default: start one here. "
            "With slurm: local runs the jobs on this machine, as a trial."
        ),
    ] = None
    workers: options.Workers = None
    per_gpu: Annotated[
        int | None, options.executing(help="Worker processes per GPU, each with its share of the memory. Default: 1.")
    ] = None
    timeout_s: Annotated[
        float | None, options.executing("--timeout", help="Seconds after which a worker's job is killed.")
    ] = None
    group_size: Annotated[
        int | None,
        options.executing(
            "--batched",
            help="Runs to train in one program (seeds, rates, tasks of equal length). Default: by length and device.",
        ),
    ] = None
    rerun: Annotated[str, options.executing(help="Finished runs to repeat: none, failed or all.")] = "none"
    predictions: Annotated[
        Path | None,
        options.printing(
            help="Folder for every trained model's predictions on the main test, RUN_ID.npz. Finished runs write none; "
            "--rerun all repeats them."
        ),
    ] = None
    deterministic: Annotated[
        bool,
        options.executing(
            "--deterministic", help="Use only deterministic algorithms; repeat the runs that were made without them."
        ),
    ] = False


@options.takes(RunOptions)
def run(
    asked: RunOptions,
    until_decided: Annotated[
        bool,
        options.executing(
            "--until-decided",
            help="On a ladder, add seeds (to 5, then to 10) until every pair of mechanisms is shown to differ by half "
            "a level or more, or by less.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, options.executing("--dry-run", help="Run nothing; print the missing runs and how long they would take.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Run every combination of task, mechanism and seed that has no stored result, then print the skills.

    A skill is a score rescaled to 0 at the floor and 1 at the ceiling. Finished runs are skipped; run the same command
    again to resume.
    """
    request = asked.request()
    if until_decided:
        from synthbench.cli.sequential import require_decidable

        require_decidable(request)
    if dry_run:
        _print_plan(request, until_decided=until_decided, as_json=as_json)
        return
    done = (_run_until_decided if until_decided else run_with_progress)(request)
    note(
        f"{len(done.outcomes)} rows written to {request.results} in {done.wall_s:.1f} s, "
        f"{done.num_done_before} already done, {len(done.failed)} failed"
    )
    if as_json:
        outcomes = [vars(outcome) for outcome in done.outcomes]
        say(json.dumps({"planned": done.num_planned, "done_before": done.num_done_before, "rows": outcomes}))
    elif done.num_planned:
        from synthbench.cli.scores import report_command, skill_table

        say(skill_table(done.results, done.runs, width_of_stdout()))
        command = report_command(done.results, done.runs)
        note("No report shows these rows: --steps and --limit shorten runs." if command is None else f"Next: {command}")
    if done.is_interrupted:
        say("interrupted; finished runs are kept, the same command runs the rest", err=True)
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if done.ok else 1)


@options.takes(Selection)
def status(asked: Selection, as_json: options.AsJson = False) -> None:
    """Count finished, failed and missing runs by category of the task.

    If you pass --results, that folder must contain a results store. The default folder need not contain one.
    """
    from synthbench.results import Store
    from synthbench.runner.plan import count_status
    from synthbench.runner.run import device_of

    request = asked.request()
    if request.results != Selection.results:
        Store.open(request.results, create=False)
    facts = count_status(request, device_of(request))
    print_facts(facts, list(facts[0]), as_json=as_json)


def _print_plan(request: "Request", *, until_decided: bool, as_json: bool) -> None:
    from synthbench.cli.sequential import prepare_analysis
    from synthbench.runner.run import prepare

    prepared = prepare_analysis(request) if until_decided else prepare(request)
    if as_json:
        say(json.dumps(plan_facts(prepared)))
        return
    for notice in prepared.plan.notices:
        say(notice, err=True)
    for line in missing_rows(prepared.plan) if is_verbose() else missing_cells(prepared.plan):
        say(line)
    say(forecast(prepared))


def missing_cells(plan: "Plan") -> Iterator[str]:
    """Yield one line for each task and mechanism that lacks rows: ``copy  slay  seeds 42, 43``."""
    seeds: dict[tuple[str, str], dict[int, None]] = {}
    for run in (run for job in plan.jobs for run in job.missing):
        seeds.setdefault((run.cell.task_name, run.cell.mechanism_name), {})[run.seed] = None
    for (task, mechanism), cell_seeds in seeds.items():
        word = "seed" if len(cell_seeds) == 1 else "seeds"
        yield f"{task}  {mechanism}  {word} {', '.join(map(str, cell_seeds))}"


def missing_rows(plan: "Plan") -> Iterator[str]:
    """Yield one line for each missing row of results, beginning with its id."""
    for fact in row_facts(plan):
        yield "  ".join("tuned" if value is None else str(value) for value in fact.values())


def row_facts(plan: "Plan") -> list[dict[str, Any]]:
    """Describe each missing row by its id, task, mechanism, seed and learning rate."""
    return [
        {
            "run_id": run.run_id,
            "task": run.cell.task_name,
            "mechanism": run.cell.mechanism_name,
            "seed": run.seed,
            "learning_rate": run.learning_rate,
        }
        for job in plan.jobs
        for run in job.missing
    ]


def plan_facts(prepared: "Prepared") -> dict[str, Any]:
    """Return a plan as values for JSON; ``seconds`` is null if the time is unknown."""
    plan = prepared.plan
    suite = plan.jobs[0].cells[0].suite.model_dump(mode="json") if plan.jobs else None
    return {
        "planned": plan.num_planned,
        "done": plan.num_done,
        "missing": row_facts(plan),
        "trainings": plan.num_trainings,
        "seconds": expected_s(plan, prepared.executor.num_workers),
        "executor": prepared.executor.name,
        "workers": prepared.executor.num_workers,
        "suite": suite,
    }


def forecast(prepared: "Prepared") -> str:
    """Summarise a plan: ``24 runs to do, 0 already done: 24 trainings, about 2 min on 2 workers``."""
    from synthbench.cli.progress import to_do, workers_of

    plan, executor = prepared.plan, prepared.executor
    there = f"{to_do(plan)}, {plan.num_done} already done"
    if not plan.num_missing:
        return there
    expected = expected_s(plan, executor.num_workers)
    trainings = f"{plan.num_trainings} training{'' if plan.num_trainings == 1 else 's'}"
    where = "in this process" if executor.name == "inline" else f"on {workers_of(executor)}"
    if expected is not None:
        return f"{there}: {trainings}, {about(expected)} {where}"
    untimed = f"no rows of device {prepared.device.type} in {prepared.request.results} yet"
    return f"{there}: {trainings} {where}; time unknown: {untimed}"


def expected_s(plan: "Plan", num_workers: int | None) -> float | None:
    """Estimate the seconds until all jobs (groups of runs) end, if each worker takes a new job as soon as it is free.

    The result is None if the expected time of any job is unknown.
    """
    free_at = [0.0] * (num_workers or 1)
    for job in plan.jobs:
        shares = [plan.estimates.seconds(run.cell) for run in job.trained]
        known = [share for share in shares if share is not None]
        if len(known) < len(shares):
            return None
        heapq.heapreplace(free_at, free_at[0] + sum(known))
    return max(free_at)


def _run_until_decided(request: "Request") -> "RunReport":
    """Run the request's seeds, then add seeds until every pair of mechanisms is decided.

    After each addition, an interim analysis tests which pairs are decided. No seeds are added after the last analysis.
    """
    from synthbench.cli.sequential import analyse

    done = run_with_progress(request)
    for number in count():
        if done.is_interrupted:
            break
        analysed = analyse(request, done.runs, number)
        note(analysed.words)
        if analysed.further is None:
            break
        done = done.followed_by(run_with_progress(analysed.further))
    return done


def run_with_progress(request: "Request") -> "RunReport":
    """Train the missing runs, with progress and failures on stderr; after Ctrl-C, finish only the running jobs."""
    from synthbench.cli.progress import Progress
    from synthbench.runner.run import run as run_request

    stop = threading.Event()
    # Ray writes messages about its workers to stdout, which is reserved for results.
    with (
        _interruptible(stop),
        Progress() as progress,
        redirect_stdout(sys.stderr),
    ):
        done = run_request(request, on_plan=progress.begin, on_outcome=progress.advance, is_stopped=stop.is_set)
    for outcome in done.failed:
        if is_verbose() and outcome.trace is not None:
            say(outcome.trace, nl=False, err=True)
        where = f"{outcome.task} {outcome.mechanism} seed {outcome.seed}"
        say(f"{outcome.status}: {where}: {outcome.message}", err=True)
    return done


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Let the running jobs finish at the first Ctrl-C; stop at once at the second."""

    def interrupt(_number: int, _frame: object) -> None:
        if stop.is_set():
            end_at_once(INTERRUPTED)
        stop.set()
        with suppress(OSError):  # of a reader that Ctrl-C has ended, such as tee
            # A signal may arrive during a print, when stderr refuses another print.
            os.write(2, b"finishing the running jobs; Ctrl-C again stops at once\n")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
