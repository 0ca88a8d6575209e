from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from synthbench.mechanisms import MECHANISMS
from synthbench.runner.plan import plan_request
from synthbench.runner.request import Request
from synthbench.runner.tally import index, quick_cells, tally
from synthbench.suites import load_suite, suite_names


def of_suites() -> Iterator[tuple[str, str, str]]:
    """Every suite's first task with its last mechanism; every mechanism, and every task of a ladder, once."""
    for name in suite_names():
        suite = load_suite(name)
        yield name, next(iter(suite.tasks)), list(suite.mechanisms)[-1]
    yield "smoke", "copy", "all"
    yield "climb-small", "all", "softmax"


@pytest.mark.parametrize(("suite", "task", "mechanism"), [*of_suites()])
def test_the_index_gives_the_same_ids_as_the_components(suite: str, task: str, mechanism: str, tmp_path: Path) -> None:
    request = Request(suite=suite, tasks=[task], mechanisms=[mechanism], device="cpu", seeds=[1042], results=tmp_path)
    cells = quick_cells(request)

    assert cells is not None
    assert {run_id for _, run_ids in cells for run_id in run_ids} == set(
        plan_request(request, torch.device("cpu")).run_ids
    )


def test_every_built_in_mechanism_is_in_the_index() -> None:
    assert sorted(index()["mechanisms"]) == list(MECHANISMS)


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanisms": ["slay:R=2"]},
        {"mechanisms": ["slai"]},
        {"tasks": ["copy:length=8"]},
        {"device": "cuda"},
        {"block": "aether"},
        {"positions": "rope"},
        {"match": "params"},
        {"shard": "1/2"},
        {"rates": (1e-3,)},
        {"plugins": ["mine.py"]},
    ],
)
def test_what_the_index_does_not_know_is_left_to_the_components(changes: dict[str, object]) -> None:
    assert quick_cells(Request(suite="smoke", device="cpu")) is not None
    assert quick_cells(Request(**{"suite": "smoke", "device": "cpu", **changes})) is None  # type: ignore[arg-type]


def test_rows_are_counted_by_category_and_in_all() -> None:
    counted = tally([("basic", ["a", "b"]), ("memory", ["c", "d"])], {"a": "ok", "b": "error", "d": "ok", "z": "ok"})

    assert [tuple(entry.values()) for entry in counted] == [
        ("basic", 2, 1, 1, 0),
        ("memory", 2, 1, 0, 1),
        ("all", 4, 2, 1, 1),
    ]
