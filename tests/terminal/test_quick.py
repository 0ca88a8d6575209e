"""A first verdict from made-up rows, and the command with runs of its own."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import synthbench as package
from synthbench.errors import UnknownName, UsageError
from synthbench.reports.quick import level_of
from synthbench.results import Store
from synthbench.runner.plan import plan_request
from synthbench.runner.request import Request
from synthbench.runner.run import RunReport
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.terminal import quick
from synthbench.terminal.quick import (
    FirstVerdict,
    facts_of,
    judge,
    lines_of,
    request_of,
    require_incumbent,
    run_or_read,
)
from synthbench.trust import beside

MakeRow = Callable[..., dict[str, Any]]
Command = Callable[..., Any]

CORE = (Path(package.__file__).parent / "suites" / "core.toml").read_text(encoding="utf-8")
LADDERS = [name for name in TASKS if TASKS.is_built_in(name) and TASKS[name].rungs][:6]
SEEDS = (1, 2, 3)


class Made(RunReport):
    """The result of runs that were made up."""

    @property
    def rows(self) -> pd.DataFrame:
        rows = Store.open(self.results, create=False).runs()
        return rows[(rows["mech"] == "my-idea") & (rows["seed"] == 1)].reset_index(drop=True)

    @property
    def ok(self) -> bool:
        return bool((self.rows["status"] == "ok").all())


class Scene:
    """One's own store and the published one, of a suite of six tasks."""

    def __init__(self, folder: Path, make_row: MakeRow) -> None:
        self.suite = folder / "mine.toml"
        tasks = "".join(f"{name} = {{}}\n" for name in LADDERS)
        text = re.sub(r"(?ms)^\[tasks\].*?^\[mech", f"[tasks]\n{tasks}\n[mech", CORE.replace('"core"', '"mine"'))
        self.suite.write_text(re.sub(r"(?ms)^quick = \[.*?\]\n", "", text))
        self.own = Store.open(folder / "results", create=True)
        self.published = Store.open(folder / "published", create=True)
        self.make_row = make_row

    def add(self, store: Store, heights: Mapping[str, float], seeds: Sequence[int] = SEEDS, **changes: Any) -> None:
        """Rows of mechanisms that reach the same height on every task, but for a little that depends on the run."""
        store.write_all(
            (
                self.make_row(
                    **{
                        "suite": "mine",
                        "suite_version": load_suite(str(self.suite)).version,
                        "task": task,
                        "task_category": TASKS[task].category(),
                        "task_version": "made up",
                        "mech": mech,
                        "mech_family": "a family",
                        "seed": seed,
                        "score": height + 0.002 * (number % 3) + 0.004 * seed,
                        "floor": 0.0,
                    }
                    | changes
                ),
                [],
            )
            for mech, height in heights.items()
            for number, task in enumerate(LADDERS)
            for seed in seeds
        )
        store.compact()  # to be read at once

    @property
    def request(self) -> Request:
        return request_of("my-idea", str(self.suite), results=self.own.root)

    def verdict(self, against: str | None = None) -> FirstVerdict:
        return judge(self.request, Made(self.own.root, {}, 0, wall_s=12.3), against)


@pytest.fixture
def scene(tmp_path: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path, make_row)
    for module in (quick, beside):
        monkeypatch.setattr(module, "published", lambda: made.published.root)
    return made


def test_the_runs_are_those_of_a_run_of_the_suite_whatever_the_quick_tasks_are(tmp_path: Path) -> None:
    device = torch.device("cpu")
    narrow = tmp_path / "narrow" / "mine.toml"
    wide = tmp_path / "wide" / "mine.toml"
    for path, tasks in ((narrow, '["string_copy"]'), (wide, '["mqar", "string_copy"]')):
        path.parent.mkdir()
        path.write_text(re.sub(r"(?ms)^quick = \[.*?\]", f"quick = {tasks}", CORE.replace('"core"', '"mine"')))
    asked = plan_request(request_of("linear", str(narrow), results=tmp_path), device)
    run = plan_request(
        Request(suite=str(wide), tasks=("string_copy",), mechanisms=("linear",), seeds=(1,), results=tmp_path), device
    )

    assert asked.run_ids == run.run_ids
    assert asked.num_planned == len(load_suite("core").training.learning_rates)


@pytest.mark.parametrize("mech", ["softmax,linear", "all", "lin*", ""])
def test_a_first_verdict_is_on_one_mechanism(mech: str) -> None:
    with pytest.raises(UsageError, match="allowed: one mechanism"):
        request_of(mech, "core")


def test_a_suite_without_a_ladder_is_refused() -> None:
    with pytest.raises(UsageError, match="suite 'smoke' has no ladder; allowed: core"):
        request_of("softmax", "smoke")


def test_what_is_better_than_the_best_is_kept_and_what_is_worse_discarded(scene: Scene) -> None:
    scene.add(scene.published, {"linear": 0.3, "softmax": 0.5, "gla": 0.4})
    scene.add(scene.own, {"my-idea": 0.45}, seeds=(1,))
    first = scene.verdict()

    assert (first.incumbent, first.decision, first.query, first.level) == ("softmax", "discard", 1, level_of(1))
    assert (first.overall.best_mechanism, first.overall.num_tasks) == ("softmax", 6)
    assert first.overall.mine == pytest.approx(0.456, abs=0.001)
    assert first.overall.incumbent == pytest.approx(0.51, abs=0.001)
    assert first.rank == (2, 2, 2)
    assert sum(part.num_tasks for part in first.profile) == 6
    other = scene.verdict("linear")
    assert (other.decision, other.query) == ("keep", 1)

    text = "\n".join(lines_of(first))
    assert "Rank 2 of 4; in the full suite 2, with 90 % confidence." in text
    assert "Discard: p is 1 for better and 0.016 for worse than softmax; query 1 is decided at 0.03 or less." in text
    assert json.loads(json.dumps(facts_of(first)))["rank"] == {"value": 2, "low": 2, "high": 2}

    again = scene.verdict()
    assert (again.query, again.decision) == (1, "discard")  # the same rows
    scene.add(scene.published, {"softmax": 0.5}, seeds=(4,))
    assert scene.verdict().query == 2  # more seeds of the incumbent


def test_an_incumbent_is_one_setting_of_another_mechanism(scene: Scene) -> None:
    scene.add(scene.published, {"softmax": 0.5})
    for options in ("{}", '{"R":3}'):
        scene.add(scene.published, {"slay": 0.4}, mech_args=options)
    scene.add(scene.own, {"my-idea": 0.45}, seeds=(1,))

    with pytest.raises(UsageError, match="against is 'slay', which has several settings"):
        scene.verdict("slay")
    with pytest.raises(UsageError, match="against is 'my-idea', the mechanism itself"):
        scene.verdict("my-idea")
    assert scene.verdict("slay:R=3").decision == "keep"


def test_rows_of_other_versions_of_the_tasks_are_not_compared(scene: Scene) -> None:
    scene.add(scene.own, {"my-idea": 0.45}, seeds=(1,))
    later = datetime(2027, 1, 1, tzinfo=UTC)
    scene.add(scene.published, {"softmax": 0.5}, task_version="newer", finished_at=later)

    assert scene.verdict().incumbent is None
    with pytest.raises(UsageError, match="against is 'softmax', whose rows are of other versions"):
        scene.verdict("softmax")


def test_one_of_ones_own_is_an_incumbent_but_is_not_ranked(scene: Scene) -> None:
    scene.add(scene.published, {"softmax": 0.5})
    scene.add(scene.own, {"first-idea": 0.42, "my-idea": 0.45}, seeds=(1,))
    first = scene.verdict("first-idea")

    assert (first.decision, first.incumbent, first.num_ranked) == ("keep", "first-idea", 1)


def test_without_rows_to_compare_with_the_profile_stands_alone(scene: Scene) -> None:
    scene.add(scene.own, {"my-idea": 0.45}, seeds=(1,))
    first = scene.verdict()

    assert (first.rank, first.decision, first.incumbent, first.query) == (None, None, None, None)
    assert first.overall.mine is not None
    assert "There is nothing to rank it with" in "\n".join(lines_of(first))
    assert not (scene.own.root / "quick.json").exists()


def test_controls_and_what_lacks_a_run_are_not_ranked(scene: Scene) -> None:
    scene.add(scene.published, {"mean": 0.9}, mech_family="control")
    scene.add(scene.published, {"softmax": 0.5}, seeds=(1, 2))
    scene.add(scene.own, {"my-idea": 0.45}, seeds=(1,))

    assert scene.verdict().num_ranked == 0


def test_an_incumbent_without_rows_is_named_before_any_run(scene: Scene) -> None:
    scene.add(scene.published, {"softmax": 0.5}, seeds=(2, 3))
    with pytest.raises(UnknownName, match="'softmxa'; did you mean 'softmax'"):
        require_incumbent(scene.request, "softmxa")
    require_incumbent(scene.request, "softmax")

    scene.add(scene.own, {"my-idea": 0.45}, seeds=(1,))
    with pytest.raises(UsageError, match=r"has no run of .* with seed 1; synthbench quick --mech softmax makes it"):
        scene.verdict("softmax")


def trains_nothing(_request: Request) -> RunReport:
    pytest.fail("something is trained")


def test_a_mechanism_whose_rows_come_with_synthbench_is_judged_at_once(tmp_path: Path) -> None:
    request = request_of("LSTM", "core", results=tmp_path / "mine")
    done = run_or_read(request, trains_nothing)
    verdict = judge(request, done)

    assert set(done.rows["mech"]) == {"lstm"}
    assert {*done.rows["run_id"]} == {*done.run_ids}
    assert (verdict.ok, verdict.is_packaged) == (True, True)
    assert verdict.overall.mine is not None
    assert any("come with synthbench; nothing was trained" in line for line in lines_of(verdict))
    assert not list((tmp_path / "mine").glob("runs/*"))


@pytest.mark.parametrize(
    ("mech", "how"), [("slay:R=2", {}), ("lstm", {"device": "cuda"}), ("rewa-fisher", {}), ("my_idea", {})]
)
def test_what_has_no_packaged_rows_is_run(mech: str, how: dict[str, str], tmp_path: Path) -> None:
    request = request_of(mech, "core", results=tmp_path / "mine", **how)
    made = Made(tmp_path, {}, 0)

    assert run_or_read(request, lambda asked: made if asked is request else trains_nothing(asked)) is made


def test_a_run_that_failed_is_compared_with_nothing(scene: Scene) -> None:
    scene.add(scene.published, {"softmax": 0.5})
    scene.add(scene.own, {"my-idea": 0.45}, seeds=(1,))
    row = scene.make_row(
        suite="mine", suite_version=load_suite(str(scene.suite)).version, task=LADDERS[0], mech="my-idea", seed=1,
        task_category=TASKS[LADDERS[0]].category(), task_version="made up", mech_family="a family", skill=None,
        status="diverged", error_type="FloatingPointError", error_message="loss is nan", score=None,
        finished_at=datetime(2026, 1, 2, tzinfo=UTC),  # of two rows of a run the newer counts
    )  # fmt: skip
    scene.own.write(row, [])
    first = scene.verdict()

    assert (first.ok, first.overall.mine, first.decision) == (False, None, None)
    assert "Nothing is compared" in "\n".join(lines_of(first))


@pytest.mark.end_to_end
def test_the_command_runs_two_tasks_and_says_how_to_go_on(synthbench: Command, tmp_path: Path) -> None:
    text = CORE.replace('"core"', '"tiny"')
    for name, value in {
        "steps": "20", "warmup_steps": "2", "decay_steps": "6", "test_sequences": "4", "longest": "24",
        "quick": '["parity_running", "mqar"]',
    }.items():  # fmt: skip
        text = re.sub(rf"(?ms)^{name} = (\[.*?\]|[^\n]*)", f"{name} = {value}", text)
    (tmp_path / "tiny.toml").write_text(text)
    asked = ("quick", "--suite", "tiny.toml", "--executor", "inline", "--device", "cpu")

    first = synthbench(*asked, "--mech", "linear")
    assert first.returncode == 0, first.stderr
    assert "For all tasks and seeds: synthbench run --suite tiny.toml --mech linear --device cpu" in first.stdout
    second = synthbench(*asked, "--mech", "softmax", "--against", "linear", "--json")
    assert second.returncode == 0, second.stderr
    facts = json.loads(second.stdout)
    assert (facts["decision"], facts["query"], facts["incumbent"]) == ("undecided", 1, "linear")
    assert {part["category"] for part in facts["profile"]} == {"recall", "state_tracking"}
    unknown = synthbench(*asked, "--mech", "softmax", "--against", "linaer")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "did you mean 'linear'" in unknown.stderr
