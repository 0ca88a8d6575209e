from collections.abc import Sequence

import pytest
import torch

from synthbench.bench import published, suite
from synthbench.bench.rows import Row, Table
from synthbench.options import RUN_SUITE
from synthbench.suites import load_suite
from synthbench.training.cell import Run
from tests.training.cells import CPU


@pytest.fixture(autouse=True)
def _no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "usable_cores", lambda: 0)


def timed(mechanism: str, *, num_runs: Sequence[int] = (2,), num_rates: int = 1, num_steps: int = 1) -> list[Row]:
    how = {"num_rates": num_rates, "num_steps": num_steps, "num_repeats": 1}
    return list(suite.measure([mechanism], [8], Table(suite.IDENTITY, CPU), num_runs=num_runs, **how))


@pytest.mark.end_to_end
def test_the_ways_to_train_are_timed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "usable_cores", lambda: 1)
    threads = torch.get_num_threads()
    (fact,) = timed("linear", num_steps=2)

    assert fact["loop"] > 0
    assert fact["batched/loop"] == fact["batched"] / fact["loop"]
    assert fact["loop/published"] == fact["loop"] / fact["published"]
    assert fact["processes/loop"] == fact["processes"] / fact["loop"]
    assert torch.get_num_threads() == threads


def test_what_has_no_published_form_of_its_own_is_not_compared_with_one() -> None:
    (fact,) = timed("mean")

    unknown = ("published", "loop/published", "captured", "captured/loop")  # there is no graph on a CPU
    assert [fact[name] for name in unknown] == [None] * 4


def test_runs_are_seeds_times_learning_rates_of_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[list[Run]] = []

    def rates(runs: list[Run], *_: object) -> dict[str, float]:
        trained.append(runs)
        return dict.fromkeys(("loop", "published", "batched", "captured"), 1.0)

    monkeypatch.setattr(suite, "_rates", rates)
    rows = timed("slay:P=5", num_runs=[2, 6], num_rates=2)

    assert [(row["members"], row["rates"]) for row in rows] == [(2, 2), (6, 2)]
    assert "P=5" in rows[0]["mechanism"]
    assert trained[0][0].cell.mechanism_arguments["P"] == 5
    assert {run.seed for run in trained[1]} == {0, 1, 2}
    assert len({run.learning_rate for run in trained[1]}) == 2


@pytest.mark.parametrize("name", ["softmax", "linear", "performer", "slay"])
def test_a_model_trains_the_same_in_its_published_form(name: str) -> None:
    (cell,) = suite.cells_of(load_suite(RUN_SUITE), {name: {}}, 12, "cpu")
    ours, theirs = (suite.Program([Run(cell, 0, 1e-3)], 3, CPU) for _ in range(2))
    assert published.publish(theirs.trainer.model)

    losses = [
        [program.trainer.step(inputs[0], targets[0], columns) for inputs, targets, columns in program.batches]
        for program in (ours, theirs)
    ]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
