"""What a second test says against a row, and what it does not."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthbench.bits import BITS
from synthbench.heights import RungScore, metrics_of_rungs
from synthbench.results import Store
from synthbench.results.store import HELD
from synthbench.runner.exam import Exam, Sitting
from synthbench.runner.plan import Job, make_cells, shortened
from synthbench.suites import load_suite
from synthbench.training import exam
from synthbench.training.exam import Mark, papers_of

CLIMB = Path(__file__).parents[2] / "studies" / "climb.toml"
MARK = Mark(accuracy=0.5, standard_error=0.01, changed=0.0, num_sequences=64)


def row(score: float | None = 0.5, rungs: tuple[float, ...] = (), **changes: Any) -> dict[str, Any]:
    metrics = json.dumps(metrics_of_rungs([RungScore(1.0, value, 0.0, 1.0) for value in rungs]))
    return {"status": "ok", "metric_name": "accuracy", "score": score, "metrics": metrics} | changes


def row_in_bits(num_right: int) -> dict[str, Any]:
    return row(-2.5, metric_name=BITS, n_correct=num_right, n_eval_examples=100)


@pytest.mark.parametrize(
    ("said", "num_rungs", "reason"),
    [
        (row(0.3), 0, None),
        (row(1.0), 0, r"right in 1\.0000 of its test; on new sequences 0\.5000"),
        (row(1.0, (0.0,)), 0, r"right in 1\.0000"),  # a metric that is called like a rung changes no claim
        (row(float("nan")), 0, "right in nan"),
        (row(0.9, (0.5, 0.5)), 2, None),
        (row(0.9, (0.5, 0.9)), 2, r"right in 0\.9000 of its test on rung 2"),
        (row(0.9, (0.5, float("nan"))), 2, "right in nan .* on rung 2"),
        (row(0.9, (0.5,)), 2, "it has 1 rungs, and its task 2"),
        (row(None, status="diverged"), 0, None),
        (row_in_bits(50), 0, None),
        (row_in_bits(90), 0, r"right in 0\.9000 of its test; on new sequences 0\.5000"),
    ],
)
def test_what_is_claimed_is_held_against_the_answers(said: dict[str, Any], num_rungs: int, reason: str | None) -> None:
    found = Sitting(dict.fromkeys(range(1, max(1, num_rungs) + 1), MARK), num_rungs).contradicts(said)

    assert (found is None) == (reason is None), found
    if reason is not None:
        assert found is not None
        assert re.search(reason, found), found


def test_answers_that_are_missing_or_change_are_named() -> None:
    changed = Mark(accuracy=0.5, standard_error=0.01, changed=0.3, num_sequences=64)

    assert Sitting(None, 0).contradicts(row()) == "its model left no answers on new sequences"
    assert Sitting({1: changed}, 0).contradicts(row()) == "other tokens behind them change 30% of its predictions"


@pytest.mark.parametrize("chance", [0.08, 0.5])
def test_an_honest_model_at_chance_raises_no_alarm(chance: float) -> None:
    """One answer a sequence, 256 in the test and 64 in the second: the hardest case of suite ``core``."""
    rng = np.random.default_rng(0)
    said, answered = rng.binomial(256, chance, 20_000) / 256, rng.binomial(64, chance, 20_000) / 64
    errors = np.maximum(np.sqrt(answered * (1 - answered) / 64), 1 / 64)
    sittings = [Sitting({1: Mark(a, e, 0.0, 64)}, 0) for a, e in zip(answered.tolist(), errors.tolist(), strict=True)]
    alarms = sum(sitting.contradicts(row(score)) is not None for sitting, score in zip(sittings, said, strict=True))

    assert alarms <= 1


def test_a_rung_that_scores_nothing_has_no_paper() -> None:
    suite = shortened(load_suite(str(CLIMB)), steps=8, limit=1)
    (cell,) = make_cells(suite, {"dyck": {}}, {"softmax": {}}, device_type="cpu", is_full=False)
    papers = [papers_of(member, "salt") for member in cell.members([0, 1])]

    assert any(len(of_member) < len(cell.rungs) for of_member in papers)
    assert all(paper.columns.size for of_member in papers for paper in of_member.values())


def test_papers_are_kept_as_long_as_their_driver_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthbench.runner.exam.sits", lambda _member: True)
    suite = shortened(load_suite("smoke"), steps=2, limit=4)
    (cell,) = make_cells(suite, {"copy": {"length": "8"}}, {"softmax": {}}, device_type="cpu", is_full=False)
    members = tuple(cell.members([0]))
    store = Store.open(tmp_path, create=True)
    second = Exam(tmp_path / "_tmp" / "exam-driver")
    second.hand_out(Job((cell,), members, members, 1))
    for path in second.folder.iterdir():
        os.utime(path, (time.time() - 1e6,) * 2)
    before = sorted(path.name for path in second.folder.iterdir())

    names = [exam._file(Path(), members[0].run_id, 1, kind).name for kind in ("columns", "inputs")]
    assert before == sorted([HELD, *names])
    assert store.stale_partials() == []
    assert second._held is not None
    second._held.close()  # as if the driver were killed
    assert sorted(path.name for path in store.stale_partials()) == before
    second.close()
    assert not second.folder.exists()
