"""What a large sweep asks of the scheduler: seconds to plan and to resume it, and how long it would then take.

How long is simulated. Jobs take what measured ones took; the scheduler knows of half of the cells what other seeds
took, and of the other half only what their kin took.

    python -m benchmarks.plan --help
"""

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
import typer

from benchmarks.script import make_app, run
from synthbench.cli.options import AsJson, Results, parse_lengths
from synthbench.cli.output import print_facts
from synthbench.errors import UsageError
from synthbench.results import Store
from synthbench.results.schema import RUNS, row_sha256
from synthbench.runner.estimates import KINSHIPS, TIMED, Estimates
from synthbench.runner.plan import Plan, plan_request
from synthbench.runner.request import Request

app = make_app()

SUITE = "paper"
MECHANISMS = ("all",)
DEVICE = torch.device("cpu")
NUM_LEFT = 100
"""Rows that a sweep still lacks when it is resumed."""

FACTS = ("what", "jobs", "seconds", "cpu_seconds", "workers", "order", "seconds/bound")
"""``cpu_seconds`` are those of this process alone, whatever else the machine does."""

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def measure(store: Store, *, num_jobs: int, num_workers: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """Plan a sweep, resume it, then simulate it in several orders on several numbers of workers.

    Args:
        store: Rows whose seconds are drawn.
        num_jobs: Of the sweep; the one that is planned is larger by what it lacks to whole seeds.
        num_workers: Workers that the jobs are dealt to.
        seed: Of what is drawn.

    Raises:
        UsageError: If the store has too few rows to draw from.
    """
    rng = np.random.default_rng(seed)
    estimated, guessed, taken = draw(store.runs(), num_jobs, rng)
    for known in planning(store, num_jobs):
        yield dict.fromkeys(FACTS) | known
    orders = {
        "longest first": np.argsort(-estimated, kind="stable"),
        "longest first by a guess": np.argsort(-guessed, kind="stable"),
        "shuffled": rng.permutation(num_jobs),
        "shortest first": np.argsort(estimated, kind="stable"),
    }
    for workers in num_workers:
        for order, places in orders.items():
            seconds = makespan(taken[places], workers)
            ratio = seconds / lower_bound(taken, workers)
            known = {"what": "sweep", "jobs": num_jobs, "seconds": seconds, "workers": workers, "order": order}
            yield dict.fromkeys(FACTS) | known | {"seconds/bound": ratio}


def draw(rows: pd.DataFrame, num_jobs: int, rng: np.random.Generator) -> tuple[Numbers, Numbers, Numbers]:
    """Jobs of one member, drawn from measured ones: seconds as estimated, work as guessed, seconds as taken.

    Estimates rest on half of the seeds of half of the cells; jobs are drawn from all other rows.

    Raises:
        UsageError: If there are too few rows.
    """
    trained = rows[rows["status"].isin(("ok", "diverged"))]
    cells = trained.groupby(list(KINSHIPS[0])).ngroup().to_numpy()
    if len(np.unique(cells)) < 2:
        raise UsageError(f"the store has trained rows of {len(np.unique(cells))} cells; allowed: 2 and more")
    is_known = (rng.permutation(cells.max() + 1) % 2 == 0)[cells] & (trained["seed"].to_numpy() % 2 == 0)
    estimates, guesses = Estimates(trained.loc[is_known, list(TIMED)]), Estimates()
    others = trained[~is_known]
    traits = others[list(TIMED)].to_dict("records")
    estimated, guessed = (np.array([source.cost(one) for one in traits]) for source in (estimates, guesses))
    chosen = rng.integers(len(others), size=num_jobs)
    return estimated[chosen], guessed[chosen], (others["wall_s"] / others["ensemble_size"]).to_numpy()[chosen]


def makespan(seconds: Sequence[float] | Numbers, num_workers: int) -> float:
    """Seconds until the last of some jobs ends, each begun in its turn by the first worker that is free.

    >>> makespan([3.0, 2.0, 2.0], 2), makespan([2.0, 2.0, 3.0], 2)
    (4.0, 5.0)
    """
    free_at = [0.0] * num_workers
    for taken in seconds:
        heapq.heapreplace(free_at, free_at[0] + taken)
    return max(free_at)


def lower_bound(seconds: Sequence[float] | Numbers, num_workers: int) -> float:
    """Seconds that no order beats: an even share of all, or the longest job.

    >>> lower_bound([3.0, 2.0, 2.0], 2), lower_bound([9.0, 2.0, 2.0], 2)
    (3.5, 9.0)
    """
    return float(max(sum(seconds) / num_workers, *seconds))


def planning(store: Store, num_jobs: int) -> Iterator[dict[str, Any]]:
    """Seconds to plan a sweep, and to plan it again when most rows are there.

    The rows are copies of the store's, named as the plan names them.
    """
    with TemporaryDirectory(prefix="synthbench-bench-") as folder:
        request = Request(suite=SUITE, mechanisms=MECHANISMS, seeds=(0,), group_size=1, results=Path(folder))
        num_cells = plan_request(request, DEVICE).num_planned
        request = replace(request, seeds=range(-(-num_jobs // num_cells)))
        plan, times = _timed(request)
        yield {"what": "plan", "jobs": len(plan.jobs), **times}
        sweep = Store.open(request.results, create=True)
        sweep.folder.commit_compact("runs", copies(store.table().to_pylist(), plan.run_ids[NUM_LEFT:]))
        plan, times = _timed(request)
        yield {"what": "resume", "jobs": plan.num_planned, **times}


def _timed(request: Request) -> tuple[Plan, dict[str, float]]:
    began, cpu_began = time.perf_counter(), time.process_time()
    plan = plan_request(request, DEVICE)
    return plan, {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu_began}


def copies(rows: Sequence[dict[str, Any]], run_ids: Sequence[str]) -> pa.Table:
    """A row for each name, copied from some rows in turn; without curves."""
    copied = [
        {**row, "run_id": run_id, "curve_sha256": None, "verified_by": None}
        for row, run_id in zip(cycle(rows), run_ids, strict=False)
    ]
    return pa.Table.from_pylist([{**row, "row_sha256": row_sha256(row)} for row in copied], schema=RUNS)


@app.command()
def main(
    jobs: Annotated[int, typer.Option(help="Jobs of the sweep.", min=1)] = 100_000,
    workers: Annotated[str, typer.Option(help="Numbers of workers, a comma list.")] = "2,8,64,256,1024",
    seed: Annotated[int, typer.Option(help="Of the jobs that are drawn.", min=0)] = 0,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Plan and resume a large sweep, and simulate it with the seconds of a store's rows, in several orders."""
    store = Store.open(results, create=False)
    facts = list(measure(store, num_jobs=jobs, num_workers=parse_lengths(workers), seed=seed))
    print_facts(facts, list(facts[0]), as_json=as_json)


if __name__ == "__main__":
    run(app)
