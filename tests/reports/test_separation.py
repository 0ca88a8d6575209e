"""The page on significant differences: it prints what the verdicts say."""

import json

import pandas as pd

from synthbench.reports.cells import grid
from synthbench.reports.separation import separation_table, summary
from synthbench.reports.table import Cell, Table
from synthbench.reports.verdicts import judge
from tests.reports._made import make_frame


def table_of(rows: pd.DataFrame) -> Table:
    return separation_table(grid(rows), judge(grid(rows)))


def summary_of(rows: pd.DataFrame) -> str:
    return summary(judge(grid(rows)))


def cell(table: Table, column: str) -> Cell:
    """The cell of the only line."""
    (line,) = table.lines
    return line.cells[[column.label for column in table.columns].index(column)]


def test_one_mechanism_or_one_seed_gives_no_verdict() -> None:
    for scores in ({"slay": [0.5, 0.6]}, {"slay": [0.5], "linear": [0.9]}):
        table = table_of(make_frame(scores))

        assert cell(table, "p").value == "--"
        assert cell(table, "Between").value == "--"
        assert "nan" not in str(table)
        assert summary_of(make_frame(scores)).startswith("Nothing can be said about differences between mechanisms")
    assert cell(table_of(make_frame({"slay": [0.5, 0.6]})), "Pairs") == Cell()


def test_too_few_runs_to_separate_anything_say_so() -> None:
    """As in suite smoke: three mechanisms of two seeds."""
    rows = make_frame({"slay": [0.1, 0.11], "linear": [0.5, 0.51], "softmax": [0.9, 0.91]})

    assert summary_of(rows) == (
        "No task can show a significant difference: with so few runs, even the clearest one has p = 0.067."
    )


def test_equal_scores_and_failed_runs_give_a_sentence() -> None:
    alike = make_frame({"slay": [0.5] * 5, "linear": [0.5] * 5})
    assert summary_of(alike) == "No task shows significant differences; none is saturated."
    failed = table_of(make_frame({"slay": [None, None], "linear": [None, 0.5]}))
    assert "nan" not in str(failed)
    assert cell(failed, "Verdict").value == "nothing to compare"


def test_what_can_be_had_without_mixing_or_by_a_shortcut_has_a_column_where_it_is_known() -> None:
    metrics = json.dumps({"shortcut.one hop": 0.3, "shortcut.bigram": 0.45, "score_std_over_sequences": 0.1})
    plain, known = (
        table_of(make_frame({"slay": [0.5, 0.6], "linear": [0.1, 0.2]}, **facts))
        for facts in ({}, {"local_ceiling": 0.4, "metrics": metrics})
    )

    assert [column.label for column in plain.columns][:3] == ["Floor", "Ceiling", "Accuracy"]
    assert [column.label for column in known.columns][:4] == ["Floor", "Local", "Shortcut", "Ceiling"]
    assert known.lines[0].cells[1:3] == (Cell("40.0"), Cell("45.0", remarks=("bigram",)))
