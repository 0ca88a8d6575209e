import json
from typing import Any

import pandas as pd
import pytest

from synthbench.bits import BITS
from synthbench.errors import UsageError
from synthbench.reports.selection import default_suite, select, suites_in
from tests.reports._made import make_frame

OLDER, UNCHECKED = "of older versions", "of mechanisms that did not pass the check of causality"
LATER = pd.Timestamp("2027-01-01T00:00:00Z")
EARLIER = pd.Timestamp("2025-01-01T00:00:00Z")


def test_shortened_rows_and_a_score_without_a_passed_check_of_causality_never_enter() -> None:
    shortened = make_frame({"performer": [0.5]}, is_full=False)
    unchecked = make_frame({"slay": [0.9, 0.9]}, causal_checked=False)
    refused = make_frame({"linear": [None]}, causal_checked=False, status="contract")
    chosen = select(pd.concat([make_frame({"softmax": [0.5]}), shortened, unchecked, refused]), "paper")

    assert set(chosen.rows["mech"]) == {"softmax", "linear"}
    assert chosen.left_out == {UNCHECKED: 2}
    with pytest.raises(UsageError, match="no row of suite 'paper' is of a mechanism that passed"):
        select(unchecked, "paper")


def test_the_newest_suite_version_is_the_highest_number_not_the_last_run() -> None:
    ninth = make_frame({"slay": [0.1]}, suite_version="2026.9", finished_at=LATER)
    rows = pd.concat([ninth, make_frame({"slay": [0.2]}, suite_version="2026.10")])

    assert select(rows, "paper").suite_version == "2026.10"
    assert select(rows, "paper").rows["score"].tolist() == [0.2]
    assert select(rows, "paper", "2026.9").rows["score"].tolist() == [0.1]


def test_rows_of_a_suite_that_was_changed_under_its_version_are_not_mixed() -> None:
    def config(steps: int, width: int, **more: Any) -> str:
        return json.dumps({"training": {"steps": steps}, "model": {"model_dim": width, "num_layers": 2}} | more)

    of_ladder = make_frame({"yat": [0.3]}, config_json=config(200, 64, ladder={"batch_tokens": 1024}))
    of_more_rates = make_frame({"slay": [0.3]}, config_json=config(200, 64), tuning_trials=3)
    odd = [make_frame({"gla": [0.3]}, config_json=text) for text in ("[]", '{"model": 3}', "{", "1")]
    old = make_frame({"slay": [0.1, 0.2], "linear": [0.4]}, config_json=config(100, 64))
    new = make_frame({"slay": [0.5]}, config_json=config(200, 64), finished_at=LATER)
    matched = make_frame({"softmax": [0.6]}, config_json=config(200, 48), match="params of slay")
    selection = select(pd.concat([new, old, matched, of_more_rates, of_ladder, *odd]), "paper")

    assert selection.rows["score"].tolist() == [0.6, 0.5]
    assert selection.left_out == {"of another protocol under the same suite and version": 9}


def test_settings_of_a_mechanism_stand_beside_each_other_and_share_a_version() -> None:
    narrow = make_frame({"slay": [0.1, 0.2]}, mech_args='{"P":4}')
    wide = make_frame({"slay": [0.5]}, mech_args='{"P":8}', finished_at=LATER)
    outdated = make_frame({"slay": [0.9]}, mech_args='{"P":2}', mech_version="0+aa", finished_at=EARLIER)
    selection = select(pd.concat([wide, narrow, outdated]), "paper")

    scores = selection.rows.groupby("mech_args")["score"].apply(list).to_dict()
    assert scores == {'{"P":4}': [0.1, 0.2], '{"P":8}': [0.5]}
    assert selection.left_out == {OLDER: 1}


def test_what_is_matched_stays_together_though_every_task_has_its_own_arguments() -> None:
    asked = "state of slay:P=8"
    short = make_frame({"slay": [0.1, 0.2]}, match=asked, mech_args='{"P":4}', d_model=64)
    long = make_frame({"slay": [0.5]}, match=asked, mech_args='{"P":9}', d_model=96, seq_len=64)
    plain = make_frame({"slay": [0.3]}, mech_args='{"P":8}')
    again = make_frame({"slay": [0.6]}, match=asked, mech_args='{"P":10}', seq_len=64, finished_at=LATER)
    selection = select(pd.concat([short, long, plain, again]), "paper")

    matched = selection.rows[selection.rows["match"].notna()]
    assert sorted(matched["score"]) == [0.1, 0.2, 0.6]
    assert len(selection.rows) == 4
    assert selection.left_out == {OLDER: 1}  # other arguments on the same task: found by an older search


@pytest.mark.parametrize(
    ("changes", "shown", "num_older"),
    [
        ({"mech_version": "2+cc"}, [0.4, 0.5], 3),
        ({"d_model": 32}, [0.4, 0.5], 3),
        ({"task_version": "2+cc"}, [0.5], 4),  # for every mechanism
        ({"mech_version": "2+cc", "positions": "espr"}, [0.1, 0.2, 0.3, 0.4, 0.5], 0),  # each encoding has its own
    ],
)
def test_of_two_versions_the_one_with_the_newest_row_is_shown_and_the_other_counted(
    changes: dict[str, Any], shown: list[float], num_older: int
) -> None:
    old = make_frame({"slay": [0.1, 0.2, 0.3], "linear": [0.4]})
    new = make_frame({"slay": [0.5]}, finished_at=LATER, **changes)
    selection = select(pd.concat([new, old]), "paper")

    assert sorted(selection.rows["score"]) == shown
    assert selection.left_out == ({OLDER: num_older} if num_older else {})


def test_a_repeated_seed_counts_once_and_its_newest_successful_row_is_taken() -> None:
    old = make_frame({"slay": [0.1, 0.2]})
    new = make_frame({"slay": [0.9]}, finished_at=LATER, run_id="another device")
    selection = select(pd.concat([new, old]), "paper")

    assert dict(zip(selection.rows["seed"], selection.rows["score"], strict=True)) == {42: 0.9, 43: 0.2}
    assert selection.left_out == {"whose seed has a newer or a successful row": 1}
    failed = make_frame({"slay": [None]}, finished_at=LATER, status="oom", run_id="another device")
    assert select(pd.concat([old, failed]), "paper").rows["status"].tolist() == ["ok", "ok"]


def test_the_suites_of_rows_are_those_of_full_ones_the_newest_first() -> None:
    shortened = make_frame({"slay": [0.1]}, is_full=False, suite="smoke", finished_at=LATER)
    full = make_frame({"slay": [0.1]}, suite="core")

    assert suites_in(shortened) == ["smoke"]
    assert suites_in(pd.concat([shortened, full])) == ["core"]
    assert suites_in(full.iloc[:0]) == []
    paper, extra, digits = (full.assign(suite=name, finished_at=LATER) for name in ("paper", "core.extra", "digits"))
    assert suites_in(extra) == ["core.extra"]
    for later, suites in ((paper, ["paper", "core"]), (extra, ["core"]), (digits, ["core"])):
        assert suites_in(pd.concat([full, later])) == suites


def test_the_suite_of_ones_newest_row_is_shown_or_else_the_main_one() -> None:
    of_suites = dict.fromkeys(("smoke", "core", "climb"), EARLIER) | {"paper": LATER}
    rows = pd.concat(make_frame({"slay": [0.1]}, suite=suite, finished_at=at) for suite, at in of_suites.items())

    def shown(own: set[str], present: set[str]) -> str:
        some = rows[rows["suite"].isin(present)]
        return default_suite(some, some["suite"].isin(own))

    assert shown({"smoke"}, {"smoke", "core", "paper"}) == "smoke"
    assert shown({"smoke", "paper"}, {"smoke", "core", "paper"}) == "paper"
    assert shown(set(), {"smoke", "core", "paper"}) == "core"
    assert shown(set(), {"smoke", "paper"}) == "paper"
    assert shown(set(), set()) == "core"
    assert shown({"climb"}, {"climb", "paper"}) == "core"  # which has its rows by now
    assert shown(set(), {"climb", "paper"}) == "core"


def test_each_seed_shows_the_learning_rate_that_is_best_in_its_validation() -> None:
    def tried(rate: float, validation: float, scores: list[float | None]) -> pd.DataFrame:
        return make_frame({"slay": scores}, lr=rate, metrics=json.dumps({"validation_accuracy": validation}))

    good_in_test = tried(1e-2, 0.6, [0.9, 0.9])  # but the test does not choose
    equal = tried(1e-3, 0.7, [0.5, 0.4]), tried(1e-4, 0.7, [0.3, 0.2])
    selection = select(pd.concat([good_in_test, *equal, make_frame({"linear": [0.1, 0.2]})]), "paper")

    assert selection.rows.groupby("mech")["lr"].unique().map(list).to_dict() == {"slay": [1e-4], "linear": [1e-3]}
    assert selection.left_out == {"of learning rates that did worse in validation": 4}
    # A rate that diverges is chosen for the other seed only.
    chosen = select(pd.concat([tried(1e-1, 0.9, [0.9, None]), tried(1e-3, 0.5, [0.5, 0.5])]), "paper").rows
    assert chosen.sort_values("seed")[["lr", "score"]].to_numpy().tolist() == [[1e-1, 0.9], [1e-3, 0.5]]


def test_mechanisms_and_seeds_can_be_chosen() -> None:
    rows = make_frame({"slay": [0.1, 0.2, 0.3], "linear": [0.4, 0.5, 0.6]})

    assert select(rows, "paper", mechanisms=["slay"], seeds=[42, 43]).rows["score"].tolist() == [0.1, 0.2]


@pytest.mark.parametrize(("metric", "num_variants"), [("accuracy", 2), (BITS, 0)])
def test_an_option_that_was_tried_on_some_tasks_is_a_variant_where_tasks_have_a_skill(
    metric: str, num_variants: int
) -> None:
    main = [make_frame({"slay": [0.1, 0.2]}, task=task, metric_name=metric) for task in ("copy", "sort")]
    tried = make_frame({"slay": [0.5, 0.6]}, task="sort", metric_name=metric, mech_args='{"P":4}')
    selection = select(pd.concat([*main, tried]), "paper").without_variants()

    assert len(selection.variants) == num_variants
    assert len(selection.rows) == 6 - num_variants


def test_the_fuller_setting_has_all_tasks_or_is_the_same_one_elsewhere() -> None:
    """Neither option of slay has all three tasks, so both stand in the tables."""
    tasks_of = {"softmax": ("copy", "sort", "reverse"), "slay": ("copy", "sort")}
    main = [make_frame({mech: [0.1, 0.2]}, task=task) for mech, tasks in tasks_of.items() for task in tasks]
    option = make_frame({"slay": [0.5, 0.6]}, task="sort", mech_args='{"P":4}')
    moved = make_frame({"slay": [0.5, 0.6]}, task="sort", positions="none")
    selection = select(pd.concat([*main, option, moved]), "paper").without_variants()

    assert set(selection.variants["positions"]) == {"none"}
    assert set(selection.rows["mech_args"]) == {*main[0]["mech_args"], '{"P":4}'}
