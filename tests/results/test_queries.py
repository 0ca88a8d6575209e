"""The count of queries against an incumbent: it survives commands at the same time, and bad files are named."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from synthbench.errors import StoreError
from synthbench.results import Store
from synthbench.results.queries import FILE, query_number


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "results", create=True)


def ask(root: Path, number: int) -> int:
    return query_number(Store.open(root, create=True), "core 2026.1", "softmax", [f"run-{number}"])


def test_the_same_rows_are_the_same_query_and_others_the_next(store: Store) -> None:
    def number(*run_ids: str, suite: str = "core 2026.1", incumbent: str = "softmax") -> int:
        return query_number(store, suite, incumbent, run_ids)

    assert [number("a", "b"), number("a", "c"), number("b", "a"), number("a"), number("c", "a")] == [1, 2, 1, 3, 2]
    assert number("a", "c", incumbent="linear") == 1
    assert number("a", "c", suite="core 2026.2") == 1
    assert number("a", "d") == 4
    asked = json.loads((store.root / FILE).read_text())["core 2026.1"]
    assert {incumbent: len(queries) for incumbent, queries in asked.items()} == {"softmax": 4, "linear": 1}


def test_commands_at_the_same_time_lose_no_count(store: Store) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as processes:
        numbers = list(processes.map(ask, [store.root] * 24, range(24)))

    assert sorted(numbers) == list(range(1, 25))


@pytest.mark.parametrize("text", ["{", "[]", '{"core": []}', '{"core": {"softmax": 3}}', '{"a": {"b": [3]}}'])
def test_a_file_that_cannot_be_read_is_named_and_kept(store: Store, text: str) -> None:
    path = store.root / FILE
    path.write_text(text)

    with pytest.raises(StoreError, match=r"quick\.json cannot be read"):
        ask(store.root, 1)
    assert path.read_text() == text


def test_a_store_that_is_open_for_reading_counts_nothing(store: Store) -> None:
    with pytest.raises(StoreError, match="opened for reading"):
        query_number(Store.open(store.root, create=False), "core 2026.1", "softmax", ["a"])
    assert not (store.root / FILE).exists()
