"""Load the rows of a store of results as a data frame, without importing the training loop."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from synthbench.errors import UnknownName
from synthbench.results import RUNS, Store, published
from synthbench.results.schema import to_frame
from synthbench.training.ladder_scores import USED, rescored
from synthbench.trust.beside import NAMES


def load(results: str | Path = "results", columns: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Load the rows of a results store into a data frame, with one row per run.

    Scores of tasks with several levels of difficulty are recomputed with the shortcut baselines (scores of rules that
    avoid what a task tests) of the installed version.

    >>> load("packaged", ["task", "mech", "seed", "skill"]).columns.to_list()
    ['task', 'mech', 'seed', 'skill']

    Args:
        results: Folder of the store, or ``packaged`` for the rows that come with synthbench.
        columns: Names of the columns to load; ``results/README.md`` explains them. None: all columns, which is slower
            but required by :func:`synthbench.leaderboard` and :func:`synthbench.tables`.

    Raises:
        UnknownName: If a column does not exist.
        StoreError: If there is no store in the folder, or if it cannot be read.
    """
    store = Store.open(published() if results in NAMES else Path(results), create=False)
    if columns is None:
        return rescored(store.runs())
    wanted = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
    for column in wanted:
        if column not in RUNS.names:
            raise UnknownName("column", column, RUNS.names)
    if not {"score", "skill", "metrics"} & set(wanted):
        return to_frame(store.columns(wanted))
    return rescored(to_frame(store.columns(list(dict.fromkeys([*wanted, *USED])))))[wanted]
