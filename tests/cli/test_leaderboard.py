"""``synthbench leaderboard``, and the rows that come with synthbench, as a user meets them."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from synthbench.cli.board import MOST_LINES, lines_of
from synthbench.reports.cells import grid
from synthbench.reports.leaderboard import leaderboard
from synthbench.results import Store, published
from synthbench.results.schema import RUN_COLUMNS, table_of, to_frame
from synthbench.suites import load_suite
from synthbench.trust.beside import join
from tests.cli.commands import Command
from tests.results.rows import make_row
from tests.results.stores import filled

CORE = {"suite": "core", "suite_version": load_suite("core").version}


def shown(command: Command, *options: str) -> dict[str, Any]:
    """The ranking as JSON, which has no NaN."""
    done = command("leaderboard", *options, "--json")
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    return facts


@pytest.mark.end_to_end
def test_from_an_empty_folder_the_packaged_rows_answer(synthbench: Command, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in published().rglob("*")}
    ranking = shown(synthbench, "--category", "Recall")

    assert (ranking["suite"], ranking["category"]) == ("core", "recall")
    named = {one["label"]: one for one in ranking["mechanisms"]}
    assert {"SLAY", "LSTM", "Linear"} <= named.keys()
    assert set(named["LSTM"]["tasks"]) == set(ranking["tasks"])
    assert 0 < named["LSTM"]["skill"] < 1
    labels = ",".join(re.sub(r" \((bare|eigen.*)\)$", "", name) for name in named)
    again = synthbench("leaderboard", "--category", "recall", "--mech", labels)
    assert again.returncode == 0
    assert again.stdout.startswith(ranking["verdict"])
    assert again.stderr == "no rows of your own: these come with synthbench\n"

    assert synthbench("compare", "softmax", "deltanet").returncode == 0  # rows with signed eigenvalues are as many
    table = synthbench("export", "--suite", "core", "--mech", "softmax,lstm", "--format", "csv")
    assert {line["mechanism"] for line in csv.DictReader(io.StringIO(table.stdout))} == {"Softmax", "LSTM"}
    report = synthbench("report", "--suite", "core", "--format", "md")
    assert report.stdout.splitlines()[-1] == "reports/core/README.md"
    assert " from packaged." in (tmp_path / "reports" / "core" / "README.md").read_text()
    assert {path: path.stat().st_mtime_ns for path in published().rglob("*")} == before
    assert not (tmp_path / "results").exists()


@pytest.mark.end_to_end
@pytest.mark.usefixtures("_few_packaged")
def test_ones_own_suite_is_shown_and_the_packaged_rows_stand_beside_it(
    synthbench: Command, tmp_path: Path, few_rows: Path
) -> None:
    packaged = Store.open(few_rows, create=False).table()
    in_core = join(few_rows).seen_from("core").rows.query("suite == 'core' and mech == 'lstm'")["run_id"].to_list()
    is_lstm = pc.field("run_id").isin(in_core) & (pc.field("block") == "transformer")
    lstm = packaged.filter(is_lstm).to_pylist()
    names = {"mech": "my_lstm", "mech_label": "Mine", "mech_origin": "my_lstm.py"}
    names |= {**CORE, "condition": "stock"}
    mine = (row | names | {"run_id": f"{place:016x}"} for place, row in enumerate(lstm))
    filled(tmp_path / "results", mine)
    compared = json.loads(synthbench("compare", "MY-LSTM", "lstm", "--json").stdout)

    assert {round(task["difference"], 9) for task in compared["tasks"]} == {0.0}
    skills = {one["name"]: one["skill"] for one in shown(synthbench)["mechanisms"]}
    assert skills["my_lstm"] == skills["lstm"]
    assert {one["name"] for one in shown(synthbench, "--no-packaged")["mechanisms"]} == {"my_lstm"}
    alone = make_row(suite="smoke", finished_at=pc.max(packaged["finished_at"]).as_py())
    filled(tmp_path / "results", [alone | {"run_id": "f" * 16}])
    assert shown(synthbench)["suite"] == "smoke"
    assert json.loads(synthbench("export", "--format", "json").stdout)["suite"] == "smoke"
    # Mechanisms without rows of one's own newest suite are compared in the main one.
    assert json.loads(synthbench("compare", "lstm", "linear", "--json").stdout)["suite"] == "core"


def test_what_cannot_be_said_is_a_sentence(synthbench: Command, tmp_path: Path) -> None:
    filled(tmp_path / "results", [make_row(suite="smoke")])
    done = synthbench("leaderboard", "--no-packaged")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(".")
    assert "nan" not in done.stdout.lower()
    assert "0 of" not in done.stdout
    (only,) = shown(synthbench, "--no-packaged")["mechanisms"]
    assert (only["name"], only["num_seeds"], only["num_tasks"]) == ("softmax", 1, 1)


def test_who_has_only_some_tasks_is_below_the_ranking(synthbench: Command, tmp_path: Path) -> None:
    some = {"suite": "smoke", "score": 0.75}
    rows = [
        make_row(**some, task=task, mech=mech, seed=seed)
        for task in ("copy", "sort")
        for mech in ("linear", "softmax", "slay")
        for seed in (42, 43)
        if (task, mech) != ("sort", "slay")
    ]
    filled(tmp_path / "results", rows)
    done, facts = synthbench("leaderboard", "--no-packaged"), shown(synthbench, "--no-packaged")

    assert "have the same mean skill" in done.stdout.splitlines()[0]
    assert done.stdout.splitlines()[-1].split() == ["Slay", "1", "of", "2", "tasks", "2", "seeds"]
    last = facts["mechanisms"][-1]
    assert (last["name"], last["rank"], last["skill"], last["num_tasks"]) == ("slay", None, None, 1)
    lines = list(csv.DictReader(io.StringIO(synthbench("leaderboard", "--no-packaged", "--csv").stdout)))
    assert sorted((line["name"], line["of"], line["part"], line["skill"]) for line in lines) == [
        ("linear", "category", "basic", "0.666667"),
        ("linear", "mean", "", "0.666667"),
        ("slay", "mean", "", ""),
        ("softmax", "category", "basic", "0.666667"),
        ("softmax", "mean", "", "0.666667"),
    ]


@pytest.mark.usefixtures("_few_packaged")
def test_a_suite_without_a_ranking_has_a_csv_of_its_mechanisms(synthbench: Command) -> None:
    lines = list(csv.DictReader(io.StringIO(synthbench("leaderboard", "--suite", "text", "--csv").stdout)))

    assert {(line["of"], line["rank"], line["skill"]) for line in lines} == {("mean", "", "")}


@pytest.mark.usefixtures("_few_packaged")
def test_the_condition_of_each_is_told(synthbench: Command) -> None:
    facts = {one["label"]: one for one in shown(synthbench, "--suite", "core")["mechanisms"]}
    bare = facts["Mamba (bare)"]

    assert (bare["condition"], bare["positions"], bare["sees_places"]) == ("bare", "none", False)
    assert facts["Linear"]["sees_places"] is True


@pytest.mark.usefixtures("_few_packaged")
def test_own_rows_that_packaged_ones_keep_out_are_named(synthbench: Command, tmp_path: Path) -> None:
    filled(tmp_path / "results", [make_row(**CORE, mech="my_idea", task="mqar", task_version="0")])
    done = synthbench("leaderboard")

    assert "not shown: your rows of my_idea on mqar: " in done.stderr
    assert "--no-packaged shows them" in done.stderr
    assert "not shown" not in synthbench("leaderboard", "--no-packaged").stderr


@pytest.mark.usefixtures("_few_packaged")
def test_variants_are_exported_if_they_are_asked_for(synthbench: Command) -> None:
    asked = ["export", "--mech", "gla", "--task", "string_copy", "--format", "csv"]
    plain, whole = synthbench(*asked), synthbench(*asked, "--variants")

    assert len(plain.stdout.splitlines()) == 3  # stock and bare
    assert len(whole.stdout.splitlines()) > 3
    assert "rows of variants are left out; --variants shows them" in plain.stderr


def test_the_best_are_shown_the_others_counted_and_those_without_all_tasks_named() -> None:
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
