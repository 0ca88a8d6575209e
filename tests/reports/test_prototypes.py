"""Tables of tasks with prototypes, on rows whose numbers are known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from synthbench.bits import OF_PROTOTYPES
from synthbench.canonical import canonical_json
from synthbench.reports.build import files_of
from synthbench.reports.report import Report
from synthbench.reports.selection import select

MakeRow = Callable[..., dict[str, Any]]
ACCURACIES = {"softmax": (0.90, 0.91, 0.89), "yat": (0.91, 0.93, 0.92), "slay": (0.50, 0.52, 0.51)}
INVERTED = {"softmax": 0.0, "yat": 0.85, "slay": 0.2}


@pytest.fixture
def rows(make_row: MakeRow) -> list[dict[str, Any]]:
    made = []
    for mech, accuracies in ACCURACIES.items():
        for seed, accuracy in enumerate(accuracies, start=1):
            metrics = {
                "reference.nearest mean": 0.81,
                "prototypes.inverted_accuracy": INVERTED[mech],
                "prototypes.growth": 0.1 * seed,
                "prototypes.alpha": 2.0,
            }
            given = {
                "suite": "digits", "task": "digits", "task_category": "real", "task_source": "lecun1998gradient",
                "task_args": canonical_json({"corpus": "sha256-aa", "length": 784}), "mech": mech, "seed": seed,
                "mech_label": mech, "mech_family": mech, "metric_name": OF_PROTOTYPES, "score": accuracy, "floor": 0.1,
                "metrics": canonical_json(metrics),
            }  # fmt: skip
            made.append(make_row(**given))
    return made


def report_of(rows: list[dict[str, Any]]) -> Report:
    return Report(select(pd.DataFrame(rows), "digits"), None)


def test_the_table_has_the_order_the_gain_and_the_inversion(rows: list[dict[str, Any]]) -> None:
    (table,) = report_of(rows).pages["prototypes"].tables
    lines = {line.labels[0]: line.cells for line in table.lines}

    assert list(lines) == ["yat", "softmax", "slay", "nearest mean"]
    assert [cells[0].value for cells in lines.values()] == ["92.0", "90.0", "51.0", "81.0"]
    assert [cells[2].value for cells in list(lines.values())[:3]] == ["85.0", "0.0", "20.0"]
    assert [cell.value for cell in lines["yat"][3:]] == ["20.0", "2.00"]
    gains = np.array([0.01, 0.02, 0.03])
    half = stats.t.ppf(0.975, 2) * gains.std(ddof=1) / np.sqrt(3)
    assert lines["yat"][1].value == "2.0"
    assert lines["yat"][1].remarks == (f"−{100 * (half - 0.02):.1f} to {100 * (half + 0.02):.1f}",)
    assert lines["softmax"][1].value == "--"


def test_the_verdict_names_the_gain_over_the_inner_product(rows: list[dict[str, Any]]) -> None:
    found = report_of(rows).verdict

    assert "yat is right most often, in 92.0 %: 2.0 (−0.5 to 4.5) points more than the inner product" in found


def test_such_tasks_are_in_no_ranking_and_no_mean(rows: list[dict[str, Any]], make_row: MakeRow) -> None:
    alone = report_of(rows)
    assert set(alone.pages) == {"prototypes"}
    assert alone.board is None
    assert not any(name.endswith("html") for name in files_of(alone, ["md", "tex", "csv", "json", "html"]))

    both = report_of([*rows, *(make_row(suite="digits", seed=seed, mech="yat") for seed in (1, 2, 3))])
    assert {"prototypes", "full", "basic"} <= set(both.pages)
    assert "real" not in both.pages
    (full, *_) = both.pages["full"].tables
    assert "digits" not in str(full)


def test_a_run_without_a_score_is_counted_and_not_averaged(rows: list[dict[str, Any]], make_row: MakeRow) -> None:
    unknown = dict.fromkeys(("score", "skill", "n_eval_examples", "n_correct"))
    failed = make_row(**{**rows[-1], "seed": 4, "status": "oom", "metrics": "{}", **unknown, "run_id": "0" * 16})
    (table,) = report_of([*rows, failed]).pages["prototypes"].tables
    slay = next(line.cells[0] for line in table.lines if line.labels[0] == "slay")

    assert slay.value == "51.0"
    assert "1 failed" in slay.remarks


def test_labels_have_a_table_of_precision_and_one_of_rare_labels(make_row: MakeRow) -> None:
    made = []
    for mech, accuracies in ACCURACIES.items():
        for seed, precision in enumerate(accuracies, start=1):
            metrics = {"reference.nearest mean": 0.4, "prototypes.alpha": 1.0, "prototypes.growth": 0.5}
            for k in (1, 3, 5):
                metrics |= {
                    f"P@{k}": precision / k,
                    f"PSP@{k}": precision / 2 / k,
                    f"unnormalised PSP@{k}": 2 * precision / k,
                }
            given = {
                "suite": "labels", "task": "labels", "task_category": "real", "task_source": "fellbaum1998wordnet",
                "task_args": canonical_json({"corpus": "sha256-aa", "length": 82}), "mech": mech, "seed": seed,
                "mech_label": mech, "mech_family": mech, "metric_name": OF_PROTOTYPES, "score": precision, "floor": 0.1,
                "metrics": canonical_json(metrics),
            }  # fmt: skip
            made.append(make_row(**given))
    report = Report(select(pd.DataFrame(made), "labels"), None)
    precision_at, rare = report.pages["prototypes"].tables
    cells = {line.labels[0]: [cell.value for cell in line.cells] for line in precision_at.lines}

    assert [column.label for column in precision_at.columns] == [
        "P@1, %", "against the inner product", "P@3, %", "P@5, %", "alpha"
    ]  # fmt: skip
    assert cells["yat"] == ["92.0", "2.0", "30.7", "18.4", "1.00"]
    assert cells["nearest mean"] == ["40.0", "", "", "", ""]
    rows = {line.labels[0]: [cell.value for cell in line.cells] for line in rare.lines}
    assert list(rows) == ["yat", "softmax", "slay"]
    assert rows["yat"] == ["46.0", "15.3", "9.2", "1.84", "0.61", "0.37"]
    assert "jain2016propensity" in rare.sources
    assert precision_at.name == "prototypes-1"
    assert rare.name == "prototypes-1-propensity"
