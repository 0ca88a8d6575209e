"""``synthbench quick``: a first verdict on a mechanism."""

import json
from pathlib import Path
from typing import Annotated

import typer

from synthbench import plugins
from synthbench.cli.options import AsJson, Device, ExecutorName, Plugins, Results, SuiteName, Workers
from synthbench.cli.output import say
from synthbench.cli.running import exit_as, run_with_progress
from synthbench.options import MAIN_SUITE


def quick(
    mech: Annotated[str, typer.Option("--mech", help="One mechanism; slay:R=3,P=8 sets options.")],
    against: Annotated[
        str | None,
        typer.Option(
            help="The incumbent to compare with: any mechanism with rows for these tasks, in --results or among the "
            "rows that come with synthbench. Default: the best one that comes with synthbench."
        ),
    ] = None,
    suite: SuiteName = MAIN_SUITE,
    device: Device = "auto",
    executor: ExecutorName = "auto",
    workers: Workers = None,
    results: Results = Path("results"),
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Run one seed of a ladder's quick tasks and predict how a mechanism will rank in the full suite.

    It prints the mean height per category beside those of other mechanisms, the expected rank, and whether to keep the
    mechanism or discard it in favour of the incumbent. synthbench run keeps these rows and adds the rest. If the rows
    of all these runs come with synthbench, nothing is trained.
    """
    from synthbench.terminal.quick import facts_of, judge, lines_of, request_of, require_incumbent, run_or_read

    request = request_of(
        mech,
        suite,
        device=device,
        executor=executor,
        workers=workers,
        results=results,
        plugins=plugins.named(plugin),
    )
    require_incumbent(request, against)
    done = run_or_read(request, run_with_progress)
    verdict = judge(request, done, against)
    if as_json:
        say(json.dumps(facts_of(verdict)))
    else:
        for line in lines_of(verdict):
            say(line)
    exit_as(done)
