"""Compare the claims of the ESPR derivation on shifted positions with the rows of suite ``positions``.

``python -m studies.papers.positions.page`` writes the tables of ``README.md``; ``--check`` exits with 1 if they differ.
"""

import json
import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import pandas as pd

from studies.pages import fill, store
from synthbench.reports.aggregates import over_runs
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.table import NOTHING, fixed
from synthbench.suites import load_suite

MARKS = "<!-- written by page.py -->", "<!-- end -->"
SUITE = load_suite("positions")
SHIFTS = SUITE.evaluation.shifts or ()
FREE = "espr:commuting=false"
ENCODINGS = ("string", "espr", FREE, "rope", "none", "learned")
ROUNDING = 1e-3
"""Largest difference of losses in nats that rounding to float32 may cause."""
ZERO = 1e-9
"""Largest IR_spec, computed in float64, that counts as 0."""
FEWEST = 3
"""Fewest runs for a verdict."""
COLUMNS = ("suite", "suite_version", "is_full", "status", "mech", "positions", "seed", "score", "eval_loss", "metrics")


class Claim(NamedTuple):
    """A statement of the derivation, and the quantity that decides it."""

    number: str
    says: str
    quantity: str
    by_seed: "pd.Series[float]"
    sign: Literal["negative", "zero", "positive"]
    """Sign of the quantity if the statement holds."""

    @property
    def tolerance(self) -> float:
        """Largest magnitude that counts as 0."""
        return ZERO if self.quantity.startswith("IR_spec") else ROUNDING


def frame_of(rows: pd.DataFrame, mechanism: str = "softmax") -> pd.DataFrame:
    """Make one line per run; ``risk`` is the mean loss over shifts, and ``gap`` is ``risk`` minus unshifted loss."""
    is_ours = (rows["suite"] == SUITE.name) & (rows["suite_version"] == SUITE.version) & (rows["mech"] == mechanism)
    rows = rows[is_ours & rows["is_full"].astype(bool) & (rows["status"] == "ok")].reset_index(drop=True)
    names = [f"shift{shift}.{part}" for shift in SHIFTS for part in ("score", "loss")]
    found = pd.DataFrame([json.loads(text) for text in rows["metrics"]]).reindex(columns=[*names, "ir_spec"])
    lines = pd.concat([rows[["positions", "seed", "score", "eval_loss"]], found.astype(float)], axis=1)
    risk = lines[[f"shift{shift}.loss" for shift in SHIFTS]].mean(axis=1, skipna=False)
    return lines.assign(risk=risk, gap=risk - lines["eval_loss"])


def of(lines: pd.DataFrame, encoding: str, column: str) -> "pd.Series[float]":
    """Take one column of an encoding, by seed."""
    return lines[lines["positions"] == encoding].set_index("seed", drop=False)[column]


def claims_of(lines: pd.DataFrame) -> list[Claim]:
    """List the claims. Encodings are compared seed by seed, since a seed has the same sequences with every encoding."""
    risk, gap, ir_spec = (
        {name: of(lines, name, column) for name in ENCODINGS} for column in ("risk", "gap", "ir_spec")
    )
    risks, gaps, spectral = "risk of ESPR − risk of STRING", "gap of ESPR − gap of STRING", "IR_spec of STRING"
    lower = "the shift risk of ESPR is lower than that of STRING, by ε₀; generators do not commute"
    cheaper = "a shift costs ESPR less than STRING; generators do not commute"
    is_zero = "IR_spec = 0 if generators commute and P leaves the active channels alone"
    is_positive = "ε₀ > 0, since IR_spec of STRING is at least c > 0"
    return [
        Claim("T8'.16, T8'.21", lower, risks, risk[FREE] - risk["string"], "negative"),
        Claim("T8'.16, T8'.21", "the same; generators commute", risks, risk["espr"] - risk["string"], "negative"),
        Claim("T8'.12, T8'.16", cheaper, gaps, gap[FREE] - gap["string"], "negative"),
        Claim("T8'.23", is_zero, spectral, ir_spec["string"], "zero"),
        Claim("T8'.12, T8'.23", "a shift then costs nothing", "gap of STRING", gap["string"], "zero"),
        Claim("T8'.14, T8'.21", is_positive, spectral, ir_spec["string"], "positive"),
    ]


def verdict(claim: Claim) -> str:
    """Decide a claim by its interval over seeds; there is no decision if the interval contains both outcomes."""
    known = claim.by_seed.dropna().to_numpy()
    if len(known) < FEWEST:
        return f"no verdict with {len(known)} runs"
    interval = over_runs(known)
    flip = -1 if claim.sign == "positive" else 1
    low, high = sorted((flip * interval.low, flip * interval.high))
    most = claim.tolerance
    holds, fails = (
        (-most <= low and high <= most, low > most or high < -most)
        if claim.sign == "zero"
        else (high < -most, low >= -most)
    )
    return "holds" if holds else "does not hold" if fails else "not decided"


def number(values: "pd.Series[float]", *, low: float = -math.inf, high: float = math.inf) -> str:
    """Format a mean with its interval, clipped to ``low`` and ``high``; with a sign if ``low`` is negative."""
    known = values.dropna().to_numpy()
    if not len(known):
        return NOTHING
    interval = over_runs(known, low=low, high=high)
    mean, *ends = (fixed(value, 3, is_signed=low < 0) for value in interval)
    return f"{mean} [{', '.join(ends)}]"


def tables(lines: pd.DataFrame) -> Iterator[str]:
    """Yield the table of encodings and the table of claims."""
    scores = ("score", *(f"shift{shift}.score" for shift in SHIFTS))
    columns = {name: {"low": 0.0, "high": 1.0} for name in scores}
    columns |= {"eval_loss": {"low": 0.0}, "gap": {}, "ir_spec": {"low": 0.0}}
    headings = ("runs", "accuracy", *(f"moved by {shift}" for shift in SHIFTS), "loss", "gap", "IR_spec")
    encodings = [
        [
            f"`{name}`",
            len(of(lines, name, "seed")),
            *(number(of(lines, name, key), **ends) for key, ends in columns.items()),
        ]
        for name in ENCODINGS
    ]
    claims = [
        [claim.number, claim.says, claim.quantity, number(claim.by_seed), verdict(claim)] for claim in claims_of(lines)
    ]
    yield plain_table(encodings, ["positions", *headings])
    yield plain_table(claims, ["theorem", "claim", "quantity", "measured", "verdict"])


if __name__ == "__main__":
    fill(__file__, tables(frame_of(store().columns(COLUMNS).to_pandas())), MARKS)
