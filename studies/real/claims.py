"""Compares the papers' claims on real data with the committed rows: the first part of the page.

``docs/generate.py`` writes it. A claim is a sign: which of two is larger. Every number of ours comes
from the rows and curves in ``results``, but for the first experiment of the REWA paper, which trains nothing.
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
from studies.real import tangent
from synthbench.reports.aggregates import UNKNOWN, Interval, over_runs
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.selection import select
from synthbench.reports.table import fixed, in_words
from synthbench.results import Store

Quantity = Callable[[pd.DataFrame], "pd.Series[float]"]
"""Of the rows of a suite by seed, or of each of them."""


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


def between(one: Quantity, other: Quantity) -> Quantity:
    """One less the other, of the seeds that both have."""
    return lambda rows: (one(rows) - other(rows)).dropna()


def mean(mechanism: str, tasks: Container[str], value: Quantity | None = None) -> Quantity:
    """A value of each row, the score if None, as its mean over tasks by seed, in per cent."""

    def by_seed(rows: pd.DataFrame) -> "pd.Series[float]":
        own = rows[(rows["mech"] == mechanism) & rows["task"].map(lambda task: task in tasks)]
        values = own["score"] if value is None else value(own)
        return 100 * values.astype(float).groupby(own["seed"]).mean()

    return by_seed


def over_softmax(mechanism: str, tasks: Container[str], value: Quantity | None = None) -> Quantity:
    """The same, less that of softmax attention."""
    return between(mean(mechanism, tasks, value), mean("softmax", tasks, value))


def over_heads(metric: str) -> Quantity:
    """A metric of each row, as its mean over heads and layers."""

    def of_row(metrics: str) -> float:
        return fmean(value for name, value in json.loads(metrics).items() if f".{metric}." in name)

    return lambda rows: rows["metrics"].map(of_row)


curvature = over_heads("kappa")
"""Of eq. 107: from -1, only the sphere counts, to 1, only hyperbolic space."""


def tokens_needed(losses: pd.DataFrame, mechanism: str, baseline: str) -> "pd.Series[float]":
    """Tokens until a mechanism's training loss is the last one of the baseline, in per cent of the baseline's tokens.

    The mean over tasks, by seed. Both see the same batches, none of them twice, so a training loss is one on new data.
    A run that never gets there counts as 100 %. ``losses`` has the columns mech, task, seed, tokens and value.
    """
    found = {}
    for (seed, task), cell in losses.sort_values("tokens").groupby(["seed", "task"]):
        target = cell[cell["mech"] == baseline].iloc[-1]
        own = cell[cell["mech"] == mechanism]
        there = own.loc[own["value"] <= target["value"], "tokens"]
        found[seed, task] = 100 * min([*there, target["tokens"]]) / target["tokens"]
    return pd.Series(found).groupby(level=0).mean()


def losses_of(rows: pd.DataFrame, *mechanisms: str) -> pd.DataFrame:
    """The training losses of mechanisms, as :func:`tokens_needed` takes them."""
    own = rows.loc[rows["mech"].isin(mechanisms), ["run_id", "mech", "task", "seed"]]
    curves = Store.open(climb.RESULTS, create=False).curves(own["run_id"])
    return curves[(curves["split"] == "train") & (curves["metric"] == "loss")].merge(own, on="run_id")


def distance_from_softmax(num: int = 64, dim: int = 64, draws: int = 10) -> Interval:
    """Between the weights of spherical REWA and of softmax attention, for ``num`` random queries and keys.

    Unit vectors; 1 / √dim is the temperature of softmax, and √2 times that the one of REWA, as theorem 4.2 has it.
    Frobenius norm; the weights of softmax have a norm near 1.
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


def page() -> Iterator[str]:
    """The paragraphs of the page."""
    rows = Store.open(climb.RESULTS, create=False).runs()
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
    """Each claim in each of its suites, with the difference in the rows; NaN with fewer than two seeds."""
    return [(claim, suite, _measured(claim, suite, rows)) for claim in claims for suite in claim.suites]


def counted(found: Found) -> str:
    """Count the claims that hold, in words."""
    verdicts = [_verdict(claim, interval) for claim, _, interval in found]
    holds, open_, against = (verdicts.count(word) for word in VERDICTS)
    return f"Of {len(verdicts)} comparisons {holds} hold, {open_} are not shown and {against} are contradicted"


def table(found: Found) -> str:
    """A line for each comparison."""
    lines = [
        [claim.says, claim.published, suite, in_words(interval, 1), _verdict(claim, interval)]
        for claim, suite, interval in found
    ]
    return plain_table(lines, ["claim", "published, points", "suite", "here, points", "verdict"])


VERDICTS = ("holds", "not shown", "contradicted")


def _verdict(claim: Claim, interval: Interval) -> str:
    if claim.sign * interval.low > 0 and claim.sign * interval.high > 0:
        return VERDICTS[0]
    return VERDICTS[2] if claim.sign * interval.low < 0 and claim.sign * interval.high < 0 else VERDICTS[1]


def _measured(claim: Claim, suite: str, rows: pd.DataFrame) -> Interval:
    return interval_of(claim.difference(select(rows, suite).without_variants().rows).to_numpy())


def interval_of(values: Float[np.ndarray, " seeds"]) -> Interval:
    """The mean over seeds with its 95 % interval; NaN for fewer than two."""
    return over_runs(values) if len(values) > 1 else UNKNOWN
