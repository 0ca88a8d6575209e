"""A first verdict: its tests, its ledger and its stages, with a trainer that writes made-up rows; and the command."""

import codecs
import fcntl
import json
import os
import resource
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from shutil import copytree
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy import stats

from docs import evaluator
from synthbench import first_verdict
from synthbench.errors import StoreError, UnknownName, UsageError
from synthbench.first_verdict import FirstVerdict, Ledger, decide, facts_of, level_of, p_better, predict, quick
from synthbench.reports.statistics import SIGNIFICANCE
from synthbench.results import Store
from synthbench.runner.plan import cells_and_seeds
from synthbench.runner.request import Request
from synthbench.runner.run import RunReport
from synthbench.suites import load_suite
from synthbench.training.cell import Run
from tests.cli.commands import Command
from tests.results.rows import make_row
from tests.suites.files import suite_file

TASKS = ("in_context_recall", "s3_words", "mqar", "string_copy", "parity_running", "reverse_string")
OTHERS = {"softmax": 0.5, "gla": 0.3, "deltanet": 0.4, "lstm": 0.2}
"""Scores of other mechanisms."""
CPU = torch.device("cpu")


class Scene:
    """A store with rows of other mechanisms, and a trainer of ``linear``, the new one."""

    def __init__(self, folder: Path) -> None:
        # Like core; nothing packaged has its number of steps.
        self.suite = str(suite_file(folder / "mine.toml", "core", TASKS, tuple(OTHERS), steps=1000))
        self.folder, self.results = folder, folder / "results"
        self.store = Store.open(self.results, create=True)
        self.levels: dict[str, float] = {}
        """Score of each mechanism that is trained."""
        self.trained: list[Request] = []
        self.notes: list[str] = []
        self.status = "ok"

    def add(self, levels: Mapping[str, float], **request: Any) -> None:
        """Write rows of mechanisms that score alike on all tasks, but for a little that depends on the run."""
        for name, level in levels.items():
            self._write(Request(**{"suite": self.suite, "mechanisms": (name,), "seeds": (1,)} | request), level)

    def _write(self, request: Request, level: float) -> None:
        """Write the rows that a request lacks."""
        known = self.store.statuses()
        cells, seeds = cells_and_seeds(request, CPU)
        runs = [run for cell in cells for run in cell.runs(seeds) if run.run_id not in known]
        self.store.write_all((self._row(run, level, number), []) for number, run in enumerate(runs))

    def _row(self, run: Run, level: float, number: int) -> dict[str, Any]:
        return make_row(
            run_id=run.run_id,
            task=run.cell.task_name,
            task_category=run.cell.task.category(),
            mech=run.cell.mechanism_name,
            mech_family=run.cell.mechanism.family,
            seed=run.seed,
            status=self.status,
            error_message=None if self.status == "ok" else "loss is nan",
            score=level + 0.01 * (number % 3) if self.status == "ok" else None,
            floor=0.0,
            state_size=run.cell.model(torch.Generator()).size(run.cell.longest).state_elements,
            wall_s=60.0,
            ensemble_size=1,
        )

    def train(self, request: Request) -> RunReport:
        """Pretend to train, at the level of the mechanism."""
        self.trained.append(request)
        self._write(request, self.levels[request.mechanisms[0]])
        return RunReport(self.results, {}, 0)

    def verdict(self, mechanism: str = "linear", **options: Any) -> FirstVerdict:
        """Ask; two workers would do three tasks of a minute in a minute and a half."""
        how: dict[str, Any] = {"suite": self.suite, "results": self.results, "device": "cpu", "workers": 2}
        return quick(mechanism, **how | options, run=self.train, note=self.notes.append)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows of the other mechanisms, which each test copies."""
    made = Scene(tmp_path_factory.mktemp("stored"))
    made.add(OTHERS)
    return made.folder


@pytest.fixture
def scene(tmp_path: Path, stored: Path) -> Scene:
    made = Scene(Path(copytree(stored, tmp_path / "scene")))
    made.levels = {"linear": 0.25, "softmax": 0.5, "gla": 0.3}
    return made


# ----- Tests -----


def test_levels_are_those_of_a_published_implementation() -> None:
    # LOND of online-fdr 1.0.0 at alpha .05, where queries 1, 5 and 40 were kept.
    queries = ((1, 0), (2, 1), (41, 3), (100, 3))
    levels = [0.0026758385456300436, 0.0011638205782941741, 0.0002036055344316692, 8.31685091545498e-05]
    assert [level_of(*query) for query in queries] == pytest.approx(levels, rel=1e-9)
    assert sum(level_of(query, 0) for query in range(1, 100_000)) < SIGNIFICANCE


def test_p_is_that_of_a_t_test_with_the_noise_as_a_prior() -> None:
    differences = np.array([0.1, 0.2, 0.05, 0.15])
    dof = first_verdict.PRIOR_DOF + 3
    error = np.sqrt((first_verdict.PRIOR_DOF * first_verdict.NOISE**2 + 3 * differences.var(ddof=1)) / dof / 4)

    assert p_better(differences, ["a"] * 4) == pytest.approx(stats.t.sf(differences.mean() / error, dof))
    assert p_better(0 * differences, ["a", "a", "b", "b"]) == 0.5
    assert p_better(np.full(14, 0.3), ["a"] * 14) < 1e-8  # 14 changes of sign end at 6e-5


@pytest.mark.parametrize("query", [1, 1000, 10**6])
def test_what_scores_nothing_is_discarded_at_any_query(query: int) -> None:
    lost = -np.linspace(0.0, 0.4, 14)  # half of it where the reference scores little
    assert decide(p_better(lost, ["a"] * 14), p_better(-lost, ["a"] * 14), level_of(query, 0)) == "discard"


def test_a_family_is_left_out_of_the_error_of_its_prediction() -> None:
    quick_means, full = np.array([0.2, 0.3, 0.4, 0.5]), np.array([0.3, 0.4, 0.4, 0.45])
    expected = predict(0.35, quick_means, full, ["a", "a", "b", "c"])

    assert expected.value == pytest.approx(0.35 + 0.0375)
    errors = [0.1 - -0.025, 0.1 - -0.025, 0 - 0.05, -0.05 - 0.2 / 3]
    assert expected.error == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    assert expected.dof == 2
    ranks = expected.rank_among(full)
    assert ranks.low <= ranks.value == 4 <= ranks.high
    unknown = predict(0.35, quick_means[:2], full[:2], ["a", "b"])
    assert unknown.rank_among(full[:2]) == (1, 1, 3)


# ----- The ledger -----


def ask(path: Path, number: int, p: float = 0.5) -> Literal["keep", "discard", "undecided"]:
    asked = {"asked": f"{number}", "source": "s", "mechanism": "m", "reference": "r"}
    return Ledger(path).enter(**asked, p_values=(p, 1 - p), is_hopeless=False).decision


def test_commands_at_the_same_time_lose_no_query(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.jsonl"
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as processes:
        list(processes.map(ask, [path] * 24, range(24)))

    assert [entry.query for entry in Ledger(path).entries()] == list(range(1, 25))


def test_what_is_kept_raises_the_levels_once_it_is_confirmed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ask(ledger.path, 1, p=1e-6)
    (entry,) = ledger.entries()
    assert (entry.decision, entry.is_candidate) == ("undecided", True)
    assert ledger.confirm(entry, 0.5).decision == "undecided"
    ask(ledger.path, 2, p=1e-6)
    kept = ledger.confirm(ledger.entries()[1], 0.01)
    assert (kept.decision, kept.is_candidate, kept.level) == ("keep", False, level_of(2, 0))
    ask(ledger.path, 3)
    assert ledger.entries()[2].level == level_of(3, 1)


def test_a_number_is_never_given_twice_and_no_line_joins_another(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for number in (1, 2, 3):
        ask(ledger.path, number)
    first, _, third = ledger.path.read_text().splitlines()
    ledger.path.write_text(f"{first}\n{third}")  # one taken out, the last without its end
    ask(ledger.path, 4)

    assert [(entry.query, entry.asked) for entry in ledger.entries()] == [(1, "1"), (3, "3"), (4, "4")]
    assert ledger.entries()[2].level == level_of(4, 0)


LINE = (
    '{"query":%s,"asked":"a","source":"s","mechanism":"m","reference":"r",'
    '"p_better":%s,"p_worse":0.5,"level":0.002,"decision":"undecided","p_fresh":null}\n'
)
OF_TWO_SEARCHES = (LINE + LINE.replace('"asked":"a"', '"asked":"b"')) % (1, 0.5, 1, 0.5)
OUT_OF_RANGE = [LINE % one for one in ((-5, 0.5), (0, 0.5), ("true", 0.5), (1, -3.0), (1, "NaN"), (1, "1e999"))]


@pytest.mark.parametrize("text", ["{\n", "[]\n", '{"query": 1}\n', "\xff", *OUT_OF_RANGE, OF_TWO_SEARCHES])
def test_a_ledger_that_cannot_be_read_is_named_and_kept(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(StoreError, match=r"ledger\.jsonl cannot be read"):
        ask(path, 1)
    assert path.read_bytes() == text.encode("latin-1")


def test_a_ledger_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="pipe cannot be read as a ledger: it is no plain file"):
        ask(tmp_path / "pipe", 1)


def test_a_ledger_that_an_editor_saved_in_its_own_way_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + (LINE % (1, 0.5)).replace("\n", "\r\n").encode())
    (tmp_path / "link").symlink_to(path)
    ask(tmp_path / "link", 2)
    assert [entry.query for entry in Ledger(path).entries()] == [1, 2]


def _ask_with_room_for(num_bytes: int, path: Path) -> None:
    limit = path.stat().st_size + num_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    ask(path, 2)


def test_a_query_for_which_the_disk_lacks_room_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ask(path, 1)
    before = path.read_bytes()
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as processes:
        asked = processes.submit(_ask_with_room_for, 10, path)
    with pytest.raises(StoreError, match=r"cannot write the ledger .*File too large"):
        asked.result()
    assert path.read_bytes() == before


def test_a_ledger_that_stays_locked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_verdict, "LOCKED_S", 0.0)
    with (tmp_path / "ledger.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=r"ledger\.lock' could not be acquired"):
            ask(tmp_path / "ledger", 1)


# ----- Stages -----


def test_the_reference_is_of_the_same_class_unless_it_is_named(scene: Scene) -> None:
    linear = scene.verdict()
    assert (linear.reference, linear.reference_state, linear.has_fixed_state) == ("gla", 576, True)
    assert str(linear).startswith("Reference: gla, the best of the same class; it keeps 576 numbers per layer, linear")
    assert scene.verdict(against="Softmax").reference == "softmax"
    scene.levels["yat"] = 0.45
    assert scene.verdict("yat").reference == "softmax"


def test_the_hopeless_stop_after_three_tasks_and_others_run_all(scene: Scene) -> None:
    verdict = scene.verdict(against="softmax")
    assert (verdict.decision, verdict.is_hopeless, len(verdict.tasks)) == ("discard", True, 3)
    (request,) = scene.trained
    assert len(request.tasks) == 4  # neither of the two workers is idle
    assert request.rates == load_suite(scene.suite).training.learning_rates[:1]
    assert "Discard after 3 tasks" in str(verdict)

    verdict = scene.verdict(against="gla")
    assert (verdict.is_hopeless, len(verdict.tasks), verdict.query) == (False, 6, 2)
    assert scene.notes[-1] == "4 tasks are done; the other 2 take about 1 min"
    assert verdict.tasks[0].score == pytest.approx(0.25)
    assert verdict.profile[-1].score == pytest.approx(np.mean([part.score for part in verdict.profile[:-1]]))
    assert verdict.combined_score == pytest.approx(verdict.profile[-1].score, abs=0.02)
    assert json.loads(json.dumps(facts_of(verdict)))["schema_version"] == 1


def test_a_repeated_query_has_as_many_tasks_though_fewer_runs_are_left(scene: Scene) -> None:
    first, again = (scene.verdict(against="gla", minutes=2.5, workers=None) for _ in range(2))

    assert [score.task for score in again.tasks] == [score.task for score in first.tasks]
    assert "5 of 6 quick tasks" in str(scene.verdict(against="gla", minutes=2.5))


def test_what_is_better_is_confirmed_on_a_seed_that_follows_from_the_runs(scene: Scene) -> None:
    scene.levels["linear"] = 0.6
    verdict = scene.verdict(against="gla")
    public, fresh, reference = scene.trained[1:]

    assert (verdict.decision, verdict.query) == ("keep", 1)
    assert (public.seeds, fresh.seeds, reference.mechanisms) == ((1,), reference.seeds, ("gla",))
    assert fresh.seeds[0] >= first_verdict.FRESH
    assert verdict.p_fresh is not None
    assert "On a fresh seed p is" in str(verdict)
    ledger = (scene.results / "quick.jsonl").read_text()

    again = scene.verdict(against="gla")
    assert {**facts_of(again), "wall_s": 0} == {**facts_of(verdict), "wall_s": 0}
    assert (scene.results / "quick.jsonl").read_text() == ledger
    assert (again.same_source_as, scene.verdict(against="softmax").same_source_as) == (None, "query 1 (linear)")


def test_what_is_better_on_the_public_seed_alone_is_not_kept(scene: Scene) -> None:
    scene.levels["linear"] = 0.6
    short = scene.verdict(against="gla", minutes=4.0)
    assert (short.decision, short.p_fresh) == ("undecided", None)
    assert "There was no time to confirm it" in str(short)

    scene.levels = {"linear": 0.3, "gla": 0.3}
    verdict = scene.verdict(against="gla")
    assert (verdict.p_better or 0) < (verdict.level or 0)
    assert verdict.decision == "undecided"


def test_a_reference_without_runs_or_a_ledger_that_cannot_be_written_is_named_before_any_training(scene: Scene) -> None:
    for against, problem in {
        "softmxa": (UnknownName, "did you mean 'softmax'"),
        "kda": (UsageError, "lacks runs of .*; synthbench quick --mech kda makes them"),
        "linear": (UsageError, "against is 'linear'"),
    }.items():
        with pytest.raises(problem[0], match=problem[1]):
            scene.verdict(against=against)
    (scene.results / "quick.jsonl.lock").mkdir()
    with pytest.raises(StoreError, match="cannot write the ledger"):
        scene.verdict()
    assert scene.trained == []
    scene.add({"linear": 0.2})
    with pytest.raises(UsageError, match="the mechanism itself; allowed: another one"):
        scene.verdict(against="linear")


def test_a_run_that_failed_is_compared_with_nothing(scene: Scene) -> None:
    scene.status = "diverged"
    verdict = scene.verdict()

    assert verdict.error == {"kind": "diverged", "message": f"{TASKS[0]}: loss is nan"}
    assert (verdict.decision, verdict.combined_score, verdict.query) == (None, None, None)
    assert "Nothing is compared, because a run ended with diverged" in str(verdict)
    assert Ledger(scene.results / "quick.jsonl").entries() == []


def test_without_others_the_profile_stands_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.levels["linear"] = 0.25
    verdict = scene.verdict()

    assert (verdict.rank, verdict.decision, verdict.reference, verdict.query) == (None, None, None, None)
    assert verdict.combined_score == pytest.approx(verdict.profile[-1].score)
    assert "There is no reference" in str(verdict)


def test_a_packaged_mechanism_is_judged_at_once(tmp_path: Path) -> None:
    def run(_request: Request) -> RunReport:
        pytest.fail("something is trained")

    verdict = quick("PaTH", results=tmp_path / "mine", against="softmax", run=run)

    assert (verdict.is_packaged, verdict.decision, len(verdict.tasks)) == (True, "keep", 14)
    assert "come with synthbench; nothing was trained" in str(verdict)
    assert not list((tmp_path / "mine").glob("runs/*"))


# ----- The command and the evaluator -----

TINY = ("--suite", "mine.toml", "--executor", "inline", "--device", "cpu")


@pytest.fixture
def _tiny(tmp_path: Path) -> None:
    """A suite of four tasks that is trained in seconds."""
    sizes = dict.fromkeys(("test_sequences", "validation_sequences"), 4) | {"longest": 24, "extended": "false"}
    steps = {"steps": 20, "warmup_steps": 2, "decay_steps": 6}
    tasks = ("parity_running", "mqar", "string_copy", "in_context_recall")
    suite_file(tmp_path / "mine.toml", "core", tasks, ("linear",), **steps, **sizes)


@pytest.mark.end_to_end
@pytest.mark.usefixtures("_tiny")
def test_the_command_judges_a_file_and_names_one_that_breaks_a_check(synthbench: Command, tmp_path: Path) -> None:
    how = (*TINY, "--ledger", "ledger.jsonl")
    assert synthbench("new", "mech", "my_idea", "--module").returncode == 0

    first = synthbench("quick", "--mech", "linear", *how)
    assert first.returncode == 0, first.stderr
    assert "For all tasks and seeds: synthbench run --suite mine.toml --mech linear" in first.stdout
    second = synthbench("quick", "--mech", "my_idea.py", *how, "--json")
    assert second.returncode == 0, second.stderr
    facts = json.loads(second.stdout)
    assert (facts["mechanism"], facts["query"], facts["reference"], facts["error"]) == ("my_idea", 1, "linear", None)

    source = (tmp_path / "my_idea.py").read_text()
    (tmp_path / "my_idea.py").write_text(source.replace("(self.kernel - 1, 0)", "(0, self.kernel - 1)"))
    third = synthbench("quick", "--mech", "my_idea.py", *how, "--json")
    error = json.loads(third.stdout)["error"]
    assert (third.returncode, error["kind"]) == (4, "check")
    assert third.stderr.count(error["message"][:40]) == 1


def test_openevolve_gets_the_error_of_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    room = ModuleType("openevolve.evaluation_result")
    room.EvaluationResult = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openevolve", ModuleType("openevolve"))
    monkeypatch.setitem(sys.modules, room.__name__, room)
    found = evaluator.evaluate("nothing.py")

    assert found.metrics["combined_score"] == 0
    assert "nothing.py" in found.artifacts["error"]


def test_options_of_quick_are_not_taken_for_the_evaluators_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["--program_path", "nothing.py", "--results_dir", "out", "--results", "rows"]
    monkeypatch.setattr(sys, "argv", ["evaluator.py", *asked])

    evaluator.main()

    assert json.loads((tmp_path / "out" / "correct.json").read_text(encoding="utf-8"))["correct"] is False
    assert (tmp_path / "results.tsv").read_text(encoding="utf-8") == "nothing.py\t0.000000\tcrash\n"


@pytest.mark.end_to_end
@pytest.mark.usefixtures("_tiny")
def test_the_evaluator_gives_the_same_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    template = files("synthbench.cli").joinpath("templates", "module.py.txt").read_text(encoding="utf-8")
    idea = template.replace("$name", "idea").replace("$class_name", "Idea")
    # It prints, also at its end, and leaves a process behind that holds its stdout; a file is called like a module.
    left = '\nimport atexit, subprocess\nprint("1")\natexit.register(print, "2")\nsubprocess.Popen(["sleep", "30"])\n'
    (tmp_path / "idea.py").write_text(idea + left)
    (tmp_path / "json.py").write_text("raise SystemExit(1)")

    first = evaluator.evaluate("idea.py", *TINY)
    assert first["combined_score"] >= 0
    assert first["parameters"] > 0
    assert {**evaluator.evaluate("idea.py", *TINY), "step_ms": 0} == {**first, "step_ms": 0}
    (tmp_path / "broken.py").write_text("raise ValueError('no')")
    assert evaluator.evaluate("broken.py", *TINY) == {"combined_score": 0.0, "decision": 0.0}
