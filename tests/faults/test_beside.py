"""What one process replaces or removes while another looks at it costs neither a row nor a crash."""

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from synthbench.results.reading import curves_of

from synthbench.contract.trial import Subject, record
from synthbench.results import Store, files
from synthbench.results.maintenance import collect, contents, examine

MakeRow = Callable[..., dict[str, Any]]

WAIT_S = 0.5
"""For a writer that a lock should keep waiting; one that is let in needs a tenth of it."""


def curve(value: float) -> list[dict[str, Any]]:
    """A curve that tells who wrote it."""
    return [{"step": 1, "split": "train", "metric": "loss", "value": value, "wall_s": 0.5, "tokens": 64}]


class Beside:
    """Another driver that writes the run again, a second later and with another curve."""

    def __init__(self, root: Path, row: dict[str, Any]) -> None:
        self.row = {**row, "finished_at": row["finished_at"] + timedelta(seconds=1)}
        self._root = root
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        Store.open(self._root, create=True).write(self.row, curve(2.0))

    def begin(self, wait_s: float | None = WAIT_S) -> None:
        """Let it write, if it has not begun yet, and give it some time, or all that it takes."""
        if self._thread.ident is None:
            self._thread.start()
            self._thread.join(wait_s)

    def end(self) -> None:
        """Wait until it has written."""
        assert self._thread.ident is not None, "it never began"
        self._thread.join()


@pytest.fixture
def row(make_row: MakeRow) -> dict[str, Any]:
    return make_row()


@pytest.fixture
def store(tmp_path: Path, row: dict[str, Any]) -> Store:
    """One row with its curve."""
    made = Store.open(tmp_path / "results", create=True)
    made.write(row, curve(1.0))
    return made


@pytest.fixture
def beside(store: Store, row: dict[str, Any]) -> Beside:
    return Beside(store.root, row)


def check(store: Store, row: dict[str, Any]) -> None:
    """The store has this row and its curve, and nothing is wrong with it."""
    read = Store.open(store.root, create=False)
    rows, curves = read.read()
    assert list(rows["finished_at"]) == [row["finished_at"]]
    assert list(curves["value"]) == [2.0]
    assert read.quarantined == []


def test_a_row_that_is_replaced_when_compaction_removes_it_stays(
    store: Store, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = Path.unlink

    def write_first(path: Path, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is called
        if path.parent.name == "runs":
            beside.begin()
        genuine(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", write_first)
    store.compact()
    beside.end()

    check(store, beside.row)


def test_a_good_row_that_takes_the_place_of_a_damaged_one_is_not_set_aside(
    store: Store, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    (damaged,) = (store.root / "runs").iterdir()
    damaged.write_bytes(b"garbage")
    genuine = files.read

    def read_then_write(path: Path) -> object:
        found = genuine(path)
        if path == damaged:
            beside.begin(wait_s=None)
        return found

    monkeypatch.setattr(files, "read", read_then_write)
    store.compact()
    beside.end()

    assert not (store.root / "quarantine").exists()
    check(store, beside.row)


def test_a_row_that_is_replaced_while_the_store_is_repaired_is_not_taken_out(
    store: Store, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_first(*arguments: Any) -> object:
        beside.begin()
        return curves_of(*arguments)

    monkeypatch.setattr("synthbench.results.maintenance.curves_of", write_first)
    broken = examine(store, is_repairing=True)
    beside.end()

    assert broken == []
    assert not (store.root / "quarantine").exists()
    check(store, beside.row)


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


def test_two_drivers_with_one_process_id_keep_what_the_contract_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run on two machines."""
    findings: dict[Subject, list[Any]] = {Subject("mechanism", "softmax"): []}
    genuine = Path.replace

    def let_the_other_first(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", genuine)
        record(findings, tmp_path)
        return genuine(path, target)

    monkeypatch.setattr(Path, "replace", let_the_other_first)
    record(findings, tmp_path)

    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_empty_logs_of_killed_jobs_are_removed_once_they_are_old(store: Store) -> None:
    logs = store.root / "logs"
    logs.mkdir()
    for name, content, is_old in (("silent", "", True), ("said", "something", True), ("new", "", False)):
        (logs / f"{name}.log").write_text(content)
        if is_old:
            os.utime(logs / f"{name}.log", (0, 0))

    named = [leftover.file for leftover in collect(store, is_dry=True)]

    assert named == [leftover.file for leftover in collect(store, is_dry=False)] == ["logs/silent.log"]
    assert {path.name for path in logs.iterdir()} == {"said.log", "new.log"}
