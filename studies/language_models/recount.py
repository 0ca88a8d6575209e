"""Count the concordant pairs of plan.md again, in a script written from the plan without sight of compare.py."""

import argparse
import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

import synthbench

PREDICTORS = {
    "recall": ["mqar", "overwrite_recall", "in_context_recall", "fuzzy_recall"],
    "mqar": ["mqar"],
    "hops": ["khop_induction", "induction_latest", "induction_first", "induction_majority"],
}
# The plan wants loss "on held-out text", but its 11 tables include one of training loss: kept, as in its count.
PERPLEXITY = ["wikitext ppl", "slimpajama ppl", "validation loss", "training loss"]
# Only real-recall columns are hypothesis tables. Perplexity of the same papers is shown apart under that name.
HYPOTHESIS = "2412.06464|2406.06484|2502.13685"
Table = tuple[str, str, pd.Series]
HERE = set(synthbench.load("packaged", "mech").mech)
TODAY = ["before", "after the hypothesis"]  # `looked_up` of values in the data before the plan; others are new


def scores(condition: str | None) -> dict[str, pd.Series]:
    """Compute scores of mechanisms by predictor: the mean over seeds, then over tasks, if no task is missing."""
    rows = synthbench.load("packaged")
    usual = rows.is_full & rows.role.isna() & rows.match.isna() & rows.score.notna() & (rows.block == "transformer")
    today = rows.condition.isna() & (rows.suite == "climb") & (rows.suite_version == "2026.1")
    # The plan names the tasks of climb 2026.1, so rows on other levels do not count.
    on_levels = rows.task_args.isin(set(rows[usual & today].task_args))
    rows = rows[usual & (today if condition is None else (rows.condition == condition) & on_levels)]
    rows = rows[rows.mech_args == rows.groupby("mech").mech_args.transform(lambda args: args.mode().iloc[0])]
    validation = rows.metrics.map(lambda text: json.loads(text).get("validation_accuracy"))
    rows = rows.assign(validation=validation).sort_values(["validation", "lr"], ascending=[False, True])
    rows = rows.drop_duplicates(["task", "mech", "seed"])
    tasks = rows.pivot_table(index="mech", columns="task", values="score")
    means = {name: tasks.reindex(columns=of).mean(axis=1, skipna=False) for name, of in PREDICTORS.items()}
    return {name: mean.dropna() for name, mean in means.items()}


def tables(published: pd.DataFrame, metrics: list[str], known: pd.Index, left_out: list[str]) -> list[Table]:
    """Return tables as (source, group, values), higher is better. Each model size of a paper has its own table."""
    rows = published[published.metric.isin(metrics) & published.variant.isna() & published.mechanism.isin(HERE)]
    found = []
    for (source, *_), part in rows.groupby(["source", "where", "size", "metric"], sort=False):
        is_new = not part.looked_up.isin(TODAY).all()
        # The rule of three would drop CyFA's three tables, but the plan's "six others, 22 pairs" has them.
        if is_new and len(part) < 3:
            continue
        group = "new" if is_new else "hypothesis" if pd.Series(source).str.contains(HYPOTHESIS)[0] else "seen"
        values = part.value.where(part.better == "high", -part.value).set_axis(part.mechanism)
        values = values[values.index.isin(known)]
        found.append((str(source), group, values.drop(left_out, errors="ignore")))
    return found


def products(one: pd.Series, other: pd.Series) -> list[float]:
    """Return for each pair that differs in `one`: 1 if `other` has the same order, -1 if reversed, 0 if equal."""
    pairs = combinations(sorted(set(one.index) & set(other.index)), 2)
    return [np.sign(one[a] - one[b]) * np.sign(other[a] - other[b]) for a, b in pairs if one[a] != one[b]]


def count(chosen: list[Table], score: pd.Series | None) -> list[float]:
    """Count [concordant, pairs] of tables with a score, or of papers with each other if it is None; ties count half."""
    if score is not None:
        signs = [sign for _, _, values in chosen for sign in products(values, score)]
    else:  # each two tables of different papers; a pair that either has equal is left out
        rivals = [(one, two) for (a, _, one), (b, _, two) in combinations(chosen, 2) if a != b]
        signs = [sign for one, two in rivals for sign in products(one, two) if sign]
    half = sum(1 + int(sign) for sign in signs)
    return [half / 2 if half % 2 else half // 2, len(signs)]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--condition", help="rows of this condition, any suite; else those of climb 2026.1 without one")
parser.add_argument("--published", type=Path, default=Path(__file__).with_name("published.csv"))
parser.add_argument("--json", action="store_true")
options = parser.parse_args()
predictors, published, results = scores(options.condition), pd.read_csv(options.published), {}
for outcome, metrics in [("", ["real recall avg"]), ("perplexity ", PERPLEXITY)]:
    for name, score in [*predictors.items(), ("papers", None)]:
        known = predictors["recall"].index if score is None else score.index
        for ending, left_out in [("", []), (" without softmax", ["softmax"])]:
            found = tables(published, metrics, known, left_out)
            groups = {"hypothesis", "seen"} | {group for _, group, _ in found}
            chosen = {name: [one for one in found if one[1] == name] for name in sorted(groups)} | {"all": found}
            results[outcome + name + ending] = {group: count(some, score) for group, some in chosen.items()}
lines = [f"{label}, {group}: {c} of {n}" for label, part in results.items() for group, (c, n) in part.items()]
print(json.dumps(results) if options.json else "\n".join(lines))  # noqa: T201
