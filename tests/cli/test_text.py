"""The task text from a file to a table."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from synthbench.bits import BITS
from synthbench.results import Store
from synthbench.trust.audit import faults
from tests.cli.commands import Command
from tests.suites.files import suite_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A suite, and a text of many short files."""
    suite_file(
        tmp_path / "tiny.toml", "text", ["copy = { length = 8 }", "text = { length = 64 }"], ["softmax", "mean"],
        seeds=[1, 2], block='"attention_only"', positions='"learned"', model_dim=8, num_heads=2, num_layers=1,
        learning_rates=[1e-3, 3e-2], steps=10, batch_size=8, schedule=None, warmup_steps=None, decay_steps=None,
        test_sequences=64, validation_sequences=64, curve_every=5, curve_sequences=16,
    )  # fmt: skip
    (tmp_path / "notes").mkdir()
    for number in range(80):
        (tmp_path / "notes" / f"{number}.txt").write_text(f"note {number}: the cat sat on the mat. " * 3, "utf-8")
    return tmp_path


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Store.open(folder / "results", create=False).table().to_pylist()
    return rows


@pytest.mark.end_to_end
def test_a_text_runs_from_a_folder_to_a_table_and_another_one_has_its_own(folder: Path, synthbench: Command) -> None:
    """Beside a task that is scored by accuracy, in a report that keeps both measures apart."""
    done = synthbench("run", "--suite", "tiny.toml", "--task", "copy,text:path=notes", "--executor", "inline")
    assert done.returncode == 0, done.stderr
    assert "bits" in done.stdout
    rows = [row for row in rows_of(folder) if row["task"] == "text"]
    assert len(rows) == 8
    for row in rows:
        metrics = json.loads(row["metrics"])
        by_kind = sum(metrics[f"{kind}.bits"] * metrics[f"{kind}.share"] for kind in ("repeated", "other"))

        assert (row["metric_name"], row["skill"], row["local_ceiling"]) == (BITS, None, None)
        assert row["score"] == pytest.approx(-row["eval_loss"] / math.log(2))
        assert by_kind == pytest.approx(-row["score"], abs=1e-4)
        assert metrics["repeated.share"] + metrics["other.share"] == pytest.approx(1)
        assert row["floor"] == -metrics["reference.unigram"]
        assert "notes" not in row["config_json"]
        assert row["tuning_rule"] == "of the rows of a seed, that with the lowest validation loss"
        assert faults(row, datetime.now(UTC)) == []

    (folder / "poem.txt").write_text("Roses are red, violets are blue. " * 60, "utf-8")
    poem = ("--task", "text:path=poem.txt", "--mech", "softmax", "--seeds", "1")
    assert synthbench("run", "--suite", "tiny.toml", *poem, "--executor", "inline").returncode == 0
    report = synthbench("report", "--suite", "tiny", "--format", "md,pages")
    assert report.returncode == 0, report.stderr
    made = folder / "reports" / "tiny"
    assert "copy" in (made / "full.md").read_text(encoding="utf-8")
    assert "| real" not in (made / "full.md").read_text(encoding="utf-8")
    assert (made / "basic.md").exists()
    page = (made / "bits.md").read_text(encoding="utf-8")
    assert "copy" not in page
    corpora = {json.loads(row["task_args"])["corpus"] for row in rows_of(folder) if row["task"] == "text"}
    first, second = page.split("\n## ")[1:]
    for table, hashed in zip((first, second), sorted(corpora), strict=True):
        assert hashed in table
        assert ("Mean" in table) == (hashed == json.loads(rows[0]["task_args"])["corpus"])
    assert "needs the fewest bits per token" in report.stdout
