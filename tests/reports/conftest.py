"""Whole suites of made-up rows, and programs that read what reports are: LaTeX and a browser."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, sync_playwright

from tests.reports._made import HOSTILE, MECHANISMS, climbed, make_frame


@pytest.fixture(scope="session")
def paper() -> pd.DataFrame:
    """A small paper suite: every kind of place that scores can sit at, a failure, an unknown mechanism and category."""
    rng = np.random.default_rng(0)

    def scored(cells: Mapping[str, tuple[float, float]], **facts: Any) -> pd.DataFrame:
        scores = {
            mech: [round(float(score), 6) for score in mean + std * rng.standard_normal(3)]
            for mech, (mean, std) in cells.items()
        }
        return make_frame(scores, **facts)

    reverse = {
        "softmax": (0.508, 0.002),
        "performer": (0.09, 0.004),
        "linear": (0.05, 0.003),
        "slay": (0.42, 0.01),
        "my-idea": (0.51, 0.002),
    }
    parity = dict.fromkeys(("softmax", "linear", "slay", "my-idea"), (0.5, 0.004))
    retrieval = dict.fromkeys(("softmax", "slay"), (1.0, 0.0))
    histogram = dict.fromkeys(("softmax", "slay", "linear"), (0.871, 0.0005))
    dyck = {"softmax": (0.6, 0.1), "my-idea": (0.7, 0.1)}
    of_dyck: dict[str, Any] = {"task": "dyck_2", "task_category": "grammar", "floor": 0.25, "ceiling": 0.9}
    of_tasks = [
        scored(dict.fromkeys(MECHANISMS, (1.0, 0.0)), task="copy", floor=1 / 32),
        scored(reverse, task="reverse", floor=1 / 32, ceiling=0.5156),
        scored(parity, task="parity", task_category="arithmetic", floor=0.5),
        scored(retrieval, task="retrieval", task_category="memory", floor=1.0),
        scored(histogram, task="histogram", task_category="patterns", floor=0.8711, ceiling=0.8723),
        scored(dyck, **of_dyck, floor_kind="bound", ceiling_kind="bound"),
        make_frame({"slay": [None]}, **of_dyck),
    ]
    rows: pd.DataFrame = pd.concat(of_tasks, ignore_index=True)
    is_fast = (rows["task"] == "copy") & (rows["mech"] != "linear")
    rows["steps_to_threshold"] = (100 + 20 * (rows["seed"] - 42)).where(is_fast).astype("Int64")
    return rows


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
def hostile() -> pd.DataFrame:
    """Rows in which every string is hostile, a unit or two for each kind of hostility."""
    parts = []
    for index, text in enumerate(HOSTILE):
        frame = make_frame({f"mech-{index}": [0.2, 0.9], f"broken-{index}": [None, 0.3]})
        replaced = ("mech_label", "mech_family", "mech_source", "mech_origin", "task", "task_category", "task_source")
        extended = ("mech", "block", "positions", "mech_version", "device_name", "synthbench_version", "git_sha")
        frame["match"] = frame["match"].mask(frame["mech"] == f"broken-{index}", f"{text} of {text}")
        frame = frame.assign(**dict.fromkeys(replaced, text), **{column: frame[column] + text for column in extended})
        arguments = {"mech_args": json.dumps({text: text}), "task_args": json.dumps([text])}
        parts.append(frame.assign(**arguments, metrics=json.dumps({f"shortcut.{text}": 0.1})))
    rows = pd.concat(parts, ignore_index=True).assign(suite=HOSTILE[0], suite_version=HOSTILE[1])
    rows["error_type"] = rows["error_type"].mask(rows["status"] != "ok", HOSTILE[2])
    return rows.assign(run_id=[f"{index:016x}" for index in range(len(rows))])


@pytest.fixture(scope="session")
def core() -> pd.DataFrame:
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
    return pd.concat(of_tasks, ignore_index=True)


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
        launched = playwright.chromium.launch(executable_path=found, args=["--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page; fails if it writes to the console, raises, asks for anything elsewhere or opens a dialog."""
    complaints: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open_it(file: Path, within: Path, size: tuple[int, int], fragment: str = "", **options: Any) -> Page:
        def refuse_others(request: Request) -> None:
            if not request.url.startswith(within.as_uri()):
                complaints.append(f"request: {request.url}")

        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, offline=True, **options)
        opened = context.new_page()
        opened.on("console", lambda message: complaints.append(f"console: {message.text}"))
        opened.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        opened.on("dialog", dismiss)
        opened.on("request", refuse_others)
        opened.goto(file.as_uri() + fragment)
        return opened

    yield open_it
    for context in browser.contexts:
        context.close()
    assert complaints == []
