"""Formats of others, read by the packages of those formats; cards and compact tables."""

import json
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from synthbench.reports.build import build
from synthbench.reports.card import card, compact
from synthbench.reports.exchange import every_eval_ever
from synthbench.reports.report import Report
from synthbench.reports.standings import standings
from synthbench.results import Store, published
from tests.cli.commands import Command, python
from tests.reports._made import joined, make_frame, report_of


@pytest.fixture
def report() -> Report:
    """Two mechanisms on two tasks, and one on the first alone, of which a run failed."""
    sort = make_frame({"softmax": [0.9, 0.8, 1.0], "linear": [0.1, 0.2, 0.1], "slay": [0.5, None, 0.4]})
    copy = make_frame({"softmax": [1.0, 0.9, 1.0], "linear": [0.9, 0.9, 0.8]}, task="copy", task_category="memory")
    return report_of(joined(sort, copy))


READ = """
import json, sys
import mlcroissant

dataset = mlcroissant.Dataset(sys.argv[1])
assert not dataset.metadata.ctx.issues.errors
table, column = sys.argv[2:]
values = [record[f"{table}/{column}"] for record in dataset.records(table)] if table else []
print(json.dumps([value.decode() if isinstance(value, bytes) else value for value in values]))
"""


def read_by_croissant(path: Path, table: str = "", column: str = "") -> list[Any]:
    """Validate a description with the format's own package, and read a column, if one is named.

    It runs in a process of its own: it brings a logging handler that may close the output that pytest captures.
    """
    done = python("-c", READ, str(path), table, column)
    assert done.returncode == 0, done.stderr
    values: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return values


def test_the_schema_of_every_eval_ever_accepts_what_is_exported(report: Report, need: Callable[..., None]) -> None:
    is_here = find_spec("every_eval_ever") is not None
    need("every_eval_ever", is_here, "the Makefile installs it without its dependencies")
    from every_eval_ever.eval_types import EvaluationLog  # noqa: PLC0415 - only where it is installed

    records = every_eval_ever(report, created=1.7e9)
    read = [EvaluationLog.model_validate_json(json.dumps(record, allow_nan=False)) for record in records]

    assert [one.model_info.name for one in read] == ["Softmax", "Linear", "SLAY"]
    scores = {result.evaluation_name: result.score_details for result in read[0].evaluation_results}
    assert scores["sort"].score == pytest.approx(0.9)
    (facts,) = (one for one in standings(report)["mechanisms"] if one["label"] == "Softmax")
    assert scores["copy"].uncertainty.confidence_interval.lower == pytest.approx(facts["tasks"]["copy"]["low"])
    assert len(read[2].evaluation_results) == 1
    assert len({record["evaluation_id"] for record in records}) == 3


def test_the_page_describes_its_cells_as_a_dataset(report: Report, tmp_path: Path) -> None:
    files = build(report.selection.rows, None, "paper", formats=["csv", "html"])
    (block,) = re.findall(r'<script type="application/ld\+json">(.*?)</script>', str(files["index.html"]), re.DOTALL)
    (tmp_path / "cells.csv").write_text(str(files["cells.csv"]))
    (tmp_path / "croissant.json").write_text(block)

    means = [mean for mean in read_by_croissant(tmp_path / "croissant.json", "cells", "mean") if mean is not None]
    assert means == pytest.approx(list(report.cells.frame["mean"].dropna()), rel=1e-5)
    assert "ld+json" not in str(build(report.selection.rows, None, "paper", formats=["html"])["index.html"])


@pytest.mark.end_to_end
def test_croissant_describes_every_file_of_the_packaged_rows(synthbench: Command, tmp_path: Path) -> None:
    done = synthbench("export", "--suite", "core", "--format", "croissant")
    rows = Path(shutil.copytree(published(), tmp_path / "rows"))
    (rows / "croissant.json").write_text(done.stdout)
    read_by_croissant(rows / "croissant.json")
    described = json.loads(done.stdout)
    (runs, _curves) = described["recordSet"]
    assert {"run_id", "score", "finished_at"} <= {field["name"] for field in runs["field"]}
    runs["field"] = [field for field in runs["field"] if field["name"] in ("run_id", "score", "finished_at")]
    (rows / "croissant.json").write_text(json.dumps(described))  # all columns of 10,000 rows take it a minute

    read = read_by_croissant(rows / "croissant.json", "runs", "run_id")
    stored = Store.open(published(), create=False).table().column("run_id").to_pylist()
    assert sorted(read) == sorted(stored)
    there = synthbench("export", "--suite", "core", "--format", "croissant", "--url", "https://example.org/rows/")
    first = json.loads(there.stdout)["distribution"][0]
    assert first["contentUrl"] == f"https://example.org/rows/{first['@id']}"


def test_a_card_has_scores_intervals_command_and_bibtex(report: Report) -> None:
    text = card(report, "SoftMax")

    assert report.board is not None
    entry, _ = report.board.entries
    assert f"{entry.skill.value:.2f} ({entry.skill.low:.2f} to {entry.skill.high:.2f})" in text
    assert re.search(r"\| rank +\| 1 of 2 +\|", text)
    assert "synthbench run --suite paper --mech softmax" in text
    assert "Suite paper, version 2026.1" in text
    assert "vaswani2017attention" in text
    assert re.search(r"\| rank +\| -- +\|", card(report, "slay"))


def test_a_compact_table_marks_what_is_not_shown_to_be_worse(report: Report) -> None:
    text = compact(report)

    assert r"Softmax & \textbf{.90} & \textbf{.97} \\" in text
    assert r"Linear & .13 & " in text
    assert r"\begin{table}" in text
    assert r"synthbench~\cite{synthbench}, suite paper 2026.1" in text
    assert "% @software{synthbench," in text


@pytest.mark.end_to_end
def test_a_compact_table_of_the_packaged_rows_fits_in_a_column(
    synthbench: Command, compile_latex: Callable[..., str]
) -> None:
    done = synthbench("export", "--suite", "core", "--mech", "softmax,gla,gated-deltanet,hgrn2", "--compact")

    assert r"\begin{table}" in done.stdout
    assert "Overfull" not in compile_latex({"compact.tex": rf"\twocolumn {done.stdout}"}, "letterpaper")
