"""Every command and Python block of the documentation is executed, beside a copy of the committed rows."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from typer.testing import CliRunner

import synthbench
from synthbench import plugins
from synthbench.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
STUDIES = sorted((ROOT / "studies").glob("**/*.md"))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

SHORTENED = {
    "run": ["--dry-run"],  # names, arguments and the plan are what a page can get wrong; `make demo` trains
    "bench": ["--repeats", "1"],
    "bench context": ["--longest", "256"],
    "report": ["--format", "md"],  # pictures take most of the time, and `make demo` draws them
    "quick": ["--help"],  # it trains for minutes; tests/test_first_verdict.py trains in little
    "verify": ["--salt", "6"],  # of the rows of slay in suite paper it draws a short one, trained by itself
}
"""Options that keep a command from taking minutes, by command; a subcommand's own before those of its group."""


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCED.findall(page.read_text(encoding="utf-8")) if language in languages]


def commands(page: Path) -> list[str]:
    lines = "\n".join(blocks(page, "", "sh", "bash", "console")).splitlines()
    parts = [part.strip() for line in lines for part in re.split(r"^\$ |&&|  #.*", line)]
    return list(dict.fromkeys(part for part in parts if part.startswith("synthbench ")))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's checkout: the committed rows and reports, and rows of suite ``smoke``."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("results", "reports"):
        shutil.copytree(ROOT / name, folder / name)
    synthbench.run(suite="smoke", tasks="copy:length=8", mechanisms="linear", results=folder / "results", device="cpu")
    return folder


@pytest.fixture
def _inside(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(shutil.copytree(checkout, tmp_path / "checkout"))
    monkeypatch.setenv("SYNTHBENCH_PLUGINS", "on")
    monkeypatch.setattr(plugins, "_entry_points", lambda _group: ())  # what else is installed is on no page
    plugins._offers.cache_clear()
    yield
    plugins._offers.cache_clear()


@pytest.mark.end_to_end
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_inside")
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_the_commands_of_a_page_work_one_after_the_other(page: Path) -> None:
    failed = {}
    for command in commands(page):
        words = shlex.split(command)[1:]
        shortened = SHORTENED.get(" ".join(words[:2]), SHORTENED.get(words[0], [])) if "--check" not in words else []
        is_for_cluster = "slurm" in words and "--address" not in words  # no page is read on one
        result = CliRunner().invoke(app, [*words, *shortened, *(["--address", "local"] if is_for_cluster else [])])
        if result.exit_code:
            failed[command] = result.output + repr(result.exception)

    assert failed == {}


@pytest.mark.end_to_end
@pytest.mark.usefixtures("_inside")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_the_python_of_the_documentation_works(page: Path) -> None:
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), {})  # noqa: S102


def test_the_documentation_has_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 10


@pytest.mark.parametrize("page", [*PAGES, *STUDIES], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


@pytest.mark.end_to_end
@pytest.mark.parametrize("notebook", sorted((ROOT / "docs").glob("*.ipynb")), ids=lambda notebook: notebook.name)
def test_the_notebooks_run(notebook: Path, checkout: Path) -> None:
    content = nbformat.read(notebook, as_version=4)
    code = [cell for cell in content.cells if cell.cell_type == "code" and not cell.source.startswith("import torch")]
    assert all(cell.outputs for cell in code)

    content.cells = [cell for cell in content.cells if "synthbench.quick(" not in cell.source]  # it trains for minutes
    NotebookClient(content, timeout=240, resources={"metadata": {"path": str(checkout)}}).execute()
