from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthbench.results import Store
from synthbench.runner.watch import Watch

MakeRow = Callable[..., dict[str, Any]]


def test_only_rows_that_are_written_from_now_on_are_news_and_each_once(tmp_path: Path, make_row: MakeRow) -> None:
    store = Store.open(tmp_path, create=True)
    old, new, other = (make_row(seed=seed, role="tuning") for seed in range(3))
    store.write(old, [])
    watch = Watch(tmp_path, [old["run_id"], new["run_id"]])
    store.write(new, [])
    store.write(other, [])

    assert [(found.run_id, found.seed, found.share_s) for found in watch.news()] == [(new["run_id"], 1, 2.5)]
    assert watch.news() == []


def test_a_row_that_is_made_again_is_news(tmp_path: Path, make_row: MakeRow) -> None:
    store = Store.open(tmp_path, create=True)
    row = make_row(role="tuning")
    store.write(row, [])
    watch = Watch(tmp_path, [row["run_id"]])
    store.write(row, [])

    assert [found.run_id for found in watch.news()] == [row["run_id"]]
