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


def test_options_are_compared_seed_by_seed_and_a_failed_run_counts_as_0() -> None:
    lower = [[skill - 0.3 - 0.01 * seed for seed, skill in enumerate(of_task)] for of_task in DEFAULT]
    rows = [rows_of({"default": DEFAULT, "R=1": lower, "P=8": DEFAULT}), rows_of({"R=4": lower}, "diverged")]
    text = "\n".join(page.results(COMPARISON, pd.concat(rows)))

    assert "24 of 24 runs, 24 minutes on one core." in text
    assert "Shown to differ: R=1 (-0.31, -0.32 to -0.30); R=4 (-0.55, " in text
    assert "Not shown to differ: P=8 (+0.00, +0.00 to +0.00)." in text
    ((_, *differences, _p),) = cells_in(text, "R=4 ")
    assert [one.split(",")[0] for one in differences] == ["-0.50", "-0.60", "-0.55"]


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
