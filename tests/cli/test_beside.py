"""``--beside`` as a user types it: one's own rows and those of another store in one report."""

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
from tests.cli.commands import Command, MakeRow
from tests.results.stores import filled

POINT = {"split": "eval", "metric": "accuracy", "step": 50, "value": 0.5, "wall_s": 1.0, "tokens": 640}


@pytest.fixture
def own(tmp_path: Path, make_row: MakeRow) -> Path:
    """A folder with a store of one's own: one mechanism, and a run that the others have as well."""
    mine = [make_row(suite="smoke", mech="my_idea", mech_origin="my_idea.py", seed=seed) for seed in (42, 43)]
    filled(tmp_path / "results", [*mine, make_row(suite="smoke", mech="softmax", seed=42, score=0.5)])
    return tmp_path


def others(folder: Path, make_row: MakeRow) -> Store:
    """A store of somebody else, with a learning curve."""
    store = Store.open(folder, create=True)
    for mech in ("softmax", "linear"):
        for seed in (42, 43):
            row = make_row(suite="smoke", mech=mech, seed=seed, score=1.0)
            store.write_all([(row, [POINT] if mech == "linear" else [])])
    store.compact()
    return store


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def scores(folder: Path) -> dict[tuple[str, str], float]:
    """The scores of a report by mechanism and seed."""
    lines = csv.DictReader(io.StringIO((folder / "reports" / "smoke" / "runs.csv").read_text()))
    return {(line["mechanism"], line["seed"]): float(line["score"]) for line in lines}


@pytest.mark.parametrize("named", ["theirs", "theirs.parquet"])
def test_ones_own_rows_stand_beside_others_and_win_over_the_same_run(
    named: str, synthbench: Command, own: Path, make_row: MakeRow
) -> None:
    (rows,) = (others(own / "theirs", make_row).root / "compact").glob("runs-*.parquet")
    shutil.copy(rows, own / "theirs.parquet")
    (own / "theirs" / "compact" / "runs-0123456789abcdef.parquet").write_bytes(b"no Parquet")
    before = contents(own)
    formats = "runs,md,html" if named == "theirs" else "runs,md"
    done = synthbench("report", "--suite", "smoke", "--beside", named, "--no-packaged", "--format", formats)

    assert done.returncode == 0, done.stderr
    assert scores(own) == {
        ("My_Idea", "42"): 0.75, ("My_Idea", "43"): 0.75, ("Softmax", "42"): 0.5, ("Softmax", "43"): 1.0,
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
    assert {name: content for name, content in contents(own).items() if "/reports/" not in name} == before


def test_a_run_that_two_suites_have_stays_in_both(own: Path, make_row: MakeRow) -> None:
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
