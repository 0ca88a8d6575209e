"""Contradictions within a row, and the rows that a verifier draws."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from synthbench.canonical import canonical_json
from synthbench.results.schema import skill
from synthbench.trust.audit import digest, faults, sample
from tests.results.rows import make_honest, make_row

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_an_honest_row_and_an_honest_failure_have_no_fault() -> None:
    empty = ("score", "skill", "n_correct", "n_eval_examples", "eval_loss", "steps", "lr")
    unknown: dict[str, Any] = dict.fromkeys(empty)
    failure = make_honest(status="error", error_type="ValueError", error_message="two\nlines", **unknown)

    diverged = failure | {"status": "diverged", "train_loss": float("nan")}

    assert faults(make_honest(), NOW) == faults(failure, NOW) == faults(diverged, NOW) == []


NUMBERS = {
    "wall_s": float("inf"), "lr": -1.0, "eval_loss": float("nan"), "train_loss": float("inf"),
    "step_ms_median": float("nan"), "n_params": -1, "peak_mem_bytes": -1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({name: number}, f"{name} is {number}; allowed: 0 to ") for name, number in NUMBERS.items()),
        ({"run_id": "0" * 16}, "run_id is not the hash"),
        ({"config_json": '{"seed": 42}'}, "canonical"),
        ({"config_json": '{"seed":1e999}'}, "canonical"),
        ({"config_json": "[]"}, "canonical"),
        ({"config_hash": "0" * 16}, "config_hash"),
        ({"score": 1.25, "n_correct": 32_000}, "score is 1.25; allowed: 0 to 1"),
        ({"score": 0.875}, "24000 of 32000 are correct"),
        ({"n_correct": 0, "n_eval_examples": 0}, "0 of 0 are correct"),
        ({"score": float("nan")}, "score is nan"),
        ({"skill": 0.99}, "score, floor and ceiling make it"),
        ({"floor": 1.0, "ceiling": 0.5, "skill": skill(0.75, 1.0, 0.5)}, "floor 1.0 is above ceiling 0.5"),
        ({"n_correct": 40_000}, "n_correct is 40000"),
        ({"steps": 200}, "steps is 200, steps_planned is 100"),
        ({"steps_to_threshold": 101}, "steps_to_threshold is 101"),
        ({"ensemble_index": 1}, "ensemble_index is 1 of 1"),
        ({"task": "reverse"}, "task is 'reverse', and 'copy' in config_json"),
        ({"status": "diverged"}, "status is 'diverged' and score is 0.75"),
        ({"error_type": "ValueError"}, "error_type is 'ValueError'"),
        ({"score": None}, "status is 'ok' and score is None"),
        ({"causal_checked": False}, "not checked for causality"),
        ({"started_at": datetime.min.replace(tzinfo=UTC), "n_correct": 40_000}, "n_correct is 40000"),
        ({"finished_at": NOW + timedelta(days=400)}, "in the future"),
        ({"started_at": NOW}, "began at"),
        ({"mech_label": "x" * 1001}, "mech_label has 1001 characters"),
        ({"mech_label": "safe\u202eelbat"}, "cannot be printed"),
        ({"os": "Linux\x1b[2J"}, "cannot be printed"),
        ({"metrics": canonical_json({"a": [0] * 40_000})}, "metrics has"),
    ],
)  # fmt: skip
def test_what_a_row_says_against_itself_is_named(changes: dict[str, Any], message: str) -> None:
    problems = faults(make_honest(**changes), NOW)

    assert any(message in fault for fault in problems), problems


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"d_model": 2**20}, "d_model is 1048576; allowed: 1 to 16384"),
        ({"steps_planned": 10**9}, "steps_planned is 1000000000"),
        ({"seq_len": 0}, "seq_len is 0"),
        ({"task_args": '{"length":8,"vocabulary":1000000000}'}, "vocabulary = 1000000000"),
        ({"mech_args": '{"features":"1_000_000_000"}'}, "features = 1_000_000_000"),
    ],
)
def test_a_row_that_is_too_large_is_not_looked_at_more_closely(size: dict[str, Any], message: str) -> None:
    (problem,) = faults(make_honest(**size, score=7.0), NOW)

    assert message in problem


def test_a_sample_is_of_the_rows_and_the_salt_in_any_order_has_at_least_one_and_begins_like_a_larger_one() -> None:
    rows = [make_row(seed=seed) for seed in range(40)]

    assert sample(rows, 0.1) == sample(rows[::-1], 0.1) == sample(rows, 1.0)[:4]
    assert set(sample(rows, 1.0)) == {row["run_id"] for row in rows}
    assert len(sample(rows, 1e-6)) == 1
    assert sample([], 0.5) == []

    changed = [*rows[:-1], make_row(seed=39, n_correct=24_001)]

    assert digest(changed) != digest(rows)
    assert sample(changed, 1.0) != sample(rows, 1.0)
    assert sample(rows, 1.0, "salt") != sample(rows, 1.0)
