"""Put the published errors of linear attention beside ours.

``python -m studies.papers.fidelity.compare`` writes the tables of README.md from ``published.csv``, the rows of
``results/bench`` and ``clamped.parquet``. ``--check`` exits with 1 if they differ.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from studies.pages import ROOT, fill
from synthbench.reports.render.markdown import plain_table

HERE = Path(__file__).parent
ROWS = ROOT / "results/bench/intel-r-xeon-r-processor-2-10ghz/fidelity.parquet"
MARKS = "<!-- written by compare.py -->", "<!-- end -->"
POSITIVE = ["slay", "slay-laplace", "slay-hadamard"]
SIGNED = ["slay-nystrom", "slay-tensorsketch", "slay-maclaurin"]
BUDGETS = {"small": 8, "medium": 16, "large": 32}
"""Width P of the polynomial factor by budget."""
MEASURES = {"rel_l2": "relative L2", "cosine": "cosine", "mse": "MSE", "ratio": "time over exact"}

Values = dict[tuple[str, str, str], float]
"""Values by budget, mechanism and measure."""


def published(version: str, table: int) -> Values:
    """Read a published table."""
    rows = pd.read_csv(HERE / "published.csv")
    rows = rows[(rows["version"] == version) & (rows["table"] == table)].drop(columns=["version", "table", "where"])
    return values_of(rows, "mechanism", "yat-spherical")


def ours(file: Path) -> Values:
    """Average the rows of a file over seeds; projections have biases, as in the paper's code."""
    rows = pd.read_parquet(file)
    measured = rows[rows["bias"]].groupby(["budget", "estimator"])[["rel_l2", "cosine", "mse", "latency_ms"]]
    return values_of(measured.mean().reset_index(), "estimator", "exact")


def values_of(rows: pd.DataFrame, mechanism: str, exact: str) -> Values:
    """Read values from rows, one per budget and mechanism; add the time divided by the exact kernel's time."""
    of_exact = rows[rows[mechanism] == exact].set_index("budget")["latency_ms"]
    rows = rows.assign(ratio=rows["latency_ms"] / rows["budget"].map(of_exact))
    long = rows.melt(["budget", mechanism])
    keys = zip(long["budget"], long[mechanism], long["variable"], strict=True)
    return {(str(a), str(b), str(c)): float(value) for (a, b, c), value in zip(keys, long["value"], strict=True)}


def number(value: float) -> str:
    """Format a number with three digits, or with all digits before the point."""
    return "–" if math.isnan(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def beside(theirs: float, here: float) -> str:
    """Format a published value and ours."""
    return f"{number(theirs)} → {number(here)}"


def blocks() -> Iterator[str]:
    """Yield the tables, each after a sentence on it."""
    theirs, here, clamped = published("second", 6), ours(ROWS), ours(HERE / "clamped.parquet")
    keys = [(size, name, "rel_l2") for size in BUDGETS for name in POSITIVE]
    farthest = max(keys, key=lambda key: abs(here[key] / theirs[key] - 1))
    blind = [size for size in BUDGETS if here[size, "slay", "rel_l2"] > here[size, "mean", "rel_l2"]]
    yield (
        "Table 6 (table 10 of the first version): relative L2 error, published → ours. With positive features they "
        f"differ by at most {abs(here[farthest] / theirs[farthest] - 1):.0%} ({farthest[1]}, {farthest[0]}). The "
        "running mean, which ignores queries and keys, has a smaller error than `slay` at the budget "
        f"{' and '.join(blind)}."
    )
    lines = [
        [name, *(beside(theirs.get((size, name, "rel_l2"), math.nan), here[size, name, "rel_l2"]) for size in BUDGETS)]
        for name in (*POSITIVE, *SIGNED, "mean")
    ]
    yield plain_table(lines, ["mechanism", *BUDGETS])
    yield (
        "Signed features, relative L2 error: with `guard=add` (the default), with `guard=clamp`, and with the smallest "
        "denominator `delta` at 10⁻⁶ P instead of 10⁻⁶."
    )
    lines = []
    for name in SIGNED:
        for size, width in BUDGETS.items():
            terms = name, f"{name}:guard=clamp", f"{name}:guard=clamp,delta={width * 1e-6:g}"
            found = [(here | clamped).get((size, term, "rel_l2"), math.nan) for term in terms]
            lines.append([name, size, *map(number, [theirs[size, name, "rel_l2"], *found])])
    yield plain_table(lines, ["mechanism", "budget", "published", "add", "clamp", "clamp, 10⁻⁶ P"])
    yield "Table 2 of the second version → ours at the large budget."
    theirs, names = published("second", 2), {"yat-spherical": "exact", **{name: name for name in (*POSITIVE, *SIGNED)}}
    lines = [
        [name, *(beside(theirs["large", name, key], here["large", mine, key]) for key in MEASURES)]
        for name, mine in names.items()
    ]
    yield plain_table(lines, ["mechanism", *MEASURES.values()])


if __name__ == "__main__":
    fill(__file__, blocks(), MARKS)
