"""Make the corpus of the task text from the standard library of the Python that runs this.

``python -m benchmarks.freeze_corpus`` writes ``python_docstrings.json.xz`` and prints its hash, which then goes into
``synthbench/tasks/real/_corpus.py``. Another Python has other docstrings, and makes another corpus: raise the version
of the task.
"""

import ast
import json
import lzma
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from synthbench.tasks.real._corpus import FROZEN, hash_of

NOT_READ = frozenset({"site-packages", "dist-packages", "test", "tests", "lib2to3", "pydoc_data"})
"""Folders: installed packages, tests, and code that newer versions of Python do not have."""


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def documents(root: Path) -> dict[str, str]:
    """A document for each module with docstrings, none of which an earlier one has, and one of all topics of help."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if NOT_READ.isdisjoint(name.parts):
            texts = [text for text in dict.fromkeys(docstrings(path)) if text not in seen]
            seen.update(texts)
            if texts:
                found[name.as_posix()] = "\n\n".join(texts)
    # One document, because some topics repeat others.
    return found | {"pydoc_data/topics.py": "\n\n".join(topics[name] for name in sorted(topics))}


def main() -> None:
    """Write the corpus."""
    found = documents(Path(sysconfig.get_path("stdlib")))
    text = json.dumps(found, sort_keys=True, ensure_ascii=False).encode()
    FROZEN.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    name = hash_of({document: content.encode() for document, content in found.items()})
    sys.stdout.write(f"{name}: {len(found)} documents, {len(text):,} bytes, {FROZEN.stat().st_size:,} compressed\n")


if __name__ == "__main__":
    main()
