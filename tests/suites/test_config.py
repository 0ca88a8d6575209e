import os
import re
from pathlib import Path

import numpy as np
import pytest

from synthbench.errors import UsageError
from synthbench.suites import load_suite, suite_names
from synthbench.suites.config import parse_suite
from synthbench.tasks import TASKS, sized
from tests.suites.files import suite_file

FOLDER = Path(__file__).parents[2] / "synthbench" / "suites"
STUDIES = Path(__file__).parents[2] / "studies"
SMOKE = (FOLDER / "smoke.toml").read_text(encoding="utf-8")
CORE = (FOLDER / "core.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_names_tasks_that_exist_at_a_length_that_they_have(name: str) -> None:
    for task, arguments in load_suite(name).tasks.items():
        sized(task, arguments)


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


def test_the_documented_protocol_differs_where_it_should() -> None:
    suite, long = load_suite("paper-32"), load_suite("paper-2000")

    assert (suite.training.batch_size, suite.training.steps, suite.model.bias) == (32, 200, False)
    assert suite.tasks["long_copy"] == {"length": 256}
    assert (long.training.batch_size, long.training.steps) == (32, 2000)
    assert long.tasks == suite.tasks


def test_every_ladder_has_enough_levels_to_tell_mechanisms_apart() -> None:
    small, large = load_suite("core"), load_suite("core-large")

    assert small.ladder is not None
    assert set(large.tasks) == {task for task in TASKS if TASKS.is_built_in(task) and TASKS[task].levels}
    assert all(7 <= len(TASKS[task].ladder(small.ladder.longest)) <= 13 for task in small.tasks)
    assert all(4 <= len(TASKS[task].ladder(small.ladder.longest)) <= 13 for task in large.tasks)


def test_the_large_core_has_the_tasks_of_core_and_harder_ones() -> None:
    small, large = load_suite("core"), load_suite("core-large")

    assert large.tasks.keys() > small.tasks.keys()
    assert (large.mechanisms, large.seeds) == (small.mechanisms, small.seeds)
    assert large.ladder is not None
    assert small.ladder is not None
    assert large.ladder.longest > small.ladder.longest
    added = {task: len(TASKS[task].ladder(1024)) - len(TASKS[task].ladder(256)) for task in large.tasks}
    assert min(added.values()) >= 0  # where a ladder ends with its vocabulary
    assert sum(map(bool, added.values())) > len(added) / 2


def test_a_suite_can_be_a_file(tmp_path: Path) -> None:
    path = suite_file(tmp_path / "mine.toml", "smoke")

    assert load_suite(str(path)).name == "mine"


def test_a_file_may_have_the_name_of_a_suite_that_comes_with_synthbench_if_it_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "smoke.toml"
    path.write_text(SMOKE)
    assert load_suite(str(path)) == load_suite("smoke")

    path.write_text(SMOKE.replace("steps = 200", "steps = 300"))
    with pytest.raises(UsageError, match="name is 'smoke', which comes with synthbench and says something else"):
        load_suite(str(path))


MISTAKES = {
    "smoke": [
        ("steps = 200", "stepz = 200", "did you mean 'steps'"),
        ("[evaluation]", "[evaluations]", "did you mean 'evaluation'"),
        ("steps = 200", "steps = 0", "training.steps is 0"),
        ("steps = 200", 'steps = "200"', "training.steps is '200'"),
        ("steps = 200\n", "", "training.steps is missing"),
        ("steps = 200", 'steps = 200\nschedule = "warmup-cosine"', "need each other"),
        ("[tasks]", "[tuning]\nseeds = [1]\n\n[tasks]", "name at least two"),
        ("[tasks]", "[tuning]\nseeds = [42]\n\n[tasks]", "which is a reported seed"),
        ("[tasks]", "[tuning]\nseedz = [1]\n\n[tasks]", "did you mean 'seeds'"),
        ("eps = 1e-8", "eps = nan", "training.eps"),
        ("weight_decay = 0.01", "weight_decay = -1.0", "weight_decay"),
        ("betas = [0.9, 0.999]", "betas = [0.9, 1.0]", "betas"),
        ("seeds = [42, 43]", "seeds = [42, 42]", "repeat"),
        ("seeds = [42, 43]", "seeds = []", "seeds"),
        ('optimizer = "adamw"', 'optimizer = "sgd"', "optimizer"),
        ("bias = true", "bias = 1", "model.bias is 1"),
        ('name = "smoke"', 'name = "smok"', "name is 'smok'"),
        ("copy = { length = 32 }", "copy = { length = 32 }\ncopy = { length = 16 }", "is not TOML"),
        ("copy = { length = 32 }", "copy = 32", "tasks.copy is 32"),
        ("steps = 200", f"steps = {'9' * 5000}", "is not TOML"),
        ("steps = 200", f"steps = 0x{'f' * 5000}", "is not TOML: a whole number has more than 1024 bits"),
        ("steps = 200", f"steps = {'[' * 5000}{']' * 5000}", "is not TOML"),
        ("steps = 200", f"steps{'.x' * 2000} = 200", "is not TOML"),
        ("steps = 200", "steps = { x = 1 }", "training.steps is {'x': 1}"),
        ("steps = 200", "steps = 99999999999999999999", "training.steps is 9+; .*or equal to 16777216"),
        ("model_dim = 64", "model_dim = 6400000000", "model.model_dim is 6400000000; .*or equal to 4096"),
        ("num_layers = 2", "num_layers = 100000", "model.num_layers is 100000; .*or equal to 256"),
        ("test_sequences = 1024", "test_sequences = 99999999", "evaluation.test_sequences is 99999999"),
        ("seeds = [42, 43]", "seeds = [9223372036854775808]", "seeds.0 is .*or equal to 9223372036854775807"),
        ('version = "2026.1"', 'version = ""', "version is ''"),
    ],
    "core": [
        ("decay_steps = 307\n", "", "'warmup-stable-decay' and decay_steps need each other"),
        ("decay_steps = 307", "decay_steps = 1000", "are 1051 together; allowed: fewer than 1024"),
        ("longest = 256", "longest = 0", "ladder.longest is 0"),
        ("longest = 256\n", "", "ladder.longest is missing"),
        ("[ladder]", "[lader]", "did you mean 'ladder'"),
        ("mqar = {}", "mqar = { length = 32 }", "tasks.mqar has arguments"),
        ("curve_every = 128", "curve_every = 128\nthreshold = 0.9", "go with sizes, not with a ladder"),
        ("curve_every = 128", "curve_every = 128\nstretches = [2]", "go with sizes, not with a ladder"),
        ("curve_every = 128", "curve_every = 128\nshifts = [7]", "go with sizes, not with a ladder"),
        ("curve_every = 128", "curve_every = 128\nshifts = [-7]", r"evaluation\.shifts\.0 is -7; .*greater than 0"),
        ("curve_every = 128", "curve_every = 128\nshifts = [2000000]", "is 2000000; .*less than or equal to 1048576"),
        ("test_sequences = 256\n", "", "evaluation.test_sequences is missing"),
        ("validation_sequences = 64\n", "", "several training.learning_rates need evaluation.validation_sequences"),
        ("[ladder]", "[tuning]\nseeds = [7]\n[ladder]", "tuning goes with sizes, not with a ladder"),
    ],
}


@pytest.mark.parametrize(
    ("suite", "before", "after", "message"), [(suite, *row) for suite, rows in MISTAKES.items() for row in rows]
)
def test_every_mistake_is_named(suite: str, before: str, after: str, message: str) -> None:
    text = {"smoke": SMOKE, "core": CORE}[suite]
    assert before in text
    with pytest.raises(UsageError, match=message):
        parse_suite(text.replace(before, after), origin=f"{suite}.toml", expected_name=suite)


def test_sizes_need_validation_sequences() -> None:
    with pytest.raises(UsageError, match=r"evaluation\.curve_sequences is missing"):
        parse_suite(SMOKE.replace("curve_sequences = ", "# "), origin="smoke.toml", expected_name="smoke")
    text = SMOKE.replace("[1e-3]", "[1e-3, 1e-2]").replace("threshold = 0.9", "validation_sequences = 8")
    assert parse_suite(text, origin="smoke.toml", expected_name="smoke").evaluation.threshold is None
    with pytest.raises(UsageError, match=r"tuning and evaluation\.validation_sequences choose a learning rate"):
        parse_suite(f"{text}[tuning]\nseeds = [7]\n", origin="smoke.toml", expected_name="smoke")


@pytest.mark.parametrize("table", ["tasks", "mechanisms"])
def test_an_empty_table_is_named(table: str) -> None:
    text = re.sub(rf"(?ms)^\[{table}\].*?(?=^\[|\Z)", f"[{table}]\n", SMOKE)
    with pytest.raises(UsageError, match=rf"smoke\.toml: {table} is {{}}"):
        parse_suite(text, origin="smoke.toml", expected_name="smoke")


@pytest.mark.parametrize(
    ("quick", "message"),
    [
        ('["mqarr"]', r"core\.toml: quick: no task of the suite called 'mqarr'; did you mean 'mqar'\?"),
        ('["mqar", "mqar"]', "quick is .*repeat"),
        ("[]", "quick is"),
    ],
)
def test_the_tasks_of_a_first_verdict_are_the_suites(quick: str, message: str) -> None:
    text = re.sub(r"(?ms)^quick = \[.*?\]", f"quick = {quick}", CORE)
    assert text != CORE
    with pytest.raises(UsageError, match=message):
        parse_suite(text, origin="core.toml", expected_name="core")


def test_no_suite_takes_the_name_of_anothers_further_tasks() -> None:
    with pytest.raises(UsageError, match=r"name is 'smoke\.extra'; allowed: any that does not end in '\.extra'"):
        parse_suite(SMOKE.replace('"smoke"', '"smoke.extra"'), origin="smoke.extra.toml", expected_name="smoke.extra")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        load_suite(str(tmp_path / "binary.toml"))
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(UsageError, match=r"pipe\.toml' is no plain file"):
        load_suite(str(tmp_path / "pipe.toml"))


def test_a_longer_test_has_the_tokens_of_the_training() -> None:
    suite = load_suite("peers")
    for name, arguments in suite.tasks.items():
        length, options = sized(name, arguments)
        task = TASKS[name](**options)
        for factor in suite.evaluation.stretches or ():
            longer, longer_length = task.stretched(length, factor)
            assert longer.vocab_size == task.vocab_size
            assert longer.sample(np.random.default_rng(0), 1, longer_length).inputs.shape == (1, longer_length)
