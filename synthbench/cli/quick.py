"""``synthbench quick``: a first verdict on a mechanism, after training on few tasks."""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from synthbench import plugins
from synthbench.cli.options import AsJson, Device, ExecutorName, Plugins, Results, SuiteName, Workers, suspected, takes
from synthbench.cli.output import note, results_only, say
from synthbench.cli.running import INTERRUPTED, run_with_progress
from synthbench.errors import SynthbenchError
from synthbench.options import MAIN_SUITE


@dataclass(frozen=True)
class Query:
    """Options of the command, under the names that :func:`synthbench.first_verdict.quick` gives them."""

    mechanism: Annotated[
        str,
        typer.Option("--mech", help="One mechanism; slay:R=3,P=8 sets options. Or a plugin file with one mechanism."),
    ]
    against: Annotated[
        str | None,
        typer.Option(
            help="The reference: any mechanism with rows for these tasks, in --results or packaged. Default: the best "
            "of the suite's mechanisms of the same class (linear time, no more state)."
        ),
    ] = None
    suite: SuiteName = MAIN_SUITE
    device: Device = "auto"
    executor: ExecutorName = "auto"
    workers: Workers = None
    results: Results = Path("results")
    ledger: Annotated[
        Path | None,
        typer.Option(help="File that records the comparisons of a search. Default: quick.jsonl in --results."),
    ] = None
    minutes: Annotated[
        float | None, typer.Option(help="Train for about this long at most: on fewer tasks if these take longer.")
    ] = None
    plugins: Plugins = None


@takes(Query)
def quick(asked: Query, as_json: AsJson = False) -> None:
    """Check a mechanism, train it with one seed on a few tasks of a suite, and predict its rank in the full suite.

    The tasks of the suite must have levels of difficulty. The output shows the mean scores of the mechanism and of a
    reference in each category, the expected rank, and the decision to keep or discard the mechanism. Training stops
    early if the mechanism is clearly worse than the reference on the first three tasks. A mechanism is kept only if it
    also beats the reference on a new seed. The results are stored, so synthbench run later trains only the missing
    runs. Mechanisms whose results come with synthbench are not trained.
    """
    from synthbench import first_verdict

    with results_only() if as_json else nullcontext():
        try:
            given = vars(asked) | {"plugins": plugins.named(asked.plugins)}
            with suspected():
                verdict = first_verdict.quick(**given, run=run_with_progress, note=note)
        except SynthbenchError as problem:
            if as_json:
                say(json.dumps(first_verdict.facts_of_error(problem)))
            raise
        except KeyboardInterrupt:
            say("interrupted; finished rows are kept, the same command runs the rest", err=True)
            raise typer.Exit(INTERRUPTED) from None
        say(json.dumps(first_verdict.facts_of(verdict)) if as_json else str(verdict))
        raise typer.Exit(0 if verdict.ok else 1)
