"""Checks that every task must pass, built-in or plugin.

A failed check raises a :class:`ContractError` that says what is wrong, where and by how much.
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
from jaxtyping import Int

from synthbench.contract.causes import draws_noted
from synthbench.contract.checks import Check, require_all
from synthbench.errors import ContractError, UsageError
from synthbench.options import LARGEST, Option, Value, arguments_of, options_of
from synthbench.plugins import BARE_NAME, reason
from synthbench.tasks import accuracy, level_bounds
from synthbench.tasks._bounds import sampled
from synthbench.tasks._measured import MOST_SEARCHED
from synthbench.tasks._rules import is_left_out, rule_names
from synthbench.tasks._search import search_level
from synthbench.tasks.base import IGNORE, SPLITS, Batch, Bound, Level, Measure, Readout, Split, Task

SMALL_BATCH = 64
FEW = (1, 2, 3)
"""Sizes of small batches that are tried."""
NUM_COMPARED = 256
"""Number of sequences that are drawn in batches of one size, and compared with a single batch of this many."""
TRAITS = ("fraction of scored positions", "mean input", "mean target", "fraction of targets among the inputs", "rule")
"""Names of the compared properties of sequences.

For the property ``rule``, a position is described by its target and input and those of the position before. The
property is the fraction of positions that are scored and whose description occurs in other sequences too.
"""
NUM_TOKENS = 2**18
"""Tokens in each sample on which the best constants are estimated and scored."""
NUM_STANDARD_ERRORS = 5.0
"""Standard errors by which a score may exceed its bound by chance: a correct task fails once in millions."""
LEAST_GAP = 0.2
"""Smallest allowed gap between a level's baseline and ceiling; in a narrower gap, skill is mostly noise."""
MOST_SKILL_OF_A_RULE = 0.2
"""Largest skill that a rule outside the baseline may reach, on the first, middle and last level."""
QUICK = 0.25
"""Number of positions examined for rules outside the baseline, as a fraction of the number for the baseline."""
ROUNDING = 1e-9
BOUND_KINDS = get_args(Bound.__annotations__["kind"])
MOST_BITS = 64
"""Limit on the bits per token of a floor, ceiling or reference."""


def checks_of(task: Task, length: int) -> list[Check]:
    """List the checks of a task at one length, in order.

    Args:
        task: Task to check, with its options. Only the check of options tries other values.
        length: Number of tokens in a sequence, which the task must allow.
    """

    def check(name: str, make: Callable[..., None], *at: int, is_needed: bool = False) -> Check:
        meaning = (make.__doc__ or "").partition("\n")[0].rstrip(".")
        return Check(name, meaning, partial(make, task, *at), is_needed)

    return [
        check("facts", check_facts, length, is_needed=True),
        check("shapes", check_shapes, length, is_needed=True),
        check("ids", check_ids, length, is_needed=True),
        check("scored", check_scored, length),
        check("aliasing", check_aliasing, length),
        check("seeding", check_seeding, length),
        check("global generator", check_global_generator, length),
        check("splits", check_splits, length),
        check("kinds", check_kinds, length),
        check("shortcuts", check_shortcuts, length),
        check("lengths", check_lengths),
        check("batch sizes", check_batch_sizes, length),
        check("bounds", check_bounds, length),
        check("floor", check_floor, length),
        check("options", check_options, length),
        check("levels", check_levels),
    ]


def check_task(task: Task) -> None:
    """Run the checks of a task, at its own length, until one fails; the tests that ``synthbench new`` writes call this.

    Raises:
        ContractError: If a check fails; the message says what is wrong, where and by how much.
    """
    require_all(checks_of(task, task.length), type(task))


def check_facts(task: Task, length: int) -> None:
    """Facts about a task, and its coordinates, must have types that rows and models accept."""
    for names, is_allowed, allowed in (
        (
            "length min_length vocab_size",
            lambda size: type(size) is int and 0 < size <= LARGEST,
            f"int, 1 to {LARGEST}",
        ),
        ("source load not_tested", lambda text: isinstance(text, str) and text.isprintable(), "one line of text"),
        ("category", lambda name: isinstance(name, str) and BARE_NAME.fullmatch(name), "a name such as recall"),
        ("measure", get_args(Measure).__contains__, " or ".join(get_args(Measure))),
        ("readout", get_args(Readout).__contains__, " or ".join(get_args(Readout))),
    ):
        for name in names.split():
            value = task.category() if name == "category" else getattr(task, name)
            if not is_allowed(value):
                raise _broken(task, length, f"{name} is {value!r}; allowed: {allowed}")
    try:
        hash(task)
    except Exception as error:
        raise _broken(task, length, f"hashing it gave {reason(error)}; declare fields by option()") from error
    axes = task.coordinates(length)
    if not isinstance(axes, np.ndarray) or axes.ndim != 2 or len(axes) != length or not np.isfinite(axes).all():
        raise _broken(task, length, f"coordinates are not finite numbers of shape [{length}, number of axes]")


def check_shapes(task: Task, length: int) -> None:
    """Inputs and targets must be int64 arrays of the requested shape."""
    for batch_size in (*FEW, SMALL_BATCH):
        batch = _sample(task, length, batch_size)
        for field, array in zip(Batch._fields, batch, strict=True):
            if type(array) is not np.ndarray or array.dtype != np.int64:
                kind = array.dtype if type(array) is np.ndarray else type(array).__name__
                raise _broken(task, length, f"{field} are {kind}; allowed: an array of int64")
            if array.shape != (batch_size, length):
                raise _broken(task, length, f"{field} have the shape {array.shape}; allowed: {(batch_size, length)}")


def check_ids(task: Task, length: int) -> None:
    """Inputs must be token ids of the vocabulary; targets must be such ids or ``IGNORE``."""
    for field, array in zip(Batch._fields, _sample(task, length, SMALL_BATCH), strict=True):
        is_target = field == "targets"
        is_allowed = ((array >= 0) & (array < task.vocab_size)) | (is_target & (array == IGNORE))
        if not is_allowed.all():
            row, position = np.argwhere(~is_allowed)[0]
            also = f" or {IGNORE}" if is_target else ""
            what = f"{field}[{row}, {position}] is {array[row, position]}, as are {(~is_allowed).mean():.1%} outside"
            raise _broken(task, length, f"{what}; allowed: 0 to {task.vocab_size - 1}{also}")


def check_scored(task: Task, length: int) -> None:
    """At least one position must be scored."""
    if (_sample(task, length, SMALL_BATCH).targets == IGNORE).all():
        raise _broken(task, length, f"none of {SMALL_BATCH} sequences has a target other than {IGNORE}")


def check_aliasing(task: Task, length: int) -> None:
    """Inputs and targets must not share memory with each other or with later batches."""
    first, second = _sample(task, length, SMALL_BATCH), _sample(task, length, SMALL_BATCH)
    if np.shares_memory(first.inputs, first.targets):
        raise _broken(task, length, "inputs and targets share memory; return a copy of one of them")
    for field, array, later in zip(Batch._fields, first, second, strict=True):
        if np.shares_memory(array, later):
            raise _broken(task, length, f"{field} of two batches share memory; return a new array for each batch")


def check_seeding(task: Task, length: int) -> None:
    """Equal generators must give equal batches, and different generators must give different batches."""
    first, again, other = (_sample(task, length, SMALL_BATCH, seed=seed) for seed in (0, 0, 1))
    if not all(map(np.array_equal, first, again)):
        raise _broken(task, length, "two generators in the same state gave different batches; draw from rng only")
    if np.array_equal(first.inputs, other.inputs):
        raise _broken(task, length, "two generators with different seeds gave the same inputs; draw from rng")
    rng = _generator(0)
    if np.array_equal(task.sample(rng, SMALL_BATCH, length).inputs, task.sample(rng, SMALL_BATCH, length).inputs):
        raise _broken(task, length, "two calls with one generator gave the same inputs; draw from rng itself")


def check_global_generator(task: Task, length: int) -> None:
    """The global generator of NumPy must be neither used nor seeded."""
    with draws_noted() as drawn:
        _sample(task, length, SMALL_BATCH)
    if "numpy.random" in drawn:
        raise _broken(task, length, "sampling changed the state of numpy.random; draw from rng only")


def check_splits(task: Task, length: int) -> None:
    """Splits must agree in name, options, vocabulary and coordinates; in finite data, their sequences must differ."""
    drawn: dict[Split, Batch] = {}
    for split in SPLITS:
        of_split = task.of_split(split)
        for what, found, expected in (
            ("name", of_split.name, task.name),
            ("options", arguments_of(of_split), arguments_of(task)),
            ("vocab_size", of_split.vocab_size, task.vocab_size),
            ("coordinates", of_split.coordinates(length).tolist(), task.coordinates(length).tolist()),
        ):
            if found != expected:
                raise _broken(task, length, f"split {split!r} has another {what}; allowed: that of the task itself")
        if of_split is not task:
            check_shapes(of_split, length)
            check_ids(of_split, length)
            drawn[split] = _sample(of_split, length, SMALL_BATCH)
    for split, batch in drawn.items():
        if split != "train" and "train" in drawn and np.array_equal(batch.inputs, drawn["train"].inputs):
            what = f"split {split!r} has the sequences of 'train'; divide the data, or return self"
            raise _broken(task, length, what)


def check_kinds(task: Task, length: int) -> None:
    """Each kind of position must be a mask of the inputs' shape, and must not depend on later tokens."""
    inputs = _sample(task, length, SMALL_BATCH).inputs
    half = length // 2
    other = np.concatenate([inputs[:, :half], np.roll(inputs[:, half:], 1, axis=0)], axis=1)
    of_other = task.kinds(other)
    for name, mask in task.kinds(inputs).items():
        _check_array(task, length, f"kind {name!r}", mask, np.bool_)
        if not np.array_equal(mask[:, :half], of_other[name][:, :half]):
            raise _broken(task, length, f"kind {name!r} of a position depends on later tokens")


def check_shortcuts(task: Task, length: int) -> None:
    """Each shortcut must predict a whole number at every position."""
    inputs = _sample(task, length, SMALL_BATCH).inputs
    for name, predictions in (task.shortcuts(inputs) | task.level_shortcuts(inputs)).items():
        _check_array(task, length, f"shortcut {name!r}", predictions, np.integer)


def _check_array(task: Task, length: int, what: str, array: Any, kind: Any) -> None:
    """Check the type and the shape of an array that a task computes from ``SMALL_BATCH`` sequences."""
    shape = (SMALL_BATCH, length)
    is_array = isinstance(array, np.ndarray)
    if not is_array or not np.issubdtype(array.dtype, kind) or array.shape != shape:
        found = f"{array.dtype} of shape {array.shape}" if is_array else type(array).__name__
        allowed = "bools" if kind is np.bool_ else "integers"
        raise _broken(task, length, f"{what} is {found}; allowed: {allowed} of shape {shape}")


def check_lengths(task: Task) -> None:
    """Sampling must work at the task's shortest length."""
    shortest = task.min_length
    try:
        task.sample(_generator(0), 2, shortest)
    except UsageError as error:
        raise _broken(task, shortest, f"min_length is {shortest}, but sampling refuses it: {error}") from error


def check_batch_sizes(task: Task, length: int) -> None:
    """Sequences must be drawn alike in batches of every size."""
    for tokens in sorted({task.min_length, length}):
        count = max(NUM_COMPARED, min(2048, NUM_COMPARED**2 // tokens))
        known = _codes(_sample(task, tokens, count))
        expected = _traits(_sample(task, tokens, NUM_COMPARED, seed=1), known)
        for size in (*FEW, count):
            parts = [_sample(task, tokens, size, seed=2 + part) for part in range(-(-NUM_COMPARED // size))]
            found = _traits(Batch(*map(np.concatenate, zip(*parts, strict=True))), known)
            error = np.sqrt(sum(traits.var(axis=0) / len(traits) for traits in (found, expected)))
            gap = np.abs(found.mean(axis=0) - expected.mean(axis=0)) - NUM_STANDARD_ERRORS * error
            for trait in np.flatnonzero(gap > ROUNDING):
                what = f"in batches of {size}, the {TRAITS[trait]} differs from that in a batch of {NUM_COMPARED}"
                raise _broken(task, tokens, what)


def _traits(batch: Batch, known: np.ndarray) -> np.ndarray:
    """Measure the ``TRAITS`` of each sequence, [sequences, traits]; ``known`` are codes of other sequences."""
    inputs, targets = batch
    is_scored, row = targets != IGNORE, 2**32 * np.arange(len(inputs))[:, None]
    is_among = np.isin(targets + row, inputs + row)
    is_known = np.isin(_codes(batch), known)
    traits = np.stack([is_scored, inputs, targets * is_scored, is_scored & is_among, is_scored & is_known])
    means: np.ndarray = traits.mean(axis=2).T
    return means


def _codes(batch: Batch) -> np.ndarray:
    """Compute a number for each position from target and input there and one position before, [batch, length].

    On the first eight positions of a sequence, the number also depends on the position.
    """
    codes = np.minimum(np.arange(batch.inputs.shape[1]), 8)
    for array in (*batch, *(np.roll(array, 1, axis=1) for array in batch)):
        codes = codes * 1_000_003 + array  # modulo 2^64, so that two numbers are rarely equal by chance
    return codes


def check_bounds(task: Task, length: int) -> None:
    """The floor must not exceed the ceiling; floor, ceiling and references must be in the allowed range.

    The floor is the best score of a predictor that does not see the input, and the ceiling is the best possible score.
    Both are accuracies in [0, 1], or negated bits per token in [-64, 0]. References are the scores
    of simple predictors, from 0 to 64. Unlike the floor and the ceiling, bits per token are not negated in references.
    """
    floor, ceiling = task.floor(length), task.ceiling(length)
    least, most = (-MOST_BITS, 0) if task.measure == "bits" else (0, 1)
    for field, bound in (("floor", floor), ("ceiling", ceiling)):
        if not isinstance(bound, Bound) or not isinstance(bound.value, int | float) or bound.kind not in BOUND_KINDS:
            raise _broken(task, length, f"the {field} is {bound!r}; allowed: a Bound, {' or '.join(BOUND_KINDS)}")
        if not least - ROUNDING <= bound.value <= most + ROUNDING:
            raise _broken(task, length, f"the {field} is {bound.value}; allowed: {least} to {most}")
        if not 0 <= bound.standard_error < 1:
            raise _broken(task, length, f"the standard error of the {field} is {bound.standard_error}; allowed: 0 to 1")
    for name, bits in task.references(length).items():
        if not 0 <= bits <= MOST_BITS:
            raise _broken(task, length, f"the reference {name!r} is {bits}; allowed: 0 to {MOST_BITS}")
    margin = ROUNDING + NUM_STANDARD_ERRORS * (floor.standard_error + ceiling.standard_error)
    if floor.value > ceiling.value + margin:
        raise _broken(task, length, f"the floor {floor.value:.6f} lies above the ceiling {ceiling.value:.6f}")


def check_floor(task: Task, length: int) -> None:
    """Predicting the most frequent target at each position, found on one sample, must not beat the floor on another.

    On a task scored in bits per token, the check predicts a probability for each token instead: its frequency in the
    training split.
    """
    num_sequences = max(256, min(8192, NUM_TOKENS // length))
    floor = task.floor(length)
    if task.measure == "bits":
        score = "the frequencies of tokens score {:.4f} bits"
        reached, spare = _score_of_frequencies(task, length, num_sequences), 0.0
    else:
        score = "one constant a position scores {:.4f}"
        constants = best_constants(_sample(task, length, num_sequences, seed=0).targets)
        targets = _sample(task, length, num_sequences, seed=1).targets
        # A sample without a rare event has no spread, so one such event is allowed.
        reached, spare = accuracy(np.broadcast_to(constants, targets.shape), targets), 1 / num_sequences
    margin = NUM_STANDARD_ERRORS * (reached.standard_error + floor.standard_error) + spare
    if reached.value > floor.value + margin:
        what = f"{score.format(reached.value)} on {num_sequences} sequences, {reached.value - floor.value:.4f} above"
        raise _broken(task, length, f"{what} the floor {floor.value:.4f} (allowed: {margin:.4f})")


def _score_of_frequencies(task: Task, length: int, num_sequences: int) -> Bound:
    """Predict test targets by the token frequencies of the training split; score in negated bits per token."""
    fit, fresh = (
        _sample(task.of_split(split), length, num_sequences, seed=seed).targets
        for seed, split in ((0, SPLITS[0]), (1, SPLITS[-1]))
    )
    counts = np.bincount(fit[fit != IGNORE], minlength=task.vocab_size) + 1.0
    is_scored = fresh != IGNORE
    bits = np.log2(counts / counts.sum())[np.where(is_scored, fresh, 0)] * is_scored
    return sampled(bits.sum(axis=1), is_scored.sum(axis=1))


def check_options(task: Task, length: int) -> None:
    """Every option must have a value that changes the task's batches or the coordinates of their tokens.

    Some options matter only with certain values of other options, so it is enough if a batch changes on one of the
    task's levels. Options with free text are not checked, since no other allowed value is known.
    """
    for name, option in options_of(type(task)).items():
        if option.type is str and not option.choices:
            continue
        tried = _tried_in_vain(task, length, name, option)
        if tried is None or any(
            _tried_in_vain(level.task, level.length, name, option) is None for level in _levels(task)
        ):
            continue
        values = ", ".join(map(str, tried)) or "no other value that the task accepts"
        what = f"the option {name}={getattr(task, name)} changes nothing (tried {values}); remove it"
        raise _broken(task, length, what)


def _tried_in_vain(task: Task, length: int, name: str, option: Option) -> list[Value] | None:
    """Try other values of an option; return the tried values if none changes the batch or coordinates, else None."""
    reference, coordinates = _sample(task, length, SMALL_BATCH), task.coordinates(length)
    tried = []
    for value in _other_values(option, getattr(task, name)):
        try:
            other = dataclasses.replace(task, **{name: value})
            batch = other.sample(_generator(0), SMALL_BATCH, length)
        except UsageError:
            continue
        except Exception as error:
            what = f"with {name}={value}, sampling gave {reason(error)}"
            raise _broken(task, length, what) from error
        tried.append(value)
        if not all(map(np.array_equal, batch, reference)) or not np.array_equal(other.coordinates(length), coordinates):
            return None
    return tried


def check_levels(task: Task) -> None:
    """Levels must increase in load, have equal token ids, add new targets, and have a ceiling far above their baseline.

    The load is the task's size, such as its number of pairs. New targets are those from position ``first_new`` on. The
    baseline is the best score of a shortcut rule.
    """
    for is_extended in (False, *([True] if task.extended_levels else [])):
        levels = _levels(task, is_extended=is_extended)
        _check_levels(levels)
        _check_no_shortcuts(task, levels)
        if is_extended or not task.extended_levels:
            _check_room(levels)  # last, since each level is measured on many sequences
        _check_rules(levels)


def _check_levels(levels: Sequence[Level]) -> None:
    """Check a few sequences of each level, and compare each level with the next easier one."""
    for below, level in zip((None, *levels), levels, strict=False):
        check_ids(level.task, level.length)
        batch = _sample(level.task, level.length, SMALL_BATCH)
        most = below.length if below else level.length - 1
        if not 0 <= level.first_new <= most:
            length_of = "the length of the level below" if below else "one less than the length"
            raise _broken_level(level, f"has the first_new {level.first_new}; allowed: 0 to {most}, {length_of}")
        if below:
            _check_step(below, level)
        if (level.new_targets(batch.targets) == IGNORE).all():
            raise _broken_level(level, f"scores nothing from position {level.first_new} on")


def _check_room(levels: Sequence[Level]) -> None:
    """Check that the ceiling of each level lies far enough above its shortcut baseline."""
    for level in levels:
        bounds = level_bounds(level)
        if bounds.ceiling - bounds.base < LEAST_GAP - ROUNDING:
            what = f"has the base {bounds.base:.4f}, by {bounds.rule!r}; allowed: up to"
            raise _broken_level(level, f"{what} {bounds.ceiling - LEAST_GAP:.4f}, the ceiling less {LEAST_GAP}")


def _check_rules(levels: Sequence[Level]) -> None:
    """Raise an error if a rule that the baseline omits reaches too much skill on the first, middle or last level."""
    searched = [level for level in levels if level.length <= MOST_SEARCHED]
    for place in sorted({0, len(searched) // 2, len(searched) - 1} if searched else ()):
        found = search_level(searched[place], scale=QUICK)
        if found.skill > MOST_SKILL_OF_A_RULE:
            raise _broken_level(
                searched[place],
                f"is solved to {found.skill:.2f} of its skill by a rule that is not in its baseline: "
                f"{found.best_by!r} reaches {found.best:.4f}, the baseline, by {found.baseline_by!r}, "
                f"{found.baseline:.4f}; allowed: a skill up to {MOST_SKILL_OF_A_RULE}. Add it to level_shortcuts, or "
                "say in no_shortcuts why it is the task",
            )


def _check_no_shortcuts(task: Task, levels: Sequence[Level]) -> None:
    """Check the task's ``no_shortcuts``: name patterns of rules that count as the task itself, not as shortcuts.

    Each pattern must match the name of a rule. At least half of all rules must match none of the patterns.
    """
    if not levels or not task.no_shortcuts:
        return
    names = rule_names(min(levels[-1].length, MOST_SEARCHED))
    for pattern in task.no_shortcuts:
        if not any(is_left_out(name, [pattern]) for name in names):
            raise _broken(task, levels[-1].length, f"no_shortcuts has {pattern!r}, which is no rule's name")
    num_left_out = sum(is_left_out(name, task.no_shortcuts) for name in names)
    if num_left_out > len(names) / 2:
        what = f"no_shortcuts leaves out {num_left_out} of {len(names)} rules; allowed: up to half of them"
        raise _broken(task, levels[-1].length, what)


def _levels(task: Task, *, is_extended: bool = False) -> list[Level]:
    try:
        return task.ladder(sys.maxsize, is_extended=is_extended)
    except Exception as error:
        raise _broken(task, task.length, f"its ladder gave {reason(error)}") from error


def _check_step(below: Level, level: Level) -> None:
    """Compare a level with the next easier level, ``below``, in load, length, vocabulary and coordinates."""
    if level.load <= below.load:
        raise _broken_level(level, f"stands above that of load {below.load}; allowed: increasing loads")
    if level.length < below.length:
        raise _broken_level(level, f"is shorter than the one below; allowed: {below.length} tokens and more")
    if level.task.vocab_size != below.task.vocab_size:
        what = f"has {level.task.vocab_size} token ids; allowed: the {below.task.vocab_size} of the level below"
        raise _broken_level(level, what)
    if not np.array_equal(level.task.coordinates(level.length)[: below.length], below.task.coordinates(below.length)):
        raise _broken_level(level, "has other coordinates than the level below, where that has any")


def _broken_level(level: Level, what: str) -> ContractError:
    return _broken(level.task, level.length, f"the level of load {level.load} {what}")


def best_constants(targets: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, " length"]:
    """Find the most frequent target at each position; the result is 0 at positions without a scored target."""
    scored = (answers[answers != IGNORE] for answers in targets.T)
    return np.array([np.bincount(answers, minlength=1).argmax() for answers in scored])


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def _sample(task: Task, length: int, batch_size: int, seed: int = 0) -> Batch:
    try:
        batch = task.sample(_generator(seed), batch_size, length)
    except Exception as error:
        raise _broken(task, length, f"sampling {batch_size} sequences gave {reason(error)}") from error
    if not isinstance(batch, Batch):
        raise _broken(task, length, f"sampling gave {type(batch).__name__}; allowed: Batch(inputs, targets)")
    return batch


def _broken(task: Task, length: int, what: str) -> ContractError:
    return ContractError(f"task {task.name!r} at length {length}: {what}")


def _other_values(option: Option, value: Value) -> Iterator[Value]:
    """Yield other allowed values of an option; if it is a number, values near ``value`` come first."""
    candidates: list[Value] = []
    if option.choices:
        candidates = list(option.choices)
    elif isinstance(value, bool):
        candidates = [not value]
    elif isinstance(value, int | float):
        near = [value + 1, value - 1, 2 * value, option.type(value / 2)]
        ends = [option.type(end) for end in (option.low, option.high) if end is not None]
        # If a count must fit another option, often none of these values is accepted.
        powers = [option.type(2**exponent) for exponent in range(1, 13)]
        low = -math.inf if option.low is None else option.low
        high = math.inf if option.high is None else option.high
        candidates = [number for number in (*near, *ends, *powers) if low <= number <= high]
    yield from (candidate for candidate in dict.fromkeys(candidates) if candidate != value)
