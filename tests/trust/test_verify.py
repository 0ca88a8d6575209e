"""Rows are run again as they say; whoever changed one is found out."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from synthbench import registry
from synthbench.canonical import canonical_json
from synthbench.options import MOVED
from synthbench.results import Store, published
from synthbench.results.schema import run_id, skill
from synthbench.runner.plan import shorten
from synthbench.runner.run import run
from synthbench.suites import load_suite
from synthbench.training import train
from synthbench.trust import audit, compare, replan
from synthbench.trust.verify import Sampling, Verification, verify
from tests.results.rows import Row, refused
from tests.runner import runs
from tests.trust.suites import choosing, take

ALL = Sampling(fraction=1.0, device="cpu", workers=0)


tiny = partial(runs.tiny, steps=8, group_size=1, executor="inline")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Four rows, each trained alone."""
    root = tmp_path_factory.mktemp("made") / "results"
    run(tiny(root))
    return Store.open(root, create=False)


@pytest.fixture
def rows(made: Store) -> list[Row]:
    found: list[Row] = made.table().to_pylist()
    return found


@pytest.fixture
def altered(made: Store, tmp_path: Path) -> Callable[..., Store]:
    """The same rows, or a few, with columns of the first changed, and with checksums that fit."""

    def alter(change: Callable[[Row], Row], *, only: int = 1, num_rows: int = 4) -> Store:
        store = Store.open(tmp_path / "altered", create=True)
        for index, row in enumerate(made.table().to_pylist()[:num_rows]):
            store.write_all([(row | change(row) if index < only else row, points_of(made, row))])
        return store

    return alter


def points_of(store: Store, row: Row) -> list[Row]:
    """The learning curve of a row, as it is written."""
    points = store.curves([row["run_id"]]).drop(columns="run_id")
    return [dict(zip(points.columns, point, strict=True)) for point in points.itertuples(index=False, name=None)]


def verdicts(verification: Verification) -> list[str]:
    return [rerun.verdict for rerun in verification.reruns]


def test_the_rows_decide_the_sample(made: Store, rows: list[Row]) -> None:
    drawn = {salt: audit.sample(rows, 0.01, salt) for salt in ("", *"abcdefgh")}
    salt = next(salt for salt in drawn if drawn[salt] != drawn[""])

    for sampling, expected in (
        (Sampling(fraction=0.01, device="cpu", salt=salt, workers=0), drawn[salt]),
        (dataclasses.replace(ALL, limit=2), audit.sample(rows, 1.0)[:2]),
    ):
        assert [rerun.run_id for rerun in verify(made, sampling).reruns] == expected


def test_rows_that_only_say_they_were_trained_together_are_run_again_alone(tmp_path: Path) -> None:
    run(tiny(tmp_path, tasks=("copy:length=8,majority:length=9",), seeds=(0,)))
    rows = Store.open(tmp_path, create=False).table().to_pylist()
    for index, row in enumerate(rows):
        row |= {"started_at": rows[0]["started_at"], "ensemble_size": 2, "ensemble_index": index}
    groups = replan.Groups(rows)

    assert [groups.group(row) for row in rows] == [[row] for row in rows]


@pytest.mark.end_to_end
def test_half_a_batch_is_compared_within_a_tolerance_and_one_of_two_drivers_is_whole(tmp_path: Path) -> None:
    request = tiny(tmp_path / "whole", tasks=("copy:length=8",), group_size=2)
    run(request)
    whole, half = Store.open(request.results, create=False), Store.open(tmp_path / "half", create=True)
    row = whole.table().to_pylist()[0]
    half.write_all([(row, points_of(whole, row))])
    (rerun,) = verify(half, ALL).reruns
    assert rerun.verdict in ("tolerance", "bitwise")
    assert rerun.verdict == "bitwise" or "ensemble_size" in rerun.detail

    run(dataclasses.replace(request, results=half.root))
    assert half.runs().started_at.nunique() == 2
    assert verdicts(verify(half, ALL)) == ["bitwise", "bitwise"]


@pytest.mark.parametrize(
    "wrong",
    [
        {
            "floor": 0.0, "ceiling": 0.99, "floor_kind": "bound", "n_eval": 64, "data_seed": 7, "batch_size": 32,
            "lr": 0.5, "vocab_size": 4, "tuning_trials": 9, "plugins_loaded": '["my_idea.py"]',
        },
        {"mech": "softmax", "mech_version": "7", "task_version": "7", "seed": 99, "device_type": "cuda"},  # config_json
    ],
)  # fmt: skip
def test_a_column_that_the_plan_decides_is_checked_without_a_re_run(altered: Callable[..., Store], wrong: Row) -> None:
    def change(row: Row) -> Row:
        bounds = row | wrong
        return wrong | {"skill": skill(row["score"], bounds["floor"], bounds["ceiling"])}

    verification = verify(altered(change, num_rows=1), ALL)

    assert {fault.partition(" is ")[0] for _, fault in verification.faults} == wrong.keys()
    assert verification.reruns == []
    assert not verification.ok


@pytest.mark.end_to_end
def test_scores_that_scatter_buy_no_tolerance(altered: Callable[..., Store]) -> None:
    """Two seeds that say 0 and 1, from another device: the scatter that counts is that of the rows run again."""

    def scattered(row: Row) -> Row:
        share = float(row["seed"] % 2)
        return {
            "device_name": "another processor",
            "score": share,
            "n_correct": int(share * row["n_eval_examples"]),
            "skill": skill(share, row["floor"], row["ceiling"]),
        }

    verification = verify(altered(scattered, only=2), ALL)

    assert sorted(verdicts(verification)) == ["bitwise", "bitwise", "differs", "differs"]
    assert not verification.ok


def test_a_row_with_the_results_of_another_seed_is_found(altered: Callable[..., Store], rows: list[Row]) -> None:
    other = next(row for row in rows[1:] if row["task"] == rows[0]["task"] and row["seed"] != rows[0]["seed"])
    store = altered(lambda _row: {name: other[name] for name in (*compare.RESULTS, "metrics")}, num_rows=1)
    verification = verify(store, ALL)

    assert [(rerun.run_id, rerun.verdict) for rerun in verification.reruns] == [(rows[0]["run_id"], "differs")]
    assert (verification.ok, verification.faults) == (False, [])


def test_a_result_may_be_missing_only_in_a_row_that_is_older_than_its_column(rows: list[Row]) -> None:
    def verdict(**stated: Any) -> str:
        return compare.judged(rows[0] | stated, rows[0], (None, None), 0.0)[0]

    assert verdict(schema_version=3, lr_first=None, lr_last=None) == "bitwise"
    assert verdict(schema_version=3, lr_first=99.0) == "differs"
    assert verdict(schema_version=0, score=0.25) == "differs"
    assert verdict(lr_first=None) == "differs"


def test_rows_of_code_that_trains_otherwise_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as tampered:
        twice = train.Trainer.step
        tampered.setattr(train.Trainer, "step", lambda self, *batch: (twice(self, *batch), twice(self, *batch))[0])
        run(tiny(tmp_path, seeds=(0,)))
    verification = verify(Store.open(tmp_path, create=False), ALL)

    assert verdicts(verification) == ["differs"] * 2
    assert verification.faults == []


def test_an_edited_curve_is_found(made: Store, rows: list[Row], tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    store.write_all([(rows[0], [point | {"value": 0.5} for point in points_of(made, rows[0])])])
    (rerun,) = verify(store, ALL).reruns

    assert (rerun.verdict, "curve" in rerun.detail) == ("differs", True)


def test_rows_of_another_version_are_never_passed(made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = registry.version_of
    monkeypatch.setattr(
        replan, "version_of", lambda unit: "2+aaaaaaaaaaaa" if getattr(unit, "name", "") == "copy" else genuine(unit)
    )
    verification = verify(made, ALL)

    assert len(verification.unverifiable) == 2
    assert all("other version: task 'copy'" in reason for reason in verification.unverifiable.values())
    assert verdicts(verification) == ["bitwise", "bitwise"]
    assert not verification.ok


def test_a_row_under_the_old_name_of_a_suite_is_checked_by_its_id() -> None:
    packaged = Store.open(published(), create=False).table()
    of_each = {
        suite: list({row["mech"]: row for row in packaged.filter(pc.field("suite") == suite).to_pylist()}.values())
        for suite in MOVED
    }
    assert replan.check([*of_each["climb"], *of_each["climb.extra"]]) == ({}, [])
    assert of_each["climb.extra"]

    later = of_each["climb"][0] | {"suite_version": "2026.9"}
    assert "other version: suite 'climb' is 2026.9 in the row" in replan.check([later]).unverifiable[later["run_id"]]
    (longer, *_) = of_each["climb-long"]  # no suite has its protocol by now
    (reason,) = replan.check([longer]).unverifiable.values()
    assert "config_json has another evaluation, ladder" in reason


def patched(value: Any, patch: Any) -> Any:
    """Change some keys of nested mappings; null takes a key out."""
    if not isinstance(patch, dict) or not isinstance(value, dict):
        return patch
    changed = value | {name: patched(value.get(name), part) for name, part in patch.items()}
    return {name: part for name, part in changed.items() if part is not None or name not in patch}


CORE: Row = {"suite": "core", "suite_version": load_suite("core").version, "condition": "stock"}


@pytest.mark.parametrize(("change", "reason"), [*refused("verify"), (CORE, "task 'copy' has no levels")])
def test_a_row_that_no_plan_here_makes_is_named_and_not_run(
    altered: Callable[..., Store], change: Row, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(row: Row) -> Row:
        """Change columns of a row, or its configuration, and then its name and hash with it."""
        config = patched(json.loads(row["config_json"]), change.get("config", {}))
        hashes = dict.fromkeys(("run_id", "config_hash"), run_id(config))
        of_config = {"config_json": canonical_json(config), "mech": config["mech"], "seed": config["seed"], **hashes}
        return of_config | {name: value for name, value in change.items() if name != "config"}

    # In this process, as tests/trust/test_cheats.py checks foreign rows in another one.
    monkeypatch.setattr("synthbench.trust.verify._checked_apart", lambda rows, _sampling: replan.check(rows))
    verification = verify(altered(changed, num_rows=1), ALL)

    said = [*verification.unverifiable.values(), *(fault for _, fault in verification.faults)]
    assert any(re.search(reason, one) for one in said), said
    assert (verification.ok, verification.reruns) == (False, [])


def test_a_row_tested_on_very_long_sequences_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(audit.LARGEST, "seq_len", 16)
    run(tiny(tmp_path, tasks=("copy:length=17",), seeds=(0,)))
    rows = Store.open(tmp_path, create=False).table().to_pylist()

    assert replan.check(rows).unverifiable == {rows[0]["run_id"]: "it is tested on 17 tokens; allowed: up to 16"}


def test_a_full_row_that_was_matched_has_the_width_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take(shorten(load_suite("smoke"), steps=8, limit=32), monkeypatch)
    full = tiny(
        tmp_path, tasks=("copy",), mechanisms=("lstm",), steps=None, limit=None, match="params=30000", seeds=(42,)
    )
    run(full)
    store = Store.open(tmp_path, create=False)
    (row,) = store.table().to_pylist()
    verification = verify(store, ALL)

    assert (row["is_full"], row["match"]) == (True, "params=30000 of lstm")
    assert row["d_model"] != 64
    assert (verification.faults, verdicts(verification)) == ([], ["bitwise"])


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tuned row on each of two tasks, which trained as one program, and the four rows that tuned."""
    results = tmp_path_factory.mktemp("tuned") / "results"
    with pytest.MonkeyPatch.context() as patch:
        take(choosing(load_suite("smoke")), patch)
        run(tiny(results, seeds=(0,), group_size=4))
    return results


@pytest.fixture
def tuned(tuned_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A copy of them."""
    take(choosing(load_suite("smoke")), monkeypatch)
    return Store.open(shutil.copytree(tuned_once, tmp_path / "tuned"), create=True)


@pytest.mark.end_to_end
def test_rows_that_were_tuned_together_are_run_again_together_with_the_choice_of_their_rate(tuned: Store) -> None:
    verification = verify(tuned, ALL)

    assert tuned.runs().groupby("role", dropna=False).ensemble_size.agg(["size", "max"]).to_numpy().tolist() == [
        [4, 4],
        [2, 2],
    ]
    assert verdicts(verification) == ["bitwise"] * 6, verification.reruns


def test_a_rate_that_the_tuning_did_not_choose_is_found(tuned: Store) -> None:
    row = next(row for row in tuned.table().to_pylist() if row["role"] is None)
    changes = dict.fromkeys(("lr", "lr_first", "lr_last"), {1e-3: 1e-2, 1e-2: 1e-3}[row["lr"]])
    changes["finished_at"] = row["finished_at"] + timedelta(seconds=1)
    tuned.write_all([(row | changes, points_of(tuned, row))])
    wrong = [rerun for rerun in verify(tuned, ALL).reruns if not rerun.is_confirmed]

    assert [rerun.run_id for rerun in wrong] == [row["run_id"]]
    assert "lr" in wrong[0].detail


def test_tuning_rows_that_are_missing_are_trained(tuned: Store) -> None:
    tuned.take_out([], [row["row_sha256"] for row in tuned.table().to_pylist() if row["role"] == "tuning"])

    assert verdicts(verify(tuned, ALL)) == ["bitwise"] * 2


def test_verdicts_where_the_device_is_another(rows: list[Row]) -> None:
    row, score = rows[0], rows[0]["score"]

    def verdict(tolerance: float = 0.02, device_name: str = "another processor", **again: Any) -> str:
        return compare.judged(row, row | {"device_name": device_name} | again, (None, None), tolerance)[0]

    assert verdict() == "bitwise"
    assert verdict(score=score + 0.019) == "tolerance"
    assert verdict(score=score + 0.021) == "differs"
    assert verdict(score=score + 0.001, n_params=1) == "differs"
    assert verdict(score=score + 0.001, device_name=row["device_name"]) == "differs"
    assert verdict(score=score + 0.001, device_name=row["device_name"], device_type="cuda") == "tolerance"
    assert verdict(status="diverged", score=None) == "differs"
    assert verdict(status="timeout", score=None) == "not run"
    assert verdict(0.5, score=score + 0.2) == "undecided"  # a cell that scatters much


def test_the_tolerance_follows_the_test_set_and_the_seeds(rows: list[Row]) -> None:
    small, large = ({**rows[0], "score": 0.5, "n_eval_examples": count} for count in (100, 10_000))

    assert compare.tolerance_of(small, 0.0) == pytest.approx(10 * compare.tolerance_of(large, 0.0))
    assert compare.tolerance_of(large, 0.1) == pytest.approx(0.3)
    assert compare.tolerance_of({**rows[0], "score": 1.0}, 0.0) > 0
