"""``synthbench report`` and ``synthbench export`` as a user types them."""

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from synthbench.results import Store, published
from synthbench.suites import load_suite
from synthbench.trust.beside import join
from tests.cli.commands import Command
from tests.results.rows import make_row
from tests.results.stores import filled, listing


@pytest.fixture
def store(tmp_path: Path) -> Path:
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


@pytest.mark.usefixtures("store")
def test_a_report_ends_with_the_verdict_the_ranking_and_its_page(synthbench: Command) -> None:
    lines = synthbench("report", "--suite", "custom", "--no-packaged", "--format", "md").stdout.splitlines()
    verdict, outlook, significant, heading, *ranking, page = lines

    assert verdict == "Basic: Softmax .87; next: Slay .61"
    assert outlook.startswith("Each line names every mechanism that may be the best on these tasks (95 % ")
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


POINT = {"split": "eval", "metric": "accuracy", "step": 50, "value": 0.5, "wall_s": 1.0, "tokens": 640}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a store of one's own: a mechanism that the suite lacks, and a run that the others have as well."""
    mine = [make_row(suite="smoke", mech="gla", seed=seed) for seed in (42, 43)]
    filled(tmp_path / "results", [*mine, make_row(suite="smoke", mech="softmax", seed=42, score=0.5)])
    return tmp_path


def others(folder: Path) -> Store:
    """A store of somebody else, with a learning curve."""
    for mech, curve in (("softmax", []), ("linear", [POINT])):
        store = filled(folder, [make_row(suite="smoke", mech=mech, seed=seed, score=1.0) for seed in (42, 43)], curve)
    store.compact()
    return store


def scores(folder: Path) -> dict[tuple[str, str], float]:
    """The scores of a report by mechanism and seed."""
    lines = csv.DictReader(io.StringIO((folder / "reports" / "smoke" / "runs.csv").read_text()))
    return {(line["mechanism"], line["seed"]): float(line["score"]) for line in lines}


@pytest.mark.parametrize("named", ["theirs", "theirs.parquet"])
def test_ones_own_rows_stand_beside_others_and_win_over_the_same_run(
    named: str, synthbench: Command, own: Path
) -> None:
    (rows,) = (others(own / "theirs").root / "compact").glob("runs-*.parquet")
    shutil.copy(rows, own / "theirs.parquet")
    (own / "theirs" / "compact" / "runs-0123456789abcdef.parquet").write_bytes(b"no Parquet")
    before = listing(own)
    formats = "runs,md,html" if named == "theirs" else "runs,md"
    done = synthbench("report", "--suite", "smoke", "--beside", named, "--no-packaged", "--format", formats)

    assert done.returncode == 0, done.stderr
    assert scores(own) == {
        ("Gla", "42"): 0.75, ("Gla", "43"): 0.75, ("Softmax", "42"): 0.5, ("Softmax", "43"): 1.0,
        ("Linear", "42"): 1.0, ("Linear", "43"): 1.0,
    }  # fmt: skip
    report = own / "reports" / "smoke"
    assert f"- Stores: 3 from results, 3 from {named}. Times and memory" in (report / "README.md").read_text()
    if named == "theirs":
        assert "cannot be compared between stores" in (report / "index.html").read_text()
        assert f"--results results --beside {named}" in (report / "index.html").read_text()
        assert "left out: compact/runs-0123456789abcdef.parquet: not a readable Parquet file" in done.stderr
        curves = csv.DictReader(io.StringIO((report / "curves.csv").read_text()))
        assert {line["mechanism"] for line in curves} == {"Linear"}  # of the store that has them
    assert {name: file for name, file in listing(own).items() if not name.startswith("reports/")} == before


def test_a_run_that_two_suites_have_stays_in_both(own: Path) -> None:
    same = make_row(suite="smoke", mech="softmax", seed=42, score=0.5)["run_id"]
    filled(own / "theirs", [make_row(suite="paper", mech="softmax", seed=42, score=0.5, run_id=same)])
    rows = join(own / "results", str(own / "theirs"), has_packaged=False).rows

    softmax = rows[rows["mech"] == "softmax"]
    assert sorted(softmax["suite"]) == ["paper", "smoke"]
    assert softmax["run_id"].nunique() == 1


@pytest.fixture(scope="module")
def of_protocol() -> list[dict[str, Any]]:
    """Packaged rows of another suite that have the protocol of the main one."""
    is_of_protocol = (pc.field("suite") == "climb") & ~pc.field("task").isin(["mqar", "in_context_recall"])
    rows: list[dict[str, Any]] = Store.open(published(), create=False).table().filter(is_of_protocol).to_pylist()
    return rows


@pytest.mark.parametrize("suite", ["core", "core.extra"])
def test_a_row_of_another_suite_is_also_of_the_suite_whose_protocol_and_tasks_it_has(
    suite: str, of_protocol: list[dict[str, Any]], tmp_path: Path
) -> None:
    tasks = load_suite("core").tasks
    row = next(row for row in of_protocol if (row["task"] in tasks) == (suite == "core")) | {
        "suite": "my_suite",
        "suite_version": "1",
        "is_full": False,
    }
    config = json.loads(row["config_json"])
    other_config = json.dumps(config | {"training": config["training"] | {"weight_decay": 0.5}})
    other_size = json.dumps(config | {"task_args": {}})
    configs = {"a" * 16: row["config_json"], "b" * 16: other_config, "c" * 16: other_size}
    filled(tmp_path, (row | {"run_id": run_id, "config_json": text} for run_id, text in configs.items()))
    joined = join(tmp_path, has_packaged=False)

    seen = joined.seen_from(suite)

    also = seen.rows[seen.rows["suite"] == suite]
    assert also["run_id"].tolist() == ["a" * 16]
    assert also["is_full"].all()
    assert len(seen.is_own) == len(seen.rows)
    assert joined.seen_from("my_suite").rows.equals(joined.rows)
