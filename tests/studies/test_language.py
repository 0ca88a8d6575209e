"""The page on the papers' claims, for made-up rows of a language model."""

from typing import Any

import pandas as pd

from studies.real import language
from tests.reports._made import text_row
from tests.studies._made import cells_in


def row_of(
    mech: str, seed: int, bits: float | None, corpus: str = language.DOCSTRINGS, **changes: Any
) -> dict[str, Any]:
    """A row of a matched language model."""
    metrics = {"calibration_error": 0.01 * seed, **changes.pop("metrics", {})}
    given = {"block": "transformer", "match": f"params=84500 of {mech}", "metrics": metrics} | changes
    return text_row(mech, seed, bits, corpus, **given)


def test_without_rows_nothing_is_said() -> None:
    unmatched = pd.DataFrame([row_of("softmax", seed, 2.0, match=None) for seed in (1, 2, 3)])

    assert list(language.paragraphs(unmatched)) == []
    assert list(language.paragraphs(unmatched[:0])) == []


def test_claims_are_of_differences_of_bits_seed_by_seed_and_those_without_rows_are_left_out() -> None:
    rows = pd.DataFrame(
        row_of(mech, seed, bits + seed / 10)
        for mech, bits in (("softmax", 2.0), ("slay", 2.2), ("linear", 3.0))
        for seed in (1, 2, 3)
    )
    text = "\n".join(language.paragraphs(rows))

    ((*_, found, verdict),) = cells_in(text, "softmax needs fewer bits than slay")
    assert (found, verdict) == ("−20.0 (−20.0 to −20.0)", "holds")
    assert "performer" not in text
    assert "Of 1 comparisons 1 hold" in text


def test_a_run_that_diverged_counts_as_a_guess() -> None:
    rows = [row_of("yat", seed, 2.0 + seed / 10, block="aether") for seed in (1, 2, 3)]
    rows += [row_of("yat", seed, None, block="aether:norm=pre") for seed in (1, 2, 3)]
    text = "\n".join(language.paragraphs(pd.DataFrame(rows)))

    assert "580.0 (555.2 to 604.8)" in cells_in(text, "Aether with LayerNorm before each part")[0]
