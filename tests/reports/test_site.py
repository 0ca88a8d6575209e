"""The pages of a site around its reports, made from made-up rows."""

import inspect
import json
import math
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import pytest
from playwright.sync_api import Page, expect

from synthbench.mechanisms import MECHANISMS
from synthbench.reports.build import files_of
from synthbench.reports.render.spreadsheet import json_text
from synthbench.reports.standings import standings
from synthbench.tasks import TASKS
from tests.reports._made import report_of

DOCS = Path(__file__).parents[2] / "docs"

with pytest.MonkeyPatch.context() as _patch:
    _patch.syspath_prepend(DOCS)
    write: Callable[..., None] = runpy.run_path(str(DOCS / "pages.py"))["write"]

PAGES = {"tasks": ("copy", "mqar", "s5_words"), "mechanisms": ("deltanet", "linear", "softmax")}
"""Components of the small site; the first of each kind has no rows, and some that have rows have no page."""


@pytest.fixture(scope="module")
def site(core: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small site, whose verdict has markup in it, with another report beside that of the main suite."""
    folder = tmp_path_factory.mktemp("site")
    report = report_of(core, "core")
    board = standings(report)
    files = files_of(report, ("csv", "html"))
    files["leaderboard.json"] = json_text(board | {"verdict": board["verdict"] + "\n<script>alert(1)</script>"})
    for name in ("core", "paper"):
        (folder / name).mkdir()
        for file, content in files.items():
            (folder / name / file).write_text(str(content), encoding="utf-8")
    for _ in range(2):  # the same a second time
        write(folder, **PAGES)
    return folder


def facts_of(site: Path, kind: str, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((site / kind / f"{name}.json").read_text(encoding="utf-8"))
    return facts


def test_every_link_of_the_site_leads_to_a_file_and_a_part_of_it(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}

    assert len(pages) == 1 + 2 + 2 + 6
    for page, text in pages.items():
        for link in set(re.findall(r' href="([^"]*)"', text)):
            address = urlsplit(link)
            if address.scheme == "https":  # sources and origins
                continue
            target = (page.parent / address.path).resolve() if address.path else page
            assert target.is_file(), (page, link)
            # Filters, such as category=category-recall, name a choice.
            *choice, part = address.fragment.split("=")
            assert not part or f'{"value" if choice else "id"}="{part}"' in pages[target], (page, link)


def test_the_front_page_is_the_verdict_and_runs_nothing_that_it_repeats(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")

    orders = re.findall(r'<dt><a href="core/index.html#category=category-(\w+)">([\w ]+)</a></dt><dd>[^<]+</dd>', text)
    assert orders == [("copying", "Copying"), ("recall", "Recall"), ("state_tracking", "State tracking")]
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    assert text.index("core/cells.csv") < text.index("paper/index.html")
    assert "under the protocol that produced its Table 8" in text
    assert "](" not in text


def test_the_facts_beside_a_page_are_those_of_the_ranking(site: Path) -> None:
    board = json.loads((site / "core" / "leaderboard.json").read_text(encoding="utf-8"))
    by_name = {one["name"]: one for one in board["mechanisms"]}
    on_mqar = facts_of(site, "tasks", "mqar")["results"]

    assert facts_of(site, "mechanisms", "linear")["results"] == [by_name["linear"]]
    skills = {one["name"]: one["skill"] for one in on_mqar}
    assert skills == {name: one["tasks"]["mqar"]["skill"] for name, one in by_name.items()}
    assert [*skills.values()] == sorted(skills.values(), reverse=True)
    assert all(one["low"] <= one["skill"] <= one["high"] for one in on_mqar)
    assert all(max(one["levels"].values()) <= 1 and len(one["levels"]) == 11 for one in on_mqar)


def test_an_interval_that_is_not_known_is_not_one_from_0_to_0(core: pd.DataFrame) -> None:
    for one in standings(report_of(core[core["seed"] == 42], "core"))["mechanisms"]:
        assert all(math.isnan(facts["low"]) and math.isnan(facts["high"]) for facts in one["tasks"].values())


@pytest.mark.parametrize("kind", PAGES)
def test_a_component_without_rows_has_a_page_that_says_so(site: Path, kind: str) -> None:
    name, other, _ = PAGES[kind]
    empty, full = ((site / kind / f"{each}.html").read_text(encoding="utf-8") for each in (name, other))

    assert "This suite has no rows of it." in empty
    assert "This suite has no rows of it." not in full
    assert facts_of(site, kind, name)["results"] == []


def test_every_registered_task_and_mechanism_gets_a_page_and_without_a_ranking_there_is_none(tmp_path: Path) -> None:
    defaults = inspect.signature(write).parameters

    assert (defaults["tasks"].default, defaults["mechanisms"].default) == (TASKS, MECHANISMS)
    with pytest.raises(SystemExit, match="synthbench report --suite core --out"):
        write(tmp_path)


@pytest.mark.browser
@pytest.mark.end_to_end
@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (390, "light")])
def test_clicks_lead_from_the_front_page_to_the_facts_of_a_task(
    open_file: Callable[..., Page], site: Path, width: int, scheme: str
) -> None:
    opened = open_file(site / "index.html", site, (width, 900), color_scheme=scheme)
    lightness = {"dark": 17, "light": 252}[scheme]  # red of the background

    def follow(name: str, within: str = "body") -> None:
        opened.locator(within).get_by_role("link", name=name, exact=True).first.click()
        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), opened.url
        assert opened.evaluate("getComputedStyle(document.body).backgroundColor").startswith(f"rgb({lightness}, ")

    follow("Recall")
    assert opened.url.endswith("core/index.html#category=category-recall")
    expect(opened.locator("#by-category")).to_have_value("category-recall")
    expect(opened.locator("[data-panel='category-state_tracking']")).to_be_hidden()
    follow("Linear", "[data-panel='category-recall']")
    follow("linear", "#mech-linear")
    assert opened.url.endswith("mechanisms/linear.html")
    follow("s5_words")
    expect(opened.get_by_role("heading", level=1)).to_have_text("s5_words")
    assert opened.locator("svg.plot").count() == 4
    opened.get_by_role("link", name="JSON", exact=True).click()
    assert json.loads(opened.inner_text("pre"))["name"] == "s5_words"
