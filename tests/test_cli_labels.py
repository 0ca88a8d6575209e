"""The task labels from files to tables, and what a user is told about other files."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from synthbench.bits import OF_PROTOTYPES
from synthbench.results import Store
from synthbench.trust.audit import faults
from tests.tasks._files import NUM_LABELS, drawn, suite_of, text_of, write

Command = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(suite_of("labels", 8, [3e-3, 3e-2]), encoding="utf-8")
    write(tmp_path / "files", text_of(drawn(300)), text_of(drawn(60, seed=1)), prefix="eurlex_")
    return tmp_path


def test_documents_run_from_files_to_tables_and_others_have_their_own(folder: Path, synthbench: Command) -> None:
    run = ("run", "--suite", "tiny.toml", "--executor", "inline")
    done = synthbench(*run, "--task", "labels:path=files")
    assert done.returncode == 0, done.stderr
    rows = Store.open(folder / "results", create=False).table().to_pylist()
    assert len(rows) == 8
    for row in rows:
        metrics = json.loads(row["metrics"])

        assert row["metric_name"] == OF_PROTOTYPES
        assert (row["n_params"], row["n_params_mixer"]) == (256 * 16 + NUM_LABELS * 16 + 1, NUM_LABELS * 16 + 1)
        assert row["n_eval_examples"] == 60
        assert row["score"] == row["n_correct"] / 60 == pytest.approx(metrics["P@1"])
        assert {"reference.nearest mean", "P@5", "PSP@5", "unnormalised PSP@5", "prototypes.growth"} < set(metrics)
        assert "files" not in row["config_json"]
        assert faults(row, datetime.now(UTC)) == []

    write(folder / "others", text_of(drawn(300, seed=2)), text_of(drawn(60, seed=3)))
    others = synthbench(*run, "--task", "labels:path=others", "--mech", "yat")
    assert others.returncode == 0, others.stderr
    report = synthbench("report", "--suite", "tiny", "--format", "md")
    assert report.returncode == 0, report.stderr
    page = (folder / "reports" / "tiny" / "prototypes.md").read_text(encoding="utf-8")
    tables = page.split("\n## ")[1:]
    hashes = {
        json.loads(row["task_args"])["corpus"]
        for row in Store.open(folder / "results", create=False).table().to_pylist()
    }
    assert len(tables) == 4
    assert all(sum(name in table for table in tables) == 2 for name in hashes)
    assert sorted("Standard" in table for table in tables) == [False, False, True, True]
    assert sum("P@3" in table and "nearest mean" in table for table in tables) == 2
    assert sum("unnormalised PSP@5" in table and "Jain" in table for table in tables) == 2
    assert "is right most often" in report.stdout
    assert not (folder / "reports" / "tiny" / "full.md").exists()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("labels:path=nowhere", "labels:path is 'nowhere', which is no folder"),
        ("labels:path=files,corpus=sha256-0", "put the old files back"),
        ("labels:path=files,length=2", "length of task 'labels' is 2; allowed: 8 and more"),
        ("labels", "length of task 'labels' is 8; allowed: 50 and more"),
    ],
)
def test_a_command_ends_with_one_line_where_it_cannot_begin(
    folder: Path, synthbench: Command, task: str, message: str
) -> None:
    done = synthbench("run", "--suite", "tiny.toml", "--task", task, "--mech", "yat")

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (folder / "results").exists()
