"""The state-tracking tasks: targets recomputed from the inputs alone, one sequence at a time; the groups."""

from collections import Counter
from collections.abc import Callable
from functools import reduce
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from synthbench.options import options_of
from synthbench.tasks.base import IGNORE, TASKS
from synthbench.tasks.state_tracking._groups import A4_Z5, A5, S3, S5, Z60, Group
from synthbench.tasks.state_tracking.broken_grammar import rule_of
from tests.tasks._known import Known, Reference, targets_from, value_of


def after_string(answer_to: Callable[[Any, list[int]], int]) -> Reference:
    """The targets of a task that asks once, where a string ends."""

    def reference(task: Any, inputs: list[int]) -> list[set[int]]:
        end = inputs.index(task.num_symbols)
        assert end >= task.shortest
        assert max(inputs[:end]) < task.num_symbols
        assert set(inputs[end + 1 :]) <= {task.num_symbols + 1}
        return targets_from(inputs, end, [answer_to(task, inputs[:end])])

    return reference


def unequal_pairs(_task: Any, string: list[int]) -> int:
    return sum(first != second for first, second in pairwise(string)) % 2


def ones(_task: Any, string: list[int]) -> int:
    return string.count(1) % 2


def place(task: Any, string: list[int]) -> int:
    return int((string.count(1) - string.count(2)) % task.modulus)


def value(task: Any, string: list[int]) -> int:
    assert len(string) % 2 == 1
    assert all((symbol < task.modulus) == (position % 2 == 0) for position, symbol in enumerate(string))
    return value_of(string, task.modulus, "+-*")


def ones_so_far(_task: Any, inputs: list[int]) -> list[set[int]]:
    return [{inputs[: position + 1].count(1) % 2} for position in range(len(inputs))]


def word(task: Any, inputs: list[int]) -> list[set[int]]:
    elements = [tuple(element) for element in task.group.elements.tolist()]
    state, targets = elements[0], []
    for position, token in enumerate(inputs):
        if position % task.tokens_per_element:
            assert token == 0
        else:
            assert task.first_input <= token < task.first_input + task.num_inputs
        state = tuple(elements[token][point] for point in state)
        is_scored = (position + 1) % task.tokens_per_element == 0
        targets.append({elements.index(state) if is_scored else IGNORE})
    return targets


def followers(task: Any) -> dict[int, set[int]]:
    """The symbols that may follow each symbol."""
    rule = rule_of(task.num_symbols, task.branches)
    onwards = {int(step): np.roll(rule.symbols, -step).tolist() for step in rule.steps}
    return {
        symbol: {turned[place] for turned in onwards.values()} for place, symbol in enumerate(rule.symbols.tolist())
    }


def reached(task: Any, inputs: list[int]) -> list[set[int]]:
    may_follow = followers(task)
    state, distance, targets = inputs[0], 0, []
    for position, token in enumerate(inputs):
        distance += 1
        if position == 0 or token in may_follow[state]:
            state, distance = token, 0
        assert distance == 0 or token != state
        assert distance <= task.longest_gap
        nearest = 1 if position < task.asked_before else task.nearest
        targets.append({state if distance >= nearest else IGNORE})
    return targets


WORDS = "s3_words", "a4_z5_words", "a5_words", "z60_words", "s5_words", "s5_swaps"
KNOWN = {
    "broken_grammar": Known(reached),
    "even_pairs": Known(after_string(unequal_pairs), is_padded=True),
    "parity_final": Known(after_string(ones), is_padded=True),
    "parity_running": Known(ones_so_far),
    "cycle_navigation": Known(after_string(place)),
    "modular_arithmetic": Known(after_string(value), is_padded=True),
    **{name: Known(word) for name in WORDS},
}


def test_the_floor_of_swaps_is_that_of_all_words() -> None:
    modes = []
    for length in range(1, 5):
        words = product(range(1, 11), repeat=length)
        ends = Counter(reduce(lambda state, swap: int(S5.products[state, swap]), word, 0) for word in words)
        modes.append(max(ends.values()) / 10**length)

    assert TASKS["s5_swaps"]().floor(4).value == pytest.approx(np.mean(modes), abs=1e-12)


@pytest.mark.parametrize(
    ("group", "order", "num_commutators"),
    # Only A5 has order 60 and 60 commutators.
    [(S3, 6, 3), (A4_Z5, 60, 4), (A5, 60, 60), (Z60, 60, 1), (S5, 120, 60)],
)
def test_products_form_a_group_of_the_order(group: Group, order: int, num_commutators: int) -> None:
    numbers, (first, second) = np.arange(order), np.indices((order, order))
    products = group.products

    assert group.order == order
    assert len(group.commutators) == num_commutators
    # Distinct permutations whose products are among them are a group.
    assert len(np.unique(group.elements, axis=0)) == order
    composed = np.take_along_axis(group.elements[second], group.elements[first], axis=2)
    np.testing.assert_array_equal(group.elements[products], composed)
    np.testing.assert_array_equal(products[0], numbers)
    np.testing.assert_array_equal(products[numbers, group.inverses], np.zeros(order))
    # What the group forgets, it forgets of either order.
    np.testing.assert_array_equal(group.representatives[products], group.representatives[products.T])


@pytest.mark.parametrize("name", WORDS)
def test_the_fewest_inputs_generate_the_group(name: str) -> None:
    unit: Any = TASKS[name]
    fewest = options_of(unit)["num_inputs"].low
    assert fewest is not None
    inputs = unit.group.elements[unit.first_input : unit.first_input + int(fewest)]

    assert Group(tuple(map(tuple, inputs.tolist()))).order == unit.group.order
