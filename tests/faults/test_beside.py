"""A file that one process replaces or removes while another looks at it costs neither a row nor a crash."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthbench.contract.components import Component, record, recorded
from synthbench.results import Store
from synthbench.results.maintenance import collect, contents, examine
from tests.results.rows import Row, later, make_row
from tests.results.stores import CURVE, filled, reader


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One row with its curve."""
    return filled(tmp_path / "results", [make_row()], CURVE)


@pytest.fixture
def again(store: Store) -> Row:
    """The row of another driver that made the run again, a second later."""
    return later(reader(store.root).table().to_pylist()[0])


def check_that_it_stays(store: Store, again: Row) -> None:
    """The store has this row with the curve that was written with it, and nothing is wrong with it."""
    read = reader(store.root)
    rows, curves = read.read()
    assert list(rows["finished_at"]) == [again["finished_at"]]
    assert list(curves["value"]) == [CURVE[0]["value"]]
    assert read.quarantined == []


def test_a_row_that_is_made_again_while_compaction_removes_the_former_stays(
    store: Store, again: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = Path.unlink

    def write_first(path: Path, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is called
        if path.parent.name == "runs":
            monkeypatch.setattr(Path, "unlink", genuine)
            filled(store.root, [again], CURVE[:1])
        genuine(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", write_first)
    store.compact()

    check_that_it_stays(store, again)


@pytest.mark.parametrize("act", [Store.compact, lambda store: examine(store, is_repairing=True)])
def test_a_row_that_is_made_again_is_not_quarantined_with_a_damaged_one(
    act: Callable[[Store], object], store: Store, again: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    (damaged,) = store.loose()
    damaged.write_bytes(b"garbage")
    genuine = os.open

    def write_when_it_is_read(path: Any, *how: Any, **options: Any) -> int:
        if path == damaged:
            monkeypatch.setattr(os, "open", genuine)
            filled(store.root, [again], CURVE[:1])
        return genuine(path, *how, **options)

    monkeypatch.setattr(os, "open", write_when_it_is_read)
    act(store)

    check_that_it_stays(store, again)
    assert len(list((store.root / "quarantine").iterdir())) == 1


@pytest.mark.parametrize("look", [contents, lambda store, _rows: collect(store, is_dry=True)])
def test_a_file_that_vanishes_between_two_looks_is_no_failure(
    look: Callable[..., Any], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanishing = store.root / "_tmp" / "run.partial"
    vanishing.touch()
    os.utime(vanishing, (0, 0))
    genuine = Path.stat

    def look_then_remove(path: Path, **how: Any) -> os.stat_result:
        found = genuine(path, **how)
        if path == vanishing:
            vanishing.unlink()
        return found

    monkeypatch.setattr(Path, "stat", look_then_remove)
    look(store, store.table())

    assert not vanishing.exists()


def test_two_drivers_with_one_process_id_keep_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on two machines."""
    checks: dict[Component, list[Any]] = {Component("mechanism", "softmax"): []}
    genuine = Path.replace

    def let_the_other_first(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", genuine)
        record(checks, tmp_path)
        return genuine(path, target)

    monkeypatch.setattr(Path, "replace", let_the_other_first)
    record(checks, tmp_path)

    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.parametrize("content", [b"[" * 100_000, b" " * 2**20 + b'{"checks": []}', b"\xff", b"[1]"])
def test_a_file_of_checks_that_no_driver_wrote_counts_for_nothing(tmp_path: Path, content: bytes) -> None:
    component = Component("mechanism", "softmax")
    record({component: []}, tmp_path)
    (path,) = tmp_path.iterdir()
    assert recorded(path.stem, tmp_path) == []
    path.write_bytes(content)

    assert recorded(path.stem, tmp_path) is None
