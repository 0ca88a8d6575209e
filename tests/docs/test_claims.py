"""What the page on the papers' claims says of made-up rows."""

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from synthbench.suites import load_suite

DOCS = Path(__file__).parents[2] / "docs"
SUITE = load_suite("digits")


@pytest.fixture(scope="module")
def claims() -> Iterator[SimpleNamespace]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield SimpleNamespace(**runpy.run_path(str(DOCS / "claims.py")))
        sys.modules.pop("climb", None)


@pytest.fixture
def rows_of(make_row: Callable[..., dict[str, Any]]) -> Callable[..., pd.DataFrame]:
    """Rows of the inner product, .5 right with every seed, and of Yat, that much more often."""

    def make(*gains: float) -> pd.DataFrame:
        rows = []
        for seed, gain in enumerate(gains, start=1):
            for mech, score in (("softmax", 0.5 + seed / 100), ("yat", 0.5 + seed / 100 + gain)):
                metrics = {"prototypes.inverted_accuracy": 0.25, "prototypes.growth": -gain}
                rows.append(
                    make_row(
                        suite=SUITE.name, suite_version=SUITE.version, task="digits", mech=mech, seed=seed,
                        score=score, metrics=json.dumps(metrics), run_id=f"{mech}-{seed}",
                    )
                )  # fmt: skip
        return pd.DataFrame(rows)

    return make


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((0.02, 0.03, 0.04), "holds"),
        ((-0.02, -0.03, -0.04), "contradicted"),
        ((0.02, -0.03, 0.01), "not shown"),
    ],
)
def test_a_claim_holds_if_the_interval_of_paired_seeds_lies_on_its_side(
    claims: SimpleNamespace, rows_of: Callable[..., pd.DataFrame], gains: tuple[float, ...], verdict: str
) -> None:
    first, *_ = claims.CLAIMS

    measured = claims._measured(first, SUITE.name, rows_of(*gains))

    assert measured.value == pytest.approx(100 * sum(gains) / 3)
    assert claims._verdict(first, measured) == verdict


def test_the_opposite_sign_has_the_opposite_verdict(
    claims: SimpleNamespace, rows_of: Callable[..., pd.DataFrame]
) -> None:
    shrinks = next(claim for claim in claims.CLAIMS if "shrink" in claim.says)

    measured = claims._measured(shrinks, SUITE.name, rows_of(0.02, 0.03, 0.04))

    assert shrinks.sign == -1
    assert claims._verdict(shrinks, measured) == "holds"
    assert claims._in_words(measured) == "−3.0 (−5.5 to −0.5)"
