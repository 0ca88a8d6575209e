"""The scripts of studies: pairs are counted as the plan says, the page is current, and costs are of one machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from studies.language_models import compare
from studies.launch import launch
from studies.papers.fidelity import compare as fidelity
from studies.papers.positions import page as positions
from synthbench.runner.estimates import TIMED, cost_columns
from synthbench.runner.plan import make_plan
from tests.studies._made import cells_in
from tests.training.cells import make_cell

STUDIES = Path(__file__).parents[2] / "studies"


def test_every_value_names_its_source_and_its_table_and_is_given_once() -> None:
    values = pd.read_csv(STUDIES / "language_models/published.csv")

    assert values[["source", "where", "year", "read_from", "looked_up", "checked", "value"]].notna().all(axis=None)
    assert not values.duplicated(["source", "where", "size", "metric", "mechanism", "variant"]).any()
    recall = compare.tables_of("real recall").index.get_level_values("looked_up")
    assert [(recall == phase).sum() for phase in compare.SEEN] == [5, 6]


def test_published_errors_are_given_once_and_both_versions_of_the_paper_have_the_same() -> None:
    rows = pd.read_csv(STUDIES / "papers/fidelity/published.csv")
    keys = ["version", "table", "budget", "mechanism"]
    columns = rows.columns.difference(["version", "table", "where"])
    tables = [rows[rows["table"] == number][columns].reset_index(drop=True) for number in (6, 10)]

    assert len(tables[0]) == len(fidelity.BUDGETS) * (1 + len(fidelity.POSITIVE) + len(fidelity.SIGNED))
    assert tables[0].equals(tables[1])
    assert rows[[*keys, "where", "rel_l2", "latency_ms"]].notna().all(axis=None)
    assert not rows.duplicated(keys).any()


def recounted(*options: str) -> Any:
    command = [sys.executable, str(STUDIES / "language_models/recount.py"), "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


@pytest.mark.end_to_end
def test_a_script_from_the_text_of_the_plan_alone_counts_the_same() -> None:
    again = recounted()
    scores, tables = compare.predictors("2026.1", "committed"), dict(compare.groups())
    named = {"hypothesis": "real recall: hypothesis", "seen": "seen", "all": "all"}

    for predictor in ("recall", "mqar", "hops"):
        for group, name in named.items():
            found = compare.statistics_of(tables[name], scores[predictor])
            assert again[predictor][group] == [found["concordant"], found["pairs"]]
    assert again["papers"]["all"] == list(compare.agreement(tables["all"]))


@pytest.mark.end_to_end
def test_the_same_script_counts_the_same_with_stock_layers() -> None:
    """Softmax attention is the same layer in both conditions, so its rows name none, and the script leaves it out."""
    again = recounted("--condition", "stock")
    tables, scores = dict(compare.groups())["all without softmax"], compare.predictors("stock", "committed")

    for predictor in ("recall", "mqar"):
        found = compare.statistics_of(tables, scores[predictor])
        assert again[f"{predictor} without softmax"]["all"] == [found["concordant"], found["pairs"]]


HOSTS = ("old", "1"), ("new", "1"), ("rare", "2")


def test_times_are_of_this_class_or_of_the_newest_with_enough_rows() -> None:
    rows = pd.DataFrame(HOSTS, columns=["device_name", "host_hash"])
    rows["finished_at"] = pd.date_range("2026-01-01", periods=len(HOSTS))
    rows = rows.loc[rows.index.repeat([launch.FEWEST, launch.FEWEST, launch.FEWEST - 1])]
    old, new, rare = HOSTS

    assert launch.chosen_host(rows, old, None) == old
    assert launch.chosen_host(rows, rare, None) == new
    assert launch.chosen_host(rows, old, "rare") == rare
    with pytest.raises(SystemExit, match="there are"):
        launch.chosen_host(rows, old, "none")


def test_a_run_costs_its_share_of_its_batch() -> None:
    cell, kin = make_cell("reverse", "slay"), make_cell("copy", "slay")
    timed: dict[str, Any] = {**cost_columns(cell), "status": "ok", "ensemble_size": 3, "wall_s": 36.0}
    seeds = (1, 2)
    done = {cell.runs(seeds)[0].run_id: 1.0}
    costs = launch.costs_of(make_plan([cell, kin], seeds, done), pd.DataFrame([timed], columns=list(TIMED)))

    (line,) = costs.to_dict("records")
    runs = sum(len(one.runs(seeds)) for one in (cell, kin))
    assert (line["planned"], line["done"], line["missing"]) == (runs, 1, runs - 1)
    assert line["hours"] >= (len(cell.runs(seeds)) - 1) * 12.0 / 3600
    assert 0 < line["own"] < line["trained"]


def rows_of_positions(metrics: dict[str, dict[str, float | None]], seeds: int = 4) -> pd.DataFrame:
    """Rows with an unmoved loss of 1 and the given metrics by encoding; each seed adds a hundredth to the losses."""
    common = {"suite": "positions", "suite_version": positions.SUITE.version, "is_full": True, "status": "ok"}
    rows = [
        {**common, "mech": "softmax", "positions": name, "seed": seed, "score": 0.5, "eval_loss": 1 + seed / 100}
        | {"metrics": json.dumps({key: value and value + seed / 100 * ("loss" in key) for key, value in of.items()})}
        for name, of in metrics.items()
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows, columns=list(positions.COLUMNS))


def metrics_of_shifts(loss: float | None, ir_spec: float | None) -> dict[str, float | None]:
    return {"ir_spec": ir_spec} | {f"shift{shift}.{part}": loss for shift in (1, 7, 100) for part in ("score", "loss")}


@pytest.mark.parametrize(
    ("free", "espr", "verdicts"),
    [
        (1.5, 1.0, ["does not hold"] * 3),
        (0.5, 1.0, ["holds", "does not hold", "holds"]),
        (1.0, 0.5, ["does not hold", "holds", "does not hold"]),
    ],
)
def test_claims_of_positions_are_decided_by_the_sign_of_the_difference(
    free: float, espr: float, verdicts: list[str]
) -> None:
    shifts = {"string": (1.0, 1e-15), "espr": (espr, 0.3), positions.FREE: (free, 1.0), "learned": (None, None)}
    rows = positions.frame_of(rows_of_positions({name: metrics_of_shifts(*each) for name, each in shifts.items()}))

    found = [positions.verdict(claim) for claim in positions.claims_of(rows)]
    assert found == [*verdicts, "holds", "holds", "does not hold"]
    (learned,) = cells_in("\n".join(positions.tables(rows)), "`learned`")
    assert learned[1:5] == ["4", "0.500 [0.500, 0.500]", "--", "--"]


def test_a_claim_of_positions_needs_three_seeds_and_one_sign() -> None:
    shifts = {"string": metrics_of_shifts(1.0, 1e-15), positions.FREE: metrics_of_shifts(2.0, None)}
    few = rows_of_positions(shifts, seeds=2)
    first = positions.claims_of(positions.frame_of(few))[0]

    assert positions.verdict(first) == "no verdict with 2 runs"
    assert positions.verdict(first._replace(by_seed=pd.Series([-0.1, 0.1, 0.3]))) == "not decided"
    others = few.assign(mech="slay"), few.assign(suite="paper"), few.assign(is_full=False), few.assign(status="oom")
    assert len(positions.frame_of(pd.concat(others))) == 0
