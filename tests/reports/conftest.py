"""Rows as a store gives them, made up for the tests of the reports."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Request, sync_playwright

from synthbench.canonical import canonical_json
from synthbench.levels import LADDER_SCORE, ladder_score, metrics_of_levels
from synthbench.reports.ladder import Ladder
from synthbench.results.schema import join_match
from tests.reports._ladders import TASK_FACTS, levels_at

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
"""Of Chromium."""

Scores = Mapping[str, Iterable[float]]
Heights = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class MadeTask:
    """Facts of a task in rows."""

    name: str
    category: str
    floor: float = 0.0
    ceiling: float = 1.0
    floor_kind: str = "exact"
    ceiling_kind: str = "exact"


MECHANISMS = {
    "softmax": "Standard",
    "yat-spherical": "Spherical-YAT",
    "performer": "Performer",
    "linear": "Linear",
    "slay": "SLAY",
    "slay-laplace": "Laplace-only",
    "slay-hadamard": "Hadamard",
}


def make_row(task: MadeTask, mech: str, seed: int, score: float | None, /, **changes: Any) -> dict[str, Any]:
    """One row with the columns that reports read; a score of None makes it one that diverged."""
    gap = task.ceiling - task.floor
    row = {
        "suite": "paper",
        "suite_version": "2026.1",
        "role": None,
        "is_full": True,
        "causal_checked": True,
        "status": "diverged" if score is None else "ok",
        "error_type": "FloatingPointError" if score is None else None,
        "task": task.name,
        "task_category": task.category,
        "task_version": "1",
        "task_source": "slay2026",
        "task_args": '{"length":32}',
        "seq_len": 32,
        "lr": 1e-3,
        "n_eval": 1000,
        "mech": mech,
        "mech_label": MECHANISMS.get(mech, mech),
        "mech_family": "a family",
        "mech_source": "vaswani2017attention" if mech == "softmax" else "slay2026",
        "mech_version": "1",
        "mech_origin": "builtin",
        "mech_args": "{}",
        "config_json": "{}",
        "tuning_trials": 1,
        "match": None,
        "block": "attention_only",
        "positions": "learned",
        "d_model": 64,
        "seed": seed,
        "metric_name": "accuracy",
        "score": score,
        "skill": None if score is None or gap == 0 else (score - task.floor) / gap,
        "floor": task.floor,
        "floor_kind": task.floor_kind,
        "ceiling": task.ceiling,
        "ceiling_kind": task.ceiling_kind,
        "metrics": json.dumps({"score_std_over_sequences": 0.1}),
        "steps_planned": 200,
        "steps_to_threshold": None,
        "local_ceiling": None,
        "n_params": 40000,
        "n_params_mixer": 33280,
        "state_size": 1088,
        "train_s": 1.0 + len(mech) / 8,
        "ensemble_size": 2,
        "device_type": "cpu",
        "device_name": "a processor",
        "synthbench_version": "0.1.0",
        "git_sha": "0123456789abcdef",
        "git_dirty": False,
        "verified_by": None,
        "finished_at": pd.Timestamp("2026-01-01T12:00:00Z") + pd.Timedelta(seconds=seed),
    } | changes
    identity = (row["suite_version"], row["task"], row["task_args"], mech, row["mech_version"], row["positions"], seed)
    return {"run_id": "-".join(map(str, identity))} | row


def to_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows with the types that the store gives them: missing numbers are NaN, or NA in a column of whole numbers."""
    frame = pd.DataFrame(list(rows))
    return frame.astype(
        {
            "score": "float64",
            "skill": "float64",
            "local_ceiling": "float64",
            "match": "object",
            "steps_to_threshold": "Int64",
            "seed": "int64",
        }
    )


def rows_of(task: MadeTask, scores: Scores, /, **changes: Any) -> list[dict[str, Any]]:
    """One row for every score, the seeds counted from 42."""
    return [
        make_row(task, mech, 42 + index, score, **changes)
        for mech, values in scores.items()
        for index, score in enumerate(values)
    ]


@pytest.fixture(scope="session")
def paper() -> pd.DataFrame:
    """A small paper suite: every kind of place that scores can sit at, a failure, an unknown mechanism and category."""
    rng = np.random.default_rng(0)

    def spread(mean: float, std: float) -> list[float]:
        return [round(float(score), 6) for score in mean + std * rng.standard_normal(3)]

    means = {
        MadeTask("copy", "basic", 1 / 32): dict.fromkeys(MECHANISMS, (1.0, 0.0)),
        MadeTask("reverse", "basic", 1 / 32, 0.5156): {
            "softmax": (0.508, 0.002),
            "performer": (0.09, 0.004),
            "linear": (0.05, 0.003),
            "slay": (0.42, 0.01),
            "my-idea": (0.51, 0.002),
        },
        MadeTask("parity", "arithmetic", 0.5): dict.fromkeys(("softmax", "linear", "slay", "my-idea"), (0.5, 0.004)),
        MadeTask("retrieval", "memory", 1.0): dict.fromkeys(("softmax", "slay"), (1.0, 0.0)),
        MadeTask("histogram", "patterns", 0.8711, 0.8723): dict.fromkeys(
            ("softmax", "slay", "linear"), (0.871, 0.0005)
        ),
        MadeTask("dyck_2", "grammar", 0.25, 0.9, floor_kind="bound", ceiling_kind="bound"): {
            "softmax": (0.6, 0.1),
            "my-idea": (0.7, 0.1),
        },
    }
    rows = [
        row
        for task, cells in means.items()
        for row in rows_of(task, {mech: spread(*cell) for mech, cell in cells.items()})
    ]
    for row in rows:
        if row["task"] == "copy" and row["mech"] != "linear":
            row["steps_to_threshold"] = 100 + 20 * (row["seed"] - 42)
    failed = make_row(MadeTask("dyck_2", "grammar", 0.25, 0.9), "slay", 42, None)
    return to_frame([*rows, failed])


@pytest.fixture(scope="session")
def paper_curves(paper: pd.DataFrame) -> pd.DataFrame:
    """Two points for each row, and a run that no row knows."""
    points = [
        {"run_id": run_id, "step": step, "split": "validation", "metric": "loss", "value": 3.0 / step + seed / 100}
        for run_id, seed in zip([*paper["run_id"], "unknown"], [*paper["seed"], 0], strict=True)
        for step in (20, 40)
    ]
    return pd.DataFrame(points).astype({"value": "float32"})


@pytest.fixture(scope="session")
def make_frame() -> Callable[..., pd.DataFrame]:
    """Make the rows of a task with floor 0 and ceiling 1 from scores by mechanism; None is a run that diverged."""

    def make(scores: Scores, /, **changes: Any) -> pd.DataFrame:
        return to_frame(rows_of(MadeTask("sort", "basic"), scores, **changes))

    return make


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


@pytest.fixture(scope="session")
def hostile_strings() -> tuple[str, ...]:
    """Hostile texts in place of a name."""
    return HOSTILE


@pytest.fixture(scope="session")
def hostile(make_frame: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """Rows in which every string is hostile, a unit or two for each kind of hostility."""
    parts = []
    for index, text in enumerate(HOSTILE):
        frame = make_frame({f"mech-{index}": [0.2, 0.9], f"broken-{index}": [None, 0.3]})
        replaced = ("mech_label", "mech_family", "mech_source", "mech_origin", "task", "task_category", "task_source")
        extended = ("mech", "block", "positions", "mech_version", "device_name", "synthbench_version", "git_sha")
        frame["match"] = frame["match"].mask(frame["mech"] == f"broken-{index}", join_match(text, text))
        frame = frame.assign(**dict.fromkeys(replaced, text), **{column: frame[column] + text for column in extended})
        arguments = {"mech_args": json.dumps({text: text}), "task_args": json.dumps([text])}
        parts.append(frame.assign(**arguments, metrics=json.dumps({f"shortcut.{text}": 0.1})))
    rows = pd.concat(parts, ignore_index=True).assign(suite=HOSTILE[0], suite_version=HOSTILE[1])
    rows["error_type"] = rows["error_type"].mask(rows["status"] != "ok", HOSTILE[2])
    return rows.assign(run_id=[f"{index:016x}" for index in range(len(rows))])


@pytest.fixture(scope="session")
def climbed(make_frame: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    """Make the rows of one task from the heights of mechanisms, in levels; None is a run that diverged."""

    def make(heights: Heights, task: str = "mqar", ladder: Ladder | None = None, /, **changes: Any) -> pd.DataFrame:
        category, default = TASK_FACTS[task]
        ladder = ladder or default
        levels = {
            (mech, 42 + place): levels_at(ladder, wanted)
            for mech, values in heights.items()
            for place, wanted in enumerate(values)
            if wanted is not None
        }
        scores = {
            mech: [
                None if wanted is None else ladder_score(levels[mech, 42 + place])
                for place, wanted in enumerate(values)
            ]
            for mech, values in heights.items()
        }
        arguments = [{"load": load, "length": int(2 * load), "first_new": 0, "task": {}} for load in ladder.loads]
        rows = make_frame(
            scores, suite="core", task=task, task_category=category, task_version="made up", local_ceiling=0.0,
            task_args=canonical_json({"load": ladder.unit, "rungs": arguments}), seq_len=int(2 * ladder.loads[-1]),
        ).assign(**changes)  # fmt: skip
        runs = [(str(mech), int(seed)) for mech, seed in zip(rows["mech"], rows["seed"], strict=True)]
        return rows.assign(
            metrics=[json.dumps(metrics_of_levels(levels[run]) if run in levels else {}) for run in runs],
            run_id=[f"{task}-{mech}-{seed}" for mech, seed in runs],
            metric_name=LADDER_SCORE,
        )

    return make


@pytest.fixture(scope="session")
def core(climbed: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """A small suite: one at the top, one below the first level, seeds far apart, a failure."""
    mechanisms = ("softmax", "linear", "slay", "my-idea")
    heights: dict[str, Sequence[Sequence[float | None]]] = {
        "mqar": ([10.9, 11, 11], [0.2, 0.3, 0.1], [2.4, 10.8, 11], [4, 4.4, 4.1]),
        "string_copy": ([5.5, 5.8, 5.9], [2.4, 2.5, 2.2], [3.1, 3, 3.3], [3, 3, None]),
        "parity_running": ([0.9, 1.2, 0.7], [3, 3.2, 2.9], [6, 5.6, 6.2], [12, 12, 12]),
        "s5_words": ([4.3, 4.5, 4.3], [4.2, 4.1, 4.2], [5, 5.1, 4.7], [7.1, 7.3, 7]),
    }
    of_tasks = [
        climbed(dict(zip(mechanisms, by_mechanism, strict=True)), task) for task, by_mechanism in heights.items()
    ]
    rows: pd.DataFrame = pd.concat(of_tasks, ignore_index=True)
    return rows


@pytest.fixture
def compile_latex(need: Callable[[str, bool, str], None], tmp_path: Path) -> Callable[..., str]:
    """Include files in one document and run pdflatex without a shell escape; gives its log.

    Bold must be set in a bold font. With a size of paper, the document has margins of one inch.
    """
    need("pdflatex", shutil.which("pdflatex") is not None, "install texlive-latex-recommended")

    def run(files: Mapping[str, str], paper: str = "") -> str:
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        inputs = "\n".join(rf"\input{{{name}}}\clearpage" for name in sorted(files))
        geometry = rf"\usepackage[{paper},margin=1in]{{geometry}}" if paper else ""
        preamble = rf"\documentclass{{article}}{geometry}\usepackage{{booktabs}}"
        (tmp_path / "main.tex").write_text(rf"{preamble}\begin{{document}}{inputs}\end{{document}}", encoding="utf-8")
        command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "main.tex"]
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
        assert finished.returncode == 0, finished.stdout.decode(errors="replace")[-2000:]
        if any(r"\textbf" in text for text in files.values()):
            # The log names the fonts of the document and is broken into lines anywhere.
            assert b"cmbx" in finished.stdout.replace(b"\n", b""), "nothing was set in bold"
        return (tmp_path / "main.log").read_text(encoding="utf-8", errors="replace")

    return run


@pytest.fixture(scope="module")
def browser(need: Callable[[str, bool, str], None]) -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    need("chromium", found is not None, "install the package chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield launched
        launched.close()


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page; fails if it writes to the console, raises, asks for anything elsewhere or opens a dialog."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open_it(file: Path, within: Path, size: tuple[int, int], fragment: str = "", **options: Any) -> Page:
        def refuse_others(request: Request) -> None:
            if not request.url.startswith(within.as_uri()):
                complaints.append(f"request: {request.url}")

        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, offline=True, **options)
        contexts.append(context)
        opened = context.new_page()
        opened.on("console", lambda message: complaints.append(f"console: {message.text}"))
        opened.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        opened.on("dialog", dismiss)
        opened.on("request", refuse_others)
        opened.goto(file.as_uri() + fragment)
        return opened

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
