"""Report which runs of a list are done or missing, and how many core-hours remain on one class of machines.

``python studies/launch/launch.py studies/launch/stock.toml`` reads a TOML file whose tables ``[[runs]]`` have the
fields of a :class:`~synthbench.runner.request.Request` (suite, tasks, mechanisms, condition, seeds). It starts nothing.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from synthbench.cli.output import about
from synthbench.reports.render.markdown import plain_table
from synthbench.results import Store
from synthbench.runner.environment import hardware, software, usable_cores
from synthbench.runner.estimates import COST_KEYS, TIMED, Estimates, cost_columns
from synthbench.runner.plan import Plan, plan_request
from synthbench.runner.request import Request
from synthbench.runner.run import device_of

HOST = ["device_name", "host_hash"]
"""Columns that name a class of machines. Times of two classes are never mixed."""
FEWEST = 100
"""Least number of rows of a class of machines that is chosen without being named."""


def chosen_host(rows: pd.DataFrame, here: tuple[str, str], name: str | None) -> tuple[str, str]:
    """Choose a class of machines: the one that is named, else this machine's, else the newest with enough rows.

    Raises:
        SystemExit: If no class qualifies.
    """
    counted = rows.groupby(HOST, observed=True)["finished_at"].agg(["size", "max"]).sort_values("max", ascending=False)
    enough = counted.index[counted["size"] >= FEWEST].to_list()
    wanted = [host for host in counted.index if host[0] == name] if name else [here][: here in enough] + enough
    if not wanted:
        raise SystemExit(f"no class of machines {name or ''} has {FEWEST} rows; there are: {list(counted.index)}")
    found: tuple[str, str] = wanted[0]
    return found


def costs_of(plan: Plan, rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line per mechanism: planned, done and missing runs, and hours from the rows of one class of machines.

    ``trained`` counts the runs that train, including runs with a row that train again with their group. ``own`` counts
    the trained runs whose task and mechanism have rows in the class. Times of other runs are estimated from the rows of
    their family. The hours are NaN if a time is unknown.
    """
    estimates, cell = Estimates(rows), list(COST_KEYS[0])
    timed = set(rows.loc[rows["status"] == "ok", cell].itertuples(index=False, name=None))
    lines: list[dict[str, Any]] = [{"mechanism": run.cell.mechanism_name, "planned": 1} for run in plan.runs.values()]
    for job in plan.jobs:
        lines += [{"mechanism": run.cell.mechanism_name, "missing": 1} for run in job.missing]
        for run in job.trained:  # those that have a row train again with the rest
            traits, share_s = cost_columns(run.cell), estimates.seconds(run.cell)
            line = {"mechanism": traits["mech"], "hours": None if share_s is None else share_s / 3600, "trained": 1}
            lines.append({**line, "own": tuple(traits[name] for name in cell) in timed})
    columns = ["mechanism", "planned", "missing", "trained", "own", "hours"]
    found = pd.DataFrame(lines, columns=columns).groupby("mechanism", sort=False)
    counts = found[["planned", "missing", "trained", "own"]].sum().astype(int)
    unknown = found["hours"].count() < counts["trained"]
    return counts.assign(done=counts["planned"] - counts["missing"], hours=found["hours"].sum().mask(unknown))


def report(lists: Sequence[dict[str, Any]], results: Path, name: str | None) -> Iterator[str]:
    """Yield the class of machines, a table for each list of runs, and the sum."""
    rows = Store.open(results, create=False).columns([*TIMED, *HOST, "finished_at"]).to_pandas()
    device = device_of(Request(device="cpu"))
    here = hardware(device)["device_name"], software()["host_hash"]
    host = chosen_host(rows, here, name)
    rows = rows[(rows[HOST[0]] == host[0]) & (rows[HOST[1]] == host[1])]
    where = f"{host[0]}, host {host[1]}, which is {'' if host == here else 'not '}this machine"
    yield f"Times are those of {len(rows)} rows of {where}, until {rows['finished_at'].max():%Y-%m-%d}."
    total = 0.0
    for options in lists:
        plan = plan_request(Request(**{**options, "device": "cpu", "results": results}), device)
        costs = costs_of(plan, rows)
        total += costs["hours"].sum(skipna=False)
        yield ", ".join(f"{key} {value}" for key, value in options.items() if key != "mechanisms")
        minutes = 60 * costs["hours"] / costs["trained"]
        columns = ["planned", "done", "missing", "own", "hours"]
        lines = [[*line, each] for line, each in zip(costs[columns].itertuples(name=None), minutes, strict=True)]
        texts = [
            [("–" if pd.isna(cell) else f"{cell:.2f}") if isinstance(cell, float) else cell for cell in line]
            for line in lines
        ]
        yield plain_table(texts, ["mechanism", *columns[:4], "core-hours", "minutes a run"])
    cores = usable_cores()
    yield f"Together {total:.1f} core-hours, {about(3600 * total / cores)} on {cores} cores that do nothing else."


def main(arguments: Sequence[str]) -> int:
    """Print the report on a file of runs; return the exit code."""
    parser = argparse.ArgumentParser(description="What a list of runs has, lacks and costs")
    parser.add_argument("runs", type=Path, help="a TOML file with tables [[runs]]")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results store")
    parser.add_argument("--host", help="name of the processor whose rows give the times; default: this one's")
    asked = parser.parse_args(arguments)
    lists = tomllib.loads(asked.runs.read_text(encoding="utf-8"))["runs"]
    sys.stdout.write("\n\n".join(report(lists, asked.results, asked.host)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
