"""Contradictions within a row, and the rows that a verifier draws."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from synthbench.canonical import canonical_json
from synthbench.results.schema import skill
from synthbench.trust.audit import digest, faults, sample
from tests.results.rows import make_honest, make_row, refused

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_an_honest_row_and_an_honest_failure_have_no_fault() -> None:
    empty = ("score", "skill", "n_correct", "n_eval_examples", "eval_loss", "steps", "lr")
    unknown: dict[str, Any] = dict.fromkeys(empty)
    failure = make_honest(status="error", error_type="ValueError", error_message="two\nlines", **unknown)

    diverged = failure | {"status": "diverged", "train_loss": float("nan")}

    assert faults(make_honest(), NOW) == faults(failure, NOW) == faults(diverged, NOW) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *refused("audit"),
        ({"floor": 1.0, "ceiling": 0.5, "skill": skill(0.75, 1.0, 0.5)}, "floor 1.0 is above ceiling 0.5"),
        ({"started_at": datetime.min.replace(tzinfo=UTC), "n_correct": 40_000}, "n_correct is 40000"),
        ({"finished_at": NOW + timedelta(days=400)}, "in the future"),
        ({"started_at": NOW}, "began at"),
        ({"mech_label": "x" * 1001}, "mech_label has 1001 characters"),
        ({"metrics": canonical_json({"a": [0] * 40_000})}, "metrics has"),
    ],
)
def test_what_a_row_says_against_itself_is_named(changes: dict[str, Any], message: str) -> None:
    problems = faults(make_honest(**changes), NOW)

    assert any(message in fault for fault in problems), problems


@pytest.mark.parametrize(("size", "message"), refused("large"))
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
