from synthbench.cli.board import MOST_LINES, lines_of
from synthbench.reports.cells import grid
from synthbench.reports.leaderboard import leaderboard
from synthbench.results.schema import RUN_COLUMNS, table_of, to_frame
from tests.cli.commands import MakeRow


def test_the_best_are_shown_the_others_counted_and_those_without_all_tasks_named(make_row: MakeRow) -> None:
    rows = [
        make_row(task=task, mech=f"m{number:02d}", seed=seed, score=0.9 - number / 50 + seed / 1000)
        for number in range(MOST_LINES + 3)
        for task in ("copy", "sort")[number > MOST_LINES + 1 :]
        for seed in (1, 2)
    ]
    heading, *lines, more, partial = lines_of(leaderboard(grid(to_frame(table_of(RUN_COLUMNS, rows)))))

    assert heading.split() == ["rank", "mechanism", "mean"]
    assert [line.split()[1] for line in lines] == [f"M{number:02d}" for number in range(MOST_LINES)]
    assert more == "and 2 more"
    assert partial == "not ranked, as tasks are missing: M12 (1 of 2 tasks)"
    assert list(lines_of(None)) == []
