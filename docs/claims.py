"""What the rows of suites on real data say about the papers' claims: the text of ``reports/real/difference.md``.

``docs/generate.py`` writes it. A claim is a sign: which of two is larger. Every number of ours comes
from the rows in ``results``.
"""

import json
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import climb
import numpy as np
import pandas as pd
from tabulate import tabulate

from synthbench.reports.aggregates import Interval, t_interval
from synthbench.reports.selection import select
from synthbench.reports.table import fixed
from synthbench.results import Store

Quantity = Callable[[pd.DataFrame], "pd.Series[float]"]


class Claim(NamedTuple):
    """A published difference, and how the same is had from rows."""

    source: str
    says: str
    published: str
    sign: int
    """Of the published difference: 1 or −1."""
    difference: Quantity
    """Of the rows of one suite: by seed, in percentage points."""
    suites: tuple[str, ...]


def of(mechanism: str, metric: str = "score") -> Quantity:
    """A metric of one mechanism by seed, in per cent."""

    def by_seed(rows: pd.DataFrame) -> "pd.Series[float]":
        own = rows[(rows["mech"] == mechanism) & (rows["status"] == "ok")].set_index("seed")
        values = own["score"] if metric == "score" else own["metrics"].map(lambda text: json.loads(text)[metric])
        return 100 * values.astype(float)

    return by_seed


def between(one: Quantity, other: Quantity) -> Quantity:
    """One less the other, of the seeds that both have."""
    return lambda rows: (one(rows) - other(rows)).dropna()


INVERTED, GROWTH = "prototypes.inverted_accuracy", "prototypes.growth"
DIGITS = ("digits", "digits-short")
EURLEX = "SLAY, table 4, and Neural Matter Networks, table 2"
_MECHANISMS = {"Yat": "yat", "the inner product": "softmax", "SLAY": "slay", "Performer": "performer"}
NMN = "Neural Matter Networks, table 1 and section 3.3"
CLAIMS = (
    Claim(
        NMN,
        "digits: Yat is right more often than the inner product",
        "92.38 − 92.08 = +0.30",
        1,
        between(of("yat"), of("softmax")),
        DIGITS,
    ),
    Claim(
        NMN,
        "digits: with prototypes inverted, the inner product is right less often than a guess (10 %)",
        "0.01 − 10 = −9.99",
        -1,
        lambda rows: of("softmax", INVERTED)(rows) - 10,
        DIGITS,
    ),
    Claim(
        NMN,
        "digits: inverted, Yat is right more often than a guess",
        "87.87 − 10 = +77.87",
        1,
        lambda rows: of("yat", INVERTED)(rows) - 10,
        DIGITS,
    ),
    Claim(NMN, "digits: prototypes of the inner product grow", "+13.8", 1, of("softmax", GROWTH), DIGITS),
    Claim(NMN, "digits: prototypes of Yat shrink", "−4.5", -1, of("yat", GROWTH), DIGITS),
    Claim(
        NMN,
        "digits: prototypes of Yat grow less than those of the inner product",
        "−4.5 − 13.8 = −18.3",
        -1,
        between(of("yat", GROWTH), of("softmax", GROWTH)),
        DIGITS,
    ),
    *(
        Claim(
            EURLEX,
            f"labels: {better} has the higher {metric} than {worse}",
            f"{fixed(high, 2)} − {fixed(low, 2)} = +{fixed(high - low, 2)}",
            1,
            between(of(_MECHANISMS[better], metric), of(_MECHANISMS[worse], metric)),
            ("labels", "labels-short"),
        )
        for better, worse, metric, high, low in (
            ("Yat", "the inner product", "P@1", 64.65, 62.35),
            ("the inner product", "SLAY", "P@1", 62.35, 49.78),
            ("SLAY", "Performer", "P@1", 49.78, 34.42),
            ("the inner product", "Yat", "unnormalised PSP@1", 121.17, 115.42),
        )
    ),
)


def page() -> Iterator[str]:
    """The paragraphs of the page."""
    rows = Store.open(climb.RESULTS, create=False).runs()
    found = [(claim, suite, _measured(claim, suite, rows)) for claim in CLAIMS for suite in claim.suites]
    yield "# Published claims on real data, and the rows here"
    yield (
        "The papers' experiments on real data are larger than those here, so a claim is compared by its sign. It holds "
        "if the 95 % interval over seeds (t distribution, paired where two mechanisms share seeds) lies on the "
        "published side of zero, and is contradicted if it lies on the other one. Of every seed the learning rate "
        "counts that did best in validation. [real.md](../../docs/real.md) describes the suites."
    )
    verdicts = [_verdict(claim, interval) for claim, _, interval in found]
    holds, open_, against = (verdicts.count(word) for word in VERDICTS)
    yield (
        f"Of {len(verdicts)} comparisons {holds} hold, {open_} are not shown and {against} are contradicted, on the "
        "data here: 5,000 digits instead of 70,000, and short definitions of WordNet instead of Eurlex-4K."
    )
    lines = [
        [claim.says, claim.published, suite, _in_words(interval), verdict]
        for (claim, suite, interval), verdict in zip(found, verdicts, strict=True)
    ]
    yield tabulate(
        lines,
        ["claim", "published, points", "suite", "here, points", "verdict"],
        tablefmt="github",
        disable_numparse=True,
    )
    yield f"Sources: {'; '.join(dict.fromkeys(claim.source for claim in CLAIMS))}."


VERDICTS = ("holds", "not shown", "contradicted")


def _verdict(claim: Claim, interval: Interval) -> str:
    if claim.sign * interval.low > 0 and claim.sign * interval.high > 0:
        return VERDICTS[0]
    return VERDICTS[2] if claim.sign * interval.low < 0 and claim.sign * interval.high < 0 else VERDICTS[1]


def _measured(claim: Claim, suite: str, rows: pd.DataFrame) -> Interval:
    values = claim.difference(select(rows, suite).rows).to_numpy()
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return t_interval(float(values.mean()), error, len(values) - 1.0, low=-math.inf, high=math.inf)


def _in_words(interval: Interval) -> str:
    value, low, high = (fixed(number, 1) for number in interval)
    return f"{value} ({low} to {high})"
