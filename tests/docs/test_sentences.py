"""Docstrings begin with a verb or a noun, and no sentence of docstrings, help and hand-written pages is long."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = re.compile(
    r"synthbench/tasks/(_measured|_rules|_transduction|copying/_rearrangement|hops/_controlled|state_tracking/_words)\.py"
)
"""Texts on constants here are part of the hash of the search of shortcuts."""
CODE = [
    path for room in ("synthbench", "studies", "benchmarks", "docs", "tests") for path in ROOT.glob(f"{room}/**/*.py")
]
PAGES = [path for room in ("", "docs/**/", "results/**/", "studies/**/") for path in ROOT.glob(f"{room}*.md")]
MOST_WORDS = 30
QUESTION = re.compile(r"(what|where|whether|how|when|which|who|whose|why)(ever)?\b", re.IGNORECASE)
NO_PROSE = re.compile(
    r"^ *```.*?^ *```|^ *(\||#|>>>)[^\n]*|::\n(\s*\n| +[^\n]*\n?)+|<!-- (written|tables?|results|begin).*?<!-- end",
    re.MULTILINE | re.DOTALL,
)


def texts(path: Path) -> Iterator[str]:
    """Find the docstrings of a file, those of attributes too, and the texts of ``help``; or a page."""
    if path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
        yield from [text] if path.name != "plan.md" and "<!-- Written by" not in text else []
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_help = isinstance(node, ast.keyword) and node.arg == "help"
        value = node.value if isinstance(node, ast.Expr) or is_help else None  # type: ignore[attr-defined]
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield inspect.cleandoc(value.value)


def sentences(text: str) -> Iterator[str]:
    """Split prose into sentences, without code, tables, generated parts and the targets of links."""
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", NO_PROSE.sub("\n\n", text))
    for block in re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. |\w+: )", re.sub(r":?\w*:?`+[^`]*`+", "Code", text)):
        if not block.startswith("=="):
            yield from re.split(r"(?<=[.!?])[)*]*\s+(?=[^a-z])", block)


@pytest.mark.parametrize("paths", [CODE, PAGES], ids=["code", "pages"])
def test_sentences_are_short_and_no_docstring_begins_with_a_question_word(paths: list[Path]) -> None:
    names = {path.relative_to(ROOT).as_posix(): path for path in paths}
    found = [(name, text) for name, path in names.items() if not RULES.match(name) for text in texts(path)]

    assert [(name, text[:80]) for name, text in found if QUESTION.match(text)] == []
    assert [(name, one) for name, text in found for one in sentences(text) if len(one.split()) > MOST_WORDS] == []


def test_a_sentence_is_found_among_code_and_tables() -> None:
    text = "One `a b. C` two [three](x y). Four::\n\n    a b c\n\n| a | b |\n\nFive (e.g. six) seven.\n"

    found = [" ".join(one.split()) for one in sentences(text)]
    assert found == ["One Code two three.", "Four", "Five (e.g. six) seven."]
