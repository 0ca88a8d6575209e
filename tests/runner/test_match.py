"""Widths and counts that meet a number of parameters or state elements."""

import re
from dataclasses import replace

import pytest

from synthbench.mechanisms.performer import Performer
from synthbench.options import _options_of
from synthbench.results.schema import split_match
from synthbench.runner.match import (
    TOLERANCE,
    all_matched,
    matched,
    misses,
    size_of,
    target_of,
)
from synthbench.runner.plan import make_cells, with_block_and_positions
from synthbench.suites import load_suite
from tests.training.cells import make_cell


@pytest.mark.parametrize(("mechanism", "target"), [("slay", 4096), ("linear", 3000), ("softmax", 9000)])
def test_states_meet_the_target_where_one_number_is_too_coarse_by_two(mechanism: str, target: int) -> None:
    resized = matched(make_cell("copy", mechanism), f"state={target}")

    assert abs(size_of(resized, "state") - target) <= TOLERANCE * target


@pytest.mark.parametrize("block", ["attention_only", "attention_only:layers=4"])
@pytest.mark.parametrize("mechanism", ["lstm", "rewa-geometric", "identity"])
def test_parameters_meet_those_of_softmax_in_as_many_layers(mechanism: str, block: str) -> None:
    cell = make_cell("copy", mechanism, block=block)
    target = size_of(make_cell("copy", "softmax", block=block), "params")
    resized = matched(cell, f"params={target}")

    assert target_of(cell, "params") == ("params", target)
    assert abs(size_of(resized, "params") - target) <= TOLERANCE * target


def test_a_count_that_was_added_later_is_changed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before, options = make_cell("copy", "performer"), _options_of
    added = {name: replace(option, absent=option.default) for name, option in options(Performer).items()}
    monkeypatch.setattr("synthbench.options._options_of", lambda unit: added if unit is Performer else options(unit))
    cell = make_cell("copy", "performer")
    resized = matched(cell, f"state={2 * size_of(before, 'state')}")

    assert cell.resolved_mechanism_arguments == {}
    assert resized.resolved_mechanism_arguments == {"M": 128}


def test_for_parameters_the_width_changes_before_what_makes_it_another_mechanism() -> None:
    cell = make_cell("copy", "deltaproduct")
    resized = matched(cell, f"params={int(0.8 * size_of(cell, 'params'))}")

    assert resized.suite.model.model_dim < cell.suite.model.model_dim
    assert resized.resolved_mechanism_arguments["steps"] == cell.resolved_mechanism_arguments["steps"]


def test_what_fits_stays_as_it_is() -> None:
    cell = make_cell("copy", "slay")
    targets = (f"state={size_of(cell, 'state')}", f"params={int(0.96 * size_of(cell, 'params'))}")

    for resized in (matched(cell, target) for target in targets):
        assert resized.suite is cell.suite
        assert resized.mechanism_arguments is cell.mechanism_arguments


def test_a_matched_cell_says_what_was_asked_for_and_of_what() -> None:
    cell = make_cell("copy", "performer")
    resized = matched(cell, "state=2048")

    assert resized.match == "state=2048 of performer:guard=add,delta=1e-06,M=64"
    assert split_match(resized.match)[0] == "state=2048"
    assert resized.identity["match"] == resized.match
    assert "match" not in cell.identity
    assert misses(resized, cell.suite) == ""
    assert re.fullmatch(
        r"it has [0-9]+ state elements, not 2048 within 5%", misses(replace(cell, match=resized.match), cell.suite)
    )


def test_without_a_number_the_target_is_that_of_the_first_mechanism_on_the_same_task() -> None:
    short, long = (matched(make_cell("copy", "performer", length=length), "state") for length in (16, 32))

    assert short.match == long.match
    assert int(short.mechanism_arguments["M"]) < int(long.mechanism_arguments["M"])
    assert misses(replace(short, length=32), short.suite) != ""


def test_controls_stay_as_they_are() -> None:
    softmax, mean = make_cell("copy", "softmax"), make_cell("copy", "mean")
    resized = all_matched([softmax, mean], "state")

    assert resized[0].match == "state of softmax"
    assert resized[1] is mean


@pytest.mark.parametrize("condition", ["stock", "bare"])
def test_matching_changes_no_part_of_a_layer(condition: str) -> None:
    suite = with_block_and_positions(load_suite("core"), block=None, positions=None, condition=condition)
    (cell,) = make_cells(suite, {"mqar": {}}, {"deltanet": {}}, device_type="cpu", is_full=True)
    (resized,) = all_matched([cell], "state=2048")

    assert resized.resolved_mechanism_arguments == cell.resolved_mechanism_arguments
    assert resized.suite.model.model_dim != cell.suite.model.model_dim
