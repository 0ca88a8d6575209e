"""The pages on experiments of the source papers say what their rows say."""

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.pages import main
from synthbench.suites import load_suite

FOLDER = Path(__file__).parents[2] / "studies" / "papers"
page = runpy.run_path(str(FOLDER / "page.py"))
TASKS = ("sort", "addition")
COMPARISON = page["of_options"]("slay", ["R=1", "R=4", "P=8"], TASKS)
IDS = {name: page["run_ids"](arm, TASKS) for name, arm in COMPARISON.arms.items()}


def rows_of(skills: Mapping[str, Sequence[Sequence[float]]], status: str = "ok") -> pd.DataFrame:
    """Rows of some arms, from skills by task and seed."""
    found = [
        {"run_id": run_id, "skill": skill, "status": status, "wall_s": 120.0, "ensemble_size": 2}
        for name, of_tasks in skills.items()
        for run_ids, of_task in zip(IDS[name], of_tasks, strict=True)
        for run_id, skill in zip(run_ids, of_task, strict=False)
    ]
    return pd.DataFrame(found, columns=page["COLUMNS"]).set_index("run_id")


DEFAULT = [[0.5, 0.52, 0.48], [0.6, 0.63, 0.57]]
LOWER = [[skill - 0.3 - 0.01 * seed for seed, skill in enumerate(of_task)] for of_task in DEFAULT]


def test_an_option_that_lowers_every_seed_is_shown_to_differ_and_missing_rows_are_shown_as_missing() -> None:
    rows = rows_of({"default": DEFAULT, "R=1": LOWER, "P=8": DEFAULT})
    text = "\n".join(page["results"](COMPARISON, rows))

    assert "18 of 24 runs, 18 minutes on one core." in text
    assert "Shown to differ: R=1 (-0.31, -0.3" in text
    assert "Not shown to differ: P=8 (+0.00, +0.00 to +0.00)." in text
    assert "Rows missing: R=4 (--)." in text
    (line,) = (line for line in text.splitlines() if line.startswith("| R=4"))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["--"] * 4


def test_a_failed_run_counts_as_0_and_a_single_run_has_no_interval() -> None:
    failed = page["results"](
        COMPARISON, pd.concat([rows_of({"default": DEFAULT}), rows_of({"R=1": LOWER}, "diverged")])
    )
    alone = page["results"](COMPARISON, rows_of({"default": [[0.5], [0.7]], "R=1": [[0.25], [0.25]]}))

    assert "R=1 (-0.55, " in "".join(failed)
    (line,) = (line for part in alone for line in part.splitlines() if line.startswith("| R=1"))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["-0.25", "-0.45", "-0.35", "--"]


@given(st.lists(st.lists(st.floats(0, 1), min_size=6, max_size=6), min_size=2, max_size=2))
def test_a_difference_is_the_mean_over_tasks_of_runs_with_the_same_seed(drawn: list[list[float]]) -> None:
    before, after = (np.array(one).reshape(2, 3) for one in drawn)
    rows = rows_of({"default": before.tolist(), "R=1": after.tolist()})
    *_, table = page["results"](COMPARISON, rows)
    (line,) = (line for line in table.splitlines() if line.startswith("| R=1"))

    *of_tasks, mean, _p = (cell.partition(",")[0].strip() for cell in line.split("|")[2:-1])
    expected = [float((theirs - ours).mean()) for ours, theirs in zip(before, after, strict=True)]
    assert [float(value) for value in (*of_tasks, mean)] == pytest.approx([*expected, np.mean(expected)], abs=0.0051)


def test_the_arm_without_a_curriculum_is_suite_paper_and_no_two_arms_share_a_run() -> None:
    comparison = page["of_curriculum"]("rewa-geometric", load_suite("paper").training.steps)
    ids = {name: page["run_ids"](arm, comparison.tasks) for name, arm in comparison.arms.items()}
    paper = page["run_ids"](page["Arm"](load_suite("paper"), "rewa-geometric"), comparison.tasks)

    assert ids["constant rate"] == paper
    every = [run_id for of_tasks in ids.values() for run_ids in of_tasks for run_id in run_ids]
    assert len(set(every)) == len(every) == 3 * 4 * 3


@pytest.mark.parametrize("name", page["PAGES"])
def test_a_page_names_every_option_that_it_compares(name: str) -> None:
    text = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    command = text[: text.index(page["MARKERS"][0])]

    for comparison in page["PAGES"][name]:
        for arm in comparison.arms.values():
            assert arm.term.partition(":")[2] in command


@pytest.mark.end_to_end
def test_the_pages_have_the_tables_that_the_rows_make() -> None:
    assert main(page["files"](), ["--check"]) == 0, "python -m studies.papers.page writes them anew"
