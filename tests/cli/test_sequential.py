"""Seeds that are added until pairs are decided: from made-up rows, and by the command with runs of its own."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from synthbench.canonical import canonical_json
from synthbench.cli.sequential import analyse, prepare_analysis
from synthbench.results import Store
from synthbench.runner.plan import plan_request
from synthbench.runner.request import Request
from synthbench.suites import load_suite
from synthbench.training.cell import Run
from tests.cli.commands import Command
from tests.results.rows import make_row
from tests.suites.files import suite_file

TASK = "parity_running"
CPU = torch.device("cpu")
HEIGHTS: dict[str, Callable[[int], float]] = {
    "softmax": lambda seed: 9.0 + 0.01 * seed,
    "linear": lambda seed: 3.0 + 0.01 * seed,
    "gla": lambda seed: 3.0 - 0.01 * seed,
    "lstm": lambda seed: 2.0 + 2 * (seed % 2),
    "mean": lambda _seed: 0.0,
}
"""In levels by seed: one stands out, some are alike, one scatters, and a control."""


class Scene:
    """A suite of one task and its store; runs are made up."""

    def __init__(self, folder: Path, mechanisms: Mapping[str, Any] = HEIGHTS) -> None:
        self.path = suite_file(folder / "mine.toml", "core", [TASK], mechanisms, learning_rates=[3e-3])
        self.suite = load_suite(str(self.path))
        self.request = Request(suite=str(self.path), device="cpu", executor="inline", results=folder / "results")

    def run(self, request: Request) -> Mapping[str, Run]:
        """Write the rows that are missing."""
        plan, store = plan_request(request, CPU), Store.open(request.results, create=True)
        store.write_all((self.row(run), []) for job in plan.jobs for run in job.missing)
        return plan.runs

    def row(self, run: Run) -> dict[str, Any]:
        cell = run.cell
        levels = [level._asdict() | {"task": {}} for level in cell.levels]
        return make_row(
            run_id=run.run_id, suite="mine", suite_version=self.suite.version, task=cell.task_name,
            task_category=cell.task.category(), task_args=canonical_json({"load": "tokens", "rungs": levels}),
            mech=cell.mechanism_name, mech_family=cell.mechanism.family, seed=run.seed, floor=0.0,
            score=HEIGHTS[cell.mechanism_name](run.seed) / len(levels),
            config_json=canonical_json({"model": {}}), task_code_hash=cell.code["task"],
            mech_code_hash=cell.code["mech"],
        )  # fmt: skip

    def run_until_decided(self) -> list[Request]:
        """As the command does; the requests of the analyses."""
        requests, runs = [self.request], dict(self.run(self.request))
        while (further := analyse(self.request, runs, len(requests) - 1).further) is not None:
            requests.append(further)
            runs |= self.run(further)
        return requests

    @property
    def seeds(self) -> dict[str, list[int]]:
        rows = Store.open(self.request.results, create=False).runs().sort_values("seed")
        return {str(mech): of_mech["seed"].to_list() for mech, of_mech in rows.groupby("mech")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, list[Request]]:
    """A store with all rows, and the requests of its analyses."""
    scene = Scene(tmp_path_factory.mktemp("decided"))
    return scene, scene.run_until_decided()


def test_seeds_are_added_for_undecided_pairs_only(decided: tuple[Scene, list[Request]]) -> None:
    scene, requests = decided

    assert [request.seeds for request in requests] == [(), [4, 5], [6, 7, 8, 9, 10]]
    seeds = scene.seeds
    assert seeds["lstm"] == list(range(1, 11))
    assert seeds["mean"] == [1, 2, 3]
    assert seeds["softmax"] in ([1, 2, 3], [1, 2, 3, 4, 5])


@pytest.mark.end_to_end
def test_a_run_that_is_stopped_goes_on_to_the_same_rows(decided: tuple[Scene, list[Request]], tmp_path: Path) -> None:
    """Stopped amid the last analysis, it goes through all of them."""
    scene, requests = decided
    whole = Store.open(scene.request.results, create=False)
    again = copy.copy(scene)
    again.request = replace(scene.request, results=tmp_path / "stopped")
    Store.open(again.request.results, create=True).import_rows(whole, whole.runs().sort_values("seed")["run_id"][:-4])
    assert len(again.run_until_decided()) == len(requests)
    assert Store.open(again.request.results, create=False).statuses().keys() == whole.statuses().keys()


def test_rows_of_others_in_the_store_change_nothing(scene: Scene) -> None:
    some = replace(scene.request, mechanisms=("linear", "lstm"))
    scene.run(replace(scene.request, mechanisms=("softmax", "gla"), seeds=tuple(range(1, 11))))
    runs = scene.run(some)
    further = analyse(some, runs, 0).further

    assert further is not None
    assert further.only == {(TASK, name) for name in some.mechanisms}
    assert {run.cell.mechanism_name for run in scene.run(further).values()} == set(some.mechanisms)


def test_one_mechanism_and_a_control_have_no_pairs(scene: Scene) -> None:
    alone = replace(scene.request, mechanisms=("linear", "mean"))
    analysed = analyse(alone, scene.run(alone), 0)

    assert analysed.further is None
    assert analysed.words == "analysis at 3 seeds: 0 pairs of mechanisms apart, 0 within 0.5 levels, 0 undecided"


@pytest.mark.end_to_end
def test_a_dry_run_is_of_the_next_look_that_lacks_rows(decided: tuple[Scene, list[Request]], tmp_path: Path) -> None:
    scene, (_, _, third) = decided
    assert prepare_analysis(scene.request).plan.num_missing == 0

    whole = Store.open(scene.request.results, create=False)
    part = replace(scene.request, results=tmp_path / "part")
    rows = whole.runs()
    Store.open(part.results, create=True).import_rows(whole, rows.loc[rows["seed"] < 10, "run_id"])
    planned = plan_request(replace(third, results=part.results), CPU)
    lacking = prepare_analysis(part).plan
    assert lacking.runs.keys() == planned.runs.keys()
    assert lacking.num_missing == planned.num_missing > 0


@pytest.mark.end_to_end
def test_the_command_trains_look_by_look_and_ends_with_what_is_there(scene: Scene, synthbench: Command) -> None:
    suite_file(
        scene.path, "core", [TASK], ["softmax", "linear", "mean"], learning_rates=[3e-3], steps=4, warmup_steps=1,
        decay_steps=2, curve_every=4, test_sequences=8, longest=12, batch_tokens=48, model_dim=8, num_heads=1,
        num_layers=1,
    )  # fmt: skip
    asked = ("run", "--suite", str(scene.path), "--device", "cpu", "--executor", "inline", "--until-decided")

    planned = synthbench(*asked, "--dry-run", "--json")
    assert len(json.loads(planned.stdout)["missing"]) == 9
    done = synthbench(*asked, "--json")
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    analyses = [line for line in done.stderr.splitlines() if line.startswith("analysis at")]
    assert shown["planned"] == len(shown["rows"]) == 9 + {1: 0, 2: 4, 3: 14}[len(analyses)]
    assert len(scene.seeds["mean"]) == 3

    again = synthbench(*asked, "--json")
    assert json.loads(again.stdout) == {"planned": shown["planned"], "done_before": shown["planned"], "rows": []}
