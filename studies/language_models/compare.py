"""Compare scores of mechanisms with published language models, by the rules of ``plan.md``.

``python -m studies.language_models.compare`` writes the tables of ``README.md``; ``--check`` exits with 1 if they
differ.
"""

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from studies import pages
from synthbench.levels import LevelScore, ladder_score, levels_in
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.selection import select
from synthbench.runner.plan import plan_request
from synthbench.runner.request import Request
from synthbench.suites import load_suite
from synthbench.training.ladder_scores import rescored

HERE = Path(__file__).parent
SUITE = str(HERE.parent / "climb.toml")
MARKS = "<!-- written by compare.py -->", "<!-- end -->"
CONDITIONS = "2026.1", "stock"
DRAWS = 9_999
RECALL = ["mqar", "overwrite_recall", "in_context_recall", "fuzzy_recall"]
HOPS = ["khop_induction", "induction_latest", "induction_first", "induction_majority"]
LOSS = "wikitext|slimpajama|training|validation"
OUTCOMES = {"real recall": "real recall", "perplexity": LOSS, "LAMBADA": "lambada", "zero-shot": "zero-shot"}
"""Pattern for the beginnings of the names of each outcome's metrics."""
SEEN = ["before", "after the hypothesis"]
"""Values of ``looked_up`` from before the plan: tables that led to its hypothesis, and tables read after that."""


def tables_of(outcome: str, also: str = "") -> pd.DataFrame:
    """Read the tables of an outcome: one row per table, one column per mechanism, higher is better.

    Tables that are new since the plan need three mechanisms. Variants are left out, except the variant ``also``.
    """
    rows = pd.read_csv(HERE / "published.csv")
    rows = rows[rows["metric"].str.match(OUTCOMES[outcome]) & (rows["variant"].isna() | (rows["variant"] == also))]
    signed = rows.assign(value=rows["value"].where(rows["better"] == "high", -rows["value"]))
    table = ["source", "where", "size", "metric", "looked_up"]
    tables = signed.set_index([*table, "mechanism"])["value"].unstack()  # noqa: PD010  # raises if a value is given twice
    return tables[tables.index.get_level_values("looked_up").isin(SEEN) | (tables.notna().sum(axis=1) >= 3)]


def signs(values: np.ndarray) -> np.ndarray:
    """Compare all pairs of mechanisms [..., mechanisms]: 1 if the first is higher, −1 if it is lower, else 0."""
    compared: np.ndarray = np.nan_to_num(np.sign(values[..., :, None] - values[..., None, :]))
    return compared


@cache
def drawn_once(number: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw orders of ``number`` mechanisms and their counts in bootstrap samples, each [draws, mechanisms]."""
    rng = np.random.default_rng(0)
    orders = rng.permuted(np.tile(np.arange(number), (draws, 1)), axis=1)
    return orders, rng.multinomial(number, np.full(number, 1 / number), size=draws).astype(float)


def statistics_of(tables: pd.DataFrame, scores: pd.Series) -> dict[str, float]:
    """Compare the order of scores with tables, by pairs whose values differ; mechanisms without a score are left out.

    ``p`` is one-sided, by permutations of the scores that are the same for all tables. ``low`` and ``high`` bound the
    share of concordant pairs, by a bootstrap over mechanisms.
    """
    names = [str(name) for name in tables if not np.isnan(scores.get(name, np.nan))]
    x, wins = scores[names].to_numpy(dtype=float).round(9), (signs(tables[names].to_numpy()) > 0).astype(float)
    wins = wins[wins.any(axis=(1, 2))]
    if not len(wins):
        return dict.fromkeys(("concordant", "pairs", "tau", "p", "low", "high"), 0.0)
    pairs, hits = wins.sum(axis=0), wins * (1 + signs(x)) / 2
    orders, drawn = drawn_once(len(x), DRAWS)
    concordant, tau = hits.sum(), (2 * hits.sum(axis=(1, 2)) / wins.sum(axis=(1, 2)) - 1).mean()
    ahead = np.triu(pairs - pairs.T)  # sums of halves are exact in any order, so only pairs that weigh are compared
    first, second = np.nonzero(ahead)
    signed = signs(x)[orders[:, first], orders[:, second]] @ ahead[first, second]
    p = (1 + ((pairs.sum() + signed) / 2 >= concordant).sum()) / (1 + DRAWS)
    right, all_ = ((drawn @ weights * drawn).sum(axis=1) for weights in (hits.sum(axis=0), pairs))
    low, high = np.quantile(right[all_ > 0] / all_[all_ > 0], [0.025, 0.975])
    return {"concordant": concordant, "pairs": pairs.sum(), "tau": tau, "p": p, "low": low, "high": high}


def agreement(tables: pd.DataFrame) -> tuple[int, int]:
    """Count the pairs of mechanisms on which two tables of different sources agree, and all pairs that both order."""
    found, sources = signs(tables.to_numpy()), tables.index.get_level_values("source").to_numpy()
    products = [a * b for i, a in enumerate(found) for j, b in enumerate(found[:i]) if sources[i] != sources[j]]
    return sum(int((one > 0).sum()) // 2 for one in products), sum(int((one != 0).sum()) // 2 for one in products)


def misses_of(tables: pd.DataFrame, scores: pd.Series) -> dict[tuple[str, str], int]:
    """Count the tables that contradict the order of two scores, by pair of mechanisms, the higher score first."""
    wins, ordered = (signs(tables.to_numpy()) < 0).sum(axis=0), signs(scores.reindex(tables.columns).to_numpy())
    of = tables.columns
    return {(of[a], of[b]): int(wins[a, b]) for a, b in np.argwhere((wins > 0) & (ordered > 0))}


@cache
def rows_of(condition: str) -> pd.DataFrame:
    """Read the rows of ``climb`` in one condition.

    A layer that is the same in both conditions has one row for both. So the rows of ``stock`` are found by the run ids
    of its plan.
    """
    rows = pages.store().runs()
    of_suite = rows[rows["suite"] == "climb"]
    if condition != "stock":
        return of_suite[of_suite["condition"].isna()]
    seeds = tuple(map(int, of_suite["seed"].unique()))
    mechanisms, results = tuple(of_suite["mech"].unique()), pages.store().root
    asked = Request(SUITE, mechanisms=mechanisms, seeds=seeds, condition=condition, results=results)
    of_plan = rows[rows["run_id"].isin(plan_request(asked, torch.device("cpu")).runs)]
    return of_plan.assign(suite="climb", suite_version="2026.1", is_full=True)


def with_first_baselines(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute the skill of each run from the baselines in the task's first row, since later rows may have others."""
    rows, first = rows.sort_values("finished_at"), dict[str, list[LevelScore]]()
    skills = list[float]()
    for task, text in zip(rows["task"], rows["metrics"], strict=True):
        levels = levels_in(json.loads(text))
        then = first.setdefault(task, levels) if levels else []
        levels = [a._replace(base=b.base) for a, b in zip(levels, then, strict=True)]
        skills.append(ladder_score(levels) if levels else np.nan)
    return rows.assign(skill=skills)


def predictors(condition: str, baselines: str) -> pd.DataFrame:
    """Return one row per mechanism and one column per predictor; higher is better, NaN if a task has no rows."""
    rows = rows_of(condition)
    rows = rescored(rows) if baselines == "committed" else with_first_baselines(rows)
    rows = select(rows, "climb", "2026.1").without_variants().rows
    if rows.duplicated(["mech", "task", "seed"]).any():
        raise ValueError("a mechanism has rows in two settings of one condition, and neither is a variant")
    runs = rows.assign(skill=rows["skill"].fillna(0.0))  # a run that failed scores 0
    scores = runs.pivot_table("skill", "mech", "task").reindex(columns=list(load_suite(SUITE).tasks))
    of, models = rows.groupby("mech"), pd.read_csv(HERE.parent / "validity/mechanisms.csv", index_col=0)
    bits = models[["docstrings, all", "library, all"]].mean(axis=1)
    found = {"recall": scores[RECALL], "mqar": scores[["mqar"]], "hops": scores[HOPS], "all tasks": scores}
    return pd.DataFrame({name: tasks.mean(axis=1, skipna=False) for name, tasks in found.items()}).assign(
        parameters=of["n_params_mixer"].max().astype(float),
        state=of["state_size"].max().astype(float),
        models=-bits.reindex(scores.index),
        year=of["mech_source"].first().str.extract(r"(\d{4})", expand=False).astype(float),
    )


def groups() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the groups of tables that are shown, each with its name."""
    recall, loss = tables_of("real recall"), tables_of("perplexity")
    source, phase = recall.index.get_level_values("source"), recall.index.get_level_values("looked_up")
    yield "real recall: hypothesis", recall[phase == SEEN[0]]
    yield "seen", recall[phase == SEEN[1]]
    yield "seen, of 3 mechanisms or more", recall[(phase == SEEN[1]) & (recall.notna().sum(axis=1) > 2)]
    yield "new", recall[~phase.isin(SEEN)]
    for name, also in {"JRT": "models of Based, Table 1", "gla of MesaNet": "one gate per head"}.items():
        tables = tables_of("real recall", also)
        yield f"new, with {name}", tables[~tables.index.get_level_values("looked_up").isin(SEEN)]
    yield "all", recall
    yield "all without softmax", recall.drop(columns="softmax")
    yield from ((f"all but {name.split(' (')[0].split(', ')[-1]}", recall[source != name]) for name in source.unique())
    yield from ((outcome, tables_of(outcome)) for outcome in list(OUTCOMES)[1:])
    yield "perplexity without softmax", loss.drop(columns="softmax")


def section(condition: str, baselines: str) -> str:
    """Write the table of one condition, the pairs that recall misses, and the mechanisms without a score."""
    frame, lines, recall = predictors(condition, baselines), [], tables_of("real recall")
    for name, tables in groups():
        found = [statistics_of(tables, frame[column]) for column in frame]
        cells = ["{concordant:g}/{pairs:.0f} ({p:.4f})".format(**of) if of["pairs"] else "–" for of in found]
        main = "{low:.2f} to {high:.2f}|{tau:+.2f}".format(**found[0]) if found[0]["pairs"] else "–|–"
        size = len(tables), tables.notna().any().sum()
        lines.append([name, *size, *cells, *main.split("|"), "{}/{}".format(*agreement(tables))])
    table = plain_table(lines, ["tables", "number", "mechanisms", *frame, "share, 95 %", "τ", "papers agree"])
    misses = [f"{a} over {b}" + f" ({n} ×)" * (n > 1) for (a, b), n in misses_of(recall, frame["recall"]).items()]
    unknown = sorted(set(map(str, recall)) - set(frame["recall"].dropna().index))
    missed = f"Pairs that recall orders otherwise than a table of real recall: {'; '.join(misses) or 'none'}."
    lacking = f"\n\nMechanisms without rows of all four recall tasks: {', '.join(unknown)}." if unknown else ""
    return f"{table}\n\n{missed}{lacking}"


def verdicts() -> Iterator[str]:
    """Yield the verdict on each hypothesis by the rules of the plan, with scores from the committed baselines."""
    old, stock = (predictors(condition, "committed")["recall"] for condition in CONDITIONS)
    recall, loss = tables_of("real recall"), tables_of("perplexity")
    new = dict(groups())["new"].dropna(axis=1, how="all")
    found, of_loss = statistics_of(new, stock), statistics_of(loss, stock)
    today = recall[recall.index.get_level_values("looked_up").isin(SEEN)]
    missed = {pair: count for pair, count in misses_of(today, old).items() if pair[0] == "mamba2"}
    changed = sum(count for (a, b), count in missed.items() if stock.get(a, np.nan) < stock.get(b, np.nan))
    is_held = found["p"] < 0.05 and found["concordant"] >= 0.65 * found["pairs"]
    judged = [
        (f"Real recall in new tables, {found['pairs']:.0f} pairs", list(new), is_held),
        (f"No order of perplexity, {of_loss['pairs']:.0f} pairs", list(loss), of_loss["p"] >= 0.05),
        (f"Misses of Mamba-2 repaired, {changed} of {sum(missed.values())}", [*sum(missed, ())], changed > 2),
    ]
    for number, (words, needed, holds) in enumerate(judged, start=1):
        is_known = set(needed) <= set(stock.dropna().index) and (number > 1 or found["pairs"] >= 20)
        yield f"{number}. {words}: {('holds' if holds else 'fails') if is_known else 'not decided'}."


def sentence() -> str:
    """Write the sentence on the first hypothesis for the front page."""
    new = dict(groups())["new"]
    now, then = (statistics_of(new, predictors("stock", baselines)["recall"]) for baselines in ("committed", "first"))
    return (
        "Do recall scores predict the recall of language models? We committed an analysis plan to this repository, "
        "then read the recall of language models in published tables. "
        f"In {now['concordant']:g} of {now['pairs']:.0f} pairs of language models, the model with the higher published "
        f"recall uses the mechanism with the higher score here (p {now['p']:.2f}, "
        "by permuting scores among mechanisms). "
        "Scores credit only accuracy above that of shortcut rules. "
        "Some of these rules were found after the plan was made; if scores are computed with only "
        f"the rules known at that time, {then['concordant']:g} of {then['pairs']:.0f} pairs agree (p {then['p']:.2f}). "
        "[Details](studies/language_models/README.md)."
    )


def page() -> Iterator[str]:
    """Yield the verdicts, and the tables of both conditions."""
    yield "\n".join(verdicts())
    for condition in CONDITIONS:
        now, before = (section(condition, baselines) for baselines in ("committed", "first"))
        yield f"### Condition {condition}"
        yield now
        yield (
            "First baselines: the same." if now == before else f"With baselines of each task's first rows:\n\n{before}"
        )


def main() -> int:
    """Write the tables of the page and the sentence on the front page, or check them; return the exit code."""
    own, front = HERE / "README.md", HERE.parents[1] / "README.md"
    of_front = "<!-- begin language models -->", "<!-- end language models -->"
    files = {own: pages.filled(own, page(), MARKS), front: pages.filled(front, [sentence()], of_front)}
    return pages.main(files)


if __name__ == "__main__":
    sys.exit(main())
