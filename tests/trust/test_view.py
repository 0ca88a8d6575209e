"""A suite with conditions shows each row of its protocol in its condition, and older layers as variants."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from synthbench.contract.places import change_when_moved
from synthbench.mechanisms import MECHANISMS
from synthbench.reports.cells import grid
from synthbench.reports.leaderboard import leaderboard, leaderboard_tables
from synthbench.reports.selection import select
from synthbench.suites import load_suite
from synthbench.trust.beside import Joined, join
from synthbench.trust.view import conditions_of, recorded_layers

SUITE = "core"


@pytest.fixture(scope="module")
def packaged() -> Joined:
    return join(Path("results"))


@pytest.fixture(scope="module")
def seen(packaged: Joined) -> pd.DataFrame:
    return packaged.seen_from(SUITE).rows


@pytest.fixture(scope="module")
def shown(seen: pd.DataFrame) -> pd.DataFrame:
    return seen[seen["suite"] == SUITE]


def test_a_row_older_than_conditions_gets_the_one_of_its_configuration(packaged: Joined, shown: pd.DataFrame) -> None:
    old = shown[shown["run_id"].isin(packaged.rows.loc[packaged.rows["condition"].isna(), "run_id"])]
    conditions = old.groupby("mech")["condition"].agg(lambda names: "/".join(sorted(set(names.fillna("none")))))
    rotated = ("gla", "kda", "rwkv7", "hgrn2", "path", "mamba2", "differential", "rewa-geometric")
    assert {name for name in conditions.index if conditions[name] == "none"} == set(rotated)
    for name in ("softmax", "lstm", "identity", "yat"):
        assert conditions[name] == "stock"
    for name in ("mamba1", "hyena", "deltanet", "mlstm", "forgetting", "based"):
        assert conditions[name] == "bare"


def test_what_is_in_no_condition_is_a_variant_and_on_no_board(seen: pd.DataFrame, shown: pd.DataFrame) -> None:
    is_in_one = shown["condition"].isin(["stock", "bare"])
    assert shown.loc[~is_in_one, "is_variant"].all()
    assert not shown.loc[is_in_one & shown["sees_places"].notna(), "is_variant"].any()
    selection = select(seen, SUITE).without_variants()
    assert set(selection.rows["condition"]) <= {"stock", "bare"}
    assert "hgrn2" in set(selection.variants["mech"])


def test_a_stock_layer_with_fewer_tasks_than_a_bare_one_is_no_variant(seen: pd.DataFrame, shown: pd.DataFrame) -> None:
    tasks = shown[shown["block"] == "transformer"].groupby(["mech", "condition"])["task"]
    selection = select(seen, SUITE).without_variants()
    main = selection.rows.groupby(["mech", "condition"])["task"].nunique()

    assert main["mamba1", "bare"] == tasks.nunique()["mamba1", "bare"]
    assert 0 < main["deltanet", "stock"] == tasks.nunique()["deltanet", "stock"]


def test_a_bare_layer_is_called_bare_and_the_board_says_what_it_sees(seen: pd.DataFrame) -> None:
    rows = select(seen, SUITE).without_variants().rows
    board = leaderboard(grid(rows[rows["task"].isin(["parity_running", "a5_words"])]))
    entries = {entry.mechanism.label: entry.mechanism for entry in board.entries}
    (summary,) = (table for table in leaderboard_tables(board) if table.name == "leaderboard-summary")
    headings = [column.label for column in summary.columns]
    lines = zip(board.placed, summary.lines, strict=True)
    cells = {row.mechanism.label: dict(zip(headings, line.cells, strict=True)) for row, line in lines}

    assert entries["FoX (bare)"].condition == "bare"
    assert entries["FoX"].condition == "stock"
    assert entries["Softmax"].condition == "stock"
    for label, facts in entries.items():
        assert cells[label]["Condition"].value == facts.condition
        change = max(change_when_moved(MECHANISMS[facts.name], {}))
        assert cells[label]["Sees absolute places"].value == ("yes" if change > 1e-3 else "no")


@pytest.mark.end_to_end
def test_what_is_recorded_of_layers_is_what_they_do() -> None:
    recorded = recorded_layers()

    assert set(recorded) == {name for name in MECHANISMS if MECHANISMS.is_built_in(name)}
    for name, layers in recorded.items():
        measured = conditions_of(load_suite("core"), name)
        assert {layer: tuple(found) for layer, found in layers.items()} == measured, name


@pytest.mark.parametrize("is_own", [False, True])
def test_further_options_make_a_variant_but_among_own_rows(packaged: Joined, is_own: bool) -> None:  # noqa: FBT001
    rows = packaged.rows[packaged.rows["mech"] == "deltanet"]
    seen = replace(packaged, rows=rows, is_own=pd.Series(is_own, index=rows.index)).seen_from(SUITE)
    kept = select(seen.rows, SUITE).without_variants().rows

    assert kept["mech_args"].str.contains("signed").any() == is_own
