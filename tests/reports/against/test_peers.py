"""Numbers that other suites published, beside ours."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from synthbench.knobs import coerce
from synthbench.mechanisms import MECHANISMS
from synthbench.reports.against.peers import compare, peers_table, published_numbers
from synthbench.reports.cells import grid, records
from synthbench.reports.report import Report
from synthbench.reports.selection import select
from synthbench.sources import bibtex
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.tasks.algorithms.bucket_sort import BucketSort

MakeFrame = Callable[..., pd.DataFrame]


def metrics(**scores: float) -> str:
    """Of a row: ``x2=0.8`` is the accuracy at twice the length."""
    return json.dumps({f"{factor}.score": score for factor, score in scores.items()})


def test_numbers_are_of_tasks_tests_and_mechanisms_that_the_suite_can_run() -> None:
    suite = load_suite("peers")

    assert {number.task for number in published_numbers()} == set(suite.tasks)
    assert {factor for number in published_numbers() for factor in number.factors} <= {
        1,
        *(suite.evaluation.stretches or ()),
    }
    assert bibtex({number.source for number in published_numbers()})
    assert all(0 <= number.value <= 1 for number in published_numbers())
    for number in published_numbers():
        coerce("mechanism", MECHANISMS[number.mechanism], number.arguments)  # raises where there is no such argument


def test_ours_is_the_mean_over_the_lengths_and_then_over_seeds(make_frame: MakeFrame) -> None:
    rows = make_frame({"lstm": [1.0, 0.9]}, task="parity_final")
    rows["metrics"] = [metrics(x2=1.0, x4=0.8, x8=0.6), metrics(x2=0.9, x4=0.5, x8=0.4)]
    (comparison,) = compare(grid(rows), records(rows))

    assert comparison.published.value == 1.0
    assert comparison.ours.scores == pytest.approx({42: 0.8, 43: 0.6})
    assert comparison.trained.scores == {42: 1.0, 43: 0.9}
    table = peers_table(grid(rows), records(rows))
    assert table is not None
    ((_, measure, published, ours, difference, trained, *_),) = [line.cells for line in table.lines]
    assert (measure.value, published.value, ours.value, difference.value) == ("accuracy", "1.000", "0.700", "−0.300")
    assert trained.value == "0.950"
    assert {"deletang2023chomsky"} <= set(table.sources)
    assert table.outcome == "0 of 1 published numbers lie within 0.03 of ours."


def test_eigenvalues_tell_numbers_of_one_mechanism_apart(make_frame: MakeFrame) -> None:
    rows = make_frame({"deltanet": [1.0, 1.0]}, task="parity_final", mech_args='{"eigenvalues":"signed"}')
    rows["metrics"] = json.dumps({f"x{factor}.skill": 0.5 for factor in (2, 4, 8)})

    (comparison,) = compare(grid(rows), records(rows))
    assert (comparison.published.value, comparison.ours.mean) == (1.0, 0.5)


def test_a_run_that_was_not_tested_at_a_length_is_not_compared(make_frame: MakeFrame) -> None:
    rows = make_frame({"lstm": [1.0, 1.0]}, task="parity_final", metrics=metrics(x2=1.0, x4=0.8))

    assert not compare(grid(rows), records(rows))
    assert peers_table(grid(rows), records(rows)) is None


def test_only_the_suite_of_that_name_has_the_page(make_frame: MakeFrame) -> None:
    def pages(suite: str) -> set[str]:
        rows = make_frame({"softmax": [1.0, 0.9]}, task="mqar", suite=suite)
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
