"""The texts that rows of suite ``text`` have, made as docs/real.md says."""

import gzip
import platform
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.other_texts import VERSION, copy_dictionary, copy_library, copy_prose, library
from studies.real import language
from studies.validity.page import TEXTS
from synthbench.tasks.real._corpus import corpus_at

DOCS = Path(__file__).parents[2] / "docs"


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_library_is_its_sources_without_tests_tables_and_what_an_installation_writes(tmp_path: Path) -> None:
    kept = {"abc.py": b"a\nb\n", "json/decoder.py": b"c\n"}
    for name, content in {"abc.py": b"a\r\nb\n", "json/decoder.py": b"c\n"}.items():
        write(tmp_path / "lib" / name, content)
    left_out = ("site-packages/x.py", "test/test_abc.py", "idlelib/idle_test/x.py", "unittest/test/x.py", "abc.pyc",
                "encodings/cp037.py", "pydoc_data/topics.py", "_sysconfigdata__x.py", "config-3.11/x.py")  # fmt: skip
    for name in left_out:
        write(tmp_path / "lib" / name, b"x")

    assert files_in(copy_library(tmp_path / "lib", tmp_path / "library")) == kept


def test_debians_files_are_unpacked_without_bytes_that_are_no_text(tmp_path: Path) -> None:
    markdown = tmp_path / "usr/share/doc/anarchism/markdown"
    write(tmp_path / "usr/share/dictd/gcide.dict.dz", gzip.compress(b"a\x92b"))
    write(markdown / "one.md.gz", gzip.compress(b"one"))
    write(markdown / "two.md", b"two")

    assert copy_dictionary(tmp_path, tmp_path / "dictionary.txt").read_bytes() == b"ab"
    assert files_in(copy_prose(tmp_path, tmp_path / "prose")) == {"one.md": b"one", "two.md": b"two"}


def test_the_plan_and_the_page_on_texts_have_the_hashes_of_the_studies() -> None:
    page, plan = DOCS / "real.md", DOCS.parent / "studies" / "validity" / "plan.md"
    of_claims = {language.DOCSTRINGS, language.LIBRARY, language.DICTIONARY, language.PROSE}

    for file, texts in ((page, of_claims | set(TEXTS)), (plan, set(TEXTS))):
        assert texts <= set(re.findall("sha256-[0-9a-f]{16}", file.read_text(encoding="utf-8")))


@pytest.mark.end_to_end
def test_the_library_of_the_study_has_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: Callable[[str, bool, str], None]
) -> None:
    need("studied-python", platform.python_version() == VERSION, "another Python has another library")
    monkeypatch.chdir(tmp_path)
    _, studied = TEXTS

    assert corpus_at(str(library())).name == studied
