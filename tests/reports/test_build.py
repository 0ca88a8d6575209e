import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from synthbench.cli.example import describe
from synthbench.errors import StoreError
from synthbench.reports.build import FORMATS, build
from synthbench.reports.folder import Files, stale, write
from tests.reports._made import make_frame

TABLES = ("md", "tex", "pages", "csv")
"""Formats that take no time to draw."""

GOLDEN = Path(__file__).parents[1] / "golden"

IN_ANOTHER_PROCESS = """
import locale, pickle, sys
import pandas as pd
from synthbench.reports.build import FORMATS, build
from synthbench.cli.example import describe
try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass
rows, curves = pd.read_pickle(sys.argv[1]), pd.read_pickle(sys.argv[2])
pickle.dump(build(rows, curves, "paper", formats=FORMATS, describe=describe), sys.stdout.buffer)
"""


@pytest.fixture(scope="module")
def whole(paper: pd.DataFrame, paper_curves: pd.DataFrame) -> Files:
    """All files in all formats."""
    return build(paper, paper_curves, "paper", formats=FORMATS, describe=describe)


@pytest.mark.parametrize(("suite", "golden"), [("paper", GOLDEN / "reports"), ("core", GOLDEN / "ladder")])
def test_the_files_are_the_golden_ones(suite: str, golden: Path, whole: Files, core: pd.DataFrame) -> None:
    built = whole if suite == "paper" else build(core, None, suite, formats=FORMATS)
    # Pictures are not text that a person compares: test_figures.py has their tests.
    files = {name: content for name, content in built.items() if isinstance(content, str)}
    if os.environ.get("SYNTHBENCH_REWRITE_GOLDEN") == "1":
        write(files, golden)

    assert stale(files, golden) == []
    present = {path.relative_to(golden).as_posix() for path in golden.rglob("*") if path.is_file()}
    assert present == {*files, ".generated"}


@pytest.mark.parametrize("formats", [["tex"], ["csv"], ["json", "md"]])
def test_a_format_brings_its_own_files_only(formats: list[str]) -> None:
    files = build(make_frame({"slay": [0.5, 0.6], "linear": [0.1, 0.2]}), None, "paper", formats=formats)

    with_sources = {"bib"} if formats != ["csv"] else set()
    assert {name.rpartition(".")[2] for name in files} == {*formats} | with_sources


@pytest.mark.end_to_end
def test_order_time_zone_locale_hash_seed_and_settings_of_matplotlib_change_nothing(
    paper: pd.DataFrame, paper_curves: pd.DataFrame, whole: Files, tmp_path: Path
) -> None:
    for name, frame in (("rows", paper), ("curves", paper_curves)):
        frame.sample(frac=1, random_state=7).to_pickle(tmp_path / name)  # with the index of that order
    (tmp_path / "matplotlibrc").write_text("font.size: 20\naxes.facecolor: red\n")
    environment = os.environ | {"TZ": "Asia/Kathmandu", "LC_ALL": "de_DE.UTF-8", "PYTHONHASHSEED": "1"}
    environment |= {"SOURCE_DATE_EPOCH": "1", "MATPLOTLIBRC": str(tmp_path / "matplotlibrc")}
    files = [str(tmp_path / name) for name in ("rows", "curves")]
    command = [sys.executable, "-W", "error", "-c", IN_ANOTHER_PROCESS, *files]
    finished = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=120)

    assert pickle.loads(finished.stdout) == whole  # noqa: S301


def test_every_link_of_the_readme_leads_to_a_file_and_every_file_is_linked(
    paper: pd.DataFrame, paper_curves: pd.DataFrame, whole: Files
) -> None:
    partial = [build(paper, paper_curves, "paper", formats=formats) for formats in (["md"], ["md", "json"])]
    for files in (*partial, whole):
        links = re.findall(r"\]\(([^)]+)\)", str(files["README.md"]))

        assert {*links, "README.md"} == set(files)
        assert len(links) == len(set(links))


def test_the_readme_counts_rows_failures_and_what_was_left_out(paper: pd.DataFrame) -> None:
    before, later = pd.Timestamp("2024-01-01T00:00:00Z"), pd.Timestamp("2027-01-01T00:00:00Z")
    old = paper[paper["mech"] == "my-idea"].assign(mech_version="0", run_id="old", finished_at=before)
    rerun = paper[(paper["mech"] == "linear") & (paper["task"] == "copy")].assign(run_id="rerun", finished_at=later)
    readme = str(build(pd.concat([old, paper, rerun]), None, "paper", formats=TABLES)["README.md"])

    num_ok = int((paper["status"] == "ok").sum())
    assert f"Rows: {len(paper)}, {num_ok} of them with a score. Failures: 1 diverged." in readme
    assert f"Left out: {len(old)} rows of older versions" in readme
    assert f"Left out: {len(rerun)} rows whose seed" in readme
    assert "## Failures" not in build(paper[paper["status"] == "ok"], None, "paper", formats=TABLES)["README.md"]


def test_bibtex_holds_what_is_in_the_tables_and_unknown_keys_are_named() -> None:
    files = build(make_frame({"softmax": [0.5, 0.6]}, task_source="a_stranger"), None, "paper", formats=TABLES)

    assert re.findall(r"@\w+\{(\w+),", str(files["sources.bib"])) == ["vaswani2017attention"]
    assert r"Sources without a BibTeX entry: a\_stranger." in files["README.md"]


def test_a_category_cannot_choose_a_file_outside_or_one_that_is_taken() -> None:
    categories = ("../../x", "README", "full", "/", "a b", "a-b", "a.b")
    rows = [make_frame({"slay": [0.5]}, task_category=category, run_id=category) for category in categories]
    files = build(pd.concat(rows), None, "paper", formats=TABLES)

    stems = ("x", "category-readme", "category-full", "category", "a-b", "a-b-2", "a-b-3")
    assert {f"{stem}.md" for stem in stems} <= set(files)
    assert all(re.fullmatch(r"(figures/)?[A-Za-z0-9_-]+\.[a-z]+", file) for file in files)


def test_a_folder_is_brought_up_to_date_and_nothing_else_is_touched(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "report"
    (tmp_path / "outside.md").write_text("mine")

    first, second = {"a.md": "1\n", "b.md": "±\n"}, {"a.md": "1\n", "c.md": "3\n"}

    assert stale(first, folder) == write(first, folder) == [".generated", "a.md", "b.md"]
    assert (folder / "b.md").read_bytes() == "±\n".encode()
    assert write(first, folder) == []

    (folder / "own.md").write_text("mine")
    before = (folder / "a.md").stat().st_mtime_ns
    assert stale(second, folder) == write(second, folder) == [".generated", "b.md", "c.md"]
    assert (folder / "a.md").stat().st_mtime_ns == before
    assert {path.name for path in folder.iterdir()} == {".generated", "a.md", "c.md", "own.md"}

    (folder / "a.md").write_text("edited")
    (folder / "c.md").unlink()
    assert stale(second, folder) == ["a.md", "c.md"]


def test_a_readme_that_no_report_wrote_is_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")

    with pytest.raises(StoreError, match=r"has a file 'README\.md' that no report wrote; name another folder"):
        write({"README.md": "a report", "a.md": "1"}, tmp_path)

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("README.md", "mine")]


def test_a_picture_is_stale_if_it_is_missing_or_was_drawn_from_other_numbers(whole: Files, tmp_path: Path) -> None:
    files = {name: content for name, content in whole.items() if name.startswith("figures/")}
    write(files, tmp_path)
    for name in ("figures/heat-map.svg", "figures/heat-map.pdf"):
        drawn = (tmp_path / name).read_bytes()
        # What another version of matplotlib draws.
        (tmp_path / name).write_bytes(drawn + b"\n")
        assert stale(files, tmp_path) == []
        assert write(files, tmp_path) == [name]
        (tmp_path / name).write_bytes(re.sub(rb"synthbench-[0-9a-f]+", b"synthbench-0000000000000000", drawn))
        assert stale(files, tmp_path) == [name]
        (tmp_path / name).write_bytes(b"by hand")
        assert stale(files, tmp_path) == [name]
        (tmp_path / name).unlink()
        assert stale(files, tmp_path) == [name]
        write(files, tmp_path)

    (tmp_path / "figures" / "heat-map.csv").write_text("by hand")
    assert stale(files, tmp_path) == ["figures/heat-map.csv"]


def test_a_folder_of_figures_goes_with_the_last_of_them(tmp_path: Path) -> None:
    write({"a.md": "1\n", "figures/a.svg": b"1"}, tmp_path)
    (tmp_path / "figures" / "own.svg").write_text("mine")
    assert write({"a.md": "1\n"}, tmp_path) == [".generated", "figures/a.svg"]
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["own.svg"]

    (tmp_path / "figures" / "own.svg").unlink()
    write({"figures/a.svg": b"1"}, tmp_path)
    write({}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".generated"]


def test_an_index_cannot_remove_what_lies_outside(tmp_path: Path) -> None:
    folder, outside = tmp_path / "report", tmp_path / "outside"
    outside.mkdir()
    for path in (outside / "a.svg", tmp_path / "outside.md", tmp_path / "absolute.md"):
        path.write_text("mine")
    write({"a.md": "1\n"}, folder)
    (folder / "figures").symlink_to(outside)
    outer = ["figures/a.svg", "figures/../../outside/a.svg", "../outside.md", "..", ".", str(tmp_path / "absolute.md")]
    (folder / ".generated").write_text("\n".join([*outer, "a.md", ""]))
    write({}, folder)

    assert (outside / "a.svg").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"report", "outside", "outside.md", "absolute.md"}
    assert {path.name for path in folder.iterdir()} == {".generated", "figures"}
