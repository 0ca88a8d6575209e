"""The tasks digits and labels from files to tables, and what a user is told about other files."""

import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthbench.bits import OF_PROTOTYPES
from synthbench.results import Store
from synthbench.trust.audit import faults
from tests.tasks._files import NUM_LABELS, drawn, suite_of, text_of, write

Command = Callable[..., Any]
Row = dict[str, Any]


def write_images(folder: Path, seed: int) -> None:
    """Images of three classes, each bright in another row."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    labels = (np.arange(300) % 3).astype(np.uint8)
    pixels = rng.integers(100, size=(300, 4, 4), dtype=np.uint8)
    pixels[np.arange(300), labels] += 100
    for name, array in (("train-images-idx3-ubyte", pixels), ("train-labels-idx1-ubyte", labels)):
        sizes = struct.pack(f">{array.ndim}I", *array.shape)
        (folder / name).write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def write_documents(folder: Path, seed: int) -> None:
    """Documents with labels."""
    write(folder, text_of(drawn(300, seed=2 * seed)), text_of(drawn(60, seed=2 * seed + 1)))


SUITES = {"digits": suite_of("digits", 16, [1e-3, 3e-2]), "labels": suite_of("labels", 8, [3e-3, 3e-2])}
FILES = {"digits": write_images, "labels": write_documents}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of both tasks."""
    for task, write_files in FILES.items():
        write_files(tmp_path / f"some_{task}", 0)
    return tmp_path


def reported(task: str, folder: Path, synthbench: Command) -> tuple[list[Row], list[str]]:
    """The rows of a suite on some files, and the tables of a report that has a mechanism on other files as well."""
    (folder / "tiny.toml").write_text(SUITES[task], encoding="utf-8")
    run = ("run", "--suite", "tiny.toml", "--executor", "inline")
    done = synthbench(*run, "--task", f"{task}:path=some_{task}")
    assert done.returncode == 0, done.stderr
    rows = Store.open(folder / "results", create=False).table().to_pylist()
    assert len(rows) == 8
    for row in rows:
        assert (row["metric_name"], row["n_eval_examples"]) == (OF_PROTOTYPES, 60)
        assert row["score"] == row["n_correct"] / 60
        assert {"reference.nearest mean", "prototypes.growth"} < set(json.loads(row["metrics"]))
        assert "some_" not in row["config_json"]
        assert faults(row, datetime.now(UTC)) == []
    FILES[task](folder / "others", 1)
    others = synthbench(*run, "--task", f"{task}:path=others", "--mech", "yat")
    assert others.returncode == 0, others.stderr
    report = synthbench("report", "--suite", "tiny", "--format", "md")
    assert report.returncode == 0, report.stderr
    assert "is right most often" in report.stdout
    assert not (folder / "reports" / "tiny" / "full.md").exists()
    page = (folder / "reports" / "tiny" / "prototypes.md").read_text(encoding="utf-8")
    return rows, page.split("\n## ")[1:]


@pytest.mark.end_to_end
def test_images_run_from_files_to_a_table_and_others_have_their_own(folder: Path, synthbench: Command) -> None:
    rows, tables = reported("digits", folder, synthbench)
    metrics = [json.loads(row["metrics"]) for row in rows]

    assert {(row["floor"], row["n_params"], row["state_size"]) for row in rows} == {(1 / 3, 3 * 16 + 1, 0)}
    assert {of_row["reference.nearest mean"] for of_row in metrics} == {1}
    assert all("prototypes.alpha" in of_row for of_row in metrics)
    best = {mech: max(row["score"] for row in rows if row["mech"] == mech) for mech in ("softmax", "yat")}
    assert min(best.values()) > 0.9
    # Of three classes the least likely is never the right one, where the most likely is.
    inverted = [of_row["prototypes.inverted_accuracy"] for of_row in metrics]
    assert max(value for value, row in zip(inverted, rows, strict=True) if row["mech"] == "softmax") < 0.4
    assert sorted("Standard" in table for table in tables) == [False, True]
    assert all("nearest mean" in table and "inverted" in table for table in tables)


@pytest.mark.end_to_end
def test_documents_run_from_files_to_tables_and_others_have_their_own(folder: Path, synthbench: Command) -> None:
    rows, tables = reported("labels", folder, synthbench)
    for row in rows:
        metrics = json.loads(row["metrics"])
        assert (row["n_params"], row["n_params_mixer"]) == (256 * 16 + NUM_LABELS * 16 + 1, NUM_LABELS * 16 + 1)
        assert row["score"] == pytest.approx(metrics["P@1"])
        assert {"P@5", "PSP@5", "unnormalised PSP@5"} < set(metrics)
    all_rows = Store.open(folder / "results", create=False).table().to_pylist()
    hashes = {json.loads(row["task_args"])["corpus"] for row in all_rows}

    assert all(sum(name in table for table in tables) == 2 for name in hashes)
    assert sorted("Standard" in table for table in tables) == [False, False, True, True]
    assert sum("P@3" in table and "nearest mean" in table for table in tables) == 2
    assert sum("unnormalised PSP@5" in table and "Jain" in table for table in tables) == 2


@pytest.mark.parametrize(
    ("task", "mech", "message"),
    [
        ("digits:path=nowhere", "yat", "digits:path is 'nowhere', which is no folder"),
        ("digits:path=some_digits", "gla", "mechanism 'gla' has no fixed kernel"),
        ("labels:path=some_labels,length=2", "yat", "length of task 'labels' is 2; allowed: 8 and more"),
    ],
)
def test_a_command_ends_with_one_line_where_it_cannot_begin(
    folder: Path, synthbench: Command, task: str, mech: str, message: str
) -> None:
    (folder / "tiny.toml").write_text(SUITES[task.partition(":")[0]], encoding="utf-8")
    done = synthbench("run", "--suite", "tiny.toml", "--task", task, "--mech", mech)

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (folder / "results").exists()
