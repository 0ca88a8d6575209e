"""The leaderboard page in a real browser without a network."""

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from synthbench.cli.example import describe
from synthbench.registry import version_of
from synthbench.reports.render.page import page
from synthbench.tasks import TASKS
from tests.reports._made import HOSTILE, report_of

pytestmark = [pytest.mark.browser, pytest.mark.end_to_end]

DESKTOP, PHONE = (1280, 900), (360, 740)
OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true })"

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def files(
    paper: pd.DataFrame, paper_curves: pd.DataFrame, hostile: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Pages by name: of the made-up paper suite, some of its rows under other blocks, and of hostile rows."""
    folder = tmp_path_factory.mktemp("pages")
    versions = {task: version_of(TASKS[task]) for task in ("copy", "reverse", "parity")}
    known = paper.assign(task_version=paper["task"].map(versions).fillna(paper["task_version"]))
    other = known[known["mech"] == "slay"].assign(block="transformer", mech_label="SLAY in a block")
    other["run_id"] += "-block"
    rows = {"paper": pd.concat([known, other], ignore_index=True), "hostile": hostile}
    for name, frame in rows.items():
        report = report_of(frame, frame["suite"].iloc[0], paper_curves, describe=describe)
        (folder / f"{name}.html").write_text(page(report), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in rows}


@pytest.fixture
def open_page(open_file: Open, files: dict[str, Path]) -> Open:
    """Opens a page by name."""
    return lambda name="paper", size=DESKTOP, fragment="", **options: open_file(
        files[name], files[name], size, fragment, **options
    )


def lines(opened: Page, panel: str = "") -> Locator:
    """The lines of a ranking that are shown."""
    return opened.locator(f"[data-panel='{panel}'] tbody tr:visible")


def names(opened: Page, panel: str = "") -> list[str]:
    return [line.locator("th a").inner_text() for line in lines(opened, panel).all()]


def values(opened: Page, heading: str) -> list[float]:
    """Read the sort keys of the ranked mechanisms in a column."""
    headings = opened.locator("[data-panel=''] th[scope=col]").all_inner_texts()
    place = [re.sub(" [↓↑].*", "", one) for one in headings].index(heading)
    rows = opened.locator("[data-panel=''] tbody:not(.unranked) tr").all()
    return [float(str(row.locator("> *").nth(place).get_attribute("data-v"))) for row in rows]


def test_a_heading_sorts_and_says_so(open_page: Open) -> None:
    opened = open_page()
    heading = opened.locator("[data-panel=''] th", has_text="Mean skill")
    best_first = values(opened, "Mean skill")
    unranked = names(opened)[len(best_first) :]

    expect(heading).to_have_attribute("aria-sort", "descending")
    assert best_first == sorted(best_first, reverse=True)
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    assert values(opened, "Mean skill") == best_first[::-1]
    opened.locator("[data-panel=''] th", has_text="Rank").get_by_role("button").click()
    assert values(opened, "Rank") == sorted(values(opened, "Rank"))
    assert opened.locator("[data-panel=''] th[aria-sort]").count() == 1
    # What has no rank stays below whatever it is sorted by.
    assert set(names(opened)[len(best_first) :]) == set(unranked)


def test_the_first_screen_holds_the_verdict_and_the_profile(open_page: Open) -> None:
    opened = open_page(size=(1400, 900))
    board = opened.locator("[data-panel=''] .scroll")

    expect(opened.locator(".verdict")).to_be_in_viewport(ratio=1)
    for line in lines(opened).all()[:6]:
        expect(line.locator("td.heat").last).to_be_in_viewport(ratio=1)
    # All columns are there, the rank with its interval last.
    assert board.evaluate("one => one.scrollWidth <= one.clientWidth")
    expect(lines(opened).first.locator("> *").last).to_have_class("rank")
    expect(opened.locator(".hint").first).to_be_hidden()
    assert opened.evaluate("document.querySelector('.top').offsetHeight") < 300


def test_an_address_keeps_what_is_chosen_searched_and_sorted(open_page: Open) -> None:
    opened = open_page()
    opened.get_by_role("searchbox").fill("SLAY")
    opened.locator("[data-panel=''] th", has_text="Rank").get_by_role("button").click()
    again = open_page(fragment=opened.url[opened.url.index("#") :])

    expect(again.get_by_role("searchbox")).to_have_value("SLAY")
    expect(again.locator("[data-panel=''] th", has_text="Rank")).to_have_attribute("aria-sort", "ascending")
    assert names(again) == names(opened)
    again.get_by_role("button", name="Clear").click()
    expect(again).not_to_have_url(re.compile("SLAY"))


def test_the_keyboard_sorts_opens_and_skips(open_page: Open) -> None:
    opened = open_page()

    opened.keyboard.press("Tab")
    expect(opened.locator(".skip")).to_be_focused()
    opened.keyboard.press("Enter")
    assert opened.url.endswith("#leaderboard")
    opened.locator("[data-panel=''] th button", has_text="Solved").focus()
    opened.keyboard.press("Enter")
    expect(opened.locator("[data-panel=''] th", has_text="Solved")).to_have_attribute("aria-sort", "descending")
    summary = opened.locator("#mech-slay > summary")
    summary.focus()
    opened.keyboard.press("Space")
    expect(opened.locator("#mech-slay dl").first).to_be_visible()
    assert summary.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"


def test_words_are_searched_in_mechanisms_and_tasks_and_what_was_found_is_one_click_away(open_page: Open) -> None:
    opened = open_page()
    search, sections = opened.get_by_role("searchbox"), opened.locator("#mechanisms .unit:visible")

    for words, found in (
        ("linear", {"Linear"}),  # others are of a family of that name
        ("yat spherical", {"Spherical-YAT"}),
        ("SLAY", {"SLAY", "SLAY in a block", "Hadamard", "Laplace-only"}),  # slay-hadamard and slay-laplace in commands
    ):
        search.fill(words)
        assert set(names(opened)) == found
        assert sections.count() == len(found)
    expect(opened.locator("#found")).to_have_text("mechanisms: 4, tasks: 0")
    search.fill("parity")
    assert opened.locator("#tasks .unit:visible").count() == 1
    opened.get_by_role("link", name="tasks: 1").click()
    expect(opened.locator("#tasks .unit[open]")).to_have_count(1)
    expect(opened.locator("#tasks .unit[open] > summary")).to_be_in_viewport()
    opened.get_by_role("button", name="Clear").click()
    expect(opened.locator("#found")).to_be_empty()
    assert len(names(opened)) == sections.count() > 2


def test_a_category_shows_its_own_ranking_and_its_tasks(open_page: Open) -> None:
    opened = open_page()

    opened.locator("#by-category").select_option("basic")
    assert names(opened) == []
    assert "SLAY" in names(opened, "category-basic")
    assert opened.locator("#tasks .unit:visible .title").all_inner_texts() == ["copy", "reverse"]
    opened.locator("#by-category").select_option("all")
    assert "SLAY" in names(opened)


def test_an_address_opens_its_section(open_page: Open) -> None:
    opened = open_page(fragment="#mech-slay")

    expect(opened.locator("#mech-slay")).to_have_attribute("open", "")
    expect(opened.locator("#mech-slay > summary")).to_be_in_viewport()
    opened.locator("#mech-slay tbody a", has_text="reverse").click()
    expect(opened.locator("#task-reverse")).to_have_attribute("open", "")
    expect(opened.locator("#task-reverse > summary")).to_be_in_viewport()


def test_without_script_everything_is_there(open_page: Open) -> None:
    opened = open_page(java_script_enabled=False)

    assert len(names(opened)) == opened.locator("#mechanisms .unit").count()
    expect(opened.locator(".filters")).to_be_hidden()
    opened.locator("#mech-slay > summary").click()
    expect(opened.locator("#mech-slay table")).to_be_visible()
    opened.locator("#category-basic > summary").click()
    assert "SLAY" in names(opened, "category-basic")


@pytest.mark.parametrize("name", ["paper", "hostile"])
def test_a_phone_scrolls_tables_but_not_the_page(open_page: Open, name: str) -> None:
    opened = open_page(name, PHONE)
    opened.evaluate(OPEN_ALL)

    assert opened.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert opened.locator("#search").bounding_box()["width"] <= PHONE[0]  # type: ignore[index]


def test_a_phone_says_that_the_table_scrolls_and_has_no_empty_band(open_page: Open) -> None:
    opened = open_page("paper", PHONE)
    frame = opened.locator("[data-panel=''] .scroll")
    fade = "one => getComputedStyle(one).getPropertyValue('--fade')"

    expect(opened.locator(".hint").first).to_be_visible()
    assert frame.evaluate("one => one.scrollWidth > one.clientWidth")
    assert frame.locator("thead").evaluate("one => one.offsetHeight") < 60
    if opened.evaluate("CSS.supports('animation-timeline: scroll()')"):
        assert frame.evaluate(fade) == "40px"
        frame.evaluate("one => { one.scrollLeft = one.scrollWidth }")
        opened.wait_for_function(
            "() => getComputedStyle(document.querySelector('.scroll')).getPropertyValue('--fade') === '0px'"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_paper_text_is_dark_on_white(open_page: Open, scheme: str) -> None:
    opened = open_page(color_scheme=scheme)
    opened.emulate_media(media="print", color_scheme="dark" if scheme == "dark" else "light")
    found = opened.evaluate(
        """() => {
          const numbers = (one, name) => getComputedStyle(one)[name].match(/[\\d.]+/g).map(Number).slice(0, 3);
          const printed = ["body", ".verdict", ".who a", "td.skill b", "td.n", "dt"];
          return {
            paper: Math.min(...numbers(document.body, "backgroundColor")),
            ink: Math.max(...printed.flatMap((one) => numbers(document.querySelector(one), "color"))),
            heat: getComputedStyle(document.querySelector("td.heat")).printColorAdjust,
            heatInk: Math.max(...[...document.querySelectorAll("td.heat")].flatMap((one) => numbers(one, "color"))),
          };
        }"""
    )

    assert found["paper"] > 245
    assert found["ink"] < 128
    # The colours of the profile are printed; where a browser leaves them out, dark text stands on white.
    assert found["heat"] == "exact"
    assert found["heatInk"] < 128
    expect(opened.locator(".hint, .filters, nav").first).to_be_hidden()


def test_hostile_rows_open_no_dialog_and_run_nothing(open_page: Open) -> None:
    opened = open_page("hostile")

    opened.evaluate(OPEN_ALL)
    for heading in opened.locator("thead button").all():
        heading.click()
    for select_box in opened.locator("select").all():
        for index in range(select_box.locator("option").count()):
            select_box.select_option(index=index)
    opened.get_by_role("button", name="Clear").click()
    for text in HOSTILE[:5]:
        opened.get_by_role("searchbox").fill(text)
    assert opened.locator("script").count() == 1
    assert opened.locator("img, body svg[onload]").count() == 0


def test_the_policy_stops_a_script_and_a_style_that_are_not_ours(
    browser: Browser, files: dict[str, Path], tmp_path: Path
) -> None:
    text = files["paper"].read_text(encoding="utf-8")
    run = "document.title = 'ran'"
    foreign = f'<script>{run}</script><p id=probe style="color: red">probe</p><img src=x onerror="{run}">'
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace("<main>", f"<main>{foreign}", 1), encoding="utf-8")
    opened = browser.new_page()
    opened.goto(changed.as_uri())

    assert opened.title() != "ran"
    assert opened.locator("#probe").evaluate("one => getComputedStyle(one).color") != "rgb(255, 0, 0)"
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_every_level_of_the_heat_strip(open_page: Open, scheme: str) -> None:
    opened = open_page(color_scheme=scheme)

    ratios = opened.evaluate(
        """() => {
          const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
          const luminance = (color) => {
            context.fillStyle = color;
            context.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => byte / 255)
              .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const cells = [document.querySelector("td.heat"), document.querySelector(".unranked td.heat")];
          return cells.flatMap((cell) => [...Array(11).keys()].map((level) => {
            cell.className = `heat h${level}`;
            const style = getComputedStyle(cell);
            const [low, high] = [luminance(style.color), luminance(style.backgroundColor)].sort((a, b) => a - b);
            return (high + 0.05) / (low + 0.05);
          }));
        }"""
    )
    assert min(ratios) >= 4.5
    assert len(set(ratios[:11])) == len(set(ratios[11:])) == 11
