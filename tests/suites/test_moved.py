"""A suite that has another name by now is explained, and its rows are found."""

from pathlib import Path

from typer.testing import CliRunner

from studies.prototypes.train import SETTINGS
from synthbench.cli.app import app
from synthbench.options import MAIN_SUITE, MOVED, STUDIED
from synthbench.suites import EXTRA, load_suite, suite_names
from synthbench.trust.beside import join


def test_the_suites_of_a_study_are_its_settings() -> None:
    assert set(SETTINGS) == STUDIED
    assert not STUDIED & {*MOVED, *suite_names()}


def test_what_took_the_place_of_a_suite_is_there_and_the_suite_is_not() -> None:
    assert MAIN_SUITE in suite_names()
    for name, (now, _words) in MOVED.items():
        assert now.removesuffix(EXTRA) in suite_names()
        assert name not in suite_names()


def test_every_old_name_is_explained() -> None:
    text = (Path(__file__).parents[2] / "docs" / "upgrading.md").read_text(encoding="utf-8")
    assert all(f"{name}`" in text for name in (*MOVED, *STUDIED))


def test_a_run_of_the_new_suite_finds_the_rows_that_still_hold() -> None:
    suite, rows = load_suite(MAIN_SUITE), join(Path("results")).seen_from(MAIN_SUITE).rows
    held = rows[
        (rows["suite"] == MAIN_SUITE)
        & (rows["mech"] == "softmax")
        & (rows["condition"] == suite.condition)
        & (rows["block"] == suite.model.block)
        & (rows["positions"] == "rope")
        & (rows["mech_args"] == "{}")
        & rows["match"].isna()
        & rows["seed"].isin(suite.seeds)
        & rows["lr"].isin(suite.training.learning_rates)
    ]
    num_old = held["run_id"].isin(rows.loc[rows["suite"] == "climb", "run_id"]).sum()
    done = CliRunner().invoke(app, ["run", "--suite", MAIN_SUITE, "--mech", "softmax", "--device", "cpu", "--dry-run"])

    assert done.exit_code == 0, done.stderr
    assert num_old > 0
    assert f"{num_old} of the rows already done are of suite 'climb', which has the same protocol" in done.stderr
    planned = len(suite.tasks) * len(suite.seeds) * len(suite.training.learning_rates)
    assert f"{planned - len(held)} runs to do, {len(held)} already done" in done.stdout
