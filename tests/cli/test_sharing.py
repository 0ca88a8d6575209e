"""``synthbench verify``, ``submit`` and ``compare`` as a user types them."""

import json
import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from synthbench.cli.app import app
from synthbench.results import Store
from tests.results.rows import later, make_row
from tests.results.stores import filled

TINY = "run --suite smoke --task copy:length=8 --mech linear,identity --steps 10 --limit 16 --device cpu"


def synthbench(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rows of two mechanisms."""
    root = tmp_path_factory.mktemp("made") / "results"
    assert synthbench(f"{TINY} --executor inline --results {root}").exit_code == 0
    return root


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Full rows of three mechanisms over two tasks and three seeds; slay is worse by 0.1, gla by 0.3."""
    rows = (
        make_row(task=task, mech=mech, seed=seed, score=0.7 + seed / 1000 - loss)
        for task in ("copy", "reverse")
        for seed in (42, 43, 44)
        for mech, loss in (("softmax", 0.0), ("slay", 0.1), ("gla", 0.3))
    )
    return filled(tmp_path_factory.mktemp("full"), rows).root


@pytest.mark.end_to_end
def test_verify_prints_a_line_a_row_and_says_that_all_is_well(made: Path) -> None:
    result = synthbench(f"verify {made} --limit 1 --workers 1")

    assert result.exit_code == 0, result.output
    header, *lines = result.stdout.splitlines()
    assert header.split()[:4] == ["run_id", "task", "mechanism", "seed"]
    assert ["bitwise" in line for line in lines] == [True, True]  # both seeds were trained together
    assert "4 rows checked, 0 faults, 0 cannot be verified; run again: 2 bitwise" in result.stderr


@pytest.mark.end_to_end
def test_verify_prints_json_alone_on_stdout_records_who_verified_what_and_fails_at_an_edited_row(
    made: Path, tmp_path: Path
) -> None:
    results = shutil.copytree(made, tmp_path / "results")
    facts = json.loads(synthbench(f"verify {results} --limit 2 --into {results} --by somebody --json").stdout)

    assert (facts["ok"], facts["num_rows"], facts["faults"], facts["unverifiable"]) == (True, 4, [], {})
    assert facts["reruns"][0]["verdict"] == "bitwise"
    assert facts["reruns"][0]["difference"] == 0
    said = Store.open(results, create=False).table()["verified_by"].to_pylist()
    assert sum(word is not None and word.startswith("somebody (bitwise") for word in said) == 2

    store = Store.open(results, create=True)
    row = store.table().to_pylist()[0]
    store.write_all([(later(row, n_correct=0), [])])
    result = synthbench(f"verify {results} --limit 1")
    assert result.exit_code == 1
    assert f"wrong: {row['run_id']}: score is" in result.stdout
    assert "n_correct" not in result.stderr


def test_verify_refuses_a_device_that_there_is_none_of(made: Path) -> None:
    assert "device is 'tpu'" in str(synthbench(f"verify {made} --device tpu").exception)


def test_compare_more_than_two_pair_by_pair(full: Path) -> None:
    result = synthbench(f"compare softmax slay gla --no-packaged --results {full}")
    facts = json.loads(synthbench(f"compare softmax slay gla --no-packaged --results {full} --json").stdout)

    header, *pairs, note = result.stdout.splitlines()
    assert header.split()[:6] == ["first", "second", "difference", "low", "high", "p"]
    assert [line.split()[:3] for line in pairs] == [
        ["softmax", "slay", "-0.1333"],
        ["softmax", "gla", "-0.4"],
        ["slay", "gla", "-0.2667"],
    ]
    assert "second − first" in note
    assert [pair["difference"] for pair in facts["pairs"]] == pytest.approx([-0.1333, -0.4, -0.2667], abs=1e-4)
    assert len(facts["comparisons"]) == 3


def test_compare_prints_a_line_a_task_and_a_summary_and_fails_where_the_whole_interval_lies_below(full: Path) -> None:
    passed = synthbench(f"compare softmax slay --no-packaged --results {full} --fail-below -0.2")
    failed = synthbench(f"compare softmax slay --no-packaged --results {full} --fail-below -0.02")

    assert (passed.exit_code, failed.exit_code) == (0, 1), passed.output
    assert ("lies below" in passed.stderr, "lies below -0.02" in failed.stderr) == (False, True)
    lines = passed.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["task", "copy", "reverse"]
    assert lines[0].split()[-1] == "num_failed"
    assert lines[-1].startswith("slay − softmax, suite paper 2026.1: mean difference of skill -0.1333 (")


WORKFLOW = (Path(__file__).parents[2] / ".github/workflows/submission.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("added", "is_passed"),
    [
        (["submissions/my-idea.tar.gz", "submissions/b-2.tar.gz"], True),
        (["submissions/my-idea.tar.gz", "synthbench/evil.py"], False),
        (["submissions/$(reboot).tar.gz", "submissions/a.tar.gz\nb"], False),
        (["submissions/x/a.tar.gz"], False),
        (["README.md"], False),
    ],
)
def test_a_submission_only_adds_bundles(tmp_path: Path, added: list[str], *, is_passed: bool) -> None:
    def commit(*names: str) -> None:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(str(names))
        line = "git init -q && git add . && git -c user.name=a -c user.email=a@example.org commit -qm files"
        subprocess.run(line, shell=True, cwd=tmp_path, check=True)  # noqa: S602 - the words are those above

    commit("README.md", "LICENSE")
    commit(*added)

    after = WORKFLOW.partition("- name: Nothing but bundles is added")[2].partition("run: |\n")[2]
    guard = textwrap.dedent(after.partition("\n\n")[0])
    done = subprocess.run(["bash", "-e", "-c", guard], cwd=tmp_path, env={**os.environ, "BASE": "HEAD~1"}, check=False)

    assert (done.returncode == 0) == is_passed


def test_the_job_verifies_with_options_that_there_are() -> None:
    (line,) = (line for line in WORKFLOW.splitlines() if "synthbench verify" in line)
    helped = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["verify", "--help"]).output

    options = [word for word in line.split() if word.startswith("--")]
    assert options
    assert [option for option in options if option not in helped] == []
