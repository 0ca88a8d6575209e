"""The tasks of hops: targets recomputed from the inputs alone, one sequence at a time."""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from synthbench.tasks import accuracy
from synthbench.tasks.base import IGNORE
from synthbench.tasks.hops.in_context_language import InContextLanguage, draw_automata, walk
from tests.tasks._known import Known, oracle_of, targets_from
from tests.tasks.test_copying import followers


def cycle_of(nodes: list[Any]) -> list[Any]:
    """The nodes of a cycle in order, from its edges in any order."""
    following = dict(zip(nodes[0::2], nodes[1::2], strict=True))
    path = [nodes[0]]
    while following[path[-1]] != path[0]:
        path.append(following[path[-1]])
    assert len(path) == len(following) == len(nodes) // 2
    return path


def chased(task: Any, inputs: list[int]) -> list[set[int]]:
    mark, query, padding = task.num_nodes, task.num_nodes + 1, task.num_nodes + 2
    edges, asked = inputs[: inputs.index(query)], inputs[inputs.index(query) + 1 :]
    num_hops = asked.count(mark)
    assert task.shortest_chain <= num_hops <= task.longest_chain
    assert asked[:num_hops] == [mark] * num_hops
    starts, left = asked[num_hops:][: task.num_starts], asked[num_hops:][task.num_starts :]
    assert left == [padding] * len(left)
    assert len(left) - (task.longest_chain - num_hops) <= min(task.num_starts - 1, 1)
    path = cycle_of(edges)
    assert len(path) > num_hops
    assert len(set(starts)) == len(starts)
    answers = [path[(path.index(start) + num_hops) % len(path)] for start in starts]
    return targets_from(inputs, len(edges) + 1 + num_hops, answers)


def in_nodes(tokens: list[Any], width: int) -> list[tuple[Any, ...]]:
    return [tuple(tokens[begin : begin + width]) for begin in range(0, len(tokens), width)]


def led(task: Any, inputs: list[int]) -> list[set[int]]:
    """The tokens of the node that a question leads to, at the last token of its start and after it."""
    width = task.tokens_per_node
    begin = next((place for place, token in enumerate(inputs) if task.num_symbols <= token < task.vocab_size - 1), 0)
    nodes = in_nodes(inputs[begin % (2 * width) : begin], width)
    following = dict(zip(nodes[0::2], nodes[1::2], strict=True))
    targets: list[set[int]] = [{IGNORE}] * begin
    for number, *named in in_nodes(inputs[begin:], 2 * width):
        node = tuple(named[:width])
        for _ in range(number - task.num_symbols + 1):
            node = following.get(node, node)
        targets += [{IGNORE}] * width + [{token} for token in node]
    return targets


def permuted(task: Any, inputs: list[int]) -> list[set[int]]:
    width = task.tokens_per_node
    num_left = len(inputs) % (2 * width)
    begin = len(inputs) - 2 * width * task.num_questions
    assert inputs[:num_left] == [task.vocab_size - 1] * num_left
    path = cycle_of(in_nodes(inputs[num_left:begin], width))
    assert len(path) > task.longest_chain
    assert max(map(max, path)) < (task.symbols_used or task.num_symbols)
    targets = led(task, inputs)
    questions = in_nodes(inputs[begin:], 2 * width)
    assert len({question[1 : width + 1] for question in questions}) == task.num_questions
    for question, answer in zip(questions, in_nodes(targets[begin:], 2 * width), strict=True):
        assert task.shortest_chain <= question[0] - task.num_symbols + 1 <= task.longest_chain
        assert [{token} for token in question[width + 1 :]] == [*answer[width:-1]]
    return targets


def above(parents: dict[int, set[int]], node: int) -> set[int]:
    found: set[int] = set()
    left = [node]
    while left:
        new = parents[left.pop()] - found
        found |= new
        left += new
    return found


def ancestral(task: Any, inputs: list[int]) -> list[set[int]]:
    query = inputs.index(task.node_ids)
    end, padding = task.node_ids + 1, task.node_ids + 2
    # In the order in which nodes first stand in the edges.
    parents: dict[int, set[int]] = {node: set() for node in inputs[:query]}
    for parent, child in zip(inputs[0:query:2], inputs[1:query:2], strict=True):
        parents[child].add(parent)
    assert len(parents) == task.num_nodes
    assert max(parents) < (task.ids_used or task.node_ids)
    assert sorted(map(len, parents.values()))[:2] == [0, 1]
    assert max(map(len, parents.values())) <= 2
    assert all(node not in above(parents, node) for node in parents)
    left = above(parents, inputs[query + 1])
    named: list[int] = []
    while left:
        named.append(next(node for node in parents if node in left and not parents[node] & left))
        left.remove(named[-1])
    following = named + [padding] * len(inputs)
    assert inputs[query + 2 :] == following[: len(inputs) - query - 2]
    return targets_from(inputs, query + 1, [*named, end])


def hopped(task: Any, inputs: list[int]) -> list[set[int]]:
    targets: list[set[int]] = []
    if task.is_marked:
        marks, inputs = inputs[: task.num_hops], inputs[task.num_hops :]
        assert marks == [task.num_symbols] * task.num_hops
        targets = [{IGNORE}] * task.num_hops
    assert max(inputs) < task.num_symbols
    assert all(token != after for token, after in pairwise(inputs))
    latest: dict[int, int] = {}
    after: list[int | None] = []
    for position, token in enumerate(inputs):
        after.append(latest[token] + 1 if token in latest else None)
        latest[token] = position
        here: int | None = position
        for _ in range(task.num_hops):
            here = None if here is None else after[here]
        targets.append({task.num_symbols if here is None else inputs[here]})
    return targets


def picked(task: Any, inputs: list[int]) -> list[set[int]]:
    """Pick by the policy, at each token, among the symbols that followed the same token before."""
    followed = defaultdict[int, list[int]](list)
    targets: list[set[int]] = []
    for token, after in pairwise([*inputs, IGNORE]):
        known = followed[token] or [IGNORE]
        choices = {"first": known[0], "latest": known[-1], "majority": max(known, key=known.count)}
        targets.append({choices[task.policy]})
        if 0 <= after < task.num_symbols:
            followed[token].append(after)
    return targets


def asked_at_the_end(task: Any, inputs: list[int]) -> list[set[int]]:
    """Triggers occur equally often, each before symbols that differ or that leave one a bare majority."""
    context, asked = inputs[: -task.num_asked], inputs[-task.num_asked :]
    counts = Counter(token for token in context if token >= task.num_symbols)
    assert list(counts.values()) == [task.repeats] * task.num_triggers
    assert max(counts) < task.num_symbols + (task.ids_used or task.trigger_ids or task.num_triggers)
    assert len(set(asked)) == task.num_asked
    for trigger in asked:
        successors = Counter(after for token, after in pairwise(context) if token == trigger)
        assert max(successors) < task.num_symbols
        shares = [task.repeats // 2 + 1, (task.repeats - 1) // 2] if task.policy == "majority" else [1] * task.repeats
        assert sorted(successors.values(), reverse=True) == shares
    return [{IGNORE}] * len(context) + picked(task, inputs)[-task.num_asked :]


def spoken(task: Any, inputs: list[int]) -> list[set[int]]:
    separator = task.num_symbols
    assert inputs[0] == separator
    ends = [position for position, token in enumerate([*inputs, separator]) if token == separator]
    for begin, end in pairwise(ends[:-1]):
        assert 1 <= end - begin - 1 <= task.longest_string
    # One edge a symbol leaves the start, and symbols alone are scored.
    assert len({inputs[begin + 1] for begin in ends[:-1] if begin + 1 < len(inputs)}) <= task.most_edges
    targets = [{IGNORE} if token == separator else {token} for token in inputs[1:]]
    return [*targets, set(range(separator)) | ({IGNORE} if inputs[-1] != separator else set())]


KNOWN = {
    "pointer_chasing": Known(chased),
    "permutation_hops": Known(permuted, oracle_of(led)),
    "ancestors": Known(ancestral, is_padded=True),
    "khop_induction": Known(hopped),
    "induction_latest": Known(asked_at_the_end, oracle_of(picked)),
    "induction_first": Known(asked_at_the_end, oracle_of(picked)),
    "induction_majority": Known(asked_at_the_end, oracle_of(picked)),
    "in_context_language": Known(spoken, lambda task, inputs: task.shortcuts(inputs)["trigram"]),
}


def test_walks_keep_to_their_automaton() -> None:
    automata = draw_automata(np.random.default_rng(0), 50, num_states=5, num_symbols=4, most_edges=3)
    tokens, states = walk(np.random.default_rng(1), automata, 4, longest_string=9, num_tokens=80)

    for num_edges, symbols, ends, sequence, visited in zip(*automata, tokens.tolist(), states.tolist(), strict=True):
        state = 0
        for token, seen in zip(sequence, visited, strict=True):
            if token == 4:
                state = 0
                continue
            assert seen == state
            allowed = symbols[state, : num_edges[state]].tolist()
            assert len(set(allowed)) == len(allowed)
            following = ends[state, allowed.index(token)]
            assert following != state
            state = following


def test_who_is_told_the_automaton_and_its_state_reaches_the_ceiling() -> None:
    task, length = InContextLanguage(), InContextLanguage.length
    rng = np.random.default_rng(0)
    automata = draw_automata(rng, 4000, task.num_states, task.num_symbols, task.most_edges)
    tokens, states = walk(rng, automata, task.num_symbols, task.longest_string, length + 1)
    targets = np.where(tokens == task.num_symbols, IGNORE, tokens)
    reached = accuracy(np.take_along_axis(automata.symbols[:, :, 0], states, axis=1), targets)

    ceiling = task.ceiling(length)
    assert abs(reached.value - ceiling.value) < 4 * np.hypot(reached.standard_error, ceiling.standard_error)


@pytest.mark.parametrize(("name", "order"), [("unigram", 0), ("bigram", 1), ("trigram", 2)])
def test_shortcuts_of_in_context_language_are_the_most_common_followers(name: str, order: int) -> None:
    task = InContextLanguage(num_states=4, num_symbols=3, most_edges=2)
    inputs, _ = task.sample(np.random.default_rng(0), 3, 60)
    predictions = task.shortcuts(inputs)[name]

    for sequence, predicted in zip(inputs.tolist(), predictions.tolist(), strict=True):
        for end, prediction in enumerate(predicted, start=1):
            read = [3, *sequence[:end]]
            votes = [followers(read, read[len(read) - size :]) for size in range(order, -1, -1)]
            assert prediction == max(range(3), key=lambda symbol: [of_size.count(symbol) for of_size in votes])
