"""``synthbench store``: what a user sees of the care of a store, and the exit codes."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from synthbench.results import Store
from synthbench.trust.bundle import opened
from tests.cli.commands import Command

STORES = Path(__file__).parents[1] / "golden" / "stores"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    shutil.copytree(STORES / "6-c2f9cc8", tmp_path / "results")
    return tmp_path / "results"


def test_ls_says_what_a_store_holds(results: Path, synthbench: Command) -> None:
    (results / "runs" / f"job-{'0' * 16}.parquet").write_bytes(b"garbage")
    text = synthbench("store", "ls")
    facts = json.loads(synthbench("store", "ls", "--json").stdout)
    groups = {(group["of"], group["name"]): group for group in facts["groups"]}
    places = {place["place"]: place for place in facts["places"]}

    assert text.returncode == 0
    assert "smoke" in text.stdout
    assert facts["num_rows"] == 3
    assert groups["task", "copy"]["rows"] == 3
    assert groups["task", "copy"]["statuses"] == {"ok": 2, "error": 1}
    assert groups["suite", "smoke"]["version"] == "2026.1"
    assert (places["runs"]["files"], places["compact"]["files"]) == (2, 2)
    assert places["runs"]["bytes"] == sum(path.stat().st_size for path in (results / "runs").iterdir())
    assert [report["file"] for report in facts["left_out"]] == [f"runs/job-{'0' * 16}.parquet"]


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    ("options", "count"),
    [(["--seeds", "1-2"], 2), (["--status", "ok"], 2), (["--task", "copy", "--suite", "smoke", "--mech", "all"], 3)],
)
def test_options_choose_rows(options: list[str], count: int, synthbench: Command) -> None:
    listed = json.loads(synthbench("store", "ls", "--json", *options).stdout)
    exported = list(csv.DictReader(io.StringIO(synthbench("store", "export", *options).stdout)))

    assert listed["num_rows"] == len(exported) == count


def test_exports_say_the_same_in_each_format(results: Path, tmp_path: Path, synthbench: Command) -> None:
    rows = Store.open(results, create=False).table()
    lines = list(csv.DictReader(io.StringIO(synthbench("store", "export").stdout)))
    objects = json.loads(synthbench("store", "export", "--format", "json").stdout)
    assert synthbench("store", "export", "--out", "rows.parquet").returncode == 0

    assert [line["row_sha256"] for line in lines] == rows["row_sha256"].to_pylist()
    assert [entry["score"] for entry in objects] == rows["score"].to_pylist()
    assert lines[1]["error_message"] == "é | <b> =1+1"
    with opened(tmp_path / "rows.parquet") as (read, _):
        assert read.table()["row_sha256"].equals(rows["row_sha256"])
