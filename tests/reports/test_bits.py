"""Tables in bits: the right order, marks, intervals and references, on rows whose numbers are known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from synthbench.reports.build import FORMATS, files_of
from synthbench.reports.report import Report
from synthbench.reports.standings import standings
from tests.reports._made import report_of, text_row

BITS_OF = {
    "softmax": (2.00, 2.01, 2.02),
    "gla": (1.99, 2.00, 2.01),
    "linear": (3.00, 3.02, 3.01),
    "mean": (1.50, 1.51, 1.52),
}


def row_of(mech: str, seed: int, bits: float, corpus: str = "sha256-aa", /, **fields: Any) -> dict[str, Any]:
    metrics = {
        "accuracy": 0.4, "repeated.bits": bits - 1, "repeated.share": 0.12, "other.bits": bits + 0.2,
        "other.share": 0.88, "reference.unigram": 4.7, "reference.lzma": 1.9,
    }  # fmt: skip
    family = "control" if mech == "mean" else mech
    return text_row(mech, seed, bits, corpus, metrics=metrics, mech_label=mech, mech_family=family, **fields)


def frame_of(bits_of: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    return pd.DataFrame(
        row_of(mech, seed, bits) for mech, of_seeds in bits_of.items() for seed, bits in enumerate(of_seeds, start=1)
    )


@pytest.fixture
def report() -> Report:
    return report_of(frame_of(BITS_OF), "text")


def test_the_ranking_for_programs_has_bits_and_no_skill(report: Report) -> None:
    facts = {one["name"]: one["tasks"]["text"] for one in standings(report)["mechanisms"]}

    assert facts["gla"]["bits"]["mean"] == pytest.approx(2.0)
    assert 1.9 < facts["gla"]["bits"]["low"] < 2.0 < facts["gla"]["bits"]["high"] < 2.1
    assert all(math.isnan(facts["gla"][key]) for key in ("skill", "low", "high"))


def test_a_control_whose_seeds_scatter_hides_no_difference_between_rivals() -> None:
    noisy = BITS_OF | {"gla": (1.990, 2.000, 2.010), "softmax": (2.015, 2.025, 2.035), "mean": (1.5, 1.9, 2.5)}

    assert report_of(frame_of(noisy), "text").verdict.endswith("not shown to need more: none.")


def test_one_seed_has_no_interval_no_tie_and_says_so() -> None:
    report = report_of(frame_of({mech: bits[:1] for mech, bits in BITS_OF.items()}), "text")
    (table,) = report.pages["bits"].tables

    assert not any(cell.is_tied or cell.remarks for line in table.lines for cell in line.cells)
    assert "one seed does not show how certain a difference is" in report.verdict


def test_two_texts_have_a_table_each() -> None:
    other = pd.DataFrame([row_of("gla", 1, 1.1, "sha256-bb")])
    tables = report_of(pd.concat([frame_of(BITS_OF), other]), "text").pages["bits"].tables

    assert [("sha256-aa" in table.title, len(table.lines)) for table in tables] == [(True, 6), (False, 3)]
    assert len({table.name for table in tables}) == 2


def test_every_format_is_made_without_a_skill(report: Report) -> None:
    files = files_of(report, FORMATS)

    assert report.board is None
    assert set(files) == {
        "README.md", "bits.md", "bits.tex", "cells.csv", "runs.csv", "report.json",
        "leaderboard.json", "sources.bib",
    }  # fmt: skip
    assert "needs the fewest bits" in str(files["README.md"])


def test_variants_of_a_suite_in_bits_have_no_page(report: Report) -> None:
    others = report.selection.rows.assign(block="transformer:conv=4")
    with_variants = Report(replace(report.selection, variants=others), None)

    assert with_variants.variants
    assert "variants.md" not in files_of(with_variants)
