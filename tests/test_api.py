import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import synthbench
from synthbench.errors import ContractError, StoreError, UnknownName, UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.registry import version_of
from synthbench.results import RUNS
from tests.cli.commands import python
from tests.results.rows import make_row


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, tiny_suite: Path) -> synthbench.RunReport:
    """Two mechanisms on one short task, with two seeds."""
    return synthbench.run(
        suite=str(tiny_suite),
        tasks="copy:length=8",
        mechanisms=["linear", "softmax"],
        device="cpu",
        results=str(tmp_path_factory.mktemp("api") / "results"),
        executor="inline",
    )


@pytest.mark.end_to_end
def test_a_run_says_what_became_of_it(report: synthbench.RunReport) -> None:
    assert report.ok
    assert repr(report).startswith("RunReport(4 planned: 4 rows written, 0 already done, 0 failed, ")
    assert sorted(report.rows["run_id"]) == sorted(report.runs)
    assert set(report.rows["mech"]) == {"linear", "softmax"}


def test_the_same_run_again_has_nothing_to_do(report: synthbench.RunReport, tiny_suite: Path) -> None:
    options: dict[str, Any] = {
        "suite": str(tiny_suite), "tasks": ["copy:length=8"], "mechanisms": "linear", "device": "cpu",
    }  # fmt: skip

    plan = synthbench.plan(**options, results=report.results)
    again = synthbench.run(**options, results=report.results)

    assert repr(plan) == "Plan(0 of 2 rows are missing, in 0 jobs)"
    assert again.ok
    assert not again.outcomes
    assert len(again.rows) == 2


def test_a_request_may_be_changed(report: synthbench.RunReport) -> None:
    request = synthbench.Request(suite="smoke", tasks=["copy:length=8"], device="cpu", results=report.results)

    assert synthbench.plan(request, mechanisms="linear", seeds=[5]).num_missing == 1


@pytest.mark.parametrize(
    ("seeds", "planned"), [("42-44,7", [42, 43, 44, 7]), (7, [7]), ([1, 2, 3], [1, 2, 3]), (None, [42, 43])]
)
def test_seeds_are_what_a_command_line_takes_or_numbers(seeds: object, planned: list[int], tmp_path: Path) -> None:
    plan = synthbench.plan(suite="smoke", tasks="copy:length=8", mechanisms="linear", seeds=seeds, results=tmp_path)

    assert [run.seed for run in plan.runs.values()] == planned


def test_rows_become_a_ranking_and_tables(report: synthbench.RunReport) -> None:
    rows = synthbench.load(report.results)

    board = synthbench.leaderboard(rows)
    tables = synthbench.tables(rows)

    assert set(board.index) == {"Softmax", "Linear"}
    assert (board["rank_low"] <= board["rank"]).all()
    assert (board["rank"] <= board["rank_high"]).all()
    assert list(board["skill"]) == sorted(board["skill"], reverse=True)
    assert board["basic"].to_list() == board["skill"].to_list()
    assert "Softmax" in tables["full"]
    assert tables["full"]._repr_markdown_() == tables["full"]
    assert "full" in repr(tables)
    shown = tables._repr_markdown_()
    assert [line for line in shown.splitlines() if line.startswith("# ")] == [
        table.splitlines()[0] for table in tables.values()
    ]
    assert "# Leaderboard" in shown


class SumSoFar(nn.Module):
    """A layer of one's own, with names of other libraries."""

    def __init__(self, d_model: int, nhead: int = 2, gain: float = 1.0) -> None:
        super().__init__()
        self.inner, self.nhead, self.gain = nn.Linear(d_model, d_model), nhead, gain

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.gain * self.inner(x).cumsum(1)
        return out


class Ahead(SumSoFar):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flip(1)


def own_layer(width: int, num_heads: int) -> nn.Module:
    return SumSoFar(width, num_heads, gain=0.5)


@pytest.mark.end_to_end
def test_a_layer_of_ones_own_is_checked_and_run_by_one_call(tmp_path: Path, tiny_suite: Path) -> None:
    how: dict[str, Any] = {"suite": str(tiny_suite), "tasks": "copy:length=8", "device": "cpu", "results": tmp_path}
    made: list[Any] = [SumSoFar, own_layer, partial(SumSoFar, gain=0.25), partial(SumSoFar, gain=0.75)]
    rows = [synthbench.run(module=layer, seeds=0, **how).rows for layer in made]

    assert [set(of_one["mech"]) for of_one in rows] == [{"sum_so_far"}, {"own_layer"}, {"sum_so_far"}, {"sum_so_far"}]
    assert all((of_one["status"] == "ok").all() for of_one in rows)
    versions = {version for of_one in (rows[0], *rows[2:]) for version in of_one["mech_version"]}
    assert len(versions) == 3  # what a partial is given is part of it
    with pytest.raises(ContractError, match="'ahead' is not causal"):
        synthbench.run(module=Ahead, **{**how, "results": tmp_path / "none"})
    assert not (tmp_path / "none").exists()


def layer_of(gain: float) -> type[nn.Module]:
    class Scaled(SumSoFar):
        def __init__(self, width: int) -> None:
            super().__init__(width, gain=gain)

    return Scaled


def activated(activation: type[nn.Module]) -> Callable[[int], nn.Module]:
    return lambda width: nn.Sequential(nn.Linear(width, width), activation())


@dataclass(frozen=True)
class Maker:
    gain: float

    def __call__(self, width: int) -> nn.Module:
        return self.make(width)

    def make(self, width: int) -> nn.Module:
        return SumSoFar(width, gain=self.gain)


@dataclass(frozen=True, slots=True)
class Slotted:
    gain: float


@pytest.mark.parametrize(
    "two",
    [
        [layer_of(0.5), layer_of(2.0)],
        [partial(own_layer, 8), partial(own_layer, 16)],
        [lambda width: SumSoFar(width, 2, gain=0.5), lambda width: SumSoFar(width, 2, gain=2.0)],
        [lambda width, one=layer: one(width) for layer in (layer_of(0.5), layer_of(2.0))],
        [lambda width, one=layer: one(width) for layer in (SumSoFar, Ahead)],
        [activated(nn.ReLU), activated(nn.Tanh)],
        [lambda width, pair=pair: SumSoFar(width, *pair) for pair in ((2, 0.5), (2, 2.0))],
        [lambda width, maker=maker: maker.make(width) for maker in (Maker(0.5), Maker(2.0))],
        [Maker(0.5), Maker(2.0)],
        [Maker(0.5).make, Maker(2.0).make],
        [lambda width, one=one: SumSoFar(width, gain=one.gain) for one in (Slotted(0.5), Slotted(2.0))],
        [lambda width, dtype=dtype: nn.Linear(width, 8, dtype=dtype) for dtype in (torch.float32, torch.float64)],
    ],
    ids=[
        *("factory", "partial", "lambda", "class in a lambda", "classes of one file", "classes of a library", "tuple"),
        *("object with settings", "object that builds", "method", "slots", "type of numbers"),
    ],
)
def test_layers_with_the_same_source_and_other_values_have_other_versions(two: list[Any]) -> None:
    first, second = (version_of(MECHANISMS[synthbench.api.mechanism_of(layer)]) for layer in two)
    assert first != second
    assert version_of(MECHANISMS[synthbench.api.mechanism_of(two[0])]) == first


def test_completion_shows_every_option() -> None:
    options = {field.name: field.default for field in fields(synthbench.Request)}

    for function in (synthbench.run, synthbench.plan):
        parameters = inspect.signature(function).parameters
        assert {name: parameters[name].default for name in options} == options
        assert set(parameters) == {"request", "module", *options}


smoke = partial(synthbench.plan, suite="smoke")
OF_TWO_SUITES = pd.DataFrame({**dict.fromkeys(RUNS.names), "suite": ["paper", "core"], "is_full": True})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: smoke(seeds=[1.5]), UsageError, "a seed is 1.5; allowed: whole numbers"),
        (lambda: smoke(rates=0.5), UsageError, "a rate is 0.5; allowed in suite"),
        (lambda: smoke(rates="fast"), UsageError, "rates are 'fast'; allowed: numbers"),
        (lambda: smoke(mechanisms=[object]), UsageError, "mechanisms has <class 'object'>; allowed: names"),
        (lambda: synthbench.plan(task="copy"), UnknownName, "no option called 'task'; did you mean 'tasks'"),
        (lambda: synthbench.run(module=SumSoFar(8)), UsageError, "an instance of SumSoFar; allowed: a class"),
        (lambda: synthbench.check(3), UsageError, "module is 3; allowed: a class"),  # type: ignore[arg-type]
        (synthbench.quick, UsageError, "allowed: one of the two"),
        (lambda: synthbench.check("liner"), UnknownName, "linear"),
        (lambda: synthbench.load("published", ["scor"]), UnknownName, "no column called 'scor'; did you mean 'score'"),
        (lambda: synthbench.load("nowhere"), StoreError, "nowhere"),
        (lambda: synthbench.tables(OF_TWO_SUITES), UsageError, "core, paper"),
        (lambda: synthbench.tables(OF_TWO_SUITES[["suite"]]), UsageError, "lack the column 'run_id'; load them with"),
        (lambda: synthbench.leaderboard(OF_TWO_SUITES[["suite"]]), UsageError, "lack the column 'run_id'"),
        (lambda: synthbench.slay, AttributeError, "no attribute 'slay'"),
    ],
)
def test_what_is_not_allowed_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_some_columns_are_read_as_they_are_among_all_from_a_path_or_its_text(report: synthbench.RunReport) -> None:
    rows = synthbench.load(str(report.results))

    assert synthbench.load(report.results, ["seed", "mech", "score"]).equals(rows[["seed", "mech", "score"]])
    assert synthbench.load(report.results, "score").columns.to_list() == ["score"]


def test_a_row_is_verified_by_what_the_store_says_whatever_columns_are_read(tmp_path: Path) -> None:
    synthbench.Store.open(tmp_path, create=True).write_all([(make_row(verified_by="itself"), [])])

    assert synthbench.load(tmp_path, ["verified_by"])["verified_by"].isna().all()


def test_the_rows_that_come_with_the_package_are_read_by_name() -> None:
    root = Path(synthbench.__file__).parents[1] / "results"

    assert synthbench.load("published", ["run_id"]).equals(synthbench.load(root, ["run_id"]))


def test_every_public_name_is_there() -> None:
    assert set(synthbench.__all__) == {*synthbench._HOMES, "__version__"}
    for name in synthbench.__all__:
        assert getattr(synthbench, name) is not None


def test_completion_offers_the_public_names_before_anything_heavy_is_imported() -> None:
    """A process of checks can start then too."""
    script = (
        "import sys, synthbench; print(*dir(synthbench)); print(*sys.modules)\n"
        "import synthbench.cli.plugins, synthbench.contract.isolated; print(*sys.modules)"
    )
    names, at_first, for_checks = (set(line.split()) for line in python("-c", script).stdout.splitlines())

    assert set(synthbench.__all__) <= names
    assert at_first.isdisjoint({"torch", "numpy", "pandas", "typer"})
    assert "torch" not in for_checks
