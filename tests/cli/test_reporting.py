"""``synthbench report`` and ``synthbench export`` as a user types them."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.commands import Command, MakeRow
from tests.results.stores import filled

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def store(tmp_path: Path, make_row: MakeRow) -> Path:
    """A folder with a store of two mechanisms, two tasks and two seeds."""
    rows = [
        make_row(
            task=task, mech=mech, mech_family=family, seed=seed, suite="custom", state_size=state,
            score=score + 0.01 * (seed - 42), mech_args='{"R":3}' if mech == "slay" else "{}",
        )
        for task in ("copy", "sort")
        for mech, family, state, score in (("softmax", "softmax", 8192, 0.9), ("slay", "slay", 512, 0.7))
        for seed in (42, 43)
    ]  # fmt: skip
    filled(tmp_path / "results", rows)
    return tmp_path


def test_a_report_has_the_formats_that_are_asked_for(store: Path, synthbench: Command) -> None:
    done = synthbench("report", "--suite", "custom", "--no-packaged", "--format", "csv, runs, figures", "-v")
    folder = store / "reports" / "custom"

    assert done.returncode == 0, done.stderr
    written = {line.rpartition("/")[2] for line in done.stdout.splitlines()}
    assert written >= {"cells.csv", "runs.csv", "heat-map.svg", "heat-map.pdf"}
    assert not list(folder.glob("*.md"))
    assert (folder / "figures" / "heat-map.pdf").read_bytes().startswith(b"%PDF")


def test_a_report_ends_with_the_verdict_the_ranking_and_its_page(synthbench: Command) -> None:
    lines = synthbench("report", "--suite", "custom", "--no-packaged", "--format", "md").stdout.splitlines()
    verdict, outlook, significant, heading, *ranking, page = lines

    assert verdict == "Basic: Softmax .87; next: Slay .61"
    assert outlook.startswith("Each line names every mechanism that cannot be ruled out as the best on these tasks ")
    assert significant == "2 of 2 tasks show significant differences; none is saturated."
    assert heading.split() == ["rank", "mechanism", "mean"]
    assert [line.split()[1:3] for line in ranking] == [["Softmax", "0.87"], ["Slay", "0.61"]]
    assert page == "reports/custom/README.md"


def test_an_export_is_one_table_on_stdout(store: Path, synthbench: Command) -> None:
    chosen = ["--task", "@basic,!sort", "--mech", "s*", "--columns", "score,state_size"]
    arguments = ["export", "--suite", "custom", "--no-packaged", *chosen]
    table = synthbench(*arguments, "--format", "csv")
    cells = json.loads(synthbench(*arguments, "--format", "json", "--seeds", "42").stdout)["cells"]

    assert table.returncode == 0, table.stderr
    lines = list(csv.DictReader(io.StringIO(table.stdout)))
    assert [(line["task"], line["score"], line["state_size"]) for line in lines] == [
        ("copy", "0.905", "8192"),
        ("copy", "0.705", "512"),
    ]
    assert [[run["seed"] for run in cell["runs"]] for cell in cells] == [[42], [42]]
    assert r"\toprule" in synthbench(*arguments, "--format", "tex").stdout
    assert "@inproceedings{vaswani2017attention" in synthbench(*arguments, "--cite").stdout
    assert not (store / "reports").exists()


def test_a_report_shows_mechanisms_of_the_suite_and_all_of_ones_own(
    synthbench: Command, store: Path, make_row: MakeRow
) -> None:
    origins = {"softmax": "builtin", "gla": "builtin", "my_idea": "my_idea.py"}
    rows = (
        make_row(suite="smoke", mech=mech, mech_label=mech, mech_origin=origin, seed=seed)
        for mech, origin in origins.items()
        for seed in (42, 43)
    )
    filled(store / "results", rows)

    assert synthbench("report", "--suite", "smoke", "--no-packaged", "--format", "csv").returncode == 0
    lines = csv.DictReader(io.StringIO((store / "reports" / "smoke" / "cells.csv").read_text()))
    assert {line["mechanism"] for line in lines} == {"softmax", "gla", "my_idea"}
