"""The nesting tasks: targets recomputed from the inputs alone, one sequence at a time; the law of random trees."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from operator import and_
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthbench.tasks.base import IGNORE
from synthbench.tasks.nesting._trees import Law, Nodes, grow
from synthbench.tasks.nesting.anbncn import LONGEST_GAP
from synthbench.tasks.nesting.dyck import Dyck
from synthbench.tasks.nesting.grammar_next_token import GrammarNextToken, _grammar, _laws
from synthbench.tasks.nesting.listops import CLOSE, MAX, MED, MIN, SUM
from synthbench.tasks.nesting.prefix_arithmetic import PrefixArithmetic
from tests.tasks._known import SEEDS, Known, Reference, Tokens, assert_shares, last_only, targets_from, value_of

Answers = Callable[[Any, list[int]], list[int]]
"""The answers to what stands before a separator."""


def answering(answers_to: Answers, offset: int = 1) -> Reference:
    """The targets of a task that asks for answers at a separator or after it, the first of which may be shown."""

    def reference(task: Any, inputs: list[int]) -> list[set[int]]:
        *_, separator, hidden, padding = range(task.vocab_size)
        begin = inputs.index(separator if offset else hidden) + offset
        answers = answers_to(task, inputs[: begin - offset])
        is_shown = getattr(task, "is_shown", False)
        num_shown = len(answers) if is_shown else inputs[begin:].index(hidden)
        following = answers[:num_shown] + [hidden] * (len(answers) - num_shown) + [padding] * len(inputs)
        assert inputs[begin:] == following[: len(inputs) - begin]
        if is_shown:
            return targets_from(inputs, begin, answers[1:])
        assert num_shown < len(answers)
        return targets_from(inputs, begin + num_shown, answers[num_shown:])

    return reference


def bracketed_value(expression: list[int], modulus: int, signs: str) -> int:
    is_operator = [modulus <= token < modulus + len(signs) - 2 for token in expression]
    follows_part = [token < modulus or token == modulus + len(signs) - 1 for token in expression]
    # Every operator that is no sign has brackets of its own.
    num_operators = sum(map(and_, is_operator[1:], follows_part))
    assert expression.count(modulus + len(signs) - 2) >= num_operators
    return value_of(expression, modulus, signs)


def value(task: Any, expression: list[int]) -> list[int]:
    assert len(expression) >= task.shortest
    return [bracketed_value(expression, task.modulus, "+-*()")]


def unknown(task: Any, equation: list[int]) -> list[int]:
    *expression, equals, given_value = equation
    assert len(equation) >= task.shortest
    assert equals == task.modulus + 5
    place = expression.index(task.modulus + 4)
    with_digits = [[*expression[:place], digit, *expression[place + 1 :]] for digit in range(task.modulus)]
    values = [bracketed_value(filled, task.modulus, "+-()") for filled in with_digits]
    assert values.count(given_value) == 1
    return [values.index(given_value)]


def list_values(task: Any, expression: list[int]) -> list[int]:
    assert len(expression) >= task.shortest
    arguments: list[list[int]] = [[]]  # of the lists that are open, read from the end
    for token in reversed(expression):
        if token == CLOSE:
            arguments.append([])
        elif token < MIN:
            arguments[-1].append(token)
        else:
            values = sorted(arguments.pop())
            assert 2 <= len(values) <= task.arguments
            assert len(arguments) <= task.depth
            of = {MIN: values[0], MAX: values[-1], MED: values[(len(values) - 1) // 2], SUM: sum(values) % 10}
            arguments[-1].append(of[token])
    ((answer,),) = arguments
    return [answer]


def stack_left(task: Any, string: list[int]) -> list[int]:
    assert len(string) >= task.shortest
    num_symbols, stack = task.num_symbols, list[int]()
    is_action = [token >= num_symbols for token in string]
    assert is_action == sorted(is_action)
    assert set(is_action) == {False, True}
    for token in string:
        if token < 2 * num_symbols:
            stack.append(token % num_symbols)
        else:
            assert token == 2 * num_symbols
            stack = stack[:-1]
    return [*reversed(stack), 2 * num_symbols + 1][: len(string)]


def innermost_bracket(task: Any, inputs: list[int]) -> list[set[int]]:
    stack: list[tuple[int, int]] = []
    targets = []
    for position, token in enumerate(inputs):
        if token < task.num_types:
            stack.append((token, position))
        else:
            assert stack.pop()[0] == token - task.num_types
        assert len(stack) <= task.depth
        kind, opened = stack[-1] if stack else (-1, position)
        target = 1 + kind + task.num_types * (len(stack) == task.depth)
        is_scored = position >= task.unscored and position - opened >= task.nearest
        targets.append({target if is_scored else IGNORE})
    return targets


def open_types(task: Any, inputs: list[int]) -> list[set[int]]:
    counts, targets = [0] * task.num_types, []
    for position, token in enumerate(inputs):
        counts[token % task.num_types] += 1 if token < task.num_types else -1
        assert min(counts) >= 0
        target = sum(2**kind for kind, count in enumerate(counts) if count)
        targets.append({IGNORE if position < task.unscored else target})
    return targets


def run_ends(task: Any, inputs: list[int]) -> list[set[int]]:
    latest, run, count = 2, 0, 0
    targets = []
    for token in inputs:
        if token != latest:
            assert token == (latest + 1) % 4
            assert latest in (0, 3) or run == count
            count = run if latest == 0 else count
            run = 0
        latest, run = token, run + 1
        if token in (0, 3):
            assert run <= (LONGEST_GAP if token else task.largest)
            targets.append({IGNORE})
        else:
            assert task.smallest <= count
            assert run <= count
            targets.append({{0: token + 1, 1: token}.get(count - run, IGNORE)})
    return targets


def trees_of(task: Any, string: list[int]) -> list[tuple[list[int], list[int]]]:
    """Each tree or name of a string, and its mirror image.

    Trees are as deep and as wide as the options allow, and have enough nodes.
    """
    opening, closing, tokens = task.opening, task.closing, string[::-1]

    def take(level: int) -> tuple[list[int], list[int]]:
        token = tokens.pop()
        if closing < token < task.equals:
            return [token], [token]
        assert token == opening
        assert level < task.depth
        label, children = tokens.pop(), list[tuple[list[int], list[int]]]()
        assert label < opening
        while tokens[-1] != closing:
            children.append(take(level + 1))
        assert sum(len(child) > 1 for child, _ in children) <= task.arity
        inside = [token for child, _ in children for token in child]
        mirrored = [token for _, child in reversed(children) for token in child]
        return [opening, label, *inside, tokens.pop()], [opening, label, *mirrored, closing]

    trees = []
    while tokens:
        trees.append(take(0))
        assert len(trees[-1][0]) == 1 or trees[-1][0].count(opening) >= task.fewest
    return trees


def mirror_image(task: Any, string: list[int]) -> list[int]:
    ((_, mirrored),) = trees_of(task, string)
    return mirrored


def expanded(task: Any, string: list[int]) -> list[int]:
    """The main tree, which follows the names and their templates."""
    *definitions, main = [tree for tree, _ in trees_of(task, string)]
    names = [name for (name,) in definitions[::2]]
    templates = dict(zip(names, definitions[1::2], strict=True))
    num_names = [sum(task.closing < token < task.equals for token in tree) for tree in (main, *templates.values())]
    assert len(names) == len(templates) == task.num_templates
    if task.name == "tree_copy":
        assert num_names == [task.num_templates] + [0] * task.num_templates
    else:
        assert sorted(num_names) == [0] + [1] * task.num_templates

    def with_copies(tree: list[int]) -> list[int]:
        return [one for token in tree for one in (with_copies(templates[token]) if token in templates else [token])]

    return with_copies(main)


def prefix_value(task: Any, inputs: list[int]) -> list[set[int]]:
    *expression, equals = inputs
    assert equals == task.modulus + 3
    values: list[int] = []  # of the expressions read from the end
    for token in reversed(expression):
        if token < task.modulus:
            values.append(token)
        else:
            first, second = values.pop(), values.pop()
            values.append([first + second, first - second, first * second][token - task.modulus] % task.modulus)
    (answer,) = values
    return last_only(inputs, answer)


def tops(task: Any, inputs: list[int]) -> list[set[int]]:
    """The value that a POP takes, unless too few POPs or PUSHes of its stack came before."""
    stacks: dict[int, list[tuple[int, int]]] = {stack: [] for stack in range(task.num_stacks)}
    in_a_row, num_pushed = Counter[int](), Counter[int]()
    targets: list[set[int]] = []
    for position in range(0, len(inputs), 2):
        (operation, *values), first_value = inputs[position : position + 2], 2 * task.stack_ids
        is_pop, stack = divmod(operation, task.stack_ids)
        assert all(value >= first_value for value in values)
        in_a_row[stack] = in_a_row[stack] + 1 if is_pop else 0
        if is_pop:
            top, number = stacks[stack].pop()
            is_asked = in_a_row[stack] >= task.pops and num_pushed[stack] - number >= task.buried
            targets.append({top if is_asked else IGNORE})
            assert values in ([top], [])
        else:
            num_pushed[stack] += 1
            stacks[stack] += [(value, num_pushed[stack]) for value in values]
            targets.append({IGNORE})
        assert len(stacks[stack]) <= task.depth
        targets += [{IGNORE}] * len(values)
    return targets


State = tuple[int, tuple[tuple[int, bool], ...]]
"""Count the words begun, at most two; and of the constituent of each level, from level 1, its symbol and whether
its second part has begun."""


class Option(NamedTuple):
    """Find what may come next."""

    chance: float
    symbol: int
    is_scored: bool
    after: State


def beliefs(task: Any, tokens: list[int]) -> Iterator[list[Option]]:
    """Before each token and after the last, what may come, for every state that the tokens allow.

    A state is known but for which constituents have two parts, which only the next token tells.
    """
    seconds, is_all = _grammar(task.num_symbols), task.scored == "all"
    belief: dict[State, float] = {(0, ((0, True),) * task.depth): 1.0}
    for position in range(len(tokens) + 1):
        options = []
        for (num_words, constituents), chance in belief.items():
            left = chance
            for level, (symbol, has_second) in enumerate(constituents):
                if not has_second:
                    second = int(seconds[level, symbol])
                    inner, outer = ((second, False),) * level, constituents[level + 1 :]
                    after = (num_words, (*inner, (symbol, True), *outer))
                    is_scored = is_all or (level == task.depth - 1 and num_words == 2)
                    options.append(Option(left * task.pair_rate, second, is_scored, after))
                    left *= 1 - task.pair_rate
            for symbol in range(task.num_symbols):
                after = (min(num_words + 1, 2), ((symbol, False),) * task.depth)
                options.append(Option(left / task.num_symbols, symbol, is_all, after))
        yield options
        if position < len(tokens):
            belief = {}
            for option in options:
                if option.symbol == tokens[position]:
                    belief[option.after] = belief.get(option.after, 0) + option.chance
            total = sum(belief.values())
            belief = {state: chance / total for state, chance in belief.items()}


def law_of(task: Any, options: list[Option]) -> Tokens:
    """The probability of each token that is scored if it comes next."""
    law = np.zeros(task.num_symbols)
    for option in options:
        law[option.symbol] += option.chance * option.is_scored
    return law


def believe(task: Any, inputs: Tokens) -> Tokens:
    """The likeliest token that is scored."""
    predictions = np.zeros_like(inputs)
    for row, (_, *tokens) in enumerate(inputs.tolist()):
        predictions[row] = [law_of(task, options).argmax() for options in beliefs(task, tokens)]
    return predictions


def grammatical(task: Any, inputs: list[int]) -> list[set[int]]:
    depth, *tokens = inputs
    assert depth == task.num_symbols + task.depth - 1
    unscored = set() if task.scored == "all" else {IGNORE}
    return [{option.symbol for option in options if option.is_scored} | unscored for options in beliefs(task, tokens)]


KNOWN = {
    "anbncn": Known(run_ends),
    "dyck": Known(innermost_bracket),
    "grammar_next_token": Known(grammatical, believe),
    "interleaved_stacks": Known(tops),
    "listops": Known(answering(list_values, offset=0), is_padded=True),
    "modular_brackets": Known(answering(value, offset=0), is_padded=True),
    "prefix_arithmetic": Known(prefix_value),
    "shuffle_dyck": Known(open_types),
    "solve_equation": Known(answering(unknown, offset=0), is_padded=True),
    "stack_manipulation": Known(answering(stack_left), is_padded=True),
    "tree_compose": Known(answering(expanded), is_padded=True),
    "tree_copy": Known(answering(expanded), is_padded=True),
    "tree_mirror": Known(answering(mirror_image), is_padded=True),
}


@pytest.mark.parametrize(("depth", "unscored", "nearest"), [(2, 0, 1), (2, 6, 1), (3, 3, 5), (3, 0, 5)])
def test_the_shortest_sequence_of_dyck_is_the_first_that_may_be_scored(depth: int, unscored: int, nearest: int) -> None:
    task = Dyck(depth=depth, unscored=unscored, nearest=nearest)
    everywhere = Dyck(depth=depth, nearest=nearest).sample(np.random.default_rng(0), 4096, 16).targets
    is_scored = (everywhere != IGNORE).any(axis=0) & (np.arange(16) >= unscored)

    assert task.min_length == 1 + is_scored.argmax()


def shapes(levels: list[Nodes]) -> list[tuple[Any, ...]]:
    """The trees of an array of levels, as nested tuples."""
    below: list[tuple[Any, ...]] = []
    for nodes in reversed(levels):
        children = iter(below)
        below = [tuple(next(children) for _ in range(arity)) for arity in nodes.arities.tolist()]
    return below


def size_of(law: Law, tree: tuple[Any, ...]) -> int:
    return law.inner + sum(size_of(law, child) for child in tree) if tree else 1


def trees_within(law: Law, size: int, levels: int) -> dict[tuple[Any, ...], float]:
    """Every tree of at most a size, and its probability in the branching process."""
    if levels == 1:
        return {(): 1.0}
    below = trees_within(law, size, levels - 1)
    return {
        tree: probability * prod(below[child] for child in tree)
        for arity, probability in enumerate(law.arities)
        for tree in product(below, repeat=arity)
        if size_of(law, tree) <= size
    }


@pytest.mark.parametrize(
    ("law", "size"),
    [(Law((0.4, 0.3, 0.1, 0.2), inner=1, levels=4), 6), (Law((0.5, 0, 0.3, 0.2), inner=2, levels=4), 12)],
)
def test_trees_follow_the_branching_process_given_their_size(law: Law, size: int) -> None:
    within = trees_within(law, size, law.levels)
    chances = {tree: chance for tree, chance in within.items() if chance and size_of(law, tree) == size}
    trees = shapes(grow(np.random.default_rng(0), law, np.full(20_000, size)))

    assert len(chances) > 10
    assert_shares(trees, {tree: chance / sum(chances.values()) for tree, chance in chances.items()})


def test_all_trees_of_prefix_arithmetic_are_equally_likely() -> None:
    inputs, _ = PrefixArithmetic(modulus=2).sample(np.random.default_rng(0), 14_000, 10)
    trees = [*map(tuple, (inputs[:, :-1] >= 2).tolist())]

    assert len(set(trees)) == 14  # the fourth Catalan number
    assert_shares(trees, dict.fromkeys(trees, 1 / 14))


@settings(max_examples=30)
@given(
    seed=SEEDS,
    depth=st.integers(1, 4),
    num_symbols=st.integers(2, 4),
    pair_rate=st.floats(0.1, 0.9),
    scored=st.sampled_from(["all", "top"]),
)
def test_the_sum_over_parses_is_right(seed: int, depth: int, num_symbols: int, pair_rate: float, scored: Any) -> None:
    task = GrammarNextToken(num_symbols=num_symbols, depth=depth, pair_rate=pair_rate, scored=scored)
    inputs, _ = task.sample(np.random.default_rng(seed), 2, 14)
    tokens = np.pad(inputs[:, 1:], ((0, 0), (0, 1)))
    laws = _laws(task, tokens, scale=2.0)

    for row, sequence in enumerate(inputs[:, 1:].tolist()):
        expected = [law_of(task, options) for options in beliefs(task, sequence)]
        np.testing.assert_allclose(laws.following[row] / laws.read[row][:, None], expected, rtol=1e-9, atol=1e-12)


def test_ceilings_of_long_words_neither_overflow_nor_vanish() -> None:
    task = GrammarNextToken(depth=6, scored="top")
    inputs, _ = task.sample(np.random.default_rng(0), 1, 160)
    tokens = np.pad(inputs[:, 1:], ((0, 0), (0, 1)))
    small, large = (_laws(task, tokens, scale) for scale in (2.0, 4.0))

    np.testing.assert_allclose(small.following / small.read[:, :, None], large.following / large.read[:, :, None])
    assert 0.8 < task.ceiling(160).value < 1
