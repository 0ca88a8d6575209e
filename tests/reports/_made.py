"""Rows as a store gives them, made up for the tests of reports and studies."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from synthbench.bits import BITS
from synthbench.canonical import canonical_json
from synthbench.levels import LADDER_SCORE, LevelScore, ladder_score, metrics_of_levels
from synthbench.reports.ladder import Ladder
from synthbench.reports.report import Report
from synthbench.reports.selection import select
from tests.results.rows import DEFAULTS

MECHANISMS = {
    "softmax": "Standard",
    "yat-spherical": "Spherical-YAT",
    "performer": "Performer",
    "linear": "Linear",
    "slay": "SLAY",
    "slay-laplace": "Laplace-only",
    "slay-hadamard": "Hadamard",
}
BASE = 0.2
NOT_RECORDED = ("n_layers", "batch_size", "step_ms_median")
"""Columns that older rows lack."""


def ladder_of(unit: str, *loads: int) -> Ladder:
    return Ladder(unit, tuple(map(float, loads)))


PAIRS = ladder_of("pairs", 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
TOKENS = ladder_of("tokens", 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
TASK_FACTS: dict[str, tuple[str, Ladder]] = {
    "mqar": ("recall", PAIRS),
    "string_copy": ("copying", ladder_of("symbols", 3, 5, 7, 10, 14, 20)),
    "parity_running": ("state_tracking", TOKENS),
    "s5_words": ("state_tracking", TOKENS),
}

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style></script><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe\u2066",
    "nul\x00 bell\x07",
    "n" * 10_000,
    "",
    "   ",
)
"""Hostile texts in place of a name."""


def make_row(mech: str, seed: int, score: float | None, /, **changes: Any) -> dict[str, Any]:
    """One row with the columns that reports read; a score of None makes it one that diverged."""
    row: dict[str, Any] = {
        **{name: value for name, value in DEFAULTS.items() if name not in NOT_RECORDED},
        "status": "diverged" if score is None else "ok",
        "error_type": "FloatingPointError" if score is None else None,
        "task": "sort",
        "task_source": "slay2026",
        "task_args": '{"length":32}',
        "seq_len": 32,
        "mech": mech,
        "mech_label": MECHANISMS.get(mech, mech),
        "mech_family": "a family",
        "mech_source": "vaswani2017attention" if mech == "softmax" else "slay2026",
        "block": "attention_only",
        "seed": seed,
        "score": score,
        "floor": 0.0,
        "metrics": json.dumps({"score_std_over_sequences": 0.1}),
        "steps_planned": 200,
        "ensemble_size": 2,
        "git_sha": "0123456789abcdef",
        "git_dirty": False,
        "finished_at": pd.Timestamp("2026-01-01T12:00:00Z") + pd.Timedelta(seconds=seed),
    } | changes
    gap = row["ceiling"] - row["floor"]
    identity = (row["suite_version"], row["task"], row["task_args"], mech, row["mech_version"], row["positions"], seed)
    derived = {
        "run_id": "-".join(map(str, identity)),
        "skill": None if score is None or gap == 0 else (score - row["floor"]) / gap,
    }
    return row | derived | changes


def make_frame(scores: Mapping[str, Iterable[float | None]], /, **changes: Any) -> pd.DataFrame:
    """Make the rows of a task, from scores by mechanism, the seeds counted from 42; None is a run that diverged.

    They have the types that the store gives them: missing numbers are NaN, or NA in a column of whole numbers.
    """
    rows = [
        make_row(mech, seed, score, **changes)
        for mech, values in scores.items()
        for seed, score in enumerate(values, start=42)
    ]
    floats = dict.fromkeys(("score", "skill", "local_ceiling"), "float64")
    return pd.DataFrame(rows).astype(floats | {"match": "object", "steps_to_threshold": "Int64", "seed": "int64"})


def scattered(
    means: Mapping[str, float], num_seeds: int = 5, spread: float = 0.01, seed: int = 0
) -> dict[str, list[float]]:
    """Scores about some means, by mechanism."""
    draws = np.random.default_rng(seed)
    return {mech: list(mean + spread * draws.standard_normal(num_seeds)) for mech, mean in means.items()}


def joined(*frames: pd.DataFrame) -> pd.DataFrame:
    """The rows of some frames in one; each row has an id of its own, though tasks or settings share a seed."""
    rows = pd.concat(frames, ignore_index=True)
    return rows.assign(
        run_id=rows["run_id"].where(~rows["run_id"].duplicated(), rows["run_id"] + "-" + rows.index.astype(str))
    )


def report_of(rows: pd.DataFrame, suite: str = "paper", curves: pd.DataFrame | None = None, **options: Any) -> Report:
    """The report of all rows of a suite."""
    return Report(select(rows, suite), curves, **options)


def levels_at(ladder: Ladder, wanted: float) -> list[LevelScore]:
    """A run that masters as many levels as are wanted, the last of them in part."""
    skills = [min(1.0, max(0.0, wanted - place)) for place in range(ladder.num_levels)]
    return [
        LevelScore(load, BASE + (1 - BASE) * skill, BASE, 1.0) for load, skill in zip(ladder.loads, skills, strict=True)
    ]


def alternating(mean: float, count: int) -> list[float]:
    """Heights of some seeds, in turn above and below their mean."""
    return [mean + 0.4 * (-1) ** place for place in range(count)]


def climbed(
    heights: Mapping[str, Sequence[float | None]], task: str = "mqar", ladder: Ladder | None = None, /, **changes: Any
) -> pd.DataFrame:
    """Make the rows of one task from the heights of mechanisms, in levels; None is a run that diverged."""
    category, default = TASK_FACTS[task]
    ladder = ladder or default
    levels = {
        mech: [[] if wanted is None else levels_at(ladder, wanted) for wanted in values]
        for mech, values in heights.items()
    }
    scores = {mech: [ladder_score(run) if run else None for run in runs] for mech, runs in levels.items()}
    arguments = [{"load": load, "length": int(2 * load), "first_new": 0, "task": {}} for load in ladder.loads]
    rows = make_frame(
        scores, suite="core", task=task, task_category=category, task_version="made up", local_ceiling=0.0,
        task_args=canonical_json({"load": ladder.unit, "rungs": arguments}), seq_len=int(2 * ladder.loads[-1]),
    ).assign(**changes)  # fmt: skip
    return rows.assign(
        metrics=[json.dumps(metrics_of_levels(run)) for runs in levels.values() for run in runs],
        run_id=[f"{task}-{row.mech}-{row.seed}" for row in rows.itertuples()],
        metric_name=LADDER_SCORE,
    )


def text_row(
    mech: str, seed: int, bits: float | None, corpus: str, /, *, lr: float = 0.01, **changes: Any
) -> dict[str, Any]:
    """Make a row of a language model with some bits per byte of a text; without bits its run diverged."""
    metrics = {"validation_bits": bits or 8.0, **changes.pop("metrics", {})}
    facts = {
        "suite": "text", "task": "text", "task_category": "real", "task_source": "python2023stdlib",
        "task_args": canonical_json({"corpus": corpus, "length": 128}), "seq_len": 128, "lr": lr,
        "run_id": f"{corpus}-{mech}-{seed}-{lr}", "metric_name": BITS, "metrics": canonical_json(metrics),
        "skill": None, "floor": -4.7, "ceiling": 0.0,
    }  # fmt: skip
    return make_row(mech, seed, None if bits is None else -bits, **facts | changes)
