"""Render the leaderboard page as one HTML file, from its content and templates."""

import base64
import hashlib
import json
import math
from importlib.resources import files as files_in
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from synthbench.reports.cells import TaskFacts
from synthbench.reports.exchange import cell_data, croissant
from synthbench.reports.folder import Files
from synthbench.reports.ladder import LEAST, SPLIT
from synthbench.reports.leaderboard import SOLVED, in_title
from synthbench.reports.render.page import charts, untrusted
from synthbench.reports.render.page.content import content
from synthbench.reports.report import Report
from synthbench.reports.table import fixed, p_relation, percent
from synthbench.reports.verdicts import FAR, MARGIN, SMALLEST_GAP

_NOTHING = "–"
_DATASET = "Scores of sequence mixers on synthetic tasks: a line for each task and mechanism."


def page(report: Report, files: Files | None = None) -> str:
    """Render a report's leaderboard page as one HTML file, which loads no other file.

    The same rows, in any order, and the same task descriptions give the same file at any time and on any machine.
    Strings from the rows are escaped.

    Args:
        report: The report to show.
        files: The other files of the report, by name. The page has links to them, and a machine-readable description of
            ``cells.csv``.
    """
    style, script = (_resource(name) for name in ("page.css", "page.js"))
    if report.cells.has_ladder:
        style += _resource("levels.css")
    # Only our script and our style are allowed.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    files = files or {}
    dataset = None
    if "cells.csv" in files:
        name = f"synthbench-{report.selection.suite}-{report.selection.suite_version}"
        dataset = croissant(name, _DATASET, report, {"cells": cell_data(report, str(files["cells.csv"]))})
    template = environment().get_template("page.html")
    return template.render(
        page=content(report),
        files=files,
        dataset=Markup(json.dumps(dataset).replace("<", r"\u003c")) if dataset else "",  # noqa: S704 -- JSON without <
        style=Markup(style),  # noqa: S704 -- a file of ours
        script=Markup(script),  # noqa: S704 -- the same
        policy=policy,
        solved=SOLVED,
        smallest_gap=SMALLEST_GAP,
        margin=MARGIN,
        least=LEAST,
        far=FAR,
        split=SPLIT,
        plot=charts,
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _resource(name: str) -> str:
    return files_in("synthbench.reports").joinpath("templates", name).read_text(encoding="utf-8")


def environment() -> Environment:
    """Load the page templates and their filters; every string that a template prints is escaped and made harmless."""
    environment = Environment(
        loader=PackageLoader("synthbench.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    environment.filters |= {
        "name": untrusted.name,
        "sentence": untrusted.sentence,
        "skill": lambda skill: _NOTHING if math.isnan(skill) else fixed(skill, 2),
        "per_cent": lambda fraction: _NOTHING if math.isnan(fraction) else percent(fraction),
        "whole": lambda number: f"{round(number):,}" if math.isfinite(number) else _NOTHING,
        "heat": charts.heat,
        "p": p_relation,
        "sortable": lambda number: f"{number:.6g}" if math.isfinite(number) else "",
        "loads": _loads,
        "title_of": in_title,
        "words": lambda text: untrusted.name(text.replace("_", " ")),
    }
    environment.globals["nothing"] = math.nan
    environment.tests |= {"nan": math.isnan, "link": untrusted.is_link}
    return environment


def _finalize(value: Any) -> Any:
    """Make every string that a template prints harmless: visible and not too long; markup is not changed."""
    return untrusted.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _loads(task: TaskFacts) -> str:
    """Format the range of loads of a task, as in ``2 to 64 pairs``; empty if the task has no levels."""
    ladder = task.ladder
    return f"{ladder.loads[0]:g} to {ladder.loads[-1]:g} {ladder.unit}" if ladder else ""
