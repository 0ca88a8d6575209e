"""The scripts of studies: pairs are counted as the plan says, the page is current, and costs are of one machine."""

import json
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
from tests.cli.commands import python
from tests.reports._made import make_frame
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
    return json.loads(python(str(STUDIES / "language_models/recount.py"), "--json", *options).stdout)


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


@pytest.mark.parametrize(
    ("sign", "by_seed", "verdict"),
    [
        ("negative", [-0.5, -0.4, -0.6], "holds"),
        ("negative", [0.0, 0.0, 0.0], "does not hold"),
        ("negative", [-0.1, 0.1, 0.3], "not decided"),
        ("negative", [-0.5, -0.5], "no verdict with 2 runs"),
        ("zero", [0.5, 0.4, 0.6], "does not hold"),
        ("positive", [0.5, 0.4, 0.6], "holds"),
    ],
)
def test_a_claim_of_positions_needs_three_seeds_and_one_sign(sign: Any, by_seed: list[float], verdict: str) -> None:
    """The committed page shows what is compared, and the outcomes that its rows have."""
    assert positions.verdict(positions.Claim("", "", "", pd.Series(by_seed), sign)) == verdict


def test_claims_of_positions_are_of_full_runs_of_softmax_attention_in_their_suite() -> None:
    suite = positions.SUITE
    rows = make_frame({"softmax": [0.5]}, suite=suite.name, suite_version=suite.version, metrics="{}", eval_loss=1.0)
    others = rows.assign(mech="slay"), rows.assign(suite="paper"), rows.assign(is_full=False), rows.assign(status="oom")

    assert len(positions.frame_of(pd.concat([rows, *others]))) == 1
