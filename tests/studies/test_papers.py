"""The pages on experiments of the source papers say what their rows say."""

from collections.abc import Mapping, Sequence

import pandas as pd
import pytest

from studies.papers import page
from synthbench.suites import load_suite
from tests.studies._made import cells_in

TASKS = ("sort", "addition")
COMPARISON = page.of_options("slay", ["R=1", "R=4", "P=8"], TASKS)
IDS = {name: page.run_ids(arm, TASKS) for name, arm in COMPARISON.arms.items()}


def rows_of(skills: Mapping[str, Sequence[Sequence[float]]], status: str = "ok") -> pd.DataFrame:
    """Rows of some arms, from skills by task and seed."""
    found = [
        {"run_id": run_id, "skill": skill, "status": status, "wall_s": 120.0, "ensemble_size": 2}
        for name, of_tasks in skills.items()
        for run_ids, of_task in zip(IDS[name], of_tasks, strict=True)
        for run_id, skill in zip(run_ids, of_task, strict=False)
    ]
    return pd.DataFrame(found, columns=page.COLUMNS).set_index("run_id")


DEFAULT = [[0.5, 0.52, 0.48], [0.6, 0.63, 0.57]]
LOWER = [[skill - 0.3 - 0.01 * seed for seed, skill in enumerate(of_task)] for of_task in DEFAULT]


def test_an_option_that_lowers_every_seed_is_shown_to_differ_and_missing_rows_are_shown_as_missing() -> None:
    rows = rows_of({"default": DEFAULT, "R=1": LOWER, "P=8": DEFAULT})
    text = "\n".join(page.results(COMPARISON, rows))

    assert "18 of 24 runs, 18 minutes on one core." in text
    assert "Shown to differ: R=1 (-0.31, -0.32 to -0.30)." in text
    assert "Not shown to differ: P=8 (+0.00, +0.00 to +0.00)." in text
    assert "Rows missing: R=4 (--)." in text
    assert cells_in(text, "R=4") == [["R=4", *["--"] * 4]]


def test_a_failed_run_counts_as_0_and_a_single_run_has_no_interval() -> None:
    rows = pd.concat([rows_of({"default": DEFAULT}), rows_of({"R=1": LOWER}, "diverged")])
    alone = page.results(COMPARISON, rows_of({"default": [[0.5], [0.7]], "R=1": [[0.25], [0.25]]}))

    assert "R=1 (-0.55, " in "".join(page.results(COMPARISON, rows))
    assert cells_in("\n".join(alone), "R=1") == [["R=1", "-0.25", "-0.45", "-0.35", "--"]]


def test_the_arm_without_a_curriculum_is_suite_paper_and_no_two_arms_share_a_run() -> None:
    comparison = page.of_curriculum("rewa-geometric", load_suite("paper").training.steps)
    ids = {name: page.run_ids(arm, comparison.tasks) for name, arm in comparison.arms.items()}
    paper = page.run_ids(page.Arm(load_suite("paper"), "rewa-geometric"), comparison.tasks)

    assert ids["constant rate"] == paper
    every = [run_id for of_tasks in ids.values() for run_ids in of_tasks for run_id in run_ids]
    assert len(set(every)) == len(every) == 3 * 4 * 3


@pytest.mark.parametrize("name", page.PAGES)
def test_a_page_names_every_option_that_it_compares(name: str) -> None:
    text = (page.HERE / name / "README.md").read_text(encoding="utf-8")
    command = text[: text.index(page.MARKERS[0])]

    for comparison in page.PAGES[name]:
        for arm in comparison.arms.values():
            assert arm.term.partition(":")[2] in command
