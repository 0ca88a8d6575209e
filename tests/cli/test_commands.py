import io
import json
import re
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from synthbench.bits import BITS
from synthbench.cli.running import _interruptible
from synthbench.mechanisms import MECHANISMS
from synthbench.results import Store
from synthbench.tasks import TASKS
from synthbench.trust.audit import faults
from tests.cli.commands import Command, python
from tests.results.rows import make_row
from tests.results.stores import filled
from tests.suites.files import suite_file

TINY = [
    *("--suite", "smoke", "--task", "copy:length=8", "--mech", "linear"),
    *("--steps", "5", "--limit", "16", "--device", "cpu"),
]


def test_list_tasks_has_every_task_of_a_category_with_its_bounds(synthbench: Command) -> None:
    listed = json.loads(synthbench("list", "tasks", "--category", "basic", "--json").stdout)

    assert [entry["name"] for entry in listed] == [name for name in TASKS if TASKS[name].category() == "basic"]
    for entry in listed:
        task = TASKS[entry["name"]]()
        assert (entry["category"], entry["floor"]) == (task.category(), task.floor(task.length).value)
        assert entry["ceiling"] == task.ceiling(task.length).value


@pytest.mark.parametrize(("words", "expected"), [("Mano", ["prefix_arithmetic"]), ("kimi palindrome", ["palindrome"])])
def test_tasks_are_found_by_the_names_in_their_sources(synthbench: Command, words: str, expected: list[str]) -> None:
    found = json.loads(synthbench("list", "tasks", "--search", words, "--json").stdout)

    assert [entry["name"] for entry in found] == expected


def test_list_mechanisms_has_every_mechanism(synthbench: Command) -> None:
    listed = json.loads(synthbench("list", "mechanisms", "--json").stdout)

    assert [entry["name"] for entry in listed] == list(MECHANISMS)
    slay = next(entry for entry in listed if entry["name"] == "slay")
    assert slay["parameters"]["R"] == {"default": 3, "allowed": "int from 1 to 64", "meaning": "quadrature nodes"}


IMPORTED = """
import json, sys
from synthbench.cli.app import app
for arguments, slow in json.loads(sys.argv[1]):
    app(arguments, standalone_mode=False)
    if imported := set(slow) & set(sys.modules):
        sys.exit(f"{arguments} imports {imported}")
"""


@pytest.mark.end_to_end
def test_a_command_imports_torch_and_matplotlib_only_where_it_needs_them(tmp_path: Path) -> None:
    """One after the other in one process."""
    filled(tmp_path / "results", (make_row(mech=mech, seed=seed) for mech in ("slay", "softmax") for seed in (1, 2)))
    commands = [
        ("--help", ["torch"]),
        ("run --help", ["torch"]),
        ("--version", ["torch"]),
        ("list tasks", ["torch"]),
        ("show copy", ["torch"]),
        ("store ls", ["torch", "matplotlib", "scipy"]),
        ("compare slay softmax --suite paper", ["torch", "matplotlib", "scipy.stats"]),
        ("export --suite paper --mech slay,softmax", ["torch", "matplotlib"]),
        ("leaderboard --suite core", ["torch", "matplotlib"]),
    ]
    asked = json.dumps([(line.split(), slow) for line, slow in commands])
    done = python("-c", IMPORTED, asked, cwd=tmp_path)

    assert done.returncode == 0, done.stderr


def test_show_describes_any_unit_and_list_all_of_a_kind(synthbench: Command) -> None:
    for name in ("kv_recall", "slay", "paper"):
        assert name in synthbench("show", name).stdout
    assert json.loads(synthbench("show", "slay", "--json").stdout)["name"] == "slay"
    assert {row["mechanism"] for row in json.loads(synthbench("list", "polynomials", "--json").stdout)} >= {"slay"}
    for kind, some in (("positions", {"none", "learned"}), ("blocks", {"attention_only"})):
        facts = json.loads(synthbench("list", kind, "--json").stdout)
        assert some <= {fact["name"] for fact in facts}
        assert {"parameters", "source", "version", "origin"} <= set(facts[0])


def test_run_report_and_status_work_together(tmp_path: Path, tiny_suite: Path, synthbench: Command) -> None:
    full = ["--suite", str(tiny_suite), "--task", "copy", "--mech", "linear", "--device", "cpu"]
    before = json.loads(synthbench("status", *full, "--json").stdout)
    planned = json.loads(synthbench("run", *full, "--dry-run", "--json").stdout)
    assert (planned["planned"], planned["trainings"], planned["suite"]["training"]["steps"]) == (2, 2, 10)
    assert planned["seconds"] > 0
    assert list(tmp_path.iterdir()) == []
    ran = synthbench("run", *full)
    again = synthbench("run", *full, "--json")
    after = json.loads(synthbench("status", *full, "--json").stdout)
    of_tiny = ["--suite", "tiny", "--format", "md", "--no-packaged"]
    report = synthbench("report", *of_tiny)

    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (0, "Next: synthbench report --suite tiny")
    assert json.loads(again.stdout) == {"planned": 2, "done_before": 2, "rows": []}
    assert before[-1] == {"category": "all", "planned": 2, "done": 0, "failed": 0, "missing": 2}
    assert after[-1] == {"category": "all", "planned": 2, "done": 2, "failed": 0, "missing": 0}
    assert report.stdout.splitlines()[-1] == "reports/tiny/README.md"
    assert "reports/tiny/basic.md" not in report.stdout.splitlines()
    assert "| Linear" in (tmp_path / "reports" / "tiny" / "basic.md").read_text()
    assert synthbench("report", *of_tiny, "--check").returncode == 0
    (tmp_path / "reports" / "tiny" / "basic.md").write_text("edited by hand")
    stale = synthbench("report", *of_tiny, "--check")
    assert (stale.returncode, stale.stdout) == (1, "stale: reports/tiny/basic.md\n")


def test_a_run_ends_with_its_scores_on_stdout_and_the_rest_on_stderr(synthbench: Command) -> None:
    ran = synthbench("run", *TINY)
    heading, row, note = ran.stdout.splitlines()

    assert heading.split() == ["skill", "linear"]
    assert re.fullmatch(r"copy   [01]\.\d\d ±0\.\d\d", row)
    assert note.startswith("Skill: 0 at the floor")
    assert ran.stdout.replace("\n", "").isprintable()  # no control characters
    assert ran.stderr.startswith("2 runs to do, 0 already done (")
    assert ran.stderr.splitlines()[-1] == "No report shows these rows: --steps and --limit shorten runs."
    again = synthbench("run", *TINY, "-q")
    assert (again.stdout, again.stderr) == (ran.stdout, "")


def test_quiet_and_verbose_stand_before_or_after_the_command(synthbench: Command) -> None:
    arguments = ["run", *TINY, "--dry-run"]
    plain = synthbench(*arguments).stdout.splitlines()

    assert plain[0] == "copy  linear  seeds 42, 43"
    for given in (["--verbose", *arguments], [*arguments, "-v"]):
        verbose = synthbench(*given).stdout.splitlines()
        assert [len(line.split()[0]) for line in verbose[:2]] == [16, 16]
        assert verbose[-1] == plain[-1]


def test_verbose_prints_the_traceback_of_a_broken_plugin(tmp_path: Path, synthbench: Command) -> None:
    (tmp_path / "broken.py").write_text("def fail():\n    raise ValueError('no luck')\n\nfail()\n")
    short, long = (synthbench("show", "copy", "--plugin", "broken.py", *more) for more in ((), ("-v",)))

    assert short.returncode == long.returncode == 4
    assert short.stderr.count("\n") == 1
    assert "line 2, in fail" in long.stderr
    assert long.stderr.endswith(short.stderr)


def test_status_and_a_dry_run_agree_and_names_may_follow_each_other(tmp_path: Path, synthbench: Command) -> None:
    of = ["--suite", "smoke", "--mech", "linear", "gla", "--device", "cpu"]
    missing = json.loads(synthbench("run", *of, "--dry-run", "--json").stdout)["missing"]
    assert {fact["mechanism"] for fact in missing} == {"linear", "gla"}
    filled(tmp_path / "results", (make_row(run_id=fact["run_id"]) for fact in missing[:5]))
    planned = json.loads(synthbench("run", *of, "--dry-run", "--json").stdout)

    for more in ([], ["--shard", "1/1"]):  # counted by the index, and by the components
        counted = json.loads(synthbench("status", *of, *more, "--json").stdout)[-1]
        assert (counted["planned"], counted["done"]) == (planned["planned"], planned["done"]) == (16, 5)


def test_doctor_finds_a_broken_store(tmp_path: Path, synthbench: Command) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "store.json").write_text('{"format": 99}')
    broken, whole = synthbench("doctor"), synthbench("doctor", "--results", "other")

    assert broken.returncode == 1
    assert "newer synthbench" in broken.stdout
    assert whole.returncode == 0


def test_ctrl_c_amid_a_print_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, text: Any) -> int:
            signal.raise_signal(signal.SIGINT)
            return len(text)

    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Interrupting()), write_through=True))
    stop = threading.Event()
    with _interruptible(stop):
        sys.stderr.write("a row\n")
        sys.stderr.flush()

    assert stop.is_set()


@pytest.mark.end_to_end
def test_a_text_runs_from_a_folder_to_a_table(tmp_path: Path, synthbench: Command) -> None:
    """Of many short files, beside a task that is scored by accuracy, in a report that keeps both measures apart."""
    suite_file(
        tmp_path / "tiny.toml", "text", ["copy = { length = 8 }", "text = { length = 64 }"], ["softmax", "mean"],
        seeds=[1, 2], block='"attention_only"', positions='"learned"', model_dim=8, num_heads=2, num_layers=1,
        learning_rates=[1e-3, 3e-2], steps=10, batch_size=8, schedule=None, warmup_steps=None, decay_steps=None,
        test_sequences=64, validation_sequences=64, curve_every=5, curve_sequences=16,
    )  # fmt: skip
    (tmp_path / "notes").mkdir()
    for number in range(80):
        (tmp_path / "notes" / f"{number}.txt").write_text(f"note {number}: the cat sat on the mat. " * 3, "utf-8")
    done = synthbench("run", "--suite", "tiny.toml", "--task", "copy,text:path=notes", "--executor", "inline")
    assert done.returncode == 0, done.stderr
    assert "bits" in done.stdout
    table = Store.open(tmp_path / "results", create=False).table()
    rows: list[dict[str, Any]] = [row for row in table.to_pylist() if row["task"] == "text"]
    assert len(rows) == 8
    for row in rows:
        metrics = json.loads(row["metrics"])
        by_kind = sum(metrics[f"{kind}.bits"] * metrics[f"{kind}.share"] for kind in ("repeated", "other"))

        assert (row["metric_name"], row["skill"], row["local_ceiling"]) == (BITS, None, None)
        assert by_kind == pytest.approx(-row["score"], abs=1e-4)
        assert metrics["repeated.share"] + metrics["other.share"] == pytest.approx(1)
        assert row["floor"] == -metrics["reference.unigram"]
        assert row["tuning_rule"] == "of the rows of a seed, that with the lowest validation loss"
        assert faults(row, datetime.now(UTC)) == []

    report = synthbench("report", "--suite", "tiny", "--format", "md,pages")
    assert report.returncode == 0, report.stderr
    made = tmp_path / "reports" / "tiny"
    assert "copy" in (made / "full.md").read_text(encoding="utf-8")
    assert "| real" not in (made / "full.md").read_text(encoding="utf-8")
    assert (made / "basic.md").exists()
    page = (made / "bits.md").read_text(encoding="utf-8")
    assert "copy" not in page
    assert "Mean" in page
    assert "needs the fewest bits per token" in report.stdout
