"""The pilot of the ladder: its page has the tables that its rows make, and its rules cover every level."""

from types import SimpleNamespace
from typing import Any

import pytest

from studies.pilot import page as pilot
from synthbench.training.ladder import ladder_schedule


def test_the_page_has_the_tables_that_the_rows_make() -> None:
    page = pilot.ROWS.with_name("README.md").read_text(encoding="utf-8")
    tables = [table for table in (*map(pilot.table, pilot.FIELDS), pilot.windows(), pilot.edge_text()) if table]
    assert tables
    assert all(table in page for table in tables)


def test_every_rule_trains_every_level_and_the_suites_is_the_first() -> None:
    for rule, order in pilot.ORDERS.items():
        for num_levels in range(1, 17):
            assert set(order(1024, num_levels)) == set(range(num_levels)), rule
    schedule = ladder_schedule(pilot.suite_of(pilot.Setting("dyck", "linear")), "dyck")
    assert schedule.order == pilot.ORDERS["low first"](1024, len(schedule.levels))


@pytest.mark.parametrize(("accuracy", "highest"), [(1.0, 9), (0.0, 0)])
def test_the_frontier_rises_where_levels_are_learned(
    monkeypatch: pytest.MonkeyPatch, accuracy: float, highest: int
) -> None:
    monkeypatch.setattr(pilot, "evaluate", lambda *_: [SimpleNamespace(accuracy=accuracy)])
    schedule = ladder_schedule(pilot.suite_of(pilot.Setting("dyck", "linear", steps=256)), "dyck")
    # All that the rule asks of a trainer.
    learner: Any = SimpleNamespace(model=None, batches=lambda *_, **__: iter(range(1000)))

    assert max(pilot.frontier(learner, schedule)) == highest
