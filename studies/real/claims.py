"""Compare the papers' claims on real data with the committed rows, for the first part of the page.

A claim is the sign of a difference of two quantities. Our numbers come from the rows and curves in ``results``. Only
the first experiment of the REWA paper needs no rows, since it trains nothing.
"""

import json
import math
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import softmax

from studies.climb import page as climb
from studies.pages import store
from studies.real import tangent
from synthbench.reports.aggregates import UNKNOWN, Interval, over_runs
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.selection import select
from synthbench.reports.table import fixed, in_words

Quantity = Callable[[pd.DataFrame], "pd.Series[float]"]
"""A function of the rows of a suite that gives a number for each seed, or for each row."""


class Claim(NamedTuple):
    """A published difference, and the function that computes our difference from rows."""

    source: str
    says: str
    published: str
    sign: int
    """Sign of the published difference: 1 or −1."""
    difference: Quantity
    """Our difference in the rows of one suite, by seed, in percentage points."""
    suites: tuple[str, ...]


def between(one: Quantity, other: Quantity) -> Quantity:
    """Make a function that gives ``one - other`` for the seeds that both have."""
    return lambda rows: (one(rows) - other(rows)).dropna()


def mean(mechanism: str, tasks: Container[str], value: Quantity | None = None) -> Quantity:
    """Make a function that gives the mean of a value over tasks, by default the score, by seed and in per cent."""

    def by_seed(rows: pd.DataFrame) -> "pd.Series[float]":
        own = rows[(rows["mech"] == mechanism) & rows["task"].map(lambda task: task in tasks)]
        values = own["score"] if value is None else value(own)
        return 100 * values.astype(float).groupby(own["seed"]).mean()

    return by_seed


def over_softmax(mechanism: str, tasks: Container[str], value: Quantity | None = None) -> Quantity:
    """Make a function that gives :func:`mean` of a mechanism minus :func:`mean` of softmax attention."""
    return between(mean(mechanism, tasks, value), mean("softmax", tasks, value))


def over_heads(metric: str) -> Quantity:
    """Make a function that gives the mean of a metric over heads and layers, for each row."""

    def of_row(metrics: str) -> float:
        return fmean(value for name, value in json.loads(metrics).items() if f".{metric}." in name)

    return lambda rows: rows["metrics"].map(of_row)


curvature = over_heads("kappa")
"""Curvature κ of eq. 107, from -1 (only the sphere has weight) to 1 (only hyperbolic space has weight)."""


def tokens_needed(losses: pd.DataFrame, mechanism: str, baseline: str) -> "pd.Series[float]":
    """Compute the tokens that a mechanism needs to reach the final training loss of a baseline.

    The result is the mean over tasks by seed, in per cent of the baseline's tokens. No batch is used twice, so a
    training loss is a loss on new data. A run that never reaches the loss has 100 %. ``losses`` has the columns mech,
    task, seed, tokens and value.
    """
    found = {}
    for (seed, task), cell in losses.sort_values("tokens").groupby(["seed", "task"]):
        target = cell[cell["mech"] == baseline].iloc[-1]
        own = cell[cell["mech"] == mechanism]
        there = own.loc[own["value"] <= target["value"], "tokens"]
        found[seed, task] = 100 * min([*there, target["tokens"]]) / target["tokens"]
    return pd.Series(found).groupby(level=0).mean()


def losses_of(rows: pd.DataFrame, *mechanisms: str) -> pd.DataFrame:
    """Read the training losses of mechanisms, in the form that :func:`tokens_needed` takes."""
    own = rows.loc[rows["mech"].isin(mechanisms), ["run_id", "mech", "task", "seed"]]
    curves = store().curves(own["run_id"])
    return curves[(curves["split"] == "train") & (curves["metric"] == "loss")].merge(own, on="run_id")


def distance_from_softmax(num: int = 64, dim: int = 64, draws: int = 10) -> Interval:
    """Compute the distance between the attention weights of spherical REWA and of softmax attention.

    Queries and keys are ``num`` random unit vectors each. The temperature of softmax is 1 / √dim, that of REWA is √2 /
    √dim, as in theorem 4.2. The distance is a Frobenius norm; the softmax weights have a norm near 1.
    """
    points = np.random.Generator(np.random.Philox(0)).normal(size=(2, draws, num, dim))
    queries, keys = points / np.linalg.norm(points, axis=-1, keepdims=True)
    cosines = queries @ keys.swapaxes(-1, -2)
    of_softmax = softmax(cosines * math.sqrt(dim), axis=-1)
    of_rewa = softmax(-np.arccos(cosines) * math.sqrt(dim / 2), axis=-1)
    return interval_of(np.linalg.norm(of_rewa - of_softmax, axis=(-1, -2)))


NESTING = ("dyck", "stack_manipulation", "tree_compose")
ELSEWHERE = set(climb.SUITE.tasks) - set(NESTING)
REWA = "REWA, section 8.1"
_GEOMETRIC = "rewa-geometric"
_rewa = partial(Claim, REWA, suites=("climb",))
PREDICTIONS = (
    _rewa("2: a task of expression trees, tree_compose: geometric REWA is above softmax attention", "above 0", 1,
          over_softmax(_GEOMETRIC, ["tree_compose"])),
    _rewa("2: three tasks of nesting: geometric REWA is above softmax attention", "above 0", 1,
          over_softmax(_GEOMETRIC, NESTING)),
    _rewa("3: geometric REWA needs at most a third of the tokens for the last loss of softmax attention",
          "20 − 33.3 = −13.3", -1,
          lambda rows: tokens_needed(losses_of(rows, _GEOMETRIC, "softmax"), _GEOMETRIC, "softmax") - 100 / 3),
    _rewa("3: geometric REWA ends with the lower training loss (hundredths of a nat)", "−5 to −2", -1,
          over_softmax(_GEOMETRIC, climb.SUITE.tasks, lambda rows: rows["train_loss"])),
    _rewa("4: tasks of nesting: the hyperbolic weight is above the spherical one, κ > 0", "above 0", 1,
          mean(_GEOMETRIC, NESTING, curvature)),
    _rewa("4: κ is higher on tasks of nesting than on the others", "above 0", 1,
          between(mean(_GEOMETRIC, NESTING, curvature), mean(_GEOMETRIC, ELSEWHERE, curvature))),
    _rewa("6: multihop: operator REWA is right more often than softmax attention", "5 to 10", 1,
          over_softmax("rewa-operator", ["multihop"]), suites=("paper",)),
)  # fmt: skip


def paragraphs(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the first paragraphs of the page."""
    yield "# Published claims on real data, and the rows here"
    yield (
        "The papers' experiments are larger than those here, so a claim is compared by its sign. It holds if the 95 % "
        "CI over seeds (t distribution, paired where possible) lies on the published side of zero, and is contradicted "
        "if it lies on the other. Validation chooses each seed's rate. [real.md](../../docs/real.md) describes suite "
        "`text`; [another study](../prototypes/README.md) has the claims on digits and labels."
    )
    yield from tangent.paragraphs()
    yield "## The predictions of the REWA paper"
    yield (
        "Section 8.1 of that paper predicts the results of six experiments on pre-trained models and text; nobody has "
        "published one. These are the same questions on synthetic tasks, for models of two layers, so they say nothing "
        "of language models. The CIs are over three seeds. κ is (γ − β) / (α + β + γ), equation 107. Where it predicts "
        "γ > β, the paper writes of negative κ, which this formula makes positive."
    )
    value, low, high = (fixed(number, 2) for number in distance_from_softmax())
    yield (
        "The first experiment needs no training: with the sphere alone, at √2 the temperature, attention weights "
        "should lie within .02 (Frobenius norm) of those of softmax attention. For 64 random queries and keys in 64 "
        f"dimensions the distance is {value} ({low} to {high}, ten draws), where all weights have a norm near 1. "
        "Between nearly orthogonal vectors exp(−angle / (√2 τ)) varies as exp(cos / (√2 τ)), not as exp(cos / τ)."
    )
    found = found_in(PREDICTIONS, rows)
    yield (
        f"{counted(found)}; the number of the experiment stands before each. The fifth is not tested, and no mechanism "
        "learns the task of the sixth here."
    )
    yield table(found)


Found = list[tuple[Claim, str, Interval]]


def found_in(claims: Sequence[Claim], rows: pd.DataFrame) -> Found:
    """Return each claim, each of its suites, and the difference in the suite's rows; NaN with fewer than two seeds."""
    suites = {suite for claim in claims for suite in claim.suites}
    shown = {suite: select(rows, suite).without_variants().rows for suite in suites}
    return [
        (claim, suite, interval_of(claim.difference(shown[suite]).to_numpy()))
        for claim in claims
        for suite in claim.suites
    ]


def counted(found: Found) -> str:
    """Count the claims that hold, in words."""
    verdicts = [_verdict(claim, interval) for claim, _, interval in found]
    holds, open_, against = (verdicts.count(word) for word in VERDICTS)
    return f"Of {len(verdicts)} comparisons {holds} hold, {open_} are not shown and {against} are contradicted"


def table(found: Found) -> str:
    """Write a table with one line per comparison."""
    lines = [
        [claim.says, claim.published, suite, in_words(interval, 1), _verdict(claim, interval)]
        for claim, suite, interval in found
    ]
    return plain_table(lines, ["claim", "published, points", "suite", "here, points", "verdict"])


VERDICTS = ("holds", "not shown", "contradicted")


def _verdict(claim: Claim, interval: Interval) -> str:
    ends = [claim.sign * end for end in (interval.low, interval.high)]
    if min(ends) > 0:
        return VERDICTS[0]
    return VERDICTS[2] if max(ends) < 0 else VERDICTS[1]


def interval_of(values: Float[np.ndarray, " seeds"]) -> Interval:
    """Compute the mean over seeds with its 95 % interval; NaN for fewer than two seeds."""
    return over_runs(values) if len(values) > 1 else UNKNOWN
