"""The study of other suites' numbers, for made-up rows; its numbers are of what the suite runs."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from studies.pages import each
from studies.peers import page as study
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.options import coerce
from synthbench.sources import bibtex
from synthbench.suites import load_suite
from tests.reports._made import make_frame


def config(**training: float) -> str:
    """Give the configuration of a row as far as it decides what was changed."""
    return json.dumps({"model": {}, "training": {"steps": 2000} | training, "evaluation": {}, "learning_rate": 0.001})


def made(scores: Sequence[float], /, **changes: Any) -> pd.DataFrame:
    """Make the rows of one setting: scores at every length that is longer, by seed; 1 at the length of the training."""
    facts: dict[str, Any] = {
        "task": "even_pairs", "suite": "peers", "block": "transformer", "positions": "rope", "floor": 0.5,
        "config_json": config(), "n_eval_examples": 32_000, "batch_size": 64, "ensemble_size": 1,
        "step_ms_median": 64.0, **changes,
    }  # fmt: skip
    metrics = [json.dumps({f"x{factor}.score": score for factor in (2, 4, 8)}) for score in scores]
    return make_frame({facts.get("mech", "softmax"): [1.0] * len(scores)}, **facts).assign(metrics=metrics)


def compared(*frames: pd.DataFrame) -> list[Any]:
    """Compare rows with 0.964, softmax on even_pairs: the results, the main one first, and the printed lines."""
    (number,) = [one for one in each(study.numbers()) if (one.task, one.mechanism) == ("even_pairs", "softmax")]
    results, _ = study.compare(number, study.at_lengths(pd.concat(frames, ignore_index=True)))
    return [*results, *study.lines_of(number, {"softmax": "Softmax"}, results, 1.0)]


def test_numbers_are_of_what_the_suite_runs_in_its_setting() -> None:
    suite, numbers = load_suite("peers"), study.numbers()

    assert set(numbers["task"]) == set(suite.tasks)
    assert set(numbers["mechanism"]) == set(suite.mechanisms)
    assert set(numbers["factors"].explode()) <= {1, *(suite.evaluation.stretches or ())}
    assert bibtex(set(numbers["source"]))
    assert numbers["value"].between(0, 1).all()
    for number in each(numbers):
        unit = MECHANISMS[number.mechanism]
        coerce("mechanism", unit, number.arguments)  # raises where there is no such argument
        positions = suite.model.positions if issubclass(unit, Attention) else suite.model.positions_otherwise
        assert (number.block, number.positions) == (suite.model.block, positions)


def test_a_larger_budget_changes_nothing_but_the_budget() -> None:
    short, long = load_suite("peers"), load_suite("peers-long")

    for part in ("model", "evaluation", "seeds", "tasks", "studies"):
        assert getattr(long, part) == getattr(short, part)
    assert long.training.steps > short.training.steps
    assert set(long.training.learning_rates) <= set(short.training.learning_rates)


def test_a_change_explains_all_or_shows_nothing_for_one_seed_or_seeds_that_scatter() -> None:
    """Sentences on an explanation of a part, or of nothing, stand on the committed page."""
    main, block = made([0.56, 0.57, 0.58]), {"block": "transformer:conv=4"}
    longer = {"suite": "peers-long", "config_json": config(steps=6_000)}
    others = made([0.95, 0.96, 0.97], **longer), made([0.5, 1, 1], **longer, **block), made([0.96], **block)
    *_, number, of_one_seed, of_budget, scattered = compared(main, *others)

    assert number[10] == "budget, shown below"
    assert of_budget[10] == "steps 6,000 instead of 2,000: explains it"
    assert scattered[1] == "changed: block and budget"
    assert scattered[10].endswith("6,000 instead of 2,000: undecided, as the seeds scatter too much")
    assert of_one_seed[10].endswith("one seed, which shows nothing")


def test_a_run_that_was_not_tested_at_a_length_is_not_compared() -> None:
    rows = made([1.0, 1.0]).assign(metrics='{"x2.score": 1.0, "x4.score": 0.8}')

    assert not any(study.compare(number, study.at_lengths(rows))[0] for number in each(study.numbers()))
