from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from synthbench.results import Store
from synthbench.runner.estimates import Estimates, traits_of
from synthbench.runner.eta import Eta, Watch
from synthbench.runner.plan import Job, Plan, make_cells
from synthbench.runner.worker import Outcome
from synthbench.suites import load_suite
from synthbench.training.cell import Cell, Member

MakeRow = Callable[..., dict[str, Any]]

CELLS = make_cells(
    load_suite("smoke"),
    {"copy": {}, "reverse": {}},
    {"softmax": {}, "yat": {}, "yat-sum": {}},
    device_type="cpu",
    is_full=True,
)


def job_of(cell: Cell) -> Job:
    """Two members, none of which is there."""
    members = tuple(Member(cell, seed, 1e-3) for seed in range(2))
    return Job((cell,), members, members, group_size=2)


class Costs(Estimates):
    """What each mechanism is said to take, in seconds or not."""

    def __init__(self, *, is_timed: bool, **costs: float) -> None:
        super().__init__()
        self.is_timed, self.costs = is_timed, costs

    def share_s(self, traits: object) -> float | None:
        return self.cost(traits) if self.is_timed else None

    def cost(self, traits: object) -> float:
        assert isinstance(traits, dict)
        return self.costs[traits["mech"].replace("-", "_")]


def eta(estimates: Estimates) -> Eta:
    """Of three mechanisms on two tasks, two rows each."""
    jobs = tuple(job_of(cell) for cell in CELLS)
    return Eta(Plan(jobs, 12, 0, estimates=estimates))


def outcome(task: str, mechanism: str, share_s: float, status: str = "ok", seed: int = 0) -> Outcome:
    cell = next(cell for cell in CELLS if (cell.task_name, cell.mechanism_name) == (task, mechanism))
    return outcome_of(Member(cell, seed, 1e-3), share_s, status)


def outcome_of(member: Member, share_s: float, status: str = "ok") -> Outcome:
    cell = member.cell
    return Outcome(member.run_id, cell.task_name, cell.mechanism_name, member.seed, status, 0.5, 0.4, share_s)


def test_measured_rows_say_it_from_the_beginning_and_nothing_is_said_where_nothing_is_known() -> None:
    assert eta(Costs(is_timed=False, softmax=1.0, yat=2.0, yat_sum=3.0)).left_s() is None
    assert eta(Estimates()).left_s() is None
    assert eta(Costs(is_timed=True, softmax=1.0, yat=2.0, yat_sum=3.0)).left_s() == 4 * (1 + 2 + 3)


@pytest.mark.parametrize("is_timed", [True, False])
def test_what_has_been_seen_corrects_the_nearest_most(is_timed: bool) -> None:  # noqa: FBT001
    left = eta(Costs(is_timed=is_timed, softmax=1.0, yat=2.0, yat_sum=3.0))

    left.see(outcome("copy", "softmax", 5.0))  # five times its cost, so all are
    assert left.left_s() == pytest.approx(3 * 5 + 5 * 4 * (2 + 3))
    left.see(outcome("copy", "yat", 4.0))  # the family is only twice as slow
    assert left.left_s() == pytest.approx(3 * 5 + 3 * 4 + 2 * 4 * 3)
    left.see(outcome("reverse", "yat", 8.0))  # the task takes longer, or something slowed down
    assert left.left_s() == pytest.approx(3 * 5 + 1 * 4 + 1 * 8 + 3 * 4 * 3)


def test_a_failure_says_nothing_of_other_cells() -> None:
    left = eta(Costs(is_timed=True, softmax=1.0, yat=2.0, yat_sum=3.0))
    left.see(outcome("copy", "softmax", 0.01, "error"))

    assert left.left_s() == pytest.approx(0.01 + 2 * 1 + 4 * (2 + 3))


def tuned_job() -> Job:
    """Three members whose rate is to be chosen."""
    (cell,) = make_cells(load_suite("peers"), {"mqar": {}}, {"linear": {}}, device_type="cpu", is_full=True)
    members = tuple(cell.members([0, 1, 2]))
    return Job((cell,), members, members, group_size=2)


def test_members_that_only_tune_count() -> None:
    job = tuned_job()
    (cell,) = job.cells
    estimates = Costs(is_timed=True, linear=2.0)

    plan = Plan((job,), 3, 0, estimates=estimates)
    left = Eta(plan)

    assert len(job.untuned) > 0
    assert left.num_trainings == plan.num_trainings == 3 + len(job.untuned)
    assert left.left_s() == 2.0 * (3 + len(job.untuned))
    assert estimates.cost(traits_of(cell)) == 2.0


def test_a_tuning_row_counts_when_it_is_seen_and_once() -> None:
    job = tuned_job()
    left = Eta(Plan((job,), 3, 0, estimates=Costs(is_timed=True, linear=2.0)))
    for _ in range(2):
        left.see(outcome_of(job.untuned[0], 5.0))

    assert left.num_left == left.num_trainings - 1
    assert left.left_s() == 5.0 * (3 + len(job.untuned) - 1)


def test_a_job_that_has_ended_will_tune_no_more() -> None:
    job = tuned_job()
    left = Eta(Plan((job,), 3, 0, estimates=Costs(is_timed=True, linear=2.0)))
    left.end(outcome_of(job.members[0], 0.1, "contract"))

    assert left.num_left == 2


def test_what_trains_again_beside_a_missing_row_counts_with_it() -> None:
    members = job_of(CELLS[0]).members
    job = Job((CELLS[0],), members, members[1:], group_size=2)
    left = Eta(Plan((job,), 2, 1))

    assert left.num_trainings == 2
    left.end(outcome_of(members[1], 1.0))
    assert left.num_left == 0


def test_only_rows_that_are_written_from_now_on_are_news_and_each_once(tmp_path: Path, make_row: MakeRow) -> None:
    store = Store.open(tmp_path, create=True)
    old, new, other = (make_row(seed=seed, role="tuning") for seed in range(3))
    store.write(old, [])
    watch = Watch(tmp_path, [old["run_id"], new["run_id"]])
    store.write(new, [])
    store.write(other, [])

    assert [(news.run_id, news.seed, news.share_s) for news in watch.news()] == [(new["run_id"], 1, 2.5)]
    assert watch.news() == []
    store.write(old | {"finished_at": old["finished_at"] + timedelta(seconds=1)}, [])  # made again
    assert [news.run_id for news in watch.news()] == [old["run_id"]]
