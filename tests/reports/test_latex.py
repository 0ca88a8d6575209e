import json
import re
from collections.abc import Callable, Mapping

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.reports import build, latex
from synthbench.reports.table import Cell, Column, Line, Table

MakeFrame = Callable[..., pd.DataFrame]
Compile = Callable[[Mapping[str, str]], None]

HOSTILE = [
    "a|b", "<script>", r"\input{x}", "A&B", "slay_anchor", "50%", "$x$", "#1", "{", "}", "~", "x^2", "[x]", "*",
    "\\\\", "two\n\nlines", "φ-map", "名前", "Łukasz", "café", "?`", '"quoted"', "\x1b[31m", "−1 ± 2", "½", "^^41",
]  # fmt: skip

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\\\n|[{}&$#_^~%]|.", re.DOTALL)
COMMANDS = {
    r"\centering", r"\caption", r"\label", r"\toprule", r"\midrule", r"\bottomrule", r"\textbf", r"\underline",
    r"\scriptsize", r"\footnotesize", r"\setlength", r"\tabcolsep", r"\pm", r"\leq", r"\geq", r"\dagger",
    r"\linewidth", r"\textbackslash", r"\textasciitilde", r"\textasciicircum", r"\textless", r"\textgreater",
    r"\textbar", r"\,", r"\&", r"\%", r"\$", r"\#", r"\_", r"\{", r"\}", r"\\",
}  # fmt: skip


def check_structure(text: str) -> None:
    """Read LaTeX as far as an includable table goes: balanced, known commands, lines as wide as the header says."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert re.findall(r"\\(begin|end)\{([a-z*]+)\}", body) == [
        pair for float_name in re.findall(r"\\begin\{(table\*?)\}", body)
        for pair in (("begin", float_name), ("begin", "tabular"), ("end", "tabular"), ("end", float_name))
    ]  # fmt: skip
    depth, in_mathematics, rest = 0, False, re.sub(r"\\(begin|end)\{[a-z*]+\}", "", body)
    rest = re.sub(r"\\label\{[A-Za-z0-9:-]+\}", "", rest)
    for piece in TOKEN.findall(rest):
        if piece in "{}":
            depth += 1 if piece == "{" else -1
        elif piece == "$":
            in_mathematics = not in_mathematics
        elif piece == "^":
            assert in_mathematics, "a superscript outside mathematics"
        elif piece.startswith("\\"):
            assert piece in COMMANDS, piece
        else:
            assert piece not in "#_~%", piece
            assert " " <= piece <= "~" or piece == "\n" or "À" <= piece <= "ÿ", piece
        assert depth >= 0
    assert (depth, in_mathematics) == (0, False)
    for header, lines in re.findall(r"\\begin\{tabular\}\{([^\n]*)\}\n\\toprule\n(.*?)\\bottomrule", body, re.DOTALL):
        width = len(re.sub(r"p\{[^}]*\}", "l", header))
        for line in lines.splitlines():
            if line != r"\midrule":
                assert line.endswith(r" \\")
                assert len(re.findall(r"(?<!\\)&", line)) == width - 1, line
                assert line[0] not in "[*"


def tables_of(rows: pd.DataFrame) -> dict[str, str]:
    """The LaTeX files of a report by name."""
    files = build(rows, None, "paper", formats=["tex"])
    documents = {name: text for name, text in files.items() if name.endswith(".tex") and isinstance(text, str)}
    assert documents
    return documents


def body_of(cells: tuple[Cell, ...], labels: tuple[str, ...] = ("mine",)) -> str:
    """The only line of a table that holds these cells."""
    table = Table(
        name="t",
        title="T",
        caption="",
        headings=tuple("Mechanism" for _ in labels),
        columns=tuple(Column("column") for _ in cells),
        lines=(Line(labels, cells),),
    )
    text = latex.table(table, "paper")
    check_structure(text)
    return text.splitlines()[-4]


@pytest.fixture
def hostile_names(make_frame: MakeFrame) -> pd.DataFrame:
    """Rows in which every name means something to LaTeX."""
    return pd.concat(
        [
            make_frame(
                {f"m{number}": [0.5, 0.5 + number / 100]},
                mech_label=name, task=name, task_category=name, task_source=name, error_type=name,
                mech_args=json.dumps({name: name}),
            )
            for number, name in enumerate(HOSTILE)
        ]
    )  # fmt: skip


def test_the_tables_of_a_report_parse(paper: pd.DataFrame) -> None:
    for text in tables_of(paper).values():
        check_structure(text)


def test_the_tables_of_a_report_compile(paper: pd.DataFrame, compile_latex: Compile) -> None:
    compile_latex(tables_of(paper))


def test_hostile_names_parse(hostile_names: pd.DataFrame) -> None:
    for text in tables_of(hostile_names).values():
        check_structure(text)


def test_hostile_names_compile_and_run_nothing(hostile_names: pd.DataFrame, compile_latex: Compile) -> None:
    compile_latex(tables_of(hostile_names))


def test_best_is_bold_in_text_mode_and_second_underlined() -> None:
    line = body_of((Cell("95.0", "2.9", mark="best"), Cell("94.0", mark="second", is_tied=True), Cell("≥ 3.1"), Cell()))

    assert line == (r"mine & \textbf{95.0\,{\scriptsize$\pm$2.9}} & \underline{94.0$^\dagger$} & $\geq$ 3.1 & -- \\")


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a|b", r"a\textbar{}b"),
        ("<script>", r"\textless{}script\textgreater{}"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("A&B", r"A\&B"),
        ("slay_anchor", r"slay\_anchor"),
        ("[x]*", "{[}x{]}{*}"),
        ("φ", "U+03C6"),
        ("two\n\nlines", "two lines"),
    ],
)
def test_hostile_names_are_escaped_in_cells_labels_headings_and_captions(name: str, escaped: str) -> None:
    table = Table(name, name, name, (name,), (Column(name),), (Line((name,), (Cell(name, remarks=(name,)),)),))
    text = latex.table(table, name)

    assert latex.escape(name) == escaped
    assert f"{escaped} & {escaped}\\,{{\\scriptsize({escaped})}} \\\\" in text
    assert f"{escaped} & {escaped} \\\\" in text
    assert f"\\caption{{{escaped}. {escaped}}}" in text
    check_structure(text)


@given(st.text(), st.text())
def test_any_text_gives_a_table_that_parses(label: str, remark: str) -> None:
    body_of((Cell("1.0", remarks=(remark,)), Cell("2.0")), labels=(label,))


def test_headings_may_repeat() -> None:
    assert body_of((Cell("1.0"), Cell("2.0")), labels=("a", "b")) == r"a & b & 1.0 & 2.0 \\"


def test_a_rule_stands_above_every_group_but_the_first() -> None:
    groups = [("basic", "copy"), ("basic", "sort"), ("memory", "stack"), ("memory", "recall")]
    lines = tuple(Line(labels, (), is_first_of_group=labels[1] in ("copy", "stack")) for labels in groups)
    text = latex.table(Table("t", "T", "", ("Category", "Task"), (), lines), "paper")

    assert text.partition("\\toprule\n")[2].splitlines()[:8] == [
        r"Category & Task \\", r"\midrule", r"basic & copy \\", r" & sort \\", r"\midrule", r"memory & stack \\",
        r" & recall \\", r"\bottomrule",
    ]  # fmt: skip


def test_the_label_names_suite_and_table() -> None:
    table = Table("steps_to_threshold", "T", "", (), (Column("a"),), (Line((), (Cell("1"),)),))

    assert r"\label{tab:paper-32-steps-to-threshold}" in latex.table(table, "paper-32")


@pytest.mark.parametrize(("num_columns", "environment"), [(6, "table"), (7, "table*")])
def test_a_wide_table_spans_both_columns_of_a_page_in_small_print(num_columns: int, environment: str) -> None:
    columns = tuple(Column("column") for _ in range(num_columns))
    line = Line(("mine",), tuple(Cell("1.0") for _ in columns))
    text = latex.table(Table("t", "T", "", ("Mechanism",), columns, (line,)), "paper")

    check_structure(text)
    assert text.startswith(rf"\begin{{{environment}}}")
    assert (r"\footnotesize" in text) == (environment == "table*")
