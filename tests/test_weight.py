"""Weight of the repository: lines of code and words of Markdown may shrink, and grow only for a stated reason.

``weight.json`` has the numbers of today. ``SYNTHBENCH_REWRITE_GOLDEN=1 pytest tests/test_weight.py`` lowers them; a
number is raised by hand, and the commit says why.
"""

import ast
import io
import json
import os
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract._golden import SWITCH

ROOT = Path(__file__).parents[1]
HELD = Path(__file__).with_name("weight.json")
SLACK = 0.02
"""A number that is held may lie above the count by this part of it, so that not every deletion asks for a new file."""
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
AROUND = {"studies", "benchmarks", "docs"}
"""Folders of code beside the package and its tests, which have one number."""


def code_lines(text: str) -> int:
    """Count the lines with code: no blank line, no comment, no docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def words(text: str) -> dict[str, int]:
    """Count the words of Markdown in prose and in tables."""
    found = {"words of prose": 0, "words in tables": 0}
    for line in text.splitlines():
        found["words in tables" if line.lstrip().startswith("|") else "words of prose"] += len(re.findall(r"\S+", line))
    return found


def weight() -> dict[str, int]:
    """Count all files that are in the repository or could be added to it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    counts: Counter[str] = Counter()
    for path in (ROOT / name for name in listed):
        if path.suffix == ".py" and path.is_file():
            room = path.relative_to(ROOT).parts[0]
            part = "package" if room == "synthbench" else "around" if room in AROUND else "tests"
            counts[f"code lines of {part}"] += code_lines(path.read_text(encoding="utf-8"))
        elif path.suffix == ".md" and path.is_file():
            counts.update(words(path.read_text(encoding="utf-8")))
    return dict(counts)


def complaints(held: dict[str, int], now: dict[str, int]) -> list[str]:
    """Say which number grew, and which is so much lower that it should be written down."""
    grown = [
        f"{now[name]} {name}, {now[name] - most} more than {HELD.name} allows: take something out, or raise the number "
        "and say in the commit why"
        for name, most in held.items()
        if now[name] > most
    ]
    shrunk = [
        f"{now[name]} {name}, while {HELD.name} allows {most}: {SWITCH}=1 pytest tests/test_weight.py lowers it"
        for name, most in held.items()
        if now[name] < (1 - SLACK) * most
    ]
    return grown + shrunk


def test_no_part_of_the_repository_grows_unnoticed() -> None:
    now, held = weight(), json.loads(HELD.read_text(encoding="utf-8"))
    if os.environ.get(SWITCH) == "1":
        held = {name: min(most, now[name]) for name, most in held.items()}
        HELD.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")

    assert held.keys() == now.keys()
    assert complaints(held, now) == []


def test_code_is_counted_without_blanks_comments_and_docstrings() -> None:
    text = (
        '"""Module."""\n\n# Why.\nNAME = """two\nlines"""\n\n\ndef one() -> int:\n    """Docs."""\n    return 1  # 1\n'
    )

    assert code_lines(text) == 4
    assert words("One two\n\n| three | 4 |\n") == {"words of prose": 2, "words in tables": 5}


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda count: count + 1, "1 more than"), (lambda count: count * 9 // 10, "lowers it"), (lambda count: count, "")],
)
def test_growth_and_a_forgotten_decrease_are_named(change: Callable[[int], int], said: str) -> None:
    (found,) = complaints({"words of prose": 1000}, {"words of prose": change(1000)}) or [""]

    assert said in found
    assert bool(found) == bool(said)
