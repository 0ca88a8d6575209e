"""Rows of several stores become one store: nothing twice, nothing lost, nothing hostile."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from synthbench.trust.merge import merge
from tests.cli.commands import Command
from tests.results.rows import make_honest
from tests.results.stores import CURVE, filled, reader


def test_rows_and_curves_of_others_come_in_once_and_are_the_same_the_other_way_round(tmp_path: Path) -> None:
    ours = filled(tmp_path / "ours", [make_honest(1), make_honest(2)], CURVE)
    theirs = filled(tmp_path / "theirs", [make_honest(2), make_honest(3)], CURVE)
    theirs.compact()
    before = theirs.table()

    first, again = merge(ours, theirs.root), merge(ours, theirs.root)

    assert (first.num_new, first.num_known, first.conflicts, first.left_out) == (1, 1, (), {})
    assert (again.num_new, again.num_known) == (0, 2)
    assert reader(ours.root).table()["seed"].to_pylist() == [1, 2, 3]
    assert ours.curves()["run_id"].nunique() == 3
    assert theirs.table().equals(before)
    merge(theirs, ours.root)
    assert theirs.table().equals(ours.table())


@pytest.mark.parametrize(
    ("days", "changes", "is_outcome"),
    [
        (1, {"score": 0.5, "n_correct": 16_000}, True),
        (-1, {"score": 0.5, "n_correct": 16_000}, True),
        (0, {"wall_s": 9.0, "host_hash": "fedcba987654"}, False),  # made twice with the same outcome
    ],
)
def test_where_contents_differ_ours_stays_and_theirs_is_named_and_another_outcome_is_an_error(
    tmp_path: Path, synthbench: Command, days: int, changes: dict[str, Any], *, is_outcome: bool
) -> None:
    row = make_honest(1)
    other = make_honest(1, finished_at=row["finished_at"] + timedelta(days=days), **changes)
    ours, theirs = filled(tmp_path / "ours", [row], CURVE), filled(tmp_path / "theirs", [other], CURVE)

    done = synthbench("store", "merge", "theirs", "--results", "ours", "--json")

    facts = json.loads(done.stdout)
    (conflict,) = facts["conflicts"]
    assert [(counts["new"], counts["known"]) for counts in facts["stores"]] == [(0, 0)]
    assert (done.returncode, conflict["is_outcome"]) == (is_outcome, is_outcome)
    assert (conflict["our_score"], conflict["their_score"]) == (0.75, other["score"])
    assert ours.runs()["score"].tolist() == [0.75]
    assert theirs.runs()["score"].tolist() == [other["score"]]


def test_a_source_that_is_refused_leaves_no_part_of_the_others(tmp_path: Path, synthbench: Command) -> None:
    ours, _ = filled(tmp_path / "ours", [make_honest(1)]), filled(tmp_path / "theirs", [make_honest(2)])

    assert synthbench("store", "merge", "theirs", "nothing", "--results", "ours").returncode == 3
    assert ours.runs()["seed"].tolist() == [1]


def test_what_is_damaged_hostile_or_without_its_curve_is_left_out_and_named(
    tmp_path: Path, synthbench: Command
) -> None:
    good, cut, lied, bare, future = (make_honest(seed) for seed in range(5))
    lied = make_honest(2, run_id="f" * 16)
    future = make_honest(4, finished_at=datetime.now(UTC) + timedelta(days=30))
    theirs = filled(tmp_path / "theirs", [good, cut, lied, bare, future], CURVE)
    files = {pq.read_table(path)["run_id"][0].as_py(): path for path in theirs.loose()}
    path = files[cut["run_id"]]
    path.write_bytes(path.read_bytes()[:500])
    (theirs.root / "curves" / files[bare["run_id"]].name).unlink()
    done = synthbench("store", "merge", "theirs", "--results", "ours")

    assert done.returncode == 1
    assert "theirs: 1 new rows, 0 already here, 0 kept as they are here, 4 left out" in done.stderr
    assert reader(tmp_path / "ours").table()["seed"].to_pylist() == [0]
    assert set(re.findall("left out: theirs: (.*?): ", done.stderr)) == {
        f"runs/{path.name}",
        f"run {'f' * 16}",
        f"curves/run-{bare['run_id']}.parquet",
        f"run {future['run_id']}",
    }
    assert path.exists()
