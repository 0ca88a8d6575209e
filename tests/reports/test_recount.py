"""Every number of the committed tables, computed again from the rows by pandas alone: nothing here imports synthbench.

Recounted are all columns of ``cells.csv``, and the tables of the categories. Which rows share a label is taken from
what is printed, since the store does not say in which condition an old row is. Left out are marks and p, which need
shuffled runs, and the pages that arrange or sum up the same cells.
"""

import html
import json
import re
from functools import cache
from pathlib import Path
from statistics import median_low

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special

ROOT = Path(__file__).parents[2]
BOUNDS = json.loads((ROOT / "synthbench" / "tasks" / "bounds.json").read_text(encoding="utf-8"))
CORE = ["core", "core.extra", "climb", "climb.extra"]
"""Suites of one protocol: a task may have moved between them."""
CELL = ["task", "mechanism"]
LAYER = ["mech", "block", "positions", "setting"]


@cache
def store() -> pd.DataFrame:
    parts = map(pd.read_parquet, sorted((ROOT / "results" / "compact").glob("runs-*.parquet")))
    rows = pd.concat(parts, ignore_index=True)
    rows = rows.astype(dict.fromkeys(rows.select_dtypes("category"), object)).sort_values(["finished_at", "run_id"])
    rows = rows[rows["is_full"].astype(bool) & rows["role"].isna() & rows["causal_checked"].astype(bool)]
    rows[["match", "condition"]] = rows[["match", "condition"]].fillna("")
    setting = rows["match"].where(rows["match"] != "", rows["mech_args"])
    metrics, protocols = rows["metrics"].map(json.loads), rows["config_json"].map(protocol)
    return rows.assign(setting=setting, metrics=metrics, protocol=protocols)


def protocol(config: str) -> str:
    """Columns of a run that a suite decides; matching may change its width."""
    given = json.loads(config)
    parts = (given.get(name) for name in ("training", "evaluation", "tuning", "ladder"))
    return json.dumps([given["model"] | {"model_dim": None}, *parts], sort_keys=True)


def shown(report: str, printed: pd.DataFrame) -> pd.DataFrame:
    """The runs of a report: of each seed the best rate in validation, of each label the setting with most tasks.

    Of two such settings, the first to be run is that of the name; the other is a variant.
    """
    suite, labels, tasks = report.removesuffix("-all"), set(printed["mechanism"]), set(printed["task"])
    rows = store()[store()["suite"].isin(CORE if suite in CORE else [suite])]
    rows = rows[rows["protocol"] == rows.loc[rows["suite"] == suite, "protocol"].iloc[-1]]
    rows = rows[rows["seed"].isin([42, 43, 44])] if report == "paper-all" else rows
    # The first positions that a stock layer was run with are its own.
    first = rows[rows["condition"] == "stock"].drop_duplicates(["mech", "block", "setting"])
    stock = set(first[LAYER].itertuples(index=False, name=None))

    @cache
    def label(name: str, arguments: str, match: str, condition: str, *layer: str) -> str | None:
        # An old row has the condition of the rows with its layer; a mechanism without any is the same in both.
        is_stock = condition == "stock" or layer in stock or layer[0] not in {mech for mech, *_ in stock}
        names = [f"{name} (bare)"] * (condition == "bare" or layer not in stock) + [name] * is_stock
        names = [f"{each} (match {match.partition(' of ')[0]})" if match else each for each in names]
        details = [layer[1], *(f"{option}={value}" for option, value in json.loads(arguments).items())]
        detailed = [f"{each} ({detail})" for each in names for detail in details]
        return next((each for each in detailed + names if each in labels), None)

    of_label = rows[["mech_label", "mech_args", "match", "condition", *LAYER]].to_numpy()
    sizes = rows["task"] + " (" + rows["task_args"] + ")"
    rows = rows.assign(name=rows["task"], mechanism=[label(*each) for each in of_label])
    rows["task"] = rows["task"].where(rows["task"].isin(tasks), sizes)
    rows = rows[rows["task"].isin(tasks)].dropna(subset="mechanism")
    for unit, version in ("task", "task_version"), ("task", "task_args"), (LAYER[:3], "mech_version"):
        own_last = rows.sort_values("suite", key=lambda names: names == suite, kind="stable")
        rows = rows[rows[version] == own_last.groupby(unit)[version].transform("last").reindex(rows.index)]
    rows["by"] = [
        -m["validation_bits"] if "validation_bits" in m else m["validation_accuracy"] for m in rows["metrics"]
    ]
    rows = rows[::-1].sort_values(["by", "lr"], ascending=[False, True], kind="stable")  # of two equal ones the newer
    rows = rows.drop_duplicates([*CELL, *LAYER, "seed"])
    layers = rows.groupby(["mechanism", *LAYER])
    rows = rows.assign(num_tasks=layers["task"].transform("nunique"), since=layers["finished_at"].transform("min"))
    rows = rows.sort_values(["num_tasks", "since"], ascending=[False, True], kind="stable")
    chosen = rows.groupby("mechanism")[LAYER].transform("first")
    return pd.DataFrame(rows[(rows[LAYER] == chosen).all(axis=1)])


@cache
def levels_of(task: str, version: str, arguments: str) -> list[tuple[float, float, float]]:
    """Load of each level, and its committed baseline and ceiling."""
    found = []
    for level in json.loads(arguments).get("rungs", []):
        options = sorted({**level["task"], "length": level["length"]}.items())
        key = f"{task} {version} {','.join(f'{name}={value}' for name, value in options)}"
        bounds = BOUNDS[f"{key} from {level['first_new']}"]
        found.append((level["load"], max(bounds["bases"].values()), bounds["ceiling"]))
    return found


def score_and_load(
    task: str, version: str, arguments: str, metrics: dict[str, float], score: float
) -> tuple[float, float, int]:
    """Score, load at half and number of levels, from the accuracies by level and the committed baselines."""
    levels = levels_of(task, version, arguments)
    if not levels:
        return score, np.nan, 0
    raw = [
        (metrics[f"rung{number}.score"] - base) / (ceiling - base)
        for number, (_load, base, ceiling) in enumerate(levels, 1)
    ]
    skills = np.clip(optimize.isotonic_regression(raw, increasing=False).x, 0, 1)
    below = int((skills >= 0.5).sum())
    if below in (0, len(levels)):
        return skills.mean(), np.inf if below else 0.0, len(levels)
    loads = [np.log(load) for load, *_ in levels[below - 1 : below + 1]]
    return skills.mean(), np.exp(np.interp(-0.5, -skills[below - 1 : below + 1], loads)), len(levels)


def with_intervals(cells: pd.DataFrame, lowest: float, highest: float) -> pd.DataFrame:
    """Cells with the t interval of the mean from the moderated variance: docs/statistics.md, Smyth (2004)."""
    dof, variance = cells["n"] - 1, (cells["std"].fillna(0) ** 2).where(lambda values: values > 1e-18, 0)
    all_dof = dof.groupby("task").transform("sum")
    pooled = (dof * variance).groupby("task").transform("sum") / all_dof
    used = (dof > 0) & (pooled > 0)
    used &= used.groupby("task").transform("sum") > 1
    half, prior = dof[used] / 2, 0.0
    if used.any():
        logs = np.log(np.maximum(variance, 0.01 * pooled)[used]) - special.digamma(half) + np.log(half)
        free = used.sum() - len(used[used].index.unique("task"))
        excess = ((logs - logs.groupby("task").transform("mean")) ** 2).sum() / free - special.polygamma(1, half).mean()
        is_certain = excess <= special.polygamma(1, 500)
        prior = 1000 if is_certain else 2 * optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-3, 500)
    prior = max(3, prior)
    moderated = np.maximum(variance, (prior * pooled + dof * variance) / (prior + dof))
    error = np.sqrt(np.where(variance < 0.01 * pooled, pooled, moderated) / cells["n"])
    of_interval = np.where(variance > 3 * pooled, dof, np.minimum(prior + dof, all_dof))
    reach = special.stdtrit(of_interval, 0.975) * np.where(error <= 1e-9, 0, error)
    return cells.assign(low=(cells["mean"] - reach).clip(lowest), high=(cells["mean"] + reach).clip(upper=highest))


def is_printed(text: str, *wanted: float) -> bool:
    """Return whether a cell has these numbers, to its last digits, without p; one number may stand for several."""
    plain = re.sub("≥ [0-9.]+", "inf", re.sub("< [0-9.]+", "0", text.partition(", p ")[0]))
    found = re.findall(r"inf|\d+(?:\.\d+)?", plain)
    found = found * len(wanted) if len(found) == 1 else found
    return len(found) == len(wanted) and all(
        float(number) == value or abs(float(number) - value) <= 0.5 / 10 ** len(number.partition(".")[2]) + 1e-9
        for number, value in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("report", ["paper", "paper-all", "core", "core.extra", "peers", "text"])
def test_the_rows_give_every_number_that_is_printed(report: str) -> None:
    printed = pd.read_csv(ROOT / "reports" / report / "cells.csv")
    rows = shown(report, printed)
    of_levels = map(score_and_load, *(rows[name] for name in ["name", "task_version", "task_args", "metrics", "score"]))
    rows["score"], rows["load"], rows["rungs"] = zip(*of_levels, strict=True)
    gap = (rows["ceiling"] - rows["floor"]).where(rows["skill"].notna())
    rows["skill"] = ((rows["score"] - rows["floor"]) / gap).clip(0, 1)
    cells = rows.groupby(CELL).agg(
        n=("score", "count"), failed=("score", lambda scores: scores.isna().sum()), mean=("score", "mean"),
        std=("score", "std"), skill=("skill", "mean"), load_at_half=("load", median_low),
    )  # fmt: skip
    cells = with_intervals(cells, *((-np.inf, 0) if report == "text" else (0, 1)))
    of_task = rows.groupby("task")[["floor", "ceiling", "rungs"]].last()
    recounted = printed[CELL].join(of_task, on="task").join(cells, on=CELL).fillna({"n": 0, "failed": 0})
    for column in printed.columns.difference(["category", *CELL, "load_in"]):
        wanted = recounted[column]
        last_digit = 10.0 ** (np.floor(np.log10(wanted.abs().clip(1e-9, 1e9))) - 5)
        last_digit = last_digit.clip(1e-6 if column in ("low", "high") else 0)
        is_off = (printed[column] - wanted).abs() > 0.51 * last_digit
        is_off |= printed[column].isna() != wanted.isna()
        assert not is_off.any(), (column, printed[is_off], wanted[is_off])

    # Of two reports only the cells are committed, and the tables of text are in bits.
    for category in printed["category"].unique() if report in ("paper", "core", "peers") else ():
        page = html.unescape((ROOT / "reports" / report / f"{category}.md").read_text(encoding="utf-8"))
        for is_of_loads, block in enumerate(re.findall(r"(?:^\|.*\n)+", page.replace("\\", ""), re.MULTILINE)):
            (_, *tasks), _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines())
            texts = {(task, label): text for label, *line in lines for task, text in zip(tasks, line, strict=True)}
            of_block = rows.loc[rows["task"].isin(tasks), [*CELL, "score", "load", "rungs"]]
            for (task, label), runs in of_block.groupby(CELL):
                scores, levels, cell = runs["score"], runs["rungs"].iloc[0], dict(cells.xs((task, label)))
                spread = max(cell["mean"] - cell["low"], cell["high"] - cell["mean"]) if levels else cell["std"]
                numbers: list[float] = [
                    score * (1 if levels else 100) for score in (cell["mean"], spread) if not np.isnan(score)
                ]
                if np.ptp(scores) * levels > 3:
                    numbers += [(scores > (scores.min() + scores.max()) / 2).sum(), len(scores)]
                if is_of_loads:
                    numbers = [cell["load_at_half"], runs["load"].min(), runs["load"].max()]
                text = texts[task, re.sub(r"^Standard\b", "Softmax", str(label))].replace(f"n = {len(scores)}", "")
                assert is_printed(text, *numbers), (category, task, label, text, numbers)
