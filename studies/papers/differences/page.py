"""Put the published tables of the SLAY paper beside rows of suite ``paper``.

``python -m studies.papers.differences.page`` writes README.md; ``--check`` compares it.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from studies.pages import each, selected, write
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.table import fixed, percent
from synthbench.suites import load_suite

HERE = Path(__file__).parent
SUITE = load_suite("paper")
CELL = ["task", "mech"]
LIMIT = 3.0
"""Combined standard errors beyond which two numbers differ."""
NUM_SEEDS, NUM_SEQUENCES = 3, 64
"""Number of seeds of a published cell, and of test sequences for each seed."""
ROUNDING = 0.01
"""Distance of two neighbouring printed accuracies."""
ROUNDING_ERROR = ROUNDING / math.sqrt(12)
"""Standard deviation of a uniform rounding error."""
UNINFORMATIVE = 0.05
"""A published skill this close to 0 or 1 hardly tells mechanisms apart."""
NUM_DRAWS = 2000


def table8() -> pd.DataFrame:
    """Read the published cells, including those without a number; the standard deviation is that of a population."""
    return pd.read_csv(HERE / "table8.csv").rename(columns={"mechanism": "mech"})


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """Put every published number beside the runs of its cell: one line per cell, NaN where there are too few runs.

    The variance of a published mean is the larger of two estimates, plus the variance of rounding to two decimals. The
    first estimate comes from the published standard deviation, which is uncertain with three seeds. The second is
    predicted from our spread over seeds and the noise of scoring on 64 test sequences.
    """
    scored = rows[rows["status"] == "ok"]
    noise = scored["metrics"].map(lambda text: json.loads(text).get("score_std_over_sequences")).astype(float)
    runs = scored.assign(noise=noise).groupby(CELL)
    moments = {name: ("score", function) for name, function in (("mean", "mean"), ("std", "std"), ("n", "size"))}
    facts = {name: (name, "mean") for name in ("noise", "floor", "ceiling")}
    ours = runs.agg(**moments, **facts, mech_label=("mech_label", "first"))
    cells = table8().dropna().join(ours, on=CELL).reset_index(drop=True)
    theirs = np.maximum(variance_printed(cells["accuracy_std"]), variance_predicted(cells["std"], cells["noise"]))
    error = np.sqrt(cells["std"] ** 2 / cells["n"] + theirs + ROUNDING_ERROR**2)
    difference = cells["mean"] - cells["accuracy_mean"]
    return cells.assign(difference=difference, error=error, z=difference / error)


def variance_printed(std: pd.Series | np.ndarray) -> pd.Series | np.ndarray:
    """Compute the variance of a published mean from its printed standard deviation, which is that of a population."""
    return std**2 / (NUM_SEEDS - 1)


def variance_predicted(std: pd.Series | np.ndarray, noise: pd.Series | float) -> pd.Series | np.ndarray:
    """Predict the variance of a published mean from our standard deviations over seeds and over test sequences."""
    return std**2 / NUM_SEEDS + noise**2 / (NUM_SEEDS * NUM_SEQUENCES)


def averages(cells: pd.DataFrame) -> pd.DataFrame:
    """Put the published means of the categories beside ours, over the published tasks."""
    means = cells.groupby(["category", "mech"]).agg(
        mech_label=("mech_label", "first"),
        mean=("mean", lambda of: of.mean(skipna=False)),
        error=("error", lambda of: np.sqrt((of**2).sum(skipna=False)) / len(of)),
    )
    table3 = pd.read_csv(HERE / "table3.csv").rename(columns={"mechanism": "mech"})
    both = table3.join(means, on=["category", "mech"])
    difference = both["mean"] - both["accuracy_mean"]
    error = np.hypot(both["error"], ROUNDING_ERROR)  # the means were rounded once more
    return both.assign(difference=difference, error=error, z=difference / error)


def rms_if_reproduced(cells: pd.DataFrame) -> tuple[float, float, float]:
    """Simulate the root mean square of z if published cells come from our distributions: mean and 95 % range.

    Both sides are drawn from a normal distribution with our mean and spread. The published side also has the noise of
    its test sets and is rounded. The mean is less than 1, because the larger of two variances is used.
    """
    rng, squares = np.random.Generator(np.random.Philox(0)), []
    for cell in each(cells):
        mine = cell.mean + cell.std * rng.standard_normal((NUM_DRAWS, cell.n))
        of_tests = cell.noise / math.sqrt(NUM_SEQUENCES) * rng.standard_normal((NUM_DRAWS, NUM_SEEDS))
        theirs = cell.mean + cell.std * rng.standard_normal((NUM_DRAWS, NUM_SEEDS)) + of_tests
        mean, std = (ROUNDING * np.round(moment / ROUNDING) for moment in (theirs.mean(axis=1), theirs.std(axis=1)))
        spread = mine.std(axis=1, ddof=1)
        of_mean = np.maximum(variance_printed(std), variance_predicted(spread, cell.noise)) + ROUNDING_ERROR**2
        squares.append((mine.mean(axis=1) - mean) ** 2 / (spread**2 / cell.n + of_mean))
    rms = np.sqrt(np.mean(squares, axis=0))
    return float(rms.mean()), *np.quantile(rms, [0.025, 0.975]).tolist()


def summary(cells: pd.DataFrame) -> str:
    """Summarise how many cells lie within the limit, and which difference would go unnoticed."""
    judged = cells[cells["z"].notna()].astype({"n": int})
    outside = judged[judged["z"].abs() > LIMIT]
    gap = judged["ceiling"] - judged["floor"]
    skill = (judged["accuracy_mean"] - judged["floor"]) / gap
    reach = (LIMIT * judged["error"] / gap)[skill.between(UNINFORMATIVE, 1 - UNINFORMATIVE) & (gap > 0)]
    rms, (expected, low, high) = np.sqrt((judged["z"] ** 2).mean()), rms_if_reproduced(judged)
    names = ", ".join(f"{one.mech_label} on {one.task}" for one in each(outside))
    return (
        f"{len(judged) - len(outside)} of {len(cells)} published cells lie within {LIMIT:g} combined standard errors; "
        f"{len(outside)} outside{f' ({names})' if names else ''}. {len(reach)} of them are informative, with a "
        f"published skill from {UNINFORMATIVE:g} to {1 - UNINFORMATIVE:g}. In half of these, a difference in skill of "
        f"{reach.median():.2f} would go unnoticed. The rms z is {rms:.2f}; an exact reproduction has {expected:.2f} "
        f"({low:.2f} to {high:.2f})."
        + (f" Not judged, fewer than two runs: {len(cells) - len(judged)}." if len(judged) < len(cells) else "")
    )


def page() -> Iterator[str]:
    """Yield the blocks of the page."""
    rows = selected(SUITE.name, SUITE.mechanisms).without_variants().rows
    cells, seeds = compare(rows), SUITE.seeds[:NUM_SEEDS]
    in_paper = cells["mech"].isin(averages(cells)["mech"])
    unpublished = sorted(set(table8()["task"]) - set(cells["task"]))
    yield "# Differences from the SLAY paper's tables"
    yield (
        "Do rows of suite `paper` reproduce tables 3 and 8 of the SLAY paper (Luna, Bouhsine & Choromanski, 2026)? "
        f"[table8.csv](table8.csv) and [table3.csv](table3.csv) have its accuracies as printed. {in_paper.sum()} of "
        f"the cells are in the paper; the {(~in_paper).sum()} of slay-laplace and slay-hadamard are in "
        "`artifacts/task_performance.md` of its authors' repository, github.com/mlnomadpy/slay. Published without a "
        f"number, left out: {', '.join(unpublished)}."
    )
    yield summary(cells)
    yield f"With seeds {seeds[0]} to {seeds[-1]} alone: {summary(compare(rows[rows['seed'].isin(seeds)]))}"
    counts = "–".join(f"{count:.0f}" for count in sorted({cells["n"].min(), cells["n"].max()}))
    yield "## All cells"
    yield (
        f"Accuracy in per cent: ours as mean ± sample standard deviation over {counts} seeds, published as printed "
        f"(mean ± population standard deviation over {NUM_SEEDS} seeds, {NUM_SEQUENCES} test sequences each). "
        "Difference (ours − published) and combined standard error (SE) in percentage points."
    )
    lines = [
        [
            *(one.task, one.mech_label, f"{percent(one.mean)} ± {percent(one.std)}"),
            *(f"{100 * one.accuracy_mean:.0f} ± {100 * one.accuracy_std:.0f}", *verdict(one)),
        ]
        for one in each(cells)
    ]
    judged = ["difference", "SE", "z"]
    yield plain_table(lines, ["task", "mechanism", "ours", "published", *judged])
    yield "## Averages of the categories"
    yield "Mean over the category's published tasks in per cent, ours and as printed."
    lines = [
        [one.category, one.mech_label, percent(one.mean), f"{100 * one.accuracy_mean:.0f}", *verdict(one)]
        for one in each(averages(cells))
    ]
    yield plain_table(lines, ["category", "mechanism", "ours", "published", *judged])


def verdict(one: Any) -> list[str]:
    """Format a difference, its standard error and their ratio."""
    signed = fixed(100 * one.difference, 1, is_signed=True), fixed(one.z, 1, is_signed=True)
    return [signed[0], percent(one.error), signed[1]]


if __name__ == "__main__":
    write(__file__, page())
