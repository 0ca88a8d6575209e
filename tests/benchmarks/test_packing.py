import pytest

from benchmarks import packing
from benchmarks.packing import Load
from synthbench.bench.suite import SUITE, cells_of
from synthbench.errors import UsageError
from synthbench.suites import load_suite


def load_of(*names: str) -> Load:
    cells = cells_of(load_suite(SUITE), {name: {} for name in names}, 8, "cpu")
    return Load(tuple(cells), num_members=2, num_steps=3)


def test_a_cpu_is_refused() -> None:
    with pytest.raises(UsageError, match="device is 'cpu'; allowed: cuda or cuda:1"):
        next(packing.measure([], device="cpu", at_once=[2], length=8, num_members=2, num_steps=1, num_repeats=1))


@pytest.mark.end_to_end
def test_every_way_trains_all_cells() -> None:
    load = load_of("linear", "mean")
    rows = list(packing.rates(load, {1: [None], 2: [None, None]}, num_repeats=2))

    assert [(row["way"], row["at_once"]) for row in rows] == [("one process", 1), ("streams", 2), ("processes", 2)]
    assert {row["cells"] for row in rows} == {2}
    assert rows[0]["ratio"] == 1
    for row in rows:
        assert row["member_steps_per_s"] == pytest.approx(rows[0]["member_steps_per_s"] * row["ratio"])


def test_cells_are_dealt_so_that_none_is_left_out() -> None:
    load = load_of("softmax", "linear", "slay", "gla", "mean")
    parts = [tuple(cell.mechanism_name for cell in load.part(index, 3).cells) for index in range(3)]

    assert parts == [("softmax", "gla"), ("linear", "mean"), ("slay",)]
    assert sum(load.part(index, 3).num_member_steps for index in range(3)) == load.num_member_steps == 5 * 2 * 3
