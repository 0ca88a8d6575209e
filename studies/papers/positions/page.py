"""Compare what the ESPR derivation claims of shifted positions with the rows of suite ``positions``.

``python studies/papers/positions/page.py`` writes the tables of ``README.md``; ``--check`` exits with 1 if they differ.
With ``--results`` it prints the tables of another store and writes nothing.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from synthbench.reports.aggregates import over_runs
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.table import NOTHING, fixed
from synthbench.results import Store
from synthbench.suites import load_suite

PAGE = Path(__file__).with_name("README.md")
MARKS = "<!-- written by page.py -->\n", "<!-- end -->\n"
SUITE = load_suite("positions")
SHIFTS = SUITE.evaluation.shifts or ()
FREE = "espr:commuting=false"
ENCODINGS = ("string", "espr", FREE, "rope", "none", "learned")
ROUNDING = 1e-3
"""Nats that float32 may make of nothing: it rounds the angles of later places in another way."""
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
    tolerance: float
    """Largest size that counts as 0."""


def frame_of(rows: pd.DataFrame, mechanism: str = "softmax") -> pd.DataFrame:
    """Make one line a run; ``risk`` is its loss after a shift, and ``gap`` what the shift adds, means over shifts."""
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
    """List the claims. Encodings are compared seed by seed, since a seed has the same sequences with all of them."""
    risk, gap, ir_spec = (
        {name: of(lines, name, column) for name in ENCODINGS} for column in ("risk", "gap", "ir_spec")
    )
    compared = "risk of ESPR − risk of STRING"
    return [
        Claim(
            "T8'.16, T8'.21",
            "the shift risk of ESPR is lower than that of STRING, by ε₀; generators do not commute",
            compared,
            (risk[FREE] - risk["string"]).dropna(),
            "negative",
            ROUNDING,
        ),
        Claim(
            "T8'.16, T8'.21",
            "the same; generators commute",
            compared,
            (risk["espr"] - risk["string"]).dropna(),
            "negative",
            ROUNDING,
        ),
        Claim(
            "T8'.12, T8'.16",
            "a shift costs ESPR less than STRING; generators do not commute",
            "gap of ESPR − gap of STRING",
            (gap[FREE] - gap["string"]).dropna(),
            "negative",
            ROUNDING,
        ),
        Claim(
            "T8'.23",
            "IR_spec = 0 if generators commute and P leaves the active channels alone",
            "IR_spec of STRING",
            ir_spec["string"].dropna(),
            "zero",
            ZERO,
        ),
        Claim(
            "T8'.12, T8'.23",
            "a shift then costs nothing",
            "gap of STRING",
            gap["string"].dropna(),
            "zero",
            ROUNDING,
        ),
        Claim(
            "T8'.14, T8'.21",
            "ε₀ > 0, since IR_spec of STRING is at least c > 0",
            "IR_spec of STRING",
            ir_spec["string"].dropna(),
            "positive",
            ZERO,
        ),
    ]


def verdict(claim: Claim) -> str:
    """Decide a claim by its interval over seeds: it holds, or does not, if all of the interval says so."""
    if len(claim.by_seed) < FEWEST:
        return f"no verdict with {len(claim.by_seed)} runs"
    interval = over_runs(claim.by_seed.to_numpy())
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
    """Print a mean with its interval, cut to the range of the quantity; with signs where it may be negative."""
    known = values.dropna().to_numpy()
    if not len(known):
        return NOTHING
    interval = over_runs(known, low=low, high=high)
    mean, *ends = (fixed(value, 3, is_signed=low < 0) for value in interval)
    return f"{mean} [{', '.join(ends)}]"


def page(lines: pd.DataFrame) -> str:
    """Write the table of encodings and that of claims."""
    scores = ("score", *(f"shift{shift}.score" for shift in SHIFTS))
    columns = {
        **{name: {"low": 0.0, "high": 1.0} for name in scores},
        "eval_loss": {"low": 0.0},
        "gap": {},
        "ir_spec": {"low": 0.0},
    }
    headings = ("runs", "accuracy", *(f"moved by {shift}" for shift in SHIFTS), "loss", "gap", "IR_spec")
    encodings = [
        [
            f"`{name}`",
            len(of(lines, name, "seed")),
            *(number(of(lines, name, column), **ends) for column, ends in columns.items()),
        ]
        for name in ENCODINGS
    ]
    claims = [
        [claim.number, claim.says, claim.quantity, number(claim.by_seed), verdict(claim)] for claim in claims_of(lines)
    ]
    return "\n\n".join(
        (
            plain_table(encodings, ["positions", *headings]),
            plain_table(claims, ["theorem", "claim", "quantity", "measured", "verdict"]),
        )
    )


def main(arguments: Sequence[str]) -> int:
    """Write the tables of the page, check them, or print those of another store; the exit code."""
    parser = argparse.ArgumentParser(description="Compare the claims of the ESPR derivation with rows")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page says something else")
    parser.add_argument("--results", type=Path, help="print the tables of this store")
    given = parser.parse_args(arguments)
    store = Store.open(given.results or PAGE.parents[3] / "results", create=False)
    tables = page(frame_of(store.outline(COLUMNS).to_pandas()))
    if given.results is not None:
        sys.stdout.write(f"{tables}\n")
        return 0
    before = PAGE.read_text(encoding="utf-8")
    start, end = before.index(MARKS[0]) + len(MARKS[0]), before.index(MARKS[1])
    text = f"{before[:start]}\n{tables}\n\n{before[end:]}"
    if not given.check:
        PAGE.write_text(text, encoding="utf-8")
    return int(given.check and text != before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
