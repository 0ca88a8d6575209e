import pytest

from benchmarks import executors
from benchmarks.executors import Run
from synthbench.errors import UnknownName, UsageError


def test_starting_up_is_told_apart_from_what_every_job_costs() -> None:
    run = Run(ends_s=[5.0, 5.5, 5.6, 5.7, 6.0, 6.1, 6.2, 6.3, 6.4], jobs_s=[0.05] * 9, num_workers=2)

    assert run.startup_s() == pytest.approx(4.95)
    assert run.rate() == pytest.approx(4 / 0.4)  # of those after the first two of each worker
    assert run.overhead_s() == pytest.approx(2 / 10 - 0.05)


def test_executors_are_timed_on_the_same_jobs() -> None:
    (fact,) = executors.measure(["inline"], num_jobs=4, num_workers=None, num_repeats=1)

    assert (fact["executor"], fact["workers"], fact["jobs"], fact["repeats"]) == ("inline", 1, 4, 1)
    assert fact["overhead_ms"] == pytest.approx(1e3 / fact["jobs_per_s"] - fact["job_ms"])


def test_bad_requests_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'pool'"):
        executors.measure(["pol"], num_jobs=4, num_workers=None, num_repeats=1)
    with pytest.raises(UsageError, match="allowed: 3 and more"):
        executors.measure([], num_jobs=2, num_workers=None, num_repeats=1)
