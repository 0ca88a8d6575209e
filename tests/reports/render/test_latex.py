import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthbench.reports.build import build
from synthbench.reports.render import latex
from synthbench.reports.render.latex import MOST_COLUMNS, escape
from synthbench.reports.table import Cell, Column, Line, Mark, Table
from tests.reports._made import make_frame

Compile = Callable[..., str]

REPORTS = Path(__file__).parents[3] / "reports"

HOSTILE = [
    "a|b", "<script>", r"\input{x}", "A&B", "slay_anchor", "50%", "$x$", "#1", "{", "}", "~", "x^2", "[x]", "*",
    "\\\\", "two\n\nlines", "φ-map", "名前", "Łukasz", "café", "?`", '"quoted"', "\x1b[31m", "−1 ± 2", "½", "^^41",
]  # fmt: skip


def test_the_tables_of_hostile_names_compile(compile_latex: Compile) -> None:
    rows = [
        make_frame(
            {f"m{number}": [0.5, 0.5 + number / 100]},
            mech_label=name, task=name, task_category=name, task_source=name, error_type=name,
            mech_args=json.dumps({name: name}),
        )
        for number, name in enumerate(HOSTILE)
    ]  # fmt: skip
    files = build(pd.concat(rows), None, "paper", formats=["tex", "pages"])

    compile_latex({name: text for name, text in files.items() if name.endswith(".tex") and isinstance(text, str)})


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a|b", r"a\textbar{}b"),
        ("<script>", r"\textless{}script\textgreater{}"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("slay_anchor", r"slay\_anchor"),
        ("[x]*", "{[}x{]}{*}"),
        ("φ", "U+03C6"),
        ("two\n\nlines", "two lines"),
    ],
)
def test_hostile_names_are_escaped_in_cells_labels_headings_and_captions(name: str, escaped: str) -> None:
    table = Table(name, name, name, (name,), (Column(name, "text"),), (Line((name,), (Cell(name, remarks=(name,)),)),))
    text = latex.document([table], name)

    assert escape(name) == escaped
    assert f"{escaped} & {escaped}\\,{{\\scriptsize({escaped})}} \\\\" in text
    assert f"{escaped} & {escaped} \\\\" in text
    assert f"\\caption{{{escaped}. {escaped}}}" in text


@given(st.text())
def test_any_text_is_printed_by_signs_without_meaning_and_commands_that_take_nothing(text: str) -> None:
    assert re.fullmatch(
        r"(\\[{}&%$#_]|\\text[a-z]+{}|{([]*`[]|'')}|\$[^$]+\$|``|[^]\\{}&%$#_~^<>|*`\"[])*", escape(text)
    )
    assert all(" " <= sign <= "~" or "À" <= sign <= "ÿ" for sign in escape(text))


# Tables that are too wide or too high for a page.

WORDS = ("", "_bottleneck_compression", "x" * 60, "hyphen-ated_" * 8)
FILLERS = (*WORDS, "some words of a text", "many words of a text " * 6)
"""Wide labels, headings and cells."""


def table_of(
    name: str,
    caption: str,
    headings: tuple[str, ...],
    columns: Iterable[Column],
    lines: Iterable[tuple[tuple[str, ...], Iterable[Cell]]],
    group: int = 0,
) -> Table:
    """A table of labels and cells, every so many lines a group."""
    made = (
        Line(labels, tuple(cells), is_first_of_group=group > 0 and number % group == 0)
        for number, (labels, cells) in enumerate(lines)
    )
    return Table(name, name.title(), caption, headings, tuple(columns), tuple(made))


def grid(num_columns: int, num_lines: int, group: int = 0) -> Table:
    """A table of numbers."""
    numbers = range(num_columns)
    lines = [((f"m{line}",), [Cell(f"{line}.{column}") for column in numbers]) for line in range(num_lines)]
    return table_of("t", "Text.", ("Mechanism",), [Column(f"c{column}") for column in numbers], lines, group)


def entries_of(text: str, num_labels: int) -> list[tuple[tuple[str, ...], str, str]]:
    """Labels, heading and text of every cell of every float, without what only sets them in lines."""
    entries = []
    for body in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
        plain = re.sub(r"\\allowbreak\{\}|\\ragged(?:left|right) ", "", body).replace(r"\_", "_")
        lines = [re.sub(r" (\\\\|\\tabularnewline)$", "", line).split(" & ") for line in plain.splitlines()]
        end = lines.index([r"\midrule"])
        headings = ["".join(parts) for parts in zip(*lines[:end], strict=True)]
        group = ""
        for line in lines[end + 1 :]:
            if line == [r"\midrule"]:
                continue
            group = line[0] or group
            labels = (group, *line[1:num_labels])
            entries += [(labels, *pair) for pair in zip(headings[num_labels:], line[num_labels:], strict=True)]
    return entries


FILLER = st.sampled_from(FILLERS)
COLUMNS = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from(("number", "word", "text"))), min_size=1, max_size=20
)


@given(COLUMNS, st.integers(1, 40), st.integers(1, 20), st.tuples(FILLER, FILLER, FILLER))
@settings(max_examples=15)
def test_every_cell_stands_once_beside_its_labels_and_below_its_heading(
    columns: list[tuple[str, Literal["number", "word", "text"]]], num_lines: int, group: int, fillers: tuple[str, ...]
) -> None:
    label, wide, caption = fillers
    texts = ["" if kind == "number" else f" {wide}".rstrip() for _, kind in columns]
    made = [Column(f"c{number}{heading}", kind) for number, (heading, kind) in enumerate(columns)]
    lines = [
        ((f"g{number // group}", f"l{number} {label}".strip()),
         [Cell(f"{number}x{position}{text}") for position, text in enumerate(texts)])
        for number in range(num_lines)
    ]  # fmt: skip
    table = table_of("t", caption * 9, ("Category", "Task"), made, lines, group)

    entries = entries_of(latex.document([table], "paper"), len(table.headings))
    assert len(entries) == len(set(entries))
    assert set(entries) == {
        (line.labels, column.label, cell.value)
        for line in table.lines
        for column, cell in zip(table.columns, line.cells, strict=True)
    }


def test_a_float_has_at_most_eight_columns_and_of_many_tasks_the_mechanisms_are_the_lines() -> None:
    by_task = replace(grid(13, 9), headings=("Category", "Task"), is_of_tasks=True)
    by_task = replace(by_task, lines=tuple(replace(line, labels=("memory", *line.labels)) for line in by_task.lines))
    text = latex.document([by_task], "paper")

    bodies = re.findall(r"\\toprule\n(.*?) \\\\\n\\midrule\n(.*?)\\bottomrule", text, re.DOTALL)
    assert [(heading, body.count("\n")) for heading, body in bodies] == [
        ("Mechanism & m0 & m1 & m2 & m3 & m4", 13),
        ("Mechanism & m5 & m6 & m7 & m8", 13),
    ]
    assert len(bodies[0][0].split(" & ")) <= 1 + MOST_COLUMNS


def test_so_many_floats_that_latex_would_stop_are_let_out_on_the_way() -> None:
    text = latex.document([grid(1, 1)] * 45, "paper")

    assert [part.count(r"\centering") for part in text.split(r"\clearpage")] == [40, 5]


def widest_tables() -> list[Table]:
    """More of everything than a report has: 41 mechanisms, 48 tasks, long names, texts and captions."""
    marks: tuple[Mark, ...] = ("best", "second", "")
    caption = "A caption of many words, some of which, like bottleneck_compression_of_strings, are long. " * 18
    mechanisms = [f"DeltaNet with a name (eigenvalues=signed, number={number})" for number in range(41)]
    tasks = [f"bottleneck_compression_{number}" for number in range(48)]
    remarks = ("neighbour in the sequence of all tokens", "5 failed")
    long = "x" * 100
    words = "Words of several sizes, and hyphen-ated ones, " * 8
    sizes = [
        ((f"c{n // 8}", task), [Cell("100.0", "12.3", mark=marks[(n + m) % 3], is_tied=m % 2 > 0) for m in range(41)])
        for n, task in enumerate(tasks)
    ]
    wide = (Cell(words), Cell("x" * 60 + " " + "under_score" * 5), Cell("x" * 50), Cell("名前" * 20))
    kinds = (Column("A", "text"), Column("A heading of many words", "text"), Column("B", "word"), Column("C", "word"))
    described = [(pair, wide) for pair in zip(tasks, mechanisms, strict=False)]
    remarked = [
        ((task,), [Cell("100.0", "0.1", remarks, marks[(n + m) % 3], m % 2 > 0) for m in range(8)])
        for n, task in enumerate(tasks)
    ]
    return [
        table_of("full", caption, ("Category", "Task"), map(Column, mechanisms), sizes, 8),
        table_of("texts", caption, ("Task", "Mechanism"), kinds, described, 5),
        table_of("remarks", caption, ("Task",), [Column(f"Shortcut {number}") for number in range(8)], remarked),
        grid(3, 300, group=70),
        table_of(
            "words", caption, (long[:50],), [Column(long[:50])], [((long,), [Cell(2 * long, "12.3", (long,), "best")])]
        ),
    ]


@pytest.mark.parametrize("folder", ["", *sorted({file.parent.name for file in REPORTS.glob("*/*.tex")})])
def test_the_committed_reports_and_tables_larger_than_any_fit_on_a_page(folder: str, compile_latex: Compile) -> None:
    """With margins of one inch nothing is too wide for A4 paper, the narrower one, or too high for letter paper."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in (REPORTS / folder).glob("*.tex")}
    texts = texts or {f"{table.name}.tex": latex.document([table], "paper") for table in widest_tables()}
    log = compile_latex(texts, "paperwidth=210mm,paperheight=11in")

    assert re.findall(r"^(?:Overfull|LaTeX Warning: Float too large).*", log, re.MULTILINE) == []
