"""The table of how often tests and intervals err is that of this code."""

from pathlib import Path

import pytest

from studies.error_rates import page as simulation
from synthbench.reports import statistics


def test_a_change_of_what_is_computed_makes_it_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "LEAST_PRIOR", 0.0)

    assert any("cell covers" in line or "cell width" in line for line in simulation.stale([("8 of 10 learn", 3)]))


def test_every_interval_covers_or_the_page_says_where_it_does_not() -> None:
    """Nominally 95 %; what chance takes from 60 reports is no exception."""
    for line in simulation.read():
        if line["reports"] != "1":
            least = 0.90 if line["seeds"] == "3" else 0.92
            short = [name for name in simulation.INTERVALS if float(line[f"{name} covers"]) < least]
            assert short == [], (line["case"], line["seeds"])


def test_the_page_on_statistics_says_how_often_unequal_spreads_separate() -> None:
    page = (Path(simulation.__file__).parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8")
    lines = {line["seeds"]: line for line in simulation.read() if line["case"] == "unequal spread"}
    three, five, ten = (round(100 * float(lines[seeds]["null task"])) for seeds in ("3", "5", "10"))

    assert f"[{three}, {five} and {ten} %](../studies/error_rates/README.md)" in page
