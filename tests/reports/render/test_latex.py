import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthbench.reports.build import build
from synthbench.reports.render import latex
from synthbench.reports.render.typesetting import escape, width_of
from synthbench.reports.table import Cell, Column, Line, Mark, Table
from synthbench.results.store import Store
from synthbench.suites import load_suite

MakeFrame = Callable[..., pd.DataFrame]
Compile = Callable[[Mapping[str, str]], None]
Overfull = Callable[[Mapping[str, str]], dict[str, list[str]]]

RESULTS = Path(__file__).parents[3] / "results"

HOSTILE = [
    "a|b", "<script>", r"\input{x}", "A&B", "slay_anchor", "50%", "$x$", "#1", "{", "}", "~", "x^2", "[x]", "*",
    "\\\\", "two\n\nlines", "φ-map", "名前", "Łukasz", "café", "?`", '"quoted"', "\x1b[31m", "−1 ± 2", "½", "^^41",
]  # fmt: skip

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\\\n|[{}&$#_^~%]|.", re.DOTALL)
COMMANDS = {
    r"\centering", r"\caption", r"\label", r"\toprule", r"\midrule", r"\bottomrule", r"\textbf", r"\underline",
    r"\scriptsize", r"\footnotesize", r"\small", r"\setlength", r"\tabcolsep", r"\belowcaptionskip",
    r"\emergencystretch", r"\raggedright", r"\raggedleft", r"\allowbreak", r"\tabularnewline", r"\addlinespace",
    r"\clearpage", r"\pm", r"\times", r"\leq", r"\geq", r"\dagger", r"\kappa", r"\omega",
    r"\textbackslash", r"\textasciitilde", r"\textasciicircum", r"\textless", r"\textgreater", r"\textbar",
    r"\,", r"\&", r"\%", r"\$", r"\#", r"\_", r"\{", r"\}", r"\\",
}  # fmt: skip
BETWEEN_LINES = (r"\midrule", r"\addlinespace[2pt]")


def check_structure(text: str) -> None:
    """Read LaTeX as far as an includable table goes: balanced, known commands, lines as wide as the header says."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert re.findall(r"\\(begin|end)\{([a-z*]+)\}", body) == [
        pair for float_name in re.findall(r"\\begin\{(table\*?)\}", body)
        for pair in (("begin", float_name), ("begin", "tabular"), ("end", "tabular"), ("end", float_name))
    ]  # fmt: skip
    depth, in_mathematics, rest = 0, False, re.sub(r"\\(begin|end)\{[a-z*]+\}", "", body)
    rest = re.sub(r"\\label\{[A-Za-z0-9:-]+\}|Table~\\ref\{[A-Za-z0-9:-]+\}", "", rest)
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
            if line not in BETWEEN_LINES:
                assert line.endswith((r" \\", r" \tabularnewline"))
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

    assert escape(name) == escaped
    assert f"{escaped} & {escaped}\\,{{\\scriptsize({escaped})}} \\\\" in text
    assert f"{escaped} & {escaped} \\\\" in text
    assert f"\\caption{{{escaped}. {escaped}}}" in text
    check_structure(text)


@given(st.text(), st.text())
@settings(deadline=None)
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


# Tables that are too wide or too high for a page.

WORDS = ("", "_bottleneck_compression", "x" * 60, "hyphen-ated_" * 8)
FILLERS = (*WORDS, "some words of a text", "many words of a text " * 6)
"""What makes a label, a heading or a cell wide."""


def grid(num_columns: int, num_lines: int, group: int = 0) -> Table:
    """A table of numbers, every so many lines a group."""
    return Table(
        name="t",
        title="T",
        caption="Text.",
        headings=("Mechanism",),
        columns=tuple(Column(f"c{column}") for column in range(num_columns)),
        lines=tuple(
            Line(
                (f"m{line}",),
                tuple(Cell(f"{line}.{column}") for column in range(num_columns)),
                is_first_of_group=group > 0 and line % group == 0,
            )
            for line in range(num_lines)
        ),
    )


def sizes_of(text: str) -> list[str]:
    """The size of print of every float; empty is that of the text."""
    return re.findall(r"\\centering\n(?:\\(small|footnotesize|scriptsize)\\setlength)?", text)


def bodies_of(text: str) -> list[list[list[str]]]:
    """The cells of every line of every float, those of the heading first, without what only sets them in lines."""
    found = []
    for body in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
        plain = re.sub(r"\\allowbreak\{\}|\\ragged(?:left|right) ", "", body).replace(r"\_", "_")
        lines = [re.sub(r" (\\\\|\\tabularnewline)$", "", line) for line in plain.splitlines()]
        found.append([line.split(" & ") for line in lines if line not in BETWEEN_LINES[1:]])
    return found


def entries_of(text: str, num_labels: int) -> list[tuple[tuple[str, ...], str, str]]:
    """Labels, heading and text of every cell of every float."""
    entries = []
    for lines in bodies_of(text):
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
@settings(max_examples=15, deadline=None)
def test_every_cell_stands_once_beside_its_labels_and_below_its_heading(
    columns: list[tuple[str, Literal["number", "word", "text"]]], num_lines: int, group: int, fillers: tuple[str, ...]
) -> None:
    label, wide, caption = fillers
    texts = ["" if kind == "number" else f" {wide}".rstrip() for _, kind in columns]
    table = Table(
        *("t", "T", caption * 9, ("Category", "Task")),
        tuple(Column(f"c{number}{heading}", kind) for number, (heading, kind) in enumerate(columns)),
        tuple(
            Line(
                (f"g{number // group}", f"l{number} {label}".strip()),
                tuple(Cell(f"{number}x{position}{text}") for position, text in enumerate(texts)),
                is_first_of_group=number % group == 0,
            )
            for number in range(num_lines)
        ),
    )

    entries = entries_of(latex.table(table, "paper"), len(table.headings))
    assert len(entries) == len(set(entries))
    assert set(entries) == {
        (line.labels, column.label, cell.value)
        for line in table.lines
        for column, cell in zip(table.columns, line.cells, strict=True)
    }


@pytest.mark.parametrize(
    ("num_columns", "sizes"),
    [(13, [""]), (16, ["small"]), (18, ["footnotesize"]), (21, ["scriptsize"]), (26, ["", ""]), (41, ["small"] * 3)],
)
def test_print_is_as_large_as_fits_before_a_table_is_split(num_columns: int, sizes: list[str]) -> None:
    assert sizes_of(latex.table(grid(num_columns, 3), "paper")) == sizes


def test_columns_are_shared_out_evenly_and_all_parts_have_the_labels() -> None:
    bodies = bodies_of(latex.table(grid(41, 3), "paper"))

    assert [len(lines[0]) - 1 for lines in bodies] == [15, 13, 13]
    assert all([line[0] for line in lines[2:]] == ["m0", "m1", "m2"] for lines in bodies)


def test_lines_are_shared_out_evenly() -> None:
    bodies = bodies_of(latex.table(grid(3, 150), "paper"))

    assert [len(lines) - 2 for lines in bodies] == [50, 50, 50]


def test_a_long_caption_leaves_room_for_fewer_lines() -> None:
    bodies = bodies_of(latex.table(replace(grid(3, 150), caption="Many words. " * 100), "paper"))

    assert [len(lines) - 2 for lines in bodies] == [38, 56, 56]


def test_a_group_stays_together_if_that_takes_no_more_parts() -> None:
    bodies = bodies_of(latex.table(grid(1, 90, group=15), "paper"))

    assert [lines[2] for lines in bodies] == [["m0", "0.0"], ["m45", "45.0"]]


def test_parts_say_which_they_are_and_the_first_has_the_caption_and_the_label() -> None:
    text = latex.table(grid(41, 3), "paper")

    assert re.findall(r"\\caption\{(.*)\}\n", text) == [
        "T (part 1 of 3). Text.",
        r"T (part 2 of 3). Legend: Table~\ref{tab:paper-t}.",
        r"T (part 3 of 3). Legend: Table~\ref{tab:paper-t}.",
    ]
    assert re.findall(r"\\label\{(.*)\}", text) == ["tab:paper-t", "tab:paper-t-2", "tab:paper-t-3"]


def test_long_text_is_set_in_lines_and_long_words_may_be_broken() -> None:
    columns = (Column("Cause", "text"), Column("Accuracy"))
    line = Line(("mine",), (Cell("many words " * 20 + "under_score" * 8 + "x" * 90), Cell("1.0")))
    text = latex.table(Table("t", "T", "", ("Mechanism",), columns, (line,)), "paper")

    check_structure(text)
    assert re.search(r"\\begin\{tabular\}\{lp\{\d+pt\}r\}", text)
    assert r"mine & \raggedright many words many words" in text
    assert r" under\_\allowbreak{}scoreunder\_\allowbreak{}" in text
    assert rf"\allowbreak{{}}{'x' * 20}\allowbreak{{}}" in text


def test_an_underline_does_not_keep_a_cell_from_being_broken() -> None:
    line = Line(("mine",), (Cell("9.5", "0.1", ("many words " * 20,), mark="second"),))
    text = latex.table(Table("t", "T", "", ("Mechanism",), (Column("Accuracy"),), (line,)), "paper")

    check_structure(text)
    assert (
        r"\raggedleft \underline{9.5}\allowbreak{}\underline{\,{\scriptsize$\pm$0.1}} {\scriptsize \underline{(many} "
        in text
    )


def test_a_long_heading_stands_in_several_lines_over_narrow_cells() -> None:
    columns = tuple(Column("bottleneck_compression") for _ in range(8))
    text = latex.table(Table("t", "T", "", ("Mechanism",), columns, (Line(("a",), (Cell("1.0"),) * 8),)), "paper")

    assert bodies_of(text)[0][:2] == [["", *["bottleneck_"] * 8], ["Mechanism", *["compression"] * 8]]


def test_no_column_is_narrower_than_a_piece_of_its_heading() -> None:
    widths = latex._heading_widths("rule that (eigenvalues=signed)")

    assert min(widths) == width_of("(eigenvalues=")
    assert sorted(widths, reverse=True) == widths


@pytest.mark.parametrize(("num_columns", "environment"), [(6, "table"), (7, "table*")])
def test_a_table_wider_than_a_column_spans_both_columns_of_a_page(num_columns: int, environment: str) -> None:
    text = latex.table(grid(num_columns, 3), "paper")

    check_structure(text)
    assert text.startswith(rf"\begin{{{environment}}}")


def test_so_many_floats_that_latex_would_stop_are_let_out_on_the_way() -> None:
    text = latex.document([grid(1, 1)] * 45, "paper")

    check_structure(text)
    assert [len(sizes_of(part)) for part in text.split(r"\clearpage")] == [40, 5]


@pytest.fixture
def overfull(need: Callable[[str, bool, str], None], tmp_path: Path) -> Overfull:
    """Compile files with margins of one inch; by paper, what LaTeX says does not fit."""
    need("pdflatex", shutil.which("pdflatex") is not None, "install texlive-latex-recommended")

    def run(files: Mapping[str, str]) -> dict[str, list[str]]:
        found = {}
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        inputs = "\n".join(rf"\input{{{name}}}\clearpage" for name in sorted(files))
        for paper in ("letterpaper", "a4paper"):
            preamble = rf"\documentclass{{article}}\usepackage[{paper},margin=1in]{{geometry}}\usepackage{{booktabs}}"
            document = rf"{preamble}\begin{{document}}{inputs}\end{{document}}"
            (tmp_path / f"{paper}.tex").write_text(document, encoding="utf-8")
            command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", f"{paper}.tex"]
            finished = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
            assert finished.returncode == 0, finished.stdout.decode(errors="replace")[-2000:]
            log = (tmp_path / f"{paper}.log").read_text(encoding="utf-8", errors="replace")
            found[paper] = re.findall(r"^(?:Overfull|LaTeX Warning: Float too large).*", log, re.MULTILINE)
        return found

    return run


@pytest.fixture(scope="module")
def committed() -> pd.DataFrame:
    """The rows that come with the project."""
    return Store.open(RESULTS, create=False).runs()


@pytest.mark.parametrize(("suite", "is_whole"), [("paper", False), ("paper", True), ("climb", False), ("peers", False)])
def test_the_committed_reports_fit_on_a_page(
    committed: pd.DataFrame, overfull: Overfull, suite: str, *, is_whole: bool
) -> None:
    mechanisms, seeds = (None, range(42, 45)) if is_whole else (load_suite(suite).mechanisms, None)
    files = build(committed, None, suite, mechanisms=mechanisms, seeds=seeds, formats=["tex"])
    texts = {name: text for name, text in files.items() if name.endswith(".tex") and isinstance(text, str)}

    for text in texts.values():
        check_structure(text)
    assert overfull(texts) == {"letterpaper": [], "a4paper": []}


def widest_tables() -> list[Table]:
    """More of everything than a report has: 41 mechanisms, 48 tasks, long names, texts and captions."""
    marks: tuple[Mark, ...] = ("best", "second", "")
    caption = "A caption of many words, some of which, like bottleneck_compression_of_strings, are long. " * 18
    mechanisms = [f"DeltaNet with a name (eigenvalues=signed, number={number})" for number in range(41)]
    tasks = [f"bottleneck_compression_{number}" for number in range(48)]

    def cells(line: int, number: int) -> tuple[Cell, ...]:
        return tuple(Cell("100.0", "12.3", mark=marks[(line + n) % 3], is_tied=n % 2 > 0) for n in range(number))

    remarks = ("neighbour in the sequence of all tokens", "5 failed")
    words = "Words of several sizes, and hyphen-ated ones, " * 8
    return [
        Table(
            *("full", "All tasks", caption, ("Category", "Task")),
            tuple(Column(name) for name in mechanisms),
            tuple(Line((f"c{n // 8}", task), cells(n, 41), n % 8 == 0) for n, task in enumerate(tasks)),
        ),
        Table(
            *("turned", "All tasks", caption, ("Mechanism",)),
            tuple(Column(name) for name in tasks),
            tuple(Line((name,), cells(n, 48)) for n, name in enumerate(mechanisms)),
        ),
        Table(
            *("improvement", "Probability of improvement", caption, ("Mechanism",)),
            tuple(Column(name) for name in mechanisms),
            tuple(Line((name,), (Cell("50.0"),) * 41) for name in mechanisms),
        ),
        Table(
            *("texts", "Texts", caption, ("Task", "Mechanism")),
            (Column("A", "text"), Column("A heading of many words", "text"), Column("B", "word"), Column("C", "word")),
            tuple(
                Line(
                    (task, name),
                    (Cell(words), Cell("x" * 60 + " " + "under_score" * 5), Cell("W" * 50), Cell("名前" * 20)),
                    is_first_of_group=n % 5 == 0,
                )
                for n, (task, name) in enumerate(zip(tasks, mechanisms, strict=False))
            ),
        ),
        Table(
            *("remarks", "Remarks", caption, ("Task",)),
            tuple(Column(f"Shortcut {number}") for number in range(8)),
            tuple(
                Line((task,), tuple(Cell("100.0", "0.1", remarks, marks[(n + m) % 3], m % 2 > 0) for m in range(8)))
                for n, task in enumerate(tasks)
            ),
        ),
        grid(3, 300, group=70),
        Table(
            *("words", "Words", caption, ("W" * 50,)),
            (Column("W" * 50),),
            (Line(("W" * 100,), (Cell("W" * 200, "12.3", ("W" * 100,), "best"),)),),
        ),
    ]


def test_tables_larger_than_any_fit_on_a_page(overfull: Overfull) -> None:
    texts = {f"{table.name}.tex": latex.document([table], "paper") for table in widest_tables()}

    for text in texts.values():
        check_structure(text)
    assert overfull(texts) == {"letterpaper": [], "a4paper": []}
