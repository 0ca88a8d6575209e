"""A bundle has every row that its suite asks for, and is checked again by whoever receives it."""

import dataclasses
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from synthbench import plugins
from synthbench.errors import StoreError, UsageError
from synthbench.results import Store
from synthbench.runner.plan import shorten
from synthbench.runner.request import Request
from synthbench.runner.run import run
from synthbench.suites import Suite, load_suite
from synthbench.trust.bundle import opened, pack, sha256_of
from synthbench.trust.submission import receive, submit
from synthbench.trust.verify import Sampling
from tests.cli.commands import Command
from tests.runner.runs import plugin_text
from tests.trust.suites import choosing, take

SAMPLING = Sampling(fraction=0.01, device="cpu", workers=0)

PLUGIN = plugin_text("my-idea")


@pytest.fixture(scope="module")
def small() -> Suite:
    """The smoke suite, small enough for a test: two tasks, two seeds, two rates to choose from."""
    tasks = {"tasks": {"copy": {"length": 8}, "majority": {"length": 8}}}
    return choosing(shorten(load_suite("smoke"), steps=10, limit=32)).model_copy(update=tasks)


@pytest.fixture(autouse=True)
def _small_suite(small: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    take(small, monkeypatch)


def request_in(results: Path) -> Request:
    return Request(suite="smoke", mechanisms=("linear",), device="cpu", results=results, executor="inline")


@pytest.fixture(scope="module")
def trained(small: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all rows of the request."""
    results = tmp_path_factory.mktemp("trained") / "results"
    with pytest.MonkeyPatch.context() as monkeypatch:
        take(small, monkeypatch)
        assert run(request_in(results)).ok
    return results


@pytest.fixture
def complete(trained: Path, tmp_path: Path) -> Request:
    """The request, with a copy of its rows."""
    return request_in(shutil.copytree(trained, tmp_path / "results"))


def packed_by_hand(
    request: Request, target: Path, run_ids: Sequence[str] | None = None, file: Path | None = None, **said: Any
) -> Path:
    """A bundle of rows and a plugin whose manifest is that of the complete rows, but for what is said."""
    manifest = submit(request, target.with_name(f"honest-{target.name}")).manifest
    assert manifest is not None
    store = Store.open(request.results, create=False)
    if file is not None:
        said |= {"plugin": file.name, "plugin_sha256": sha256_of(file)}
    pack(store, run_ids or sorted(store.statuses()), manifest.model_copy(update=said), file, target)
    return target


@pytest.mark.end_to_end
def test_what_is_missing_is_said_and_nothing_is_written(complete: Request, tmp_path: Path, synthbench: Command) -> None:
    store = Store.open(complete.results, create=True)
    rows = {(row["task"], row["seed"], row["lr"]): row["row_sha256"] for row in store.table().to_pylist()}
    gone = next(key for key in rows if key[:2] == ("copy", 42))
    store.take_out([], [rows[key] for key in (gone, ("majority", 7, 1e-2))])

    done = synthbench("submit", "--suite", "smoke", "--mech", "linear", "--device", "cpu", "--out", "linear.tar.gz")
    assert (done.returncode, "2 problems" in done.stderr) == (1, True)
    assert sorted(done.stdout.splitlines()) == [
        "missing: copy / linear / seed 42",
        "missing: majority / linear / seed 7 / tuning at 0.01",
    ]
    assert not (tmp_path / "linear.tar.gz").exists()


def test_the_device_is_that_of_the_rows(complete: Request, tmp_path: Path) -> None:
    assert len(submit(dataclasses.replace(complete, device="cuda"), tmp_path / "cuda.tar.gz").problems) == 8
    assert submit(dataclasses.replace(complete, device="auto"), tmp_path / "linear.tar.gz").problems == ()

    with opened(tmp_path / "linear.tar.gz") as (_, manifest):
        assert manifest is not None
        assert manifest.device_type == "cpu"


def test_failed_rows_are_submitted_and_broken_or_shortened_ones_are_not(complete: Request, tmp_path: Path) -> None:
    store = Store.open(complete.results, create=True)
    first, second = (row for row in store.table().to_pylist() if row["role"] is None and row["task"] == "copy")
    none = dict.fromkeys(("score", "skill", "n_correct", "n_eval_examples", "eval_loss"))
    then, second_after = first["finished_at"] + timedelta(seconds=1), first["finished_at"] + timedelta(seconds=2)
    failed = (
        first | none | {"status": "diverged", "error_type": "Diverged", "error_message": "nan", "finished_at": then}
    )
    store.write_all([(failed, [])])
    assert submit(complete, tmp_path / "failed.tar.gz").problems == ()
    leaking = {"status": "contract", "error_type": "ContractError", "error_message": "it leaks"}
    store.write_all([(failed | leaking | {"finished_at": second_after}, [])])
    store.write_all([(second | {"is_full": False, "finished_at": second_after}, [])])
    problems = submit(complete, tmp_path / "linear.tar.gz").problems

    assert sorted(problem.partition(":")[0] for problem in problems) == ["contract", "not full"]
    assert any("it leaks" in problem for problem in problems)


def test_seeds_of_ones_own_choice_are_no_submission(complete: Request, tmp_path: Path) -> None:
    store = Store.open(complete.results, create=False)
    unlucky = next(row for row in store.table().to_pylist() if row["role"] is None)
    run(dataclasses.replace(complete, seeds=(12345,)))
    run_ids = [name for name in sorted(store.statuses()) if name != unlucky["run_id"]]
    found = receive(packed_by_hand(complete, tmp_path / "lucky.tar.gz", run_ids), SAMPLING)

    faults = [fault for _, fault in found.faults]
    assert f"missing: {unlucky['task']} / linear / seed {unlucky['seed']}" in faults
    assert any("seed 12345" in fault and fault.endswith("is no row of this submission") for fault in faults)
    assert any(fault.startswith("digest:") for fault in faults)
    assert not found.ok


def test_a_manifest_of_another_version_of_the_suite_is_refused(complete: Request, tmp_path: Path) -> None:
    bundle = packed_by_hand(complete, tmp_path / "newer.tar.gz", suite_version="2027.1")

    with pytest.raises(UsageError, match=r"2027\.1 in the manifest and 2026\.1 here"):
        receive(bundle, SAMPLING)


def test_complete_rows_are_taken_into_a_store_with_who_verified_them(complete: Request, tmp_path: Path) -> None:
    submission = submit(complete, tmp_path / "linear.tar.gz")
    assert submission.manifest is not None
    assert (submission.manifest.num_rows, submission.manifest.num_curves) == (8, 8)  # four of them tuned
    verification = receive(tmp_path / "linear.tar.gz", SAMPLING, into=tmp_path / "board", by="somebody")
    assert (verification.ok, verification.faults, verification.num_rows) == (True, [], 8)
    taken = Store.open(tmp_path / "board", create=False)
    rows = {row["run_id"]: row for row in taken.table().to_pylist()}

    assert len(rows) == 8
    assert {name for name, row in rows.items() if row["verified_by"]} == {rerun.run_id for rerun in verification.reruns}
    assert taken.curves()["run_id"].nunique() == 8
    assert taken.quarantined == []


def test_a_row_whose_curve_is_lost_is_neither_submitted_nor_taken_in(complete: Request, tmp_path: Path) -> None:
    Store.open(complete.results, create=True).loose("curves")[0].unlink()
    problems = submit(complete, tmp_path / "linear.tar.gz").problems
    found = receive(complete.results, SAMPLING, into=tmp_path / "board", by="somebody")

    assert problems
    assert {problem.partition(":")[0] for problem in problems} == {"lost curve"}
    assert len(found.faults) == len(problems)
    assert not (tmp_path / "board").exists()


def test_a_row_that_the_store_has_with_another_result_is_refused(complete: Request, tmp_path: Path) -> None:
    assert submit(complete, tmp_path / "linear.tar.gz").problems == ()
    board = Store.open(tmp_path / "board", create=True)
    row = Store.open(complete.results, create=False).table().to_pylist()[0]
    ours = {**row, "score": 1 - row["score"], "finished_at": row["finished_at"] - timedelta(days=1)}
    board.write_all([(ours, [])])
    before = board.table()
    found = receive(tmp_path / "linear.tar.gz", SAMPLING, into=board.root, by="somebody")

    assert not found.ok
    assert [name for name, fault in found.faults if "the store has this run with" in fault] == [row["run_id"]]
    assert Store.open(board.root, create=False).table().equals(before)


@pytest.mark.end_to_end
def test_a_plugin_that_leaks_is_named_before_anything_is_run_again(tmp_path: Path, complete: Request) -> None:
    path = tmp_path / "leaking.py"
    path.write_text(PLUGIN.replace("self.out(x)", "self.out(x) + x.mean(-2, keepdim=True)"))
    bundle = packed_by_hand(complete, tmp_path / "idea.tar.gz", file=path, mechanisms=("my-idea",))
    verification = receive(bundle, SAMPLING, runs_plugin=True)

    faults = [fault for _, fault in verification.faults]
    assert any(fault.startswith("checks:") and "my-idea" in fault for fault in faults), faults
    assert not verification.ok


def test_a_plugin_that_is_not_the_file_of_the_manifest_is_not_run(tmp_path: Path, complete: Request) -> None:
    path, trace = tmp_path / "idea.py", tmp_path / "trace"
    path.write_text(PLUGIN)
    bundle = packed_by_hand(complete, tmp_path / "bundle", file=path, mechanisms=("my-idea",))
    (bundle / "plugin" / "idea.py").write_text(f"open({str(trace)!r}, 'w')\n{PLUGIN}")

    with pytest.raises(StoreError, match=r"its manifest has another hash than plugin/idea\.py"):
        receive(bundle, SAMPLING, runs_plugin=True)
    assert not trace.exists()


@pytest.mark.end_to_end
def test_a_row_that_invents_a_task_does_not_have_a_plugin_loaded(complete: Request, tmp_path: Path) -> None:
    path = tmp_path / "my_idea_named.py"
    path.write_text(PLUGIN)
    store = Store.open(complete.results, create=True)
    row = store.table().to_pylist()[0]
    store.write_all([(row | {"task": "zzz", "run_id": "0" * 16}, [])])
    found = receive(complete.results, dataclasses.replace(SAMPLING, workers=1, plugins=[str(path)]))

    assert not found.ok
    assert (found.notes, plugins.loaded()) == ([], [])
