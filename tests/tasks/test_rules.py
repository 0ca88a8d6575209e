"""Rules that know no task, against loops; what tasks declare of them; and the search for better ones."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from math import ceil
from pathlib import Path
from statistics import multimode

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from synthbench.tasks import IGNORE, TASKS, Batch, Level, _rules, level_bounds
from synthbench.tasks._measured import large_sample
from synthbench.tasks._rules import ALL, Rule, View, Window, families, is_left_out, rule_names, search
from synthbench.tasks._search import Found, digest_of, levels_of, read_found, search_level, write_found

SEEDS = st.integers(0, 2**32 - 1)
FRACTION = Fraction(1, 3)


def batch_of(seed: int) -> Batch:
    """Random tokens of three ids, so that copies are common; some of them scored."""
    rng = np.random.default_rng(seed)
    inputs, others = rng.integers(3, size=(2, 5, 9))
    targets = np.where(rng.random(inputs.shape) < 0.4, others, IGNORE)
    targets[0, -1] = 0
    return Batch(inputs, targets)


def scored(batch: Batch) -> list[tuple[list[int], int, list[int]]]:
    """Token at each scored position, the answer, and the answers before it."""
    found = []
    for tokens, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        before: list[int] = []
        for place, answer in enumerate(answers):
            if answer != IGNORE:
                found.append((tokens[: place + 1], answer, list(before)))
                before.append(answer)
    return found


def view_of(batch: Batch) -> View:
    return View.of(batch, 4, 1000)


def candidates_of(batch: Batch) -> set[int]:
    return set(batch.targets[batch.targets != IGNORE].tolist())


def among(chosen: list[int], answer: int) -> float:
    return chosen.count(answer) / len(chosen) if chosen else 0.0


def assert_guesses(rule: Rule, seed: int, choose: Callable[[list[int], list[int], set[int]], list[int]]) -> None:
    """The rule guesses among the tokens that are chosen from those read, the answers before, and all answers."""
    batch = batch_of(seed)
    expected = [among(choose(read, asked, candidates_of(batch)), answer) for read, answer, asked in scored(batch)]
    np.testing.assert_allclose(rule(view_of(batch)), expected, rtol=1e-12)


def mean_of(halves: _rules.Halves, batch: Batch) -> float:
    """Accuracy on the whole sample; the halves are of whole sequences."""
    rows = np.nonzero(batch.targets != IGNORE)[0]
    is_later = rows > rows[len(rows) // 2]
    if not is_later.any():
        is_later = np.arange(len(rows)) >= len(rows) // 2
    return float(np.average(halves, weights=[(~is_later).sum(), is_later.sum()]))


@given(seed=SEEDS, steps=st.integers(0, 8))
def test_a_token_back_is_that_token(seed: int, steps: int) -> None:
    rule = partial(_rules.token_back, steps=steps)
    assert_guesses(rule, seed, lambda read, *_: read[::-1][steps : steps + 1])


@given(seed=SEEDS, steps=st.integers(1, 5), is_from_start=st.booleans(), is_distinct=st.booleans())
def test_an_answer_back_counts_answers_only(seed: int, steps: int, *, is_from_start: bool, is_distinct: bool) -> None:
    def choose(read: list[int], _asked: list[int], answers: set[int]) -> list[int]:
        counted = [token for token in (read if is_from_start else read[::-1]) if token in answers]
        return (list(dict.fromkeys(counted)) if is_distinct else counted)[steps - 1 : steps]

    rule = partial(_rules.answer_back, steps=steps, is_from_start=is_from_start, is_distinct=is_distinct)
    assert_guesses(rule, seed, choose)


@given(seed=SEEDS, is_later=st.booleans(), is_distinct=st.booleans(), without=st.sampled_from(["", "asked", "single"]))
def test_a_guess_is_uniform_in_a_window(seed: int, without: str, *, is_later: bool, is_distinct: bool) -> None:
    def choose(read: list[int], asked: list[int], answers: set[int]) -> list[int]:
        size = -(-len(read) // 3)
        part = read[-size:] if is_later else read[:size]
        out = {"": [], "asked": asked, "single": [token for token in read if read.count(token) == 1]}[without]
        chosen = [token for token in part if token in answers and token not in out]
        return sorted(set(chosen)) if is_distinct else chosen

    window = Window(FRACTION, is_later=is_later)
    assert_guesses(partial(_rules.guess, window=window, is_distinct=is_distinct, without=without), seed, choose)


@given(seed=SEEDS)
def test_neighbours_are_what_stood_beside_the_present_token(seed: int) -> None:
    def choose(read: list[int], _asked: list[int], answers: set[int]) -> list[int]:
        beside = {read[-1]}
        for place in range(len(read) - 1):
            if read[place] == read[-1]:
                beside |= {read[max(place - 1, 0)], read[place + 1]}
        return sorted({*read} & answers - beside)

    assert_guesses(partial(_rules.guess, window=ALL, without="neighbours"), seed, choose)


@given(seed=SEEDS)
def test_the_most_frequent_answer_is_shared_by_those_that_tie(seed: int) -> None:
    def choose(read: list[int], _asked: list[int], answers: set[int]) -> list[int]:
        return multimode(token for token in read if token in answers) or sorted(answers)

    assert_guesses(partial(_rules.frequent, window=ALL), seed, choose)


@given(seed=SEEDS, which=st.sampled_from(_rules.WHICH), context=st.integers(1, 3), is_backwards=st.booleans())
def test_beside_a_copy_of_the_last_tokens(seed: int, which: str, context: int, *, is_backwards: bool) -> None:
    def choose(read: list[int], _asked: list[int], answers: set[int]) -> list[int]:
        beside: list[int] = []
        for size in range(context, 0, -1):
            wanted = read[::-1][:size] if is_backwards else read[-size:]
            if begins := [at for at in range(len(read) - size) if read[at : at + size] == wanted]:
                places = [at - 1 if is_backwards else at + size for at in begins]
                beside = [read[place] for place in places if place >= 0]
                break
        beside = [token for token in beside if token in answers]
        chosen = {
            "the latest": beside[-1:],
            "the first": beside[:1],
            "the most frequent": multimode(beside),
            "a random": beside,
        }[which]
        return chosen or sorted(set(read) & answers)

    assert_guesses(partial(_rules.beside_copy, which=which, context=context, is_backwards=is_backwards), seed, choose)


@given(seed=SEEDS, share=st.sampled_from([FRACTION, 2 * FRACTION]), is_later=st.booleans())
def test_a_count_is_scaled_and_rounded(seed: int, share: Fraction, *, is_later: bool) -> None:
    batch, expected = batch_of(seed), []
    assume(len({tuple(read[-2:-1]) for read, *_ in scored(batch)}) > 1)  # else the text would end earlier
    low, high = min(candidates_of(batch)), max(candidates_of(batch))
    for (*text, token), answer, _ in scored(batch):
        size = ceil(len(text) * share)
        part = text[-size:] if is_later else text[:size]
        scaled = (2 * part.count(token) * len(text) + size) // max(2 * size, 1)
        expected.append(float(min(max(scaled, low), high) == answer))
    assert _rules.count(view_of(batch), share, is_later=is_later).tolist() == expected


@given(seed=SEEDS, number=st.integers(1, 2))
@settings(max_examples=40)
def test_a_table_names_the_most_frequent_answer_to_the_last_tokens(seed: int, number: int) -> None:
    fit, fresh = batch_of(seed), batch_of(seed + 1)
    reached, name = _rules.reached_by_tables(fit, fresh), f"table of the last {number}"
    # A context that begins before the sequence is one of its own; few sequences have one.
    assume(name in reached and all(len(read) >= number for read, *_ in scored(fit) + scored(fresh)))
    right = []
    for read, answer, _ in scored(fresh):
        for size in range(number, -1, -1):
            begin = len(read) - size
            known = [other for tokens, other, _ in scored(fit) if tokens[len(tokens) - size :] == read[begin:]]
            if known:
                right.append(answer == min(multimode(known)))
                break
    assert mean_of(reached[name], fresh) == pytest.approx(np.mean(right))


def test_large_tables_are_sorted_and_name_what_small_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [(batch_of(seed), batch_of(seed + 1)) for seed in range(20)]
    in_arrays = [_rules.reached_by_tables(fit, fresh) for fit, fresh in batches]
    monkeypatch.setattr(_rules, "NUM_CODES", 0)

    assert [_rules.reached_by_tables(fit, fresh) for fit, fresh in batches] == in_arrays


@given(seed=SEEDS, kind=st.sampled_from(_rules.VOTES))
def test_every_answer_read_votes_for_itself_by_its_log_odds(seed: int, kind: str) -> None:
    fit, fresh = batch_of(seed), batch_of(seed + 1)
    answers = candidates_of(fit)
    assume(len(answers) > 1)
    num_right, num_votes = Counter[int](), Counter[int]()
    step = -1 if kind == "distance" else 1
    for read, answer, _ in scored(fit):
        for place, token in enumerate(read[::step]):
            num_votes[place] += token in answers
            num_right[place] += token == answer
    chance, expected = 1 / len(answers), []
    for read, answer, _ in scored(fresh):
        votes = dict.fromkeys(candidates_of(fresh), 0.0)
        for place, token in enumerate(read[::step]):
            if token in votes:
                odds = (num_right[place] + chance) / (num_votes[place] - num_right[place] + 1 - chance)
                votes[token] += np.log(odds * (1 - chance) / chance)
        best = [token for token, of in votes.items() if of >= max(votes.values()) - _rules.VOTES_EQUAL]
        expected.append(among(best, answer))
    found = _rules.reached_by_votes(view_of(fit), view_of(fresh))[f"vote by {kind}"]
    assert found == pytest.approx(np.mean(expected))


def test_names_of_rules_are_their_own() -> None:
    names = [name for rules in families(64, is_wide=True).values() for name in rules]

    assert len(names) == len(set(names))
    assert rule_names(64) > {name for rules in families(64).values() for name in rules}


@pytest.mark.parametrize("name", [name for name in TASKS if TASKS[name].no_shortcuts])
def test_what_a_task_leaves_out_is_a_rule_that_would_raise_a_baseline(name: str) -> None:
    levels = TASKS[name].ladder(256)
    gained = dict.fromkeys(TASKS[name].no_shortcuts, 0.0)
    for level in (levels[0], levels[len(levels) // 2]):
        fit, fresh = (
            Batch(inputs[:1024], level.new_targets(targets[:1024]))
            for inputs, targets in (large_sample(level.task, level.length, seed) for seed in (0, 1))
        )
        for pattern in gained:
            found = search(fit, fresh, level.task.vocab_size, left_out={*gained} - {pattern}, scale=0.25)
            reached = [best.accuracy for best in found.values() if is_left_out(best.rule, [pattern])]
            gained[pattern] = max([gained[pattern], *(of - level_bounds(level).base for of in reached)])

    assert min(gained.values()) > 0.01, gained


@pytest.fixture(scope="module")
def found() -> dict[str, list[Found]]:
    """The committed results of the search, by task."""
    return {task: [*entries] for task, entries in groupby(read_found(), lambda entry: entry.task)}


@pytest.mark.parametrize("name", sorted(name for name in TASKS if TASKS[name].levels))
def test_every_level_was_searched_since_its_task_or_a_rule_changed(name: str, found: dict[str, list[Found]]) -> None:
    again = f"{name} or a rule changed: synthbench shortcuts {name} --write searches its levels again"
    levels = levels_of(TASKS[name])
    bounds = [level_bounds(level) for level in levels]

    searched = [(entry.load, entry.length, entry.digest, entry.version) for entry in found[name]]
    of_task = digest_of(TASKS[name]), TASKS[name].version
    assert searched == [(level.load, level.length, *of_task) for level in levels], again
    assert [entry.baseline_by for entry in found[name]] == [of.rule for of in bounds]
    assert [entry.baseline for entry in found[name]] == pytest.approx([of.base for of in bounds], abs=1e-4)


def test_no_level_is_beaten_by_a_rule(found: dict[str, list[Found]]) -> None:
    beaten = [level for levels in found.values() for level in levels if level.is_beaten]

    assert not beaten, "add the rules to _rules.py or to level_shortcuts, measure and search again"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mqar", "selective_copying"])
def test_another_search_finds_as_much(name: str, found: dict[str, list[Found]]) -> None:
    for entry, level in zip(found[name], levels_of(TASKS[name]), strict=True):
        if entry.length <= 64:
            assert search_level(level).best == pytest.approx(entry.best, abs=0.02), entry


def test_results_of_some_tasks_replace_theirs_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shortcuts.csv"
    first = Found("mqar", 1, 2, 8, 0.75, "unasked", 1.0, 0.76, "a rule, with a comma", "0" * 12)
    other = replace(first, task="dyck")
    write_found([first, replace(first, load=3)], file)
    write_found([other], file)
    write_found([replace(first, best=0.8)], file)

    assert read_found(file) == [other, replace(first, best=0.8)]


def test_a_search_says_which_rule_it_found_on_which_level() -> None:
    level: Level = TASKS["mqar"].ladder(16)[0]
    found = search_level(level, scale=0.25).facts()

    assert (found["task"], found["load"], found["length"]) == ("mqar", 2, 8)
    assert found["baseline"] <= found["ceiling"]
    assert abs(found["skill"]) < 0.1
