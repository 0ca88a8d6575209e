"""Numbers that other suites published, beside ours."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthbench.knobs import coerce
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.reports.against.peers import Comparison, compare, peers_table, published_numbers
from synthbench.reports.build import build
from synthbench.reports.cells import grid
from synthbench.reports.report import Report
from synthbench.reports.selection import Selection, select
from synthbench.sources import bibtex
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.tasks.algorithms.bucket_sort import BucketSort

MakeFrame = Callable[..., pd.DataFrame]
AS_COMPARED = {"suite": "peers", "block": "transformer"}
STEPS = {"batch_size": 64, "step_ms_median": 64.0, "ensemble_size": 1}


def metrics(**scores: float) -> str:
    """Of a row: ``x2=0.8`` is the accuracy at twice the length."""
    return json.dumps({f"{factor}.score": score for factor, score in scores.items()})


def everywhere(score: float, measure: str = "score") -> str:
    """Of a row with this score at every length."""
    return json.dumps({f"x{factor}.{measure}": score for factor in (2, 4, 8)})


def config(rates: str = '"tuning":{"learning_rates":[0.001,0.003]}', **training: float) -> str:
    """The configuration of a row, as far as it decides what was changed."""
    return f'{{"model":{{"model_dim":64}},"training":{json.dumps({"steps": 2000} | training)},{rates}}}'


@pytest.fixture
def made(make_frame: MakeFrame) -> Callable[..., pd.DataFrame]:
    """Make the rows of one setting: scores at every length that is longer, by seed; 1 at the length of the training."""

    def make(mech: str, scores: Sequence[float], /, **changes: Any) -> pd.DataFrame:
        facts = {"task": "even_pairs", "positions": "rope", "config_json": config(), **AS_COMPARED, **STEPS, **changes}
        rows = make_frame({mech: [1.0] * len(scores)}, **facts).assign(metrics=[*map(everywhere, scores)])
        setting = "-".join(str(facts[name]) for name in ("suite", "block", "positions"))
        return rows.assign(run_id=rows["run_id"] + setting)

    return make


def chosen(*frames: pd.DataFrame) -> Selection:
    return select(pd.concat(frames, ignore_index=True), "peers").without_variants()


def compared(*frames: pd.DataFrame) -> Comparison:
    """The only comparison of some rows."""
    selection = chosen(*frames)
    (comparison,) = compare(grid(selection.rows), selection)
    return comparison


def lines_in(*frames: pd.DataFrame) -> list[tuple[str, dict[str, str]]]:
    """The second label of each line of the table, and its values by heading."""
    selection = chosen(*frames)
    table = peers_table(grid(selection.rows), selection)
    assert table is not None
    headings = [column.label for column in table.columns]
    return [
        (line.labels[1], dict(zip(headings, [cell.value for cell in line.cells], strict=True))) for line in table.lines
    ]


def test_numbers_are_of_tasks_tests_and_mechanisms_that_the_suite_can_run() -> None:
    suite = load_suite("peers")

    assert {number.task for number in published_numbers()} == set(suite.tasks)
    assert {number.mechanism for number in published_numbers()} == set(suite.mechanisms)
    assert {factor for number in published_numbers() for factor in number.factors} <= {
        1,
        *(suite.evaluation.stretches or ()),
    }
    assert bibtex({number.source for number in published_numbers()})
    assert all(0 <= number.value <= 1 for number in published_numbers())
    for number in published_numbers():
        coerce("mechanism", MECHANISMS[number.mechanism], number.arguments)  # raises where there is no such argument


def test_numbers_are_compared_in_the_setting_of_the_suite() -> None:
    model = load_suite("peers").model

    for number in published_numbers():
        turns = issubclass(MECHANISMS[number.mechanism], Attention)
        assert number.positions == (model.positions if turns else model.positions_otherwise), number
        assert number.block == model.block


def test_a_larger_budget_changes_nothing_but_the_budget() -> None:
    short, long = load_suite("peers"), load_suite("peers-long")

    assert (long.model, long.evaluation, long.seeds, long.tasks) == (
        short.model,
        short.evaluation,
        short.seeds,
        short.tasks,
    )
    assert long.training.steps > short.training.steps
    assert set(long.training.learning_rates) <= set(short.training.learning_rates)


def test_ours_is_the_mean_over_the_lengths_and_then_over_seeds(made: MakeFrame) -> None:
    rows = made("lstm", [0, 0], task="parity_final", positions="none")
    rows["score"] = [1.0, 0.9]
    rows["metrics"] = [metrics(x2=1.0, x4=0.8, x8=0.6), metrics(x2=0.9, x4=0.5, x8=0.4)]
    main = compared(rows).main

    assert main.published.value == 1.0
    assert main.ours.scores == pytest.approx({42: 0.8, 43: 0.6})
    assert main.trained.scores == {42: 1.0, 43: 0.9}
    ((_, line),) = lines_in(rows)
    assert (line["Measure"], line["Published"], line["Ours"]) == ("accuracy", "1.000", "0.700")
    assert (line["Difference"], line["At 1×"]) == ("−0.300", "0.950")
    selection = chosen(rows)
    table = peers_table(grid(selection.rows), selection)
    assert table is not None
    assert {"deletang2023chomsky"} <= set(table.sources)
    assert table.outcome.startswith(
        "1 of 1 published numbers lie within 3 standard errors of ours, 0 within 0.03; in half of them a difference of "
        "0.60 would go unnoticed."
    )


def test_three_standard_errors_of_ours_count_twice(made: MakeFrame) -> None:
    """Scores of 0.9, 0.94 and 0.98 have a standard error of 0.04 / √3."""
    near, far = (compared(made("softmax", [mean - 0.04, mean, mean + 0.04])).main for mean in (0.84, 0.82))

    assert near.reach == pytest.approx(6 * 0.04 / math.sqrt(3), abs=1e-4)
    assert near.difference == pytest.approx(0.84 - 0.964)
    assert (near.is_within, far.is_within) == (True, False)


def test_seeds_that_agree_by_luck_have_the_error_of_their_test_sequences(made: MakeFrame) -> None:
    """At twice the length 512 of 1,024 targets are scored, at four times 256, at eight times 128."""
    agreeing = made("softmax", [0.5, 0.5, 0.5])
    counted = compared(agreeing.assign(n_eval_examples=1024)).main

    assert compared(agreeing).main.error == 0
    assert counted.error == pytest.approx(0.5 * math.sqrt(1 / 512 + 1 / 256 + 1 / 128) / 3 / math.sqrt(3))


def test_one_seed_is_within_nothing(made: MakeFrame) -> None:
    ((_, line),) = lines_in(made("softmax", [0.964]))

    assert (line["3 SE"], line["Within"]) == ("--", "--")


def test_the_cost_of_their_budget_is_their_sequences_at_our_fastest_step(made: MakeFrame) -> None:
    rows = made("softmax", [0.5, 0.5, 0.5], task="parity_final").assign(step_ms_median=[64.0, 32.0, 128.0])
    rows["metrics"] = everywhere(0.0, "skill")
    hours = compared(rows).hours

    assert hours == pytest.approx(20_000 * 256 * 0.0005 / 3600)
    assert compared(rows).is_affordable
    assert not compared(rows.assign(step_ms_median=640.0)).is_affordable
    ((_, line),) = lines_in(rows.drop(columns="step_ms_median"))
    assert line["Their budget"] == "--"


def test_eigenvalues_tell_numbers_of_one_mechanism_apart(made: MakeFrame) -> None:
    rows = made("deltanet", [0.5, 0.5], task="parity_final", mech_args='{"eigenvalues":"signed"}')
    rows["metrics"] = everywhere(0.5, "skill")
    main = compared(rows).main

    assert (main.published.value, main.ours.mean) == (1.0, 0.5)


def test_a_run_that_was_not_tested_at_a_length_is_not_compared(made: MakeFrame) -> None:
    rows = made("lstm", [1.0, 1.0], task="parity_final", positions="none").assign(metrics=metrics(x2=1.0, x4=0.8))
    selection = chosen(rows)

    assert not compare(grid(selection.rows), selection)
    assert peers_table(grid(selection.rows), selection) is None


def test_a_row_with_something_changed_shows_the_cause(made: MakeFrame) -> None:
    main = made("softmax", [0.56, 0.57, 0.58])
    without = made("softmax", [0.95, 0.96, 0.97], positions="none")
    convolved = made("softmax", [0.70, 0.71, 0.72], block="transformer:conv=4,conv_on=qkv")
    (_, number), *changed = lines_in(main, convolved, without)

    assert number["Cause"] == "positions, shown below"
    assert {label: (line["Ours"], line["Cause"]) for label, line in changed} == {
        "changed: positions": ("0.960", "positions none instead of rope: explains it"),
        "changed: convolution": (
            "0.710",
            "transformer:conv=4,conv_on=qkv instead of transformer: explains a part",
        ),
    }


def test_without_a_row_the_cause_is_a_guess(made: MakeFrame) -> None:
    main = made("softmax", [0.56, 0.57, 0.58])
    ((_, alone),) = lines_in(main)
    (_, number), (_, same) = lines_in(main, made("softmax", [0.55, 0.57, 0.58], positions="none"))
    (_, partly), _ = lines_in(main, made("softmax", [0.75, 0.77, 0.78], positions="none"))

    assert alone["Cause"].startswith("a guess: rotary positions")
    assert (number["Cause"], same["Cause"]) == (
        alone["Cause"],
        "positions none instead of rope: does not explain it",
    )
    assert partly["Cause"].startswith("in part positions, shown below; the rest is a guess: rotary positions")


def test_seeds_that_scatter_explain_nothing(made: MakeFrame) -> None:
    main = made("softmax", [0.56, 0.57, 0.58])
    scattered = compared(main, made("softmax", [0.5, 1.0, 1.0], positions="none"))
    (_, number), (_, line) = lines_in(main, made("softmax", [0.5, 1.0, 1.0], positions="none"))
    _, (_, single) = lines_in(main, made("softmax", [0.96], positions="none"))

    assert scattered.changed[0].is_within
    assert scattered.cause is None
    assert number["Cause"].startswith("a guess")
    assert line["Cause"].endswith("instead of rope: undecided, as the seeds scatter too much")
    assert single["Cause"].endswith("instead of rope: one seed, which shows nothing")


def test_a_larger_budget_of_another_suite_is_named_with_what_it_changes(made: MakeFrame) -> None:
    main = made("lstm", [0.4, 0.5, 0.5], task="cycle_navigation", positions="none", config_json=config(stop_at=0.999))
    longer = config('"learning_rate":0.001', steps=6_000)
    long = made("lstm", [1, 1, 1], task="cycle_navigation", positions="none", suite="peers-long", config_json=longer)
    (_, number), (label, line) = lines_in(main, long)

    assert (number["Cause"], label) == ("budget, shown below", "changed: budget")
    assert line["Cause"] == (
        "steps 6,000 instead of 2,000, stop_at none instead of 0.999, rates 0.001 instead of 0.001 or 0.003: "
        "explains it"
    )
    others = made("lstm", [1, 1, 1], task="cycle_navigation", positions="none", suite="paper", config_json=longer)
    assert len(lines_in(main, others)) == 1


def test_the_fewest_changes_come_first(made: MakeFrame) -> None:
    main = made("softmax", [0.56, 0.57, 0.58])
    wide = made("softmax", [0.96, 0.96, 0.97], suite="peers-wide").assign(
        config_json=config().replace('"model_dim":64', '"model_dim":256')
    )
    both = made("softmax", [0.96, 0.96, 0.97], positions="none", block="transformer:conv=4")
    comparison = compared(both, main, wide)

    assert [tuple(result.changes) for result in comparison.changed] == [("width",), ("positions", "convolution")]
    assert comparison.cause_in_words == "width, shown below"
    assert comparison.changed[0].changes["width"] == "model_dim 256 instead of 64"


def test_another_rate_alone_is_no_other_budget(made: MakeFrame) -> None:
    main = made("softmax", [0.56, 0.57, 0.58])
    fixed = made("softmax", [0.9, 0.9, 0.9], suite="peers-one-rate", config_json=config('"learning_rate":0.001'))
    (changed,) = compared(main, fixed).changed

    assert changed.changes == {"rate": "rates 0.001 instead of 0.001 or 0.003"}


def test_the_table_with_changed_rows_fits_a_page(made: MakeFrame, compile_latex: Callable[..., str]) -> None:
    long = made("softmax", [0.96, 0.96, 0.97], suite="peers-long", config_json=config(steps=6_000))
    both = made("softmax", [0.9, 0.9, 0.8], positions="none", block="transformer:conv=4,conv_on=qkv")
    files = build(pd.concat([made("softmax", [0.56, 0.57, 0.58]), long, both]), None, "peers", formats=["tex"])

    log = compile_latex({"peers.tex": str(files["peers.tex"])}, "letterpaper")
    assert "Overfull" not in log


def test_changed_rows_stand_in_no_other_table(made: MakeFrame) -> None:
    main = made("softmax", [0.56, 0.57, 0.58])
    without = made("softmax", [0.95, 0.96, 0.97], positions="none")
    long = made("softmax", [0.95, 0.96, 0.97], suite="peers-long", config_json=config(steps=6_000))
    before, after = (build(rows, None, "peers", formats=["md", "csv"]) for rows in (main, pd.concat([main, without])))
    further = build(pd.concat([main, without, long]), None, "peers", formats=["md", "csv"])

    assert {name for name in after if after[name] != before.get(name)} == {"README.md", "peers.md"}
    assert {name for name in further if further[name] != after.get(name)} == {"README.md", "peers.md"}
    assert "- Other settings and budgets: 6 rows" in str(further["README.md"])


def test_a_changed_row_alone_stands_in_the_tables(made: MakeFrame) -> None:
    without = made("softmax", [0.95, 0.96, 0.97], positions="none")
    other = made("softmax", [0.56, 0.57, 0.58], task="parity_final")

    assert len(chosen(without).rows) == 3
    assert set(chosen(without, other).rows["positions"]) == {"none", "rope"}


def test_only_the_suite_of_that_name_has_the_page(made: MakeFrame) -> None:
    def pages(suite: str) -> set[str]:
        rows = made("softmax", [1.0, 0.9], suite=suite)
        return set(Report(select(rows, suite), None).pages)

    assert pages("peers") - pages("made-up") == {"peers"}


def test_the_length_alone_gives_what_peers_call_nearly_solved() -> None:
    """Bucket sort of 41 to 500 symbols: 0.919 of the published Transformer is 0.018 above a rule that reads nothing."""
    task = BucketSort()
    at = {length: BucketSort(shortest=length).floor(2 * length + 1).value for length in (10, 40, 500)}

    assert at == pytest.approx({10: 0.60, 40: 0.78, 500: 0.94}, abs=0.005)
    lengths = range(41, 501)
    average = np.mean([BucketSort(shortest=length).floor(2 * length + 1).value for length in lengths])
    assert average == pytest.approx(0.90, abs=0.005)
    assert task.floor(81).value < at[40]


@pytest.mark.parametrize(
    ("task", "arguments", "tokens", "expected"),
    [
        ("reverse_string", {"num_symbols": 2}, 2, 0.5),
        ("odds_first", {"num_symbols": 2}, 2, 0.5),
        ("duplicate_string", {"num_symbols": 2}, 3, 0.5),
        ("missing_duplicate", {"num_symbols": 2}, 2, 0.5),
        ("stack_manipulation", {}, 2, 0.49),
        ("binary_addition", {}, 2, 0.51),
        ("parity_final", {}, 1, 0.5),
        ("cycle_navigation", {}, 1, 0.2),
        ("modular_brackets", {}, 1, 0.30),
    ],
)
def test_floors_are_those_that_others_computed(
    task: str, arguments: dict[str, int], tokens: int, expected: float
) -> None:
    """At 100 symbols; counted by others for the tasks of Delétang et al. (2023) at lengths from 41 to 500."""
    unit = TASKS[task](shortest=100, **arguments)  # type: ignore[call-arg]

    assert unit.floor(100 * tokens + 1).value == pytest.approx(expected, abs=0.01)
