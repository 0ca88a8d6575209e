"""Rows that were run again are marked beside them, and rows of another store come in unchanged."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from synthbench.errors import UsageError
from synthbench.results import Store
from tests.results.rows import make_row
from tests.results.stores import AT, CURVE, exact, filled, word


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path / "results", [make_row(seed=seed) for seed in (42, 43)], CURVE)


def test_a_verified_row_says_who_and_keeps_its_name_and_checksum(store: Store) -> None:
    before = store.table().to_pylist()
    store.verify([word(before[0])])
    after = store.table().to_pylist()

    assert after[0]["verified_by"] == "somebody (bitwise, synthbench 1.0, 2026-02-03)"
    assert after[1] == before[1]
    assert after[0] | {"verified_by": None} == before[0]
    assert store.quarantined == []


def test_a_word_on_a_row_that_has_changed_since_is_no_word(store: Store) -> None:
    store.verify([word(store.table().to_pylist()[0])])
    store.write_all([(make_row(seed=42, n_params=7, finished_at=AT), CURVE)])

    assert store.table()["verified_by"].to_pylist() == [None, None]


def test_what_a_row_says_of_its_own_verification_is_ignored(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results", create=True)
    store.write_all([(make_row(verified_by="everybody"), [])])

    assert store.table()["verified_by"].to_pylist() == [None]
    assert store.quarantined == []


def test_the_later_word_counts_and_compacting_keeps_it(store: Store) -> None:
    rows = store.table().to_pylist()
    store.verify([word(row, verified_by="later", verified_at=AT + timedelta(days=1)) for row in rows])
    store.verify([word(row) for row in rows])
    before = store.table()
    store.compact()

    assert store.table().equals(before)
    assert all(said.startswith("later") for said in before["verified_by"].to_pylist())  # its word counts


@pytest.mark.parametrize("change", [{"verdict": "trust me"}, {"verified_by": None}, {"verified_at": None}])
def test_a_verification_that_does_not_fit_is_refused(store: Store, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(change))):
        store.verify([word(store.table().to_pylist()[0], **change)])
    assert store.table()["verified_by"].to_pylist() == [None, None]


def test_adopted_rows_and_curves_are_unchanged_and_unverified(store: Store, tmp_path: Path) -> None:
    expected = store.table()
    store.verify([word(row) for row in expected.to_pylist()])
    target = Store.open(tmp_path / "target", create=True)

    assert target.import_rows(store, expected["run_id"].to_pylist()[:1]) == 1
    assert target.import_rows(store) == 1
    assert target.table().equals(expected)
    assert exact(target)[1] == exact(store)[1]
    files = sorted((target.root / "compact").iterdir())
    assert target.import_rows(store) == store.import_rows(store) == 0
    assert sorted((target.root / "compact").iterdir()) == files
