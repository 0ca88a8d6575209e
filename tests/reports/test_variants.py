"""Settings of a mechanism that were run on some of the tasks, beside its main setting."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthbench.reports.build import build
from synthbench.reports.cells import grid
from synthbench.reports.report import Report
from synthbench.reports.selection import select
from synthbench.reports.statistics import Prior
from synthbench.reports.variants import (
    Variant,
    changes_of,
    conditions_of,
    conditions_table,
    summary_of,
    variant_tables,
    variants_of,
)
from tests.reports._made import TASK_FACTS, climbed, joined

CONV = "transformer:conv=4"


@pytest.fixture(scope="module")
def convolved(core: pd.DataFrame) -> pd.DataFrame:
    """The rows of ``core``, and two mechanisms with a convolution on two of its four tasks."""
    with_conv = [
        climbed({"linear": [5.2, 5.3, 5.1], "softmax": [11, 11, 11]}, "mqar", block=CONV),
        climbed({"linear": [4, 4.2, 3.9], "softmax": [2.9, 3.2, 2.7]}, "parity_running", block=CONV),
    ]
    return joined(core, *with_conv)


def _variants(rows: pd.DataFrame) -> list[Variant]:
    selection = select(rows, "core").without_variants()
    return variants_of(grid(selection.rows), grid(selection.variants))


def test_a_setting_on_fewer_tasks_changes_nothing_in_the_tables_of_all(
    core: pd.DataFrame, convolved: pd.DataFrame
) -> None:
    before, after = (build(rows, None, "core", formats=["md", "pages", "csv"]) for rows in (core, convolved))

    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"README.md", "variants.md", "variants.tex"}
    assert "- Variants: 12 rows of other settings" in str(after["README.md"])


def test_differences_are_of_the_runs_that_both_have(convolved: pd.DataFrame) -> None:
    softmax, linear = _variants(convolved)

    assert [variant.main.name for variant in (softmax, linear)] == ["softmax", "linear"]
    assert linear.words == ("attention_only", CONV)
    assert linear.seeds == (42, 43, 44)
    assert [task.name for task in linear.tasks] == ["mqar", "parity_running"]
    mqar, parity = (TASK_FACTS[task][1].num_levels for task in ("mqar", "parity_running"))
    assert linear.skills[:, 0] * mqar == pytest.approx(np.array([[0.2, 0.3, 0.1], [5.2, 5.3, 5.1]]))
    assert linear.skills[:, 1] * parity == pytest.approx(np.array([[3, 3.2, 2.9], [4, 4.2, 3.9]]))


def test_only_common_seeds_are_compared(convolved: pd.DataFrame) -> None:
    is_conv = convolved["block"] == CONV
    fewer = convolved[~is_conv | (convolved["seed"] == 43)]
    linear = _variants(fewer)[1]

    assert linear.seeds == (43,)
    assert linear.skills.shape == (2, 2, 1)
    (change,) = [change for change in changes_of(_variants(fewer)) if not change.category]
    assert change.difference.low < 0.18 < change.difference.high  # over the two mechanisms
    assert "on all 2 tasks by +0.18, " in change.sentence


def test_a_change_that_several_mechanisms_share_is_averaged_over_them(convolved: pd.DataFrame) -> None:
    changes = changes_of(_variants(convolved))

    of_categories = [(change.category, change.num_tasks) for change in changes]
    assert of_categories == [("recall", 1), ("state_tracking", 1), ("", 2)]
    levels = TASK_FACTS["mqar"][1].num_levels
    of_softmax, of_linear = 11 - np.mean([10.9, 11, 11]), 5.2 - 0.2
    assert changes[0].difference.value == pytest.approx((of_softmax + of_linear) / 2 / levels)
    assert changes[0].difference.low < changes[0].difference.value < changes[0].difference.high
    assert changes[0].means[0] * levels == pytest.approx([np.mean([10.9, 11, 11]), 0.2])
    assert changes[2].difference.value == pytest.approx(np.mean([change.difference.value for change in changes[:2]]))


@pytest.mark.parametrize(
    ("facts", "options"), [({"block": CONV}, {"M": 8}), ({"mech_args": '{"conv":4}'}, {"M": 8, "conv": 4})]
)
def test_the_setting_nearest_to_a_variant_is_its_main_setting(
    core: pd.DataFrame, facts: dict[str, str], options: dict[str, int]
) -> None:
    conv = core[core["mech"] == "linear"].assign(**facts)
    wide = climbed({"linear": [6, 6.1, 6.2]}, "mqar", **{**facts, "mech_args": json.dumps(options)})
    (variant,) = _variants(joined(core, conv, wide))

    assert variant.words == ("M=--", "M=8")


def test_a_matched_size_is_a_variant_that_says_what_was_matched(core: pd.DataFrame) -> None:
    matched = climbed({"linear": [6, 6.1, 6.2]}, "mqar", match="state=64 of linear")
    (variant,) = _variants(joined(core, matched))

    assert variant.words == ("not matched", "state=64 of linear")


def test_a_variant_without_its_main_setting_on_its_tasks_is_not_compared(core: pd.DataFrame) -> None:
    elsewhere = climbed({"linear": [6, 6.1, 6.2]}, "mqar", block=CONV)
    without = core[~((core["mech"] == "linear") & (core["task"] == "mqar"))]

    assert "variants.md" not in build(joined(without, elsewhere), None, "core", formats=["pages"])


def test_the_tables_have_each_setting_under_its_mechanism(convolved: pd.DataFrame) -> None:
    variants = _variants(convolved)
    changes, means, tasks = variant_tables(variants, changes_of(variants))

    settings = [(name, block) for name in ("Softmax", "Linear") for block in ("attention_only", CONV)]
    assert [line.labels for line in means.lines] == settings
    linear_on_mqar = tasks.lines[3].cells[0]
    assert (linear_on_mqar.value, linear_on_mqar.remarks) == ("0.47", ("+0.45",))
    assert means.lines[2].cells[0].value == "2"
    assert [line.labels[1] for line in changes.lines] == ["recall (1)", "state_tracking (1)", "all (2)"]
    assert summary_of(variants, changes_of(variants)).startswith("2 other settings of 2 mechanisms")


def test_settings_that_differ_in_their_state_are_points_of_a_line(core: pd.DataFrame) -> None:
    sizes = {"linear": ([3.1, 3.3, 3.2], [5.2, 5.3, 5.1]), "slay": ([6, 6.2, 6.1], [9, 9.5, 9.2])}
    settings = [
        climbed({mech: heights}, "mqar", mech_args=f'{{"M":{size}}}', state_size=state)
        for mech, of_sizes in sizes.items()
        for size, state, heights in zip((8, 32), (272, 4352), of_sizes, strict=True)
    ]
    files = build(joined(core, *settings), None, "core", formats=["figures"])
    header, *lines = str(files["figures/frontier.csv"]).splitlines()
    points = [line.split(",") for line in lines]

    assert header == "mechanism,setting,state,skill,low,high"
    assert [point[0] for point in points] == ["Linear"] * 3 + ["SLAY"] * 3
    assert [float(point[2]) for point in points] == [272, 1088, 4352] * 2
    assert float(points[2][3]) == pytest.approx(5.2 / TASK_FACTS["mqar"][1].num_levels, abs=1e-6)
    assert files["figures/frontier.svg"]


def test_a_convolution_is_no_point_of_a_frontier(convolved: pd.DataFrame) -> None:
    rows = convolved.assign(state_size=convolved["state_size"].mask(convolved["block"] == CONV, 2000))

    assert "figures/frontier.csv" not in build(rows, None, "core", formats=["figures"])


def in_conditions(rows: pd.DataFrame, **bare: object) -> pd.DataFrame:
    """The rows as those of stock layers, beside the same rows of bare ones."""
    facts: dict[str, Any] = {"condition": "bare", "mech_args": '{"conv":4}', **bare}
    return joined(rows.assign(condition="stock"), rows.assign(**facts)).assign(sees_places=False)


def test_a_part_that_bare_layers_lack_is_a_factor_unless_their_state_has_another_size(core: pd.DataFrame) -> None:
    of_both = in_conditions(core), in_conditions(core, state_size=5000)
    same, larger = (Report(select(rows, "core").without_variants(), None) for rows in of_both)

    assert {change.words for change in same.changes} == {("conv=--", "conv=4")}
    assert (len(larger.conditions), larger.changes) == (4, [])


def test_both_conditions_stand_side_by_side_with_the_agreement_of_their_orders(core: pd.DataFrame) -> None:
    pairs = conditions_of(grid(in_conditions(core)))
    table = conditions_table(pairs, None)

    assert [(pair.main.condition, pair.variant.condition) for pair in pairs] == [("stock", "bare")] * 4
    assert [line.labels[1] for line in table.lines] == ["stock", "bare"] * 4
    assert "of the 4 stock layers and that of their bare ones is 1.00, on the 4 tasks" in table.outcome


def test_a_difference_of_single_runs_has_the_interval_of_a_prior(core: pd.DataFrame) -> None:
    pairs = conditions_of(grid(in_conditions(core[core["seed"] == 42])))
    alone, with_prior = (conditions_table(pairs, prior).lines[1].cells[-3] for prior in (None, Prior(0.01, 5)))

    assert alone.remarks == ("0.00",)
    assert with_prior.remarks[0].startswith("0.00, −")
