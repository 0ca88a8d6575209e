"""Export: any selection of cells and columns, and the runs behind every number."""

import csv
import io
import json
import re

import numpy as np
import pandas as pd
import pytest

from synthbench.errors import UsageError
from synthbench.reports.export import Export, export
from synthbench.reports.render.spreadsheet import csv_text, json_text
from synthbench.reports.selection import having
from tests.reports._made import climbed, joined, make_frame


@pytest.fixture
def rows() -> pd.DataFrame:
    """Two tasks, three mechanisms; one run failed, one mechanism has one task only."""
    sort = make_frame({"softmax": [0.9, 0.8, 1.0], "slay": [0.5, 0.6, None], "linear": [0.1, 0.1, 0.1]})
    whole = joined(sort, make_frame({"softmax": [1.0] * 3, "slay": [0.9] * 3}, task="copy", task_category="memory"))
    metrics = [json.dumps({} if np.isnan(score) else {"x2.skill": score / 2}) for score in whole["score"]]
    return whole.assign(metrics=metrics)


def lines_of(made: Export) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(made.csv())))


def test_csv_holds_means_spreads_and_run_ids(rows: pd.DataFrame) -> None:
    lines = lines_of(export(rows, "paper", columns=["score", "skill", "n_params", "status", "x2.skill"]))

    named = [f"{line['task']} {line['mechanism']}" for line in lines]
    assert named == ["sort Softmax", "sort Linear", "sort SLAY", "copy Softmax", "copy SLAY"]
    slay = lines[2]
    assert float(slay["score"]) == pytest.approx(0.55)
    assert float(slay["score_std"]) == pytest.approx(np.std([0.5, 0.6], ddof=1), rel=1e-5)
    assert float(slay["x2.skill"]) == pytest.approx(0.275)
    assert (slay["n"], slay["failed"], slay["n_params"], slay["status"]) == ("2", "1", "40000", "ok, diverged")
    assert slay["run_ids"].split() == list(rows[(rows["mech"] == "slay") & (rows["task"] == "sort")]["run_id"])


def test_json_holds_every_run_with_its_own_values(rows: pd.DataFrame) -> None:
    made = json.loads(export(rows, "paper", tasks={"sort": {}}, columns=["score", "status"]).json())

    slay = next(cell for cell in made["cells"] if cell["mechanism"] == "SLAY")
    assert slay["values"] == {
        "score": {"mean": pytest.approx(0.55), "std": pytest.approx(0.0707, abs=1e-4)},
        "status": "ok, diverged",
    }
    runs = [(run["seed"], run["status"], run["score"]) for run in slay["runs"]]
    assert runs == [(42, "ok", 0.5), (43, "ok", 0.6), (44, "diverged", None)]
    ids = {run["run_id"] for cell in made["cells"] for run in cell["runs"]}
    assert ids == set(rows[rows["task"] == "sort"]["run_id"])


def test_the_best_is_bold_and_the_second_underlined(rows: pd.DataFrame) -> None:
    made = export(rows[rows["task"] == "sort"], "paper")

    assert re.search(r"\| sort +\| Softmax +\| +\*\*90.0 ± 10.0\*\* \|", made.markdown())
    assert re.search(r"\| +\| SLAY +\| +<ins>55.0 ± 7.1</ins> \|", made.markdown())
    assert r"sort & Softmax & \textbf{90.0\,{\scriptsize$\pm$10.0}} \\" in made.latex()
    assert r"& SLAY & \underline{55.0\,{\scriptsize$\pm$7.1}} \\" in made.latex()
    assert "n = 2 to 3." in made.markdown()


def test_facts_have_no_spread_and_no_marks(rows: pd.DataFrame) -> None:
    text = export(rows, "paper", columns=["n_params", "floor", "mech_family"]).markdown()

    assert re.search(r"\| sort +\| Softmax +\| +40000 \| +0.0 \| a family +\|", text)
    assert "Bold" not in text


@pytest.mark.parametrize(
    ("across", "headings", "first"),
    [
        ("tasks", ["Mechanism", "sort", "copy"], ["Softmax", "0.90 ± 0.10", "1.00 ± 0.00"]),
        ("mechanisms", ["Category", "Task", "Softmax", "Linear", "SLAY"], ["basic", "sort", "0.90 ± 0.10"]),
        ("columns", ["Task", "Mechanism", "skill"], ["sort", "Softmax", "0.90 ± 0.10"]),
    ],
)
def test_columns_tasks_or_mechanisms_stand_across(
    rows: pd.DataFrame, across: str, headings: list[str], first: list[str]
) -> None:
    made = export(rows, "paper", columns=["skill"], across=across)
    lines = [line.strip("|").split("|") for line in made.markdown().splitlines() if line.startswith("|")]
    table = [[field.strip().strip("*") for field in line] for line in lines]

    assert table[0] == headings
    assert table[2][: len(first)] == first


def test_arguments_choose_among_the_rows_of_a_mechanism() -> None:
    old = make_frame({"slay": [0.2, 0.3]}, mech_args='{"R":3,"guard":"clamp"}')
    new = make_frame({"slay": [0.6, 0.7]}, mech_args='{"R":2,"guard":"clamp"}')
    rows = joined(old, new.assign(finished_at=new["finished_at"] + pd.Timedelta(days=1)))

    for arguments, mean in ({"R": "3"}, 0.25), ({"R": "3.0", "guard": "clamp"}, 0.25), ({"R": "2"}, 0.65):
        (line,) = lines_of(export(rows, "paper", mechanisms={"slay": arguments}))
        assert float(line["score"]) == pytest.approx(mean), arguments
    both = {line["mechanism"]: float(line["score"]) for line in lines_of(export(rows, "paper"))}
    assert both == pytest.approx({"SLAY (R=2)": 0.65, "SLAY (R=3)": 0.25})
    with pytest.raises(UsageError, match=r'no row of mechanism \'slay\' with R=5; rows have: .*"R":2.*; .*"R":3'):
        having(rows, "mech", {"slay": {"R": "5"}})


def test_bibtex_is_that_of_the_tasks_and_mechanisms_in_the_table(rows: pd.DataFrame) -> None:
    def keys(made: Export) -> list[str]:
        return re.findall(r"@\w+\{(\w+),", made.bibtex())

    assert keys(export(rows, "paper")) == ["synthbench", "slay2026", "vaswani2017attention"]
    assert keys(export(rows, "paper", mechanisms={"slay": {}})) == ["synthbench", "slay2026"]
    assert "% no entry for a stranger" in export(rows.assign(mech_source="a\nstranger"), "paper").bibtex()


def test_scores_of_ladders_are_printed_as_fractions() -> None:
    rows = climbed({"softmax": [5.1, 5.2, 5.3], "linear": [2.0]})
    made = export(rows, "core", columns=["score", "skill"])

    printed = [[cell.value for cell in line.cells] for line in made.table.lines]
    assert printed == [["0.47", "0.47"], ["0.18", "0.18"]]
    assert made.table.lines[0].cells[0].std == "0.01"
    assert made.table.caption.startswith("Scores from 0 to 1, other fractions in per cent")
    first = lines_of(made)[0]
    assert first["rungs"] == "11"
    assert float(first["score"]) == pytest.approx(5.2 / 11, rel=1e-5)
    assert json.loads(made.json())["cells"][0]["rungs"] == 11


def test_numbers_of_csv_stay_numbers_and_what_is_missing_is_empty() -> None:
    text = csv_text(["-a", "b"], [(-0.5, 3), (float("nan"), None), (float("-inf"), "-1")])

    assert list(csv.reader(io.StringIO(text))) == [["'-a", "b"], ["-0.5", "3"], ["", ""], ["-inf", "'-1"]]


def test_json_is_strict() -> None:
    assert json.loads(json_text({"a": float("nan"), "b": (float("inf"), 1, True, pd.NA), 3: "é"})) == {
        "a": None, "b": [None, 1, True, None], "3": "é",
    }  # fmt: skip
    assert json_text("é\x1b").isascii()
