"""Rows as workers write them: an executor tells only of jobs that have ended, and a job may tune for a long time."""

from collections.abc import Collection
from pathlib import Path

from synthbench.results import Store
from synthbench.runner.worker import Outcome, outcome_of


class Watch:
    """Looks for new rows in a store, tuning rows included.

    Args:
        results: Folder of the store.
        run_ids: The rows that are waited for. What is in the store by now is not one of them.
    """

    def __init__(self, results: Path, run_ids: Collection[str]) -> None:
        self._store = Store.open(results, create=False)
        self._waiting = set(run_ids)
        self._before = self._store.identities(run_ids)

    def news(self) -> list[Outcome]:
        """The rows that were written since the last call; quick where there is none."""
        now = self._store.identities(self._waiting)
        written = {name for name, identity in now.items() if identity != self._before.get(name)}
        self._waiting -= written
        return [outcome_of(row) for row in self._store.uncompacted(written).values()] if written else []
