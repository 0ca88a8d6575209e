"""Write the pages of a site around its reports: ``python docs/pages.py site``.

Run it after ``synthbench report --out site/NAME``, which is run once for each report. The front page has the verdict of
suite ``core``. Every task and every mechanism has a page and a JSON file, to which the pages of the reports link.
``make site`` runs all these commands.
"""

import json
import math
import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from generate import component_text, full_mechanism_facts, full_task_facts, index_text, task_text
from jinja2 import ChoiceLoader, Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markupsafe import Markup

from synthbench import sources
from synthbench.mechanisms import MECHANISMS
from synthbench.options import MAIN_SUITE
from synthbench.plugins import SWITCH
from synthbench.reports.leaderboard import in_title
from synthbench.reports.render.page import charts
from synthbench.reports.render.page.render import environment
from synthbench.reports.render.page.untrusted import anchors
from synthbench.reports.render.spreadsheet import json_text
from synthbench.suites import load_suite
from synthbench.tasks import TASKS

REPORTS = Path(__file__).parents[1] / "reports" / "README.md"
"""The page that describes each report."""

MEASURED = ("skill", "low", "high", "num_params", "state", "step_ms")
"""Numbers of a leaderboard that may be unknown: null in JSON, NaN in templates."""

_LINKS = {
    "mechanisms": (
        r"(<dt>Name</dt><dd>)(<bdi>(?P<name>[\w-]+)</bdi>)(?=</dd>)",
        r'\1<a href="../mechanisms/\g<name>.html">\2</a>',
    ),
    "tasks": (
        r' id="task-.*\n.*?<bdi>(?P<name>\w+)(?: \(|</).*\n<div class="body">\n(?!<p><a )',
        r'\g<0><p><a href="../tasks/\g<name>.html">Definition, levels and baselines</a></p>\n',
    ),
}
"""Patterns for components that the page of a report names without a link, each with its replacement by a link."""

Pages = Mapping[str, Mapping[str, dict[str, Any]]]
"""Facts of the pages by kind, ``tasks`` or ``mechanisms``, and by name."""


def write(site: Path, tasks: Collection[str] = TASKS, mechanisms: Collection[str] = MECHANISMS) -> None:
    """Write the front page, the indexes and the pages of components, and link the reports to these.

    Args:
        site: Folder with a folder for each report.
        tasks: Names of the tasks that get a page.
        mechanisms: Names of the mechanisms that get a page.

    Raises:
        SystemExit: If the main suite has no report in ``site``.
    """
    file = site / MAIN_SUITE / "leaderboard.json"
    if not file.is_file():
        sys.exit(f"no {file}; synthbench report --suite {MAIN_SUITE} --out {site / MAIN_SUITE} writes it")
    board = json.loads(file.read_text(encoding="utf-8"), object_hook=_with_nan)
    of = {key: board[key] for key in ("suite", "suite_version")}
    pages: Pages = {
        "tasks": {name: full_task_facts(name) | of | _rows_of_task(board, name) for name in tasks},
        "mechanisms": {name: full_mechanism_facts(name) | of | _rows_of_mechanism(board, name) for name in mechanisms},
    }
    reports = [page for page in sorted(site.glob("*/index.html")) if page.parent.name not in pages]
    for page in reports:
        page.write_text(_linked(page.read_text(encoding="utf-8"), pages), encoding="utf-8")
    templates = _templates(pages)
    for kind, of_kind in pages.items():
        (site / kind).mkdir(exist_ok=True)
        index = _html(index_text(kind), of_kind)
        _write(templates, "layout.html", site / kind / "index.html", title=kind.capitalize(), root="../", text=index)
        for name, facts in of_kind.items():
            text = _html((task_text if kind == "tasks" else component_text)(facts))
            bibtex = sources.describe(facts["source"])
            known = {"facts": facts, "text": text, "bibtex": bibtex if bibtex != facts["source"] else ""}
            _write(templates, f"{kind}.html", site / kind / f"{name}.html", title=name, root="../", **known)
            (site / kind / f"{name}.json").write_text(json_text(facts), encoding="utf-8")
    listed = re.findall(r"^\| \[(\S+)\]\(.*?\) \| (.*) \|$", REPORTS.read_text(encoding="utf-8"), re.MULTILINE)
    described = {name: re.sub(r",? \(?\[.*?\]\(.*?\)\)?", "", text) for name, text in listed}  # without its links
    others = {name: described.get(name, "") for page in reports if (name := page.parent.name) != MAIN_SUITE}
    front = {"title": "Leaderboards", "root": "", "reports": others, **_verdict(board)}
    _write(templates, "front.html", site / "index.html", **front)


def _with_nan(found: dict[str, Any]) -> dict[str, Any]:
    return found | {name: math.nan for name in MEASURED if found.get(name, 0) is None}


def _rows_of_task(board: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the scores of all mechanisms on a task, best first, and a command that trains a mechanism on it."""
    shown = ("name", "label", "condition", "convolution", "positions")
    results = [
        {key: one[key] for key in shown} | facts
        for one in board["mechanisms"]
        for label, facts in one["tasks"].items()
        if label.partition(" (")[0] == name
    ]
    ladder = load_suite(MAIN_SUITE).ladder
    suite = MAIN_SUITE
    if not (ladder and TASKS[name].ladder(ladder.longest)):
        suite = next((suite for suite in ("paper", "text") if name in load_suite(suite).tasks), "smoke")
    return {
        "results": sorted(results, key=lambda one: -one["skill"]),
        "command": f"synthbench run --suite {suite} --task {name} --mech softmax",
    }


def _rows_of_mechanism(board: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the entries of a mechanism, one for each setting, and the command that trains the mechanism."""
    return {
        "results": [one for one in board["mechanisms"] if one["name"] == name],
        "command": f"synthbench run --suite {MAIN_SUITE} --mech {name}",
    }


def _verdict(board: dict[str, Any]) -> dict[str, Any]:
    """Return the order in each category, with name and anchor of its ranking, and all other lines of the verdict."""
    names = [name for one in board["mechanisms"][:1] for name in one.get("categories", ())]
    titles, ids = {in_title(name): name for name in names}, anchors("category", zip(names, names, strict=True))
    lines = [(line, *line.split(": ", 1)) for line in board["verdict"].splitlines()]
    return {
        "orders": [(title, ids[titles[title]], *order) for _line, title, *order in lines if title in titles],
        "lines": [line for line, title, *_ in lines if title not in titles] + [board["setting"]],
    }


def _linked(report: str, pages: Pages) -> str:
    """Link the sections of a report to the pages of their components, where there are any."""
    for kind, (section, link) in _LINKS.items():

        def linked(at: re.Match[str], names: Collection[str] = pages[kind], link: str = link) -> str:
            return at.expand(link) if at["name"] in names else at[0]

        report = re.sub(section, linked, report)
    return report


def _templates(pages: Pages) -> Environment:
    """Load the templates in this folder and the templates of reports."""

    def link(kind: str, name: str, label: str) -> Markup:
        html = '<a href="../{}/{}.html"><bdi>{}</bdi></a>' if name in pages[kind] else "{2}"
        return Markup(html).format(kind, name, label)  # noqa: S704 -- it escapes what it inserts

    templates = environment()
    templates.loader = ChoiceLoader([FileSystemLoader(Path(__file__).with_name("site")), templates.loader])
    templates.globals |= {"suite": MAIN_SUITE, "plot": charts, "link": link, "profile": _profile}
    return templates


def _profile(levels: Mapping[str, float]) -> str:
    return charts.over_loads([float(load) for load in levels], list(levels.values()))


def _html(markdown: str, links: Collection[str] = ()) -> Markup:
    """Convert Markdown to HTML; formulas become code, and names in the first column of a table become links."""
    text = re.sub(r"\[([^]]+)\]\([a-z./]+\.md[^)]*\)", r"\1", markdown)  # the other pages are not on the site
    text = re.sub(r"\$\$\n(.*?)\n\$\$", r"```\n\1\n```", text, flags=re.DOTALL)
    text = re.sub(r"\$([^$]+)\$", r"`\1`", text)
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    body = body.replace("<table>", '<div class="scroll" role="region" tabindex="0" aria-label="Table"><table>')
    body = body.replace("</table>", "</table></div>")
    for name in links:
        body = body.replace(f"<tr>\n<td>{name}</td>", f'<tr>\n<td><a href="{name}.html">{name}</a></td>')
    return Markup(body)  # noqa: S704 -- of our docstrings, escaped


def _write(templates: Environment, name: str, file: Path, **known: Any) -> None:
    file.write_text(templates.get_template(name).render(known), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/pages.py FOLDER")
    os.environ[SWITCH] = "off"  # the pages describe what comes with synthbench, whatever else is installed
    write(Path(sys.argv[1]))
