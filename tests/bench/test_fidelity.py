from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from synthbench.bench import fidelity
from synthbench.bench.rows import Row, Table, load
from synthbench.errors import StoreError
from tests.training.cells import CPU

SEEDS = (0, 1)


def fresh() -> Table:
    return Table(fidelity.IDENTITY, CPU)


def measured(seeds: Sequence[int], table: Table | None = None, **changes: Any) -> list[Row]:
    return list(fidelity.measure(["small"], seeds, table or fresh(), num_repeats=1, **changes))


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return measured(SEEDS)


@pytest.fixture(scope="module")
def small(rows: list[Row]) -> dict[str, dict[str, float]]:
    return {row["estimator"]: row for row in fidelity.summary(rows)}


def test_the_audits_errors_are_found_again(small: dict[str, dict[str, float]]) -> None:
    # Two seeds there as here; the audit's own two differ by up to 0.04 (Laplace-only).
    audited = {
        "exact": 0.0, "quadrature": 0.027, "square alone": 0.335, "anchors, limit": 0.50, "Laplace, limit": 0.567,
        "slay-laplace": 0.61, "mean": 0.643, "slay": 0.668, "slay-hadamard": 0.84,
    }  # fmt: skip
    assert {name: small[name]["rel_l2"] for name in audited} == pytest.approx(audited, abs=0.04)


def test_at_the_smallest_budget_slay_is_no_better_than_the_mean_of_what_was(small: dict[str, dict[str, float]]) -> None:
    assert not small["slay"]["better_than_mean"]
    assert small["slay-exact"]["better_than_mean"]


def test_each_approximation_adds_its_part_of_the_error(small: dict[str, dict[str, float]]) -> None:
    nodes, *one_more = (
        small[name]["rel_l2"] for name in ("quadrature", "quadrature and anchors", "quadrature and random features")
    )

    assert nodes < min(one_more)
    assert max(one_more) < small["slay"]["rel_l2"]


def test_without_biases_all_errors_are_larger(small: dict[str, dict[str, float]]) -> None:
    _exact, _slay, mean, *_ = fidelity.summary(measured([0], bias=False, mechanisms={"slay": {}}))

    assert mean["estimator"] == "mean"
    assert mean["rel_l2"] > small["mean"]["rel_l2"] + 0.1


def test_errors_of_what_is_equal_opposite_and_scaled() -> None:
    expected = torch.tensor([[3.0, 4.0]])
    for factor, errors in ((1, (0, 1, 0)), (-1, (2, -1, 50)), (2, (1, 1, 12.5))):
        named = dict(zip(("rel_l2", "cosine", "mse"), errors, strict=True))
        assert fidelity.errors(factor * expected, expected) == pytest.approx(named, abs=1e-6)


def test_the_sweep_changes_one_thing_at_a_time() -> None:
    rows = list(fidelity.sweep([0], fresh(), num_repeats=1))

    small, *changed = (row for row in rows if row["estimator"] == "slay")
    assert {row["rel_l2"] for row in changed}.isdisjoint({small["rel_l2"]})
    assert all(sum(row[key] != small[key] for key in "RDP") <= 1 for row in changed)


def test_rows_are_kept_with_what_they_were_measured_on_and_read_as_no_other_table(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "rows.parquet"
    table = Table(["estimator"], torch.device("cpu"), file)
    table.add({"estimator": "mean", "rel_l2": 0.5})

    (row,) = load(file)
    assert (row["rel_l2"], row["device_type"], row["torch"]) == (0.5, "cpu", str(torch.__version__))
    with pytest.raises(StoreError, match="without 'bias'"):
        Table(["estimator", "bias"], torch.device("cpu"), file)
    with pytest.raises(StoreError, match="cannot be read"):
        load(tmp_path / "none.parquet")


def test_a_clamped_denominator_makes_the_errors_of_signed_features_as_large_as_the_published_ones() -> None:
    mechanisms = {"slay-tensorsketch": {"guard": "clamp"}, "slay-maclaurin": {"guard": "clamp"}}
    rows = measured([0], mechanisms=mechanisms)

    errors = {row["estimator"]: row["rel_l2"] for row in rows}
    assert list(errors) == ["exact", "slay", "mean", "slay-tensorsketch:guard=clamp", "slay-maclaurin:guard=clamp"]
    assert min(list(errors.values())[3:]) > 1e5


def test_what_is_there_of_the_same_version_is_not_measured_again(rows: list[Row]) -> None:
    table = fresh()
    for row in rows:
        table.add(row)
    versions = {row["estimator"]: row["mech_version"] for row in table.rows}
    (hadamard,) = (row for row in table.rows if (row["estimator"], row["seed"]) == ("slay-hadamard", 1))
    assert measured(SEEDS, table) == []
    table.add({**hadamard, "mech_version": "0+older against 1+same"})

    again = measured(SEEDS, table)

    assert versions["slay"] == versions["mean"] == "1 against 1"
    assert {row["seed"] for row in again} == {1}
    assert {row["estimator"]: row["mech_version"] for row in again} == versions
    assert len(table.rows) == len(rows)
