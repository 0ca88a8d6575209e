"""A test whose tool is missing is passed over, unless the tool is required; shapes are checked in some runs."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from synthbench.reports.statistics import permutation_test
from tests import conftest
from tests.cli.commands import Need, python
from tests.moved import MOST, moved

ROOT = Path(__file__).parents[1]


def test_a_missing_tool_skips_and_a_required_one_fails(need: Need, monkeypatch: pytest.MonkeyPatch) -> None:
    is_here = False
    monkeypatch.delenv("SYNTHBENCH_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="chromium is not here: install it"):
        need("chromium", is_here, "install it")
    monkeypatch.setenv("SYNTHBENCH_REQUIRE", "pdflatex, chromium")
    with pytest.raises(pytest.fail.Exception, match="chromium is required and not here: install it"):
        need("chromium", is_here, "install it")
    need("chromium", not is_here, "install it")
    with pytest.raises(pytest.fail.Exception, match="add it to TOOLS"):
        need("chrome", not is_here, "install it")


def test_no_example_has_a_deadline_as_machines_are_noisy() -> None:
    assert hypothesis.settings().deadline is None


ABSENT = [("fla", "names ['fla'], which cannot be imported")] if find_spec("fla") is None else []


@pytest.mark.parametrize(
    ("names", "reason"), [("pdflatex,chrome", "names ['chrome']; allowed: cgroup, chromium"), *ABSENT]
)
def test_what_is_required_is_known_and_there_before_any_test_begins(
    names: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNTHBENCH_REQUIRE", names)

    with pytest.raises(pytest.UsageError, match=re.escape(reason)):
        conftest.pytest_configure()


def test_every_step_is_taken_and_those_that_failed_are_listed_last() -> None:
    def each(*steps: str) -> tuple[int, list[str]]:
        ran = subprocess.run([ROOT / ".ci" / "each", *steps], capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout.splitlines()

    code, lines = each("exit 3", "echo 'a word'; false", "echo last")
    assert code == 1
    assert "a word" in lines
    assert lines[-4:] == ["", "2 of 3 steps failed:", "  exit 3", "  echo 'a word'; false"]
    assert each("true", "echo last") == (0, ["true", "echo last", "last", "All 2 steps passed."])


def test_commands_in_one_process_go_on_after_one_that_failed(tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text("raise ValueError('no')")
    (tmp_path / "says.py").write_text("import sys; print(sys.argv[1:], __name__); sys.exit(0)")
    commands = ["raises.py", "synthbench list nothing", "-m says --check", "says.py 'a b'"]

    ran = python(str(ROOT / ".ci" / "together"), *commands, cwd=tmp_path)

    assert ran.returncode == 1
    assert [line for line in ran.stdout.splitlines() if line not in commands] == [
        *("['--check'] __main__", "['a b'] __main__"),
        *("failed: raises.py", "failed: synthbench list nothing"),
    ]
    assert "ValueError: no" in ran.stderr


@pytest.mark.end_to_end
def test_a_wrong_shape_is_refused(need: Need, pytestconfig: pytest.Config) -> None:
    need("shapes", pytestconfig.getoption("jaxtyping_packages") is not None, "make test-end-to-end checks them")
    with pytest.raises(TypeCheckError, match=r"parameters of synthbench\.reports\.statistics\.permutation_test"):
        permutation_test(np.zeros(3), is_paired=True)


def test_all_modules_that_annotate_shapes_are_checked() -> None:
    listed = re.search(
        r"^CHECKED := (.*?[^\\])$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert listed
    *checked, _ = re.findall(r"[\w.]+", listed[1])
    files = [file for file in ROOT.glob("synthbench/**/*.py") if "from jaxtyping" in file.read_text(encoding="utf-8")]

    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    assert names
    for name in names:
        assert any(f"{name}.".startswith(f"{one}.") for one in checked), name
    for one in checked:
        assert any(f"{name}.".startswith(f"{one}.") for name in names), f"{one} annotates no shape"


def test_numbers_move_by_their_own_bits_and_hardly() -> None:
    x = torch.cat([torch.zeros(1), torch.linspace(-3, 3, 1000), torch.linspace(-3, 3, 1000)])

    y = moved(x)

    distance = (y.view(torch.int32) - x.view(torch.int32)).abs()
    assert y[0] == 0
    assert torch.equal(y[1:1001], y[1001:])
    assert distance.unique().tolist() == list(range(MOST + 1))
