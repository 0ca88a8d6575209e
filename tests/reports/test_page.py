import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.cli.example import describe
from synthbench.registry import version_of
from synthbench.reports.render.markdown import escape
from synthbench.reports.render.page import charts, page
from synthbench.reports.render.page.commands import run_command, seed_ranges, task_terms, term
from synthbench.reports.render.page.untrusted import LONGEST_NAME, anchors, is_link, name, plain, sentence
from synthbench.reports.render.readme import readme
from synthbench.tasks import TASKS
from tests.reports._made import HOSTILE, make_frame, report_of

VOID = {"meta", "input", "br", "link", "img", "hr"}


class Parser(HTMLParser):
    """Builds a tree, and refuses one that is not well-formed."""

    def __init__(self) -> None:
        super().__init__()
        self.builder = ET.TreeBuilder()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"<{tag}> repeats an attribute"
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.builder.end(tag).tag == tag

    def handle_data(self, data: str) -> None:
        self.builder.data(data)


def parse(text: str) -> Element:
    parser = Parser()
    parser.feed(text)
    parser.close()
    assert text.endswith("</html>\n")  # which closes what is open
    return parser.builder.close()


def one(element: Element, path: str) -> Element:
    (found,) = element.findall(f".//{path}")
    return found


def text_of(element: Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def page_of(rows: pd.DataFrame, curves: pd.DataFrame | None = None) -> str:
    (suite,) = set(rows["suite"])
    return page(report_of(rows, suite, curves, describe=describe))


def board(root: Element) -> Element:
    return one(root, "div[@data-panel='']//table")


@pytest.fixture(scope="module")
def whole(paper: pd.DataFrame, paper_curves: pd.DataFrame) -> str:
    """The page of a whole report."""
    return page_of(paper, paper_curves)


def test_the_page_is_well_formed_and_its_anchors_lead_somewhere(whole: str) -> None:
    root = parse(whole)
    ids = [element.attrib["id"] for element in root.iterfind(".//*[@id]")]
    targets = {link.attrib["href"] for link in root.iter("a")}

    assert len(set(ids)) == len(ids)
    assert {"mech-slay", "task-copy", "leaderboard", "mechanisms", "tasks", "about"} <= set(ids)
    assert targets <= {f"#{anchor}" for anchor in ids}
    # Nothing is loaded from outside.
    assert not re.search(r"\b(src|srcset|action|poster|background)=|url\(|@import", whole)
    assert {"link", "img", "iframe", "object", "embed", "base"}.isdisjoint(element.tag for element in root.iter())
    assert not [key for element in root.iter() for key in element.attrib if key == "style" or key.startswith("on")]


TWO: dict[str, list[float | None]] = {"a": [0.9, 0.8], "b": [0.1, 0.2]}
BAD_INPUT: dict[str, tuple[dict[str, list[float | None]], dict[str, Any], str]] = {
    "one seed": ({"a": [0.9], "b": [0.1]}, {}, "With one seed each, nothing is known of other seeds."),
    "one mechanism": ({"a": [0.9, 0.8]}, {}, "Basic: a .85, the only mechanism with a run of every task."),
    "a failure": ({"a": [None, 0.9], "b": [0.2, 0.3]}, {}, "Basic: a .45 or b .25"),
    "only failures": ({"a": [None, None], "b": [None, None]}, {}, "all 2 mechanisms have the same mean skill"),
    "missing rows": ({"a": [0.9, 0.8], "b": [0.1]}, {}, "Basic: a .85; next: b .10"),
    "a seed each": (TWO, {"drop": {"a": 42, "b": 43}}, "With one seed each"),
    "only controls": (TWO, {"mech_family": "control"}, "only controls have a run of every task"),
    "no gap": ({"a": [1.0, 1.0], "b": [1.0, 1.0]}, {"floor": 1.0}, "Basic: no task has 20 points"),
    "below the floor": ({"a": [0.1] * 2, "b": [0.2] * 2}, {"floor": 0.5}, "all 2 mechanisms have the same mean skill"),
    "sizes unknown": (TWO, {"n_params_mixer": None, "state_size": None}, "Basic: a .85; next: b .15"),
}
"""Scores, what else the rows say, and what the verdict must say."""


@pytest.mark.parametrize("case", BAD_INPUT)
def test_where_little_is_there_the_report_says_what_cannot_be_said(case: str) -> None:
    scores, changes, said = BAD_INPUT[case]
    dropped = changes.get("drop", {})
    rows = make_frame(scores, **{name: value for name, value in changes.items() if name != "drop"})
    rows = rows[rows["seed"] != rows["mech"].map(dropped)]
    rows = rows.assign(metrics=[json.dumps({"x2.skill": -0.1, "x4.skill": None})] * len(rows))
    points = pd.DataFrame({"run_id": rows["run_id"], "step": 5, "value": 0.5}).assign(split="validation", metric="loss")
    report = report_of(rows, curves=points)
    root, first = parse(page(report)), readme(report, [])
    texts = {part: text_of(one(root, part)) for part in ("header", "main", "footer")} | {"readme": first}
    texts |= {drawing.name: drawing.numbers + drawing.caption for drawing in report.drawings}

    assert said in report.verdict
    assert report.board is not None
    lines = root.iterfind(".//dl[@class='verdict']/dd")
    assert [text_of(line) for line in lines] == list(report.board.orders.values())
    assert all(escape(line) in first for line in report.verdict.splitlines())
    for place, text in texts.items():
        assert not re.search(r"\b(nan|NaN|inf|None)\b", text), place
        assert not re.search(r"(^|[ ,(])[-−]0?\.\d", text), f"{place}: a number below 0"
    for drawing in report.drawings:
        assert drawing.draw().axes
    is_best_named = any(verdict.has_differences for verdict in report.verdicts.values())
    assert ("best: " in texts["main"]) == is_best_named


def test_verified_rows_are_told_from_the_others() -> None:
    rows = make_frame({"checked": [0.1, 0.2], "partly": [0.3, 0.4], "not": [0.5, 0.6]})
    is_checked = (rows["mech"] == "checked") | ((rows["mech"] == "partly") & (rows["seed"] == 42))
    rows["verified_by"] = rows["run_id"].where(is_checked, None)
    lines = board(parse(page_of(rows))).iterfind(".//tbody/tr")

    badges = {text_of(one(line, "a")): text_of(line.findall(".//small/span")[-1]) for line in lines}
    assert badges == {"checked": "verified", "partly": "1 of 2 rows verified", "not": "self-reported"}
    assert "self-reported" not in page_of(rows.drop(columns="verified_by"))


def test_hostile_strings_are_shown_and_do_nothing(hostile: pd.DataFrame) -> None:
    text = page_of(hostile)
    root = parse(text)
    shown = "".join(root.itertext())

    assert len(root.findall(".//script")) == len(root.findall(".//style")) == 1
    assert not root.findall(".//img")
    assert all(re.fullmatch(r"#[a-z0-9._-]+", link.attrib["href"]) for link in root.iter("a"))
    for hostile_string in HOSTILE[:5]:
        assert hostile_string in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", text)
    assert "n" * 200 not in text


@given(st.lists(st.text(max_size=12), max_size=8))
def test_anchors_are_unlike_each_other_and_plain(names: list[str]) -> None:
    ids = list(anchors("mech", enumerate(names)).values())

    assert len(set(ids)) == len(names)
    assert all(re.fullmatch(r"mech-[a-z0-9._-]+", anchor) for anchor in ids)


@given(st.text())
def test_a_name_is_short_and_printable_on_one_line(text: str) -> None:
    shown = name(text)

    assert 0 < len(shown) <= LONGEST_NAME
    assert "\n" not in shown
    assert plain(shown) == shown


def test_a_sentence_keeps_its_words_and_cuts_those_that_are_too_long() -> None:
    shown = f"{'n' * (LONGEST_NAME - 1)}… has the highest meanU+0007"
    assert sentence(f"{'n' * 200} has the highest\nmean\x07") == shown


GOOD_LINK = "https://example.org/a?b=c"
NO_LINKS = (
    *("http://example.org", "javascript:alert(1)", " https://example.org", "https://", "https://[", ""),
    *("https://example.org/\u202e", "https://example.org/\n", "HTTPS://example.org"),
)


@pytest.mark.parametrize("text", [GOOD_LINK, *NO_LINKS])
def test_only_https_addresses_are_links(text: str) -> None:
    root = parse(page_of(make_frame({"slay": [0.1, 0.2]}, mech_origin=text)))

    assert is_link(text) is (text == GOOD_LINK)
    assert [link.attrib["href"] for link in root.iterfind(".//a[@rel]")] == [text] * (2 * is_link(text))


@pytest.mark.parametrize(
    ("seeds", "expected"), [([44, 42, 43, 50], "42-44,50"), ([7], "7"), ([0, 1, 3, 4], "0-1,3-4"), ([], "")]
)
def test_seeds_are_written_as_the_command_line_reads_them(seeds: list[int], expected: str) -> None:
    assert seed_ranges(seeds) == expected


@pytest.mark.parametrize(
    ("unit", "arguments", "expected"),
    [
        ("slay", '{"R":2,"guard":"clamp","eps":1e-06,"is":true}', "slay:R=2,guard=clamp,eps=1e-06,is=true"),
        ("softmax", "{}", "softmax"),
        ("softmax", "[]", None),
        ("a; rm -rf ~", "{}", None),
        ("slay", '{"R":"2;ls"}', None),
        ("slay", '{"R;ls":2}', None),
        ("slay", '{"R":{"a":1}}', None),
    ],
)
def test_a_mechanism_is_named_as_the_command_line_reads_it_or_not_at_all(
    unit: str, arguments: str, expected: str | None
) -> None:
    assert term(unit, arguments) == expected


def test_no_one_command_trains_several_settings_again() -> None:
    narrow, wide = (make_frame({"slay": [0.5, 0.6]}, mech_args=f'{{"P":{number}}}') for number in (8, 16))
    single, both = page_of(narrow), page_of(pd.concat([narrow, wide]))

    assert "Train everything again" in single
    assert "Train everything again" not in both
    assert all(f"--mech slay:P={number} " in both for number in (8, 16))


def test_commands_for_tasks_outside_a_suite_name_the_tasks_with_their_arguments() -> None:
    rows = make_frame({"slay": [0.5, 0.6]}, suite="smoke.extra", task="mqar", task_args='{"length":16,"num_pairs":2}')
    commands = re.findall(r"synthbench run [^<]*", page_of(rows))

    assert commands
    assert all("--suite smoke.extra --task mqar:length=16,num_pairs=2 " in command for command in commands)
    assert task_terms("smoke", {"mqar": "{}"}) is None
    assert run_command("smoke.extra", [1], task=task_terms("smoke.extra", {"a;ls": "{}"})) is None
    assert run_command("$(ls)", [1]) is None


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("state of slay:P=8", "synthbench run --suite paper --mech slay:P=8 --match state --seeds 1 --results again"),
        ("state=64 of mean", "synthbench run --suite paper --mech mean --match state=64 --seeds 1 --results again"),
        ("state=$(ls) of slay", None),
        ("state of slay;ls", None),
        ("", None),
    ],
)
def test_what_is_matched_is_asked_for_again_and_not_what_was_found(match: str, expected: str | None) -> None:
    assert run_command("paper", [1], mechanism="slay:P=9", match=match) == expected


def test_an_example_stands_in_the_section_of_a_task_at_hand() -> None:
    version = version_of(TASKS["sort"])
    pages = (page_of(make_frame({"slay": [0.1, 0.2]}, task_version=each)) for each in (version, "0"))
    this, other = (one(parse(text), "details[@id='task-sort']") for text in pages)

    assert len(this.findall(".//mark") + this.findall(".//div[@class='sequence']//span")) == 32
    assert not other.findall(".//mark")
    assert "nothing is drawn" in text_of(other)


@pytest.mark.parametrize("skill", [-5.0, -0.1, 0.0, 0.5, 1.0, 7.0, np.inf, -np.inf])
def test_what_lies_beyond_a_bar_is_drawn_at_its_end(skill: float) -> None:
    drawn = charts.bar(skill, skill - 1, skill + 1)

    assert drawn is not None
    assert all(0 <= float(x) <= charts.BAR_WIDTH for x in drawn)
    assert charts.heat(skill) in map(str, range(charts.HEAT_LEVELS + 1))


def test_the_command_of_a_layer_in_another_condition_names_it_and_its_positions() -> None:
    rows = make_frame({"gla": [0.9, 0.8], "linear": [0.2, 0.3]}, positions="none")
    stock, both = rows.assign(condition="stock"), rows.assign(condition=["stock", "stock", "bare", "bare"])

    assert "--condition" not in page_of(rows)
    shown = page_of(stock)
    assert "synthbench run --suite paper --condition stock --mech linear,gla" in shown
    assert "--positions none --condition stock --mech gla --seeds" in shown
    # No command trains two conditions.
    assert not re.search(r"synthbench run[^\n]*--mech linear,gla", page_of(both))
