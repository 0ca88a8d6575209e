"""The page on the papers' claims, for made-up rows of a language model."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from studies.real import language
from tests.reports._made import text_row

DOCS = Path(__file__).parents[2] / "docs"


def row_of(
    mech: str, seed: int, bits: float | None, corpus: str = language.DOCSTRINGS, **changes: Any
) -> dict[str, Any]:
    """A row of a matched language model."""
    metrics = {"calibration_error": 0.01 * seed, **changes.pop("metrics", {})}
    given = {"block": "transformer", "match": f"params=84500 of {mech}", "metrics": metrics} | changes
    return text_row(mech, seed, bits, corpus, **given)


def test_the_page_on_texts_has_their_hashes() -> None:
    page = (DOCS / "real.md").read_text(encoding="utf-8")

    texts = language.DOCSTRINGS, language.LIBRARY, language.DICTIONARY, language.PROSE
    assert [corpus for corpus in texts if corpus not in page] == []


def test_a_run_that_diverged_counts_as_a_guess() -> None:
    rows = pd.DataFrame([row_of("yat", 1, 2.5), row_of("yat", 2, None)])

    assert language.bits(rows).tolist() == [2.5, language.WITHOUT_KNOWLEDGE]


def test_other_texts_blocks_and_unmatched_rows_do_not_count() -> None:
    rows = [
        row_of("yat", 1, 2.0),
        row_of("yat", 2, 2.0, language.LIBRARY),
        row_of("yat", 3, 2.0, block="aether"),
        row_of("yat", 4, 2.0, match=None),
        row_of("yat", 5, 2.0, match="state=9 of yat"),
        row_of("softmax", 6, 2.0),
    ]

    assert language.of("yat")(pd.DataFrame(rows)).to_dict() == {1: 200.0}
    assert language.of("yat", language.calibration_error)(pd.DataFrame(rows)).to_dict() == {1: pytest.approx(1.0)}
