import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from synthbench.errors import ContractError
from synthbench.results import Store
from synthbench.runner import worker
from synthbench.runner.plan import Job
from synthbench.runner.worker import OutOfMemoryBesideOthers, RunContext, execute
from synthbench.training.cell import Cell, Member
from synthbench.training.train import GroupResult, train_group

SEEDS = range(3)


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(tmp_path / "results", "cpu", "inline", time.time())


def job_of(cell: Cell, missing: Sequence[int] = SEEDS) -> Job:
    members = tuple(cell.members(SEEDS))
    return Job((cell,), members, tuple(members[seed] for seed in missing), group_size=len(members))


def failing(problem: Exception, largest: int = 0) -> Callable[..., GroupResult]:
    """Training that fails for more than ``largest`` members at once."""

    def train(members: Sequence[Member], device: torch.device, **how: Any) -> GroupResult:
        if len(members) > largest:
            raise problem
        return train_group(members, device, **how)

    return train


def test_a_trained_job_leaves_rows_that_explain_themselves(make_cell: Callable[..., Cell], context: RunContext) -> None:
    cell = make_cell("reverse", "slay", length=8)
    outcomes = execute(job_of(cell), context, 1)

    store = Store.open(context.results, create=False)
    rows = store.runs()
    assert [outcome.status for outcome in outcomes] == ["ok"] * 3
    assert set(rows.run_id) == {member.run_id for member in cell.members(SEEDS)}
    assert set(rows.task_args) == {'{"length":8,"vocabulary":32}'}
    assert set(rows.mech_family) == {"slay"}
    assert set(rows.member_strategy) == {"stack"}
    assert rows.causal_checked.all()
    assert not rows.is_full.any()
    assert list(rows.ensemble_size) == [3, 3, 3]
    assert sorted(rows.ensemble_index) == [0, 1, 2]
    assert (rows.skill == (rows.score - rows.floor) / (rows.ceiling - rows.floor)).all()
    assert (rows.n_correct / rows.n_eval_examples == rows.score).all()
    assert set(store.curves().groupby("run_id").size()) == {3}


def test_an_error_is_a_row_with_its_type_and_message(
    make_cell: Callable[..., Cell], context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "train_group", failing(ZeroDivisionError("a long story " * 100)))
    outcomes = execute(job_of(make_cell()), context, 1)

    rows = Store.open(context.results, create=False).runs()
    assert [outcome.status for outcome in outcomes] == ["error"] * 3
    assert all(f'File "{__file__}", line ' in (outcome.trace or "") for outcome in outcomes)
    assert set(rows.error_type) == {"ZeroDivisionError"}
    assert rows.error_message.str.len().max() == 500
    assert rows.score.isna().all()


@pytest.mark.parametrize(
    "problem",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    ],
)
def test_out_of_memory_halves_the_ensemble_until_it_fits(
    problem: Exception,
    make_cell: Callable[..., Cell],
    context: RunContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "train_group", failing(problem, largest=1))
    outcomes = execute(job_of(make_cell(length=4)), context, 1)

    assert [(outcome.seed, outcome.status) for outcome in outcomes] == [(0, "ok"), (1, "ok"), (2, "ok")]
    assert set(Store.open(context.results, create=False).runs().ensemble_size) == {1}


def test_out_of_memory_is_a_row_but_not_yet_beside_other_workers(
    make_cell: Callable[..., Cell], context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "train_group", failing(MemoryError("2 GiB more")))
    with pytest.raises(OutOfMemoryBesideOthers, match="2 GiB more"):
        execute(job_of(make_cell()), replace(context, is_alone=False), 1)

    assert not Store.open(context.results, create=False).statuses()
    assert [outcome.status for outcome in execute(job_of(make_cell()), context, 1)] == ["oom"] * 3  # alone


def test_what_has_no_deterministic_algorithm_is_unsupported_only_if_one_is_asked_for(
    make_cell: Callable[..., Cell], context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(members: Sequence[Member], device: torch.device, **how: Any) -> GroupResult:
        torch.zeros(2).put_(torch.tensor([0]), torch.ones(1))  # PyTorch has no deterministic form of it
        return train_group(members, device, **how)

    monkeypatch.setattr(worker, "train_group", train)
    cell = make_cell(length=4)

    (asked, *_) = execute(job_of(cell), replace(context, is_deterministic=True), 1)
    assert set(Store.open(context.results, create=False).runs().deterministic) == {True}
    assert not torch.are_deterministic_algorithms_enabled()
    (not_asked, *_) = execute(job_of(cell), context, 1)
    assert set(Store.open(context.results, create=False).runs().deterministic) == {False}

    assert (asked.status, not_asked.status) == ("unsupported", "ok")
    assert asked.message is not None
    assert asked.message.startswith("put_ does not have a deterministic implementation")


def test_a_mechanism_that_breaks_its_contract_is_not_trained(
    make_cell: Callable[..., Cell], context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaks(*_arguments: object) -> None:
        raise ContractError("output 3 changed when input 4 did")

    monkeypatch.setattr(worker, "check_causality", leaks)
    monkeypatch.setattr(worker, "train_group", failing(AssertionError("it was trained")))
    worker._probe.cache_clear()
    outcomes = execute(job_of(make_cell()), context, 1)
    worker._probe.cache_clear()

    assert [outcome.status for outcome in outcomes] == ["contract"] * 3
    assert outcomes[0].message == "output 3 changed when input 4 did"


def test_a_cell_that_fails_takes_no_other_with_it(
    make_cell: Callable[..., Cell], context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = (make_cell("copy", length=4), make_cell("reverse", length=4))

    def train(members: Sequence[Member], device: torch.device, **how: Any) -> GroupResult:
        if any(member.cell is cells[0] for member in members):
            raise ArithmeticError("no such token")
        return train_group(members, device, **how)

    monkeypatch.setattr(worker, "train_group", train)
    members = tuple(member for cell in cells for member in cell.members(SEEDS))
    outcomes = execute(Job(cells, members, members, group_size=6), context, 1)

    assert [(outcome.task, outcome.status) for outcome in outcomes] == [("copy", "error")] * 3 + [("reverse", "ok")] * 3
    rows = Store.open(context.results, create=False).runs()
    assert set(rows.ensemble_size) == {3}
    assert set(rows[rows.status == "error"].error_message) == {"no such token"}
