"""Read and select the rows of a store (the results of runs) for commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from synthbench.cli.output import note, say
from synthbench.options import require_current

if TYPE_CHECKING:
    import pandas as pd

    from synthbench.options import Selection
    from synthbench.results import Quarantined
    from synthbench.trust.beside import Joined


def read_rows(
    results: Path, other: str | None = None, *, suite: str | None = None, packaged: bool = False, curves: bool = False
) -> "Joined":
    """Read the rows of one or two stores and, if ``packaged`` is True, the rows that come with synthbench.

    A row is the result of one run. Reports of a suite also show rows of other suites with the same protocol (model,
    training and evaluation), so these rows are labelled as rows of ``suite``. Damaged rows are left out and listed on
    stderr.
    """
    from synthbench.trust.beside import join

    if suite is not None:
        require_current(suite)
    joined = join(results, other, has_packaged=packaged, has_curves=curves)
    name_what_is_left_out(joined.left_out)
    if joined.origins is not None and not joined.is_own.any():
        note("no rows of your own: these come with synthbench")
    seen = joined.seen_from(suite)
    if lost := set(joined.rows.loc[joined.is_own, "run_id"]) - set(seen.rows["run_id"]):
        note(f"not shown: {len(lost)} of your rows, whose tasks now have other levels in the suite")
    return seen


def selected(rows: "pd.DataFrame", kind: str, terms: Sequence[str]) -> "Selection":
    """Select tasks or mechanisms that occur in the rows, by the user's expressions (names, globs and so on).

    The result maps each selected name to the options that the expressions set. ``kind`` is ``task`` or ``mechanism``.
    """
    from synthbench.options import select

    unit, group, label = ("task", "task_category", "task") if kind == "task" else ("mech", "mech_family", "mech_label")
    groups, labels = (dict(zip(rows[unit], rows[column], strict=True)) for column in (group, label))
    return select(kind, terms, list(groups), groups.__getitem__, labels=labels)


def name_what_is_left_out(left_out: "Sequence[Quarantined]") -> None:
    """Print on stderr which files and rows of a store were left out, and why."""
    for file in left_out:
        say(f"left out: {file.file}: {file.reason}", err=True)
