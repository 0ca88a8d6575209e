"""What an executor costs: until its first row, and for every job beyond the seconds that the job itself takes.

python -m benchmarks.executors --help
"""

import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.script import make_app, run
from synthbench.bench.instruments import as_in_a_worker
from synthbench.cli.options import AsJson
from synthbench.cli.output import print_facts
from synthbench.errors import UnknownName, UsageError
from synthbench.results import Store
from synthbench.runner.environment import resolve_device, usable_cores
from synthbench.runner.executors.choice import make_executor
from synthbench.runner.plan import plan_request
from synthbench.runner.request import Request
from synthbench.runner.worker import RunContext

app = make_app()

EXECUTORS = ("inline", "pool", "ray")
"""Those whose driver hears of every job as it ends."""

TINY = Request(
    suite="smoke", tasks=("copy:length=8",), mechanisms=("mean",), steps=1, limit=8, device="cpu", group_size=1
)
"""A row of it takes milliseconds."""


@dataclass(frozen=True)
class Run:
    """One run of the plan: seconds from its start to the end of every job, and seconds that each took by itself."""

    ends_s: Sequence[float]
    jobs_s: Sequence[float]
    num_workers: int

    def rate(self) -> float:
        """Jobs a second once every worker has had its first two: starting up is told apart."""
        warm = min(2 * self.num_workers, len(self.ends_s) - 2)
        return (len(self.ends_s) - 1 - warm) / (self.ends_s[-1] - self.ends_s[warm])

    def startup_s(self) -> float:
        """Seconds until the first job began."""
        return max(0.0, self.ends_s[0] - self.jobs_s[0])

    def overhead_s(self) -> float:
        """Seconds of a worker that go with a job and are not the job's own."""
        return self.num_workers / self.rate() - median(self.jobs_s)


def measure(names: Sequence[str], *, num_jobs: int, num_workers: int | None, num_repeats: int) -> list[dict[str, Any]]:
    """Start-up, throughput and overhead of executors on the same plan of tiny jobs, medians of some repeats.

    The executors take turns.

    Args:
        names: Executors; empty for ``inline``, ``pool`` and, where it is installed, ``ray``.
        num_jobs: Jobs of one row each.
        num_workers: Jobs at once, but for ``inline``; None for one a core.
        num_repeats: Runs of the plan with each.

    Raises:
        UnknownName: If a name is not that of an executor.
        UsageError: If the package of one is not installed, or there are too few jobs.
    """
    if num_jobs < 3:
        raise UsageError(f"jobs is {num_jobs}; allowed: 3 and more")
    for name in names:
        if name not in EXECUTORS:
            raise UnknownName("executor", name, EXECUTORS)
    chosen = names or [name for name in EXECUTORS if name != "ray" or find_spec("ray")]
    num_workers = num_workers or usable_cores()
    runs: dict[str, list[Run]] = {name: [] for name in chosen}
    with as_in_a_worker():
        for _ in range(num_repeats):
            for name in chosen:
                runs[name].append(_run(name, num_jobs, num_workers))
    return [_facts(name, runs[name]) for name in chosen]


def _run(name: str, num_jobs: int, num_workers: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="synthbench-bench-") as folder:
        request = replace(
            TINY,
            results=Path(folder),
            seeds=range(num_jobs),
            executor=name,
            workers=None if name == "inline" else num_workers,
        )
        device = resolve_device(request.device)
        plan = plan_request(request, device)
        executor = make_executor(request, plan, device)
        Store.open(request.results, create=True)
        context = RunContext(request.results, str(device), name, planned_at=time.time())
        began = time.perf_counter()
        ends_s, jobs_s = [], []
        for event in executor.run(plan.jobs, context, threading.Event()):
            ends_s.append(time.perf_counter() - began)
            jobs_s.append(sum(outcome.share_s for outcome in event.outcomes))
        return Run(ends_s, jobs_s, executor.num_workers or 1)


def _facts(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "executor": name,
        "workers": runs[0].num_workers,
        "jobs": len(runs[0].ends_s),
        "repeats": len(runs),
        "startup_s": median(map(Run.startup_s, runs)),
        "jobs_per_s": median(map(Run.rate, runs)),
        "job_ms": median(median(run.jobs_s) for run in runs) * 1e3,
        "overhead_ms": median(map(Run.overhead_s, runs)) * 1e3,
    }


@app.command()
def main(
    executor: Annotated[list[str] | None, typer.Option(help="inline, pool or ray; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(help="Jobs of one run.", min=3)] = 100,
    workers: Annotated[int | None, typer.Option(help="Jobs at once; one a core if left out.", min=1)] = None,
    repeats: Annotated[int, typer.Option(help="Runs with each executor; the median counts.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Time tiny jobs with every executor: until the first begins, jobs a second, and what each costs beyond itself."""
    facts = measure(executor or [], num_jobs=jobs, num_workers=workers, num_repeats=repeats)
    print_facts(facts, list(facts[0]), as_json=as_json)


if __name__ == "__main__":
    run(app)
