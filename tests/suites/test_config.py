import re
from pathlib import Path

import numpy as np
import pytest

from synthbench.errors import UsageError
from synthbench.suites import load_suite, suite_names
from synthbench.suites.config import parse_suite
from synthbench.tasks import TASKS, sized

FOLDER = Path(__file__).parents[2] / "synthbench" / "suites"
STUDIES = Path(__file__).parents[2] / "studies"
SMOKE = (FOLDER / "smoke.toml").read_text(encoding="utf-8")
CORE = (FOLDER / "core.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*suite_names(), *map(str, STUDIES.glob("*.toml"))])
def test_every_study_of_a_suite_exists(name: str) -> None:
    assert all((STUDIES / study / "README.md").is_file() for study in load_suite(name).studies)


def test_paper_is_the_protocol_of_the_published_table() -> None:
    suite = load_suite("paper")

    assert len(suite.tasks) == 22
    assert set(suite.tasks) == {name for name in TASKS if TASKS[name].source == "slay2026"}
    assert (suite.training.batch_size, suite.training.steps, suite.training.learning_rates) == (16, 200, (1e-3,))
    assert suite.model.bias
    assert suite.tasks["long_copy"] == {"length": 128}
    assert suite.mechanisms["slay"] == {"R": 2, "D": 16, "P": 32, "epsilon": 1e-6, "guard": "clamp"}
    assert suite.seeds == tuple(range(42, 52))
    others = {name: TASKS[name].length for name in suite.tasks if name != "long_copy"}
    assert {name: suite.tasks[name]["length"] for name in others} == others


def test_every_ladder_has_enough_levels_to_tell_mechanisms_apart() -> None:
    small, large = load_suite("core"), load_suite("core-large")

    assert small.ladder is not None
    assert set(large.tasks) == {task for task in TASKS if TASKS.is_built_in(task) and TASKS[task].levels}
    assert all(7 <= len(TASKS[task].ladder(small.ladder.longest)) <= 13 for task in small.tasks)
    assert all(4 <= len(TASKS[task].ladder(small.ladder.longest)) <= 13 for task in large.tasks)


def test_a_file_may_have_the_name_of_a_suite_that_comes_with_synthbench_if_it_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "smoke.toml"
    path.write_text(SMOKE)
    assert load_suite(str(path)) == load_suite("smoke")

    path.write_text(SMOKE.replace("steps = 200", "steps = 300"))
    with pytest.raises(UsageError, match="name is 'smoke', which comes with synthbench and says something else"):
        load_suite(str(path))


MISTAKES = re.findall(
    r"^(\w+): (.*)\n- (.*\n)((?:\+ .*\n)*)",
    (Path(__file__).parents[1] / "golden" / "suites.txt").read_text(encoding="utf-8"),
    re.MULTILINE,
)
"""A suite, how its change is refused, and the change: a line before, and the lines after."""


def refused(text: str, name: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_suite(text, origin=f"{name}.toml", expected_name=name)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(("suite", "message", "before", "after"), MISTAKES)
def test_every_mistake_is_named(suite: str, message: str, before: str, after: str) -> None:
    text = {"smoke": SMOKE, "core": CORE}[suite]
    assert before in text
    refused(text.replace(before, re.sub(r"(?m)^\+ ", "", after)), suite, message)


@pytest.mark.parametrize(
    "setting", [f"= {'9' * 5000}", f"= 0x{'f' * 5000}", f"= {'[' * 5000}{']' * 5000}", f"{'.x' * 2000} = 200"]
)
def test_what_a_reader_of_toml_may_choke_on_is_named(setting: str) -> None:
    refused(SMOKE.replace("steps = 200", f"steps {setting}"), "smoke", "smoke.toml is not TOML: ")


def test_one_thing_chooses_a_learning_rate_and_a_threshold_may_be_left_out() -> None:
    text = SMOKE.replace("[1e-3]", "[1e-3, 1e-2]").replace("threshold = 0.9", "validation_sequences = 8")

    assert parse_suite(text, origin="smoke.toml", expected_name="smoke").evaluation.threshold is None
    both = "smoke.toml: tuning and evaluation.validation_sequences choose a learning rate"
    refused(f"{text}[tuning]\nseeds = [7]\n", "smoke", both)


@pytest.mark.parametrize("table", ["tasks", "mechanisms"])
def test_an_empty_table_is_named(table: str) -> None:
    text = re.sub(rf"(?ms)^\[{table}\].*?(?=^\[|\Z)", f"[{table}]\n", SMOKE)
    refused(text, "smoke", f"smoke.toml: {table} is {{}}")


def test_a_longer_test_has_the_tokens_of_the_training() -> None:
    suite = load_suite("peers")
    for name, arguments in suite.tasks.items():
        length, options = sized(name, arguments)
        task = TASKS[name](**options)
        for factor in suite.evaluation.stretches or ():
            longer, longer_length = task.stretched(length, factor)
            assert longer.vocab_size == task.vocab_size
            assert longer.sample(np.random.default_rng(0), 1, longer_length).inputs.shape == (1, longer_length)
