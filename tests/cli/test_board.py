from collections.abc import Callable
from typing import Any

import pandas as pd

from synthbench.cli.board import MOST_LINES, lines_of
from synthbench.reports.cells import grid
from synthbench.reports.leaderboard import leaderboard
from synthbench.results.schema import RUN_COLUMNS, table_of, to_frame

MakeRow = Callable[..., dict[str, Any]]


def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return to_frame(table_of(RUN_COLUMNS, rows))


def test_the_best_are_shown_and_the_others_counted(make_row: MakeRow) -> None:
    rows = [
        make_row(task=task, mech=f"m{number:02d}", seed=seed, score=0.9 - number / 50 + seed / 1000)
        for number in range(MOST_LINES + 2)
        for task in ("copy", "sort")
        for seed in (1, 2)
    ]
    heading, *lines, more = lines_of(leaderboard(grid(frame(rows))))

    assert heading.split() == ["rank", "mechanism", "mean"]
    assert [line.split()[1] for line in lines] == [f"M{number:02d}" for number in range(MOST_LINES)]
    assert more == "and 2 more"


def test_what_lacks_runs_is_named(make_row: MakeRow) -> None:
    rows = [
        make_row(mech=mech, task=task, seed=seed)
        for mech, tasks in (("a", ("copy", "sort")), ("b", ("copy",)))
        for task in tasks
        for seed in (1, 2)
    ]

    assert list(lines_of(leaderboard(grid(frame(rows)))))[-1] == "not ranked, as tasks are missing: B (1 of 2 tasks)"


def test_without_a_ranking_there_is_nothing_to_show() -> None:
    assert list(lines_of(None)) == []
