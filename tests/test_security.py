"""Part of what SECURITY.md promises: no name leads out of its folder, no text of a row is markup."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from synthbench.cli.app import app
from synthbench.cli.output import print_problem
from synthbench.errors import SynthbenchError, UsageError
from synthbench.reports.build import build
from synthbench.reports.dump import DUMPS
from synthbench.results import Store
from synthbench.results.schema import RUN_COLUMNS, check_values
from tests.cli.commands import CONTROL
from tests.results.rows import make_row

STORES = Path(__file__).parent / "golden" / "stores"

# Names

NAMES = [
    "../../escaped", "/escaped", "..", ".", "a/../../escaped", "a\\..\\b", "CON", "x" * 300, "🙂", "<script>",
    "\\input{x}", "a|b", "", " ", "nul\0", "two\nlines", "~/escaped", "$(touch escaped)", "%2e%2e",
]  # fmt: skip

SOME = ["../../escaped", "/escaped", "", "nul\0"]
"""One of each kind, for the commands, each of which takes a while."""

COMMANDS = {
    "new mech": ["new", "mech", "{}"],
    "new task": ["new", "task", "{}"],
    "new package": ["new", "mech", "{}", "--package"],
    "report": ["report", "--suite={}", "--no-packaged"],
    "report of a mechanism": ["report", "--suite=smoke", "--mech={}", "--no-packaged"],
    "export": ["export", "--suite=smoke", "--task={}", "--no-packaged"],
    "store ls": ["store", "ls", "--suite={}"],
    "store export": ["store", "export", "--mech={}", "--out=rows.csv"],
    "store merge": ["store", "merge", "nowhere/{}"],
    "run": ["run", "--suite=smoke", "--task={}", "--dry-run"],
    "run of a suite": ["run", "--suite={}", "--dry-run"],
    "run of a mechanism": ["run", "--suite=smoke", "--mech={}", "--dry-run"],
    "submit": ["submit", "--suite=smoke", "--mech={}"],
    "show": ["show", "{}"],
    "data": ["data", "{}", "--count=1", "--out=drawn.npz"],
    "data of a suite": ["data", "copy", "--suite={}", "--out=drawn.npz"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, well inside one in which nothing else may change."""
    work = tmp_path / "home" / "work"
    shutil.copytree(STORES / "6-c2f9cc8", work / "results")
    Store.open(work / "results", create=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def listing(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.mark.end_to_end
@pytest.mark.parametrize("command", COMMANDS)
def test_no_name_leads_out_of_its_folder(folder: Path, command: str) -> None:
    before = listing(folder)
    for name in SOME:
        done = CliRunner().invoke(app, [part.replace("{}", name) for part in COMMANDS[command]])

        assert done.exit_code, name
        # A mistake of the user, told in one line; never a traceback.
        assert isinstance(done.exception, SystemExit | SynthbenchError), (name, done.exception)
        assert listing(folder) == before, name


@pytest.mark.parametrize("column", [column.name for column in RUN_COLUMNS if column.type == "name"])
def test_a_row_whose_names_lead_elsewhere_is_no_row(column: str) -> None:
    (named,) = (one for one in RUN_COLUMNS if one.name == column)
    for name in NAMES:
        with pytest.raises(UsageError, match=f"column '{column}'"):
            check_values((named,), {column: name})


# Text

PAYLOAD = (
    '=HYPERLINK("x")|<script>alert(1)</script><img src=x onerror=alert(1)>\\input{/etc/passwd} `a` [b](c)'
    "\x1b]0;owned\x07\x1b[2J\u202egpj"
)
TEXTS = {column.name for column in RUN_COLUMNS if column.type == "string" and not column.choices} - {
    "run_id", "suite_version", "row_sha256", "curve_sha256",
}  # fmt: skip
"""Every free text of a row, save for what tells rows and versions of a suite apart."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that passes every check, and whose every text is a payload."""
    store = Store.open(tmp_path_factory.mktemp("hostile") / "results", create=True)
    arguments = json.dumps({PAYLOAD: PAYLOAD})
    jsons = dict.fromkeys(("packages", "mech_args", "task_args"), arguments) | {"metrics": json.dumps({PAYLOAD: 0.5})}
    for mech in ("softmax", "linear"):
        for seed in (1, 2, 3):
            failed = {"status": "error", "score": None} if (mech, seed) == ("linear", 3) else {}
            store.write_all([(make_row(mech=mech, seed=seed, **dict.fromkeys(TEXTS, PAYLOAD), **jsons, **failed), [])])
    return store


@pytest.fixture(scope="module")
def files(hostile: Store) -> dict[str, str]:
    """Every text of a report on that store, by file name, and its rows as they are."""
    rows, curves = hostile.read()
    made = build(rows, curves, "paper", formats=("md", "tex", "pages", "csv", "html"))
    dumped = {"rows.csv": DUMPS["csv"](hostile.table())}
    return {name: text for name, text in {**made, **dumped}.items() if isinstance(text, str)}


def of_kind(files: dict[str, str], kind: str) -> list[str]:
    found = [text for name, text in files.items() if name.endswith(kind)]
    assert any("HYPERLINK" in text for text in found), kind
    return found


@pytest.mark.parametrize(
    ("kind", "markup"),
    [
        (".html", ["<script>alert", "<img"]),
        (".md", ["<script", "<img", "[b](c)", ")|&lt;"]),
        (".tex", ["\\input{", "/etc/passwd}"]),
    ],
)
def test_no_text_of_a_row_is_markup(kind: str, markup: list[str], files: dict[str, str]) -> None:
    for text in of_kind(files, kind):
        assert [sign for sign in markup if sign in text] == []


def test_no_text_of_a_row_is_a_formula_of_a_spreadsheet(files: dict[str, str]) -> None:
    for text in of_kind(files, ".csv"):
        for line in csv.reader(io.StringIO(text)):
            assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for cell in line)


SHOWING = [
    "export --format md --suite paper --no-packaged --results ROWS",
    "export --format csv --suite paper --no-packaged --results ROWS",
    "compare softmax linear --suite paper --no-packaged --results ROWS",
    "leaderboard --suite paper --no-packaged --results ROWS",
    *("store ls --results ROWS", "store ls --results ROWS --json", "store merge ROWS --results ELSEWHERE"),
    *("verify ROWS", "submit --suite paper --mech linear --results ROWS --out ELSEWHERE.tar.gz"),
]
"""Commands that print what rows say."""


@pytest.mark.parametrize("command", SHOWING)
def test_no_text_of_a_row_is_an_order_to_a_terminal(
    hostile: Store, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = command.replace("ROWS", str(hostile.root)).replace("ELSEWHERE", str(tmp_path / "elsewhere"))
    done = CliRunner().invoke(app, line.split())
    if isinstance(done.exception, SynthbenchError):
        print_problem(done.exception)  # as the command line does
    shown = done.output + "".join(capsys.readouterr())

    assert shown, done.exception
    assert not CONTROL.search(shown)
