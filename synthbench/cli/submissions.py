"""``synthbench verify``, ``submit`` and ``compare``: check, share and compare rows (results of runs)."""

import dataclasses
import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthbench import plugins
from synthbench.cli import options
from synthbench.cli.output import print_facts, say
from synthbench.cli.rows import read_rows, selected
from synthbench.options import MAIN_SUITE

if TYPE_CHECKING:
    from synthbench.reports.compare import Side


def verify(
    rows: Annotated[Path, typer.Argument(help="A store's folder, a .parquet file of rows or a .tar.gz bundle.")],
    fraction: Annotated[float, typer.Option(help="Fraction of the rows to run again; at least one row.")] = 0.05,
    salt: Annotated[str, typer.Option(help="Draws another sample; choose it after the rows were submitted.")] = "",
    limit: Annotated[int | None, typer.Option(help="Largest number of rows to sample.")] = None,
    device: options.Device = "auto",
    workers: Annotated[int | None, typer.Option(help="Worker processes. Default: one per core.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds after which a re-run is killed.")] = 600.0,
    plugin: options.Plugins = None,
    run_plugin: Annotated[
        bool, typer.Option("--run-plugin", help="Run the plugin in the bundle: somebody else's code.")
    ] = False,
    into: Annotated[
        Path | None, typer.Option(help="If nothing is wrong, add the rows to this store and record who verified which.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="With --into: the verifier's name.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check all rows (results of runs), then train a sample of the runs again and compare the results.

    Exit with code 1 unless all results agree. A hash of the rows determines the sample. If the kind of CPU and the
    versions are the same, results must be equal bit by bit.
    """
    from synthbench.trust.submission import receive
    from synthbench.trust.verify import Sampling

    found = receive(
        rows,
        Sampling(fraction, salt, limit, device, timeout, workers, plugins.named(plugin)),
        runs_plugin=run_plugin,
        into=into,
        by=by,
        on_plan=lambda number: say(f"running {number} rows again", err=True),
    )
    facts = [{**dataclasses.asdict(rerun), "difference": rerun.difference} for rerun in found.reruns]
    if as_json:
        say(json.dumps({**dataclasses.asdict(found), "reruns": facts, "ok": found.ok}, indent=1))
    else:
        for name, fault in found.faults:
            say(f"wrong: {name}: {fault}")
        for name, reason in found.unverifiable.items():
            say(f"cannot be verified: {name}: {reason}")
        columns = ["run_id", "task", "mechanism", "seed", "recorded", "again", "difference", "verdict", "detail"]
        print_facts(facts, columns, as_json=False)
    for note in found.notes:
        say(note, err=True)
    say(found.summary(), err=True)
    raise typer.Exit(0 if found.ok else 1)


def submit(
    mech: options.MechanismTerms = None,
    suite: options.SuiteName = MAIN_SUITE,
    block: options.BlockTerm = None,
    positions: options.PositionsTerm = None,
    condition: options.Condition = None,
    results: options.Results = Path("results"),
    out: Annotated[Path, typer.Option(help="Folder or .tar.gz to write.")] = Path("submission.tar.gz"),
    plugin: Annotated[
        Path | None, typer.Option("--plugin", help="File with the mechanisms; it is run and packed.")
    ] = None,
    package: Annotated[str | None, typer.Option(help="Package with the mechanisms, pinned: my-idea==1.0.")] = None,
    device: Annotated[
        str, typer.Option(help="Device of the rows: cpu or cuda. auto: the only one with rows.")
    ] = "auto",
) -> None:
    """Pack a complete set of rows for submission; if rows are missing, list them and exit with code 1."""
    from synthbench.runner.request import Request
    from synthbench.trust.submission import submit as submit_rows

    request = Request(
        suite=suite,
        mechanisms=tuple(mech or ()),
        block=block,
        positions=positions,
        condition=condition,
        device=device,
        results=results,
        plugins=plugins.named([str(plugin)] if plugin else None),
    )
    submission = submit_rows(request, out, plugin=plugin, package=package)
    for problem in submission.problems:
        say(problem)
    if submission.manifest is None:
        say(f"nothing was written; {len(submission.problems)} problems", err=True)
        raise typer.Exit(1)
    say(out)
    say(f"{submission.manifest.num_rows} rows, digest {submission.manifest.digest}", err=True)


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            help="Two or more mechanisms (slay:P=8 for one setting), the folders of two stores, or two commit prefixes."
        ),
    ],
    suite: options.ReportedSuite = None,
    suite_version: options.SuiteVersion = None,
    mech: options.MechanismTerms = None,
    results: options.Results = Path("results"),
    packaged: options.Packaged = True,
    fail_below: Annotated[
        float | None,
        typer.Option(help="Exit 1 if the whole interval of the mean difference, second − first, lies below this."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare mechanisms, stores or commits run by run; a difference is the second's skill minus the first's.

    The output has intervals and significance tests. Mechanisms and commits are looked up in the results in --results
    and in the results that come with synthbench. If stores or commits are compared, --mech selects the mechanisms. If
    there are more than two mechanisms, the table has a line for every pair. On a task with levels of difficulty, skill
    is the mean skill over the levels, from 0 to 1.
    """
    import pandas as pd

    from synthbench.errors import UsageError
    from synthbench.reports.compare import common_suite
    from synthbench.reports.compare import compare as compare_sides
    from synthbench.reports.compare import sides as sides_of
    from synthbench.reports.render.spreadsheet import json_text
    from synthbench.trust.view import seen_from

    if fail_below is not None and not math.isfinite(fail_below):
        raise UsageError(f"--fail-below is {fail_below}; allowed: a number such as -0.02")
    known = cache(lambda: read_rows(results, suite=suite, packaged=packaged))
    found_sides = sides_of(sides, lambda: known().rows, lambda path: read_rows(path, suite=suite).rows)
    if mech and found_sides[0].kind == "mechanism":
        raise UsageError(f"--mech is {','.join(mech)!r} while mechanisms are compared; allowed: for stores or commits")
    if fail_below is not None and len(sides) > 2:
        raise UsageError(f"--fail-below is {fail_below:g} for {len(sides)} mechanisms; allowed: for two")
    rows = pd.concat([side.rows for side in found_sides])
    own = rows if found_sides[0].kind == "store" else known().rows[known().is_own]
    if suite is None:
        suite = common_suite(found_sides, set(own["run_id"]))
        # The rows may have been read as seen from another suite.
        found_sides = [side._replace(rows=seen_from(side.rows, suite)) for side in found_sides]
        rows = pd.concat([side.rows for side in found_sides])
    if len(found_sides) > 2:
        _print_pairs(found_sides, suite, suite_version, as_json=as_json)
        return
    chosen = selected(rows[rows["suite"] == suite], "mechanism", mech) if mech else None
    found = compare_sides(found_sides[0], found_sides[1], suite, suite_version, mechanisms=chosen)
    if as_json:
        say(json_text(found.as_facts()), nl=False)
    else:
        facts = [dataclasses.asdict(one) for one in found.tasks]
        same = [name for name in ("mechanism", "block", "positions") if len({fact[name] for fact in facts}) == 1]
        columns = [name for name in facts[0] if name not in (*same, "levels")]
        print_facts(facts, columns, as_json=False)
        say(found.summary())
    if fail_below is not None and found.is_below(fail_below):
        say(f"the mean difference lies below {fail_below:g}", err=True)
        raise typer.Exit(1)


def _print_pairs(sides: "list[Side]", suite: str, suite_version: str | None, *, as_json: bool) -> None:
    from synthbench.reports.compare import pairwise
    from synthbench.reports.render.spreadsheet import json_text

    comparisons, pairs = pairwise(sides, suite, suite_version)
    if as_json:
        say(json_text({"pairs": pairs, "comparisons": [one.as_facts() for one in comparisons]}), nl=False)
        return
    print_facts(pairs, list(pairs[0]), as_json=False)
    say(
        f"Suite {suite} {comparisons[0].suite_version}: mean difference of {comparisons[0].skill}, second − first, "
        "with its 95 % interval over seeds; p is Holm-adjusted over the pairs. For results by "
        "task, compare two mechanisms."
    )
