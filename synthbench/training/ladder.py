"""Chooses the level of each training step, and its number of sequences."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from synthbench.errors import UsageError
from synthbench.suites import Suite
from synthbench.suites.config import LadderSettings, TrainingSettings
from synthbench.tasks import IGNORE, TASKS, Level, Sized, level_bounds, sized
from synthbench.tasks.base import LENGTHS, Task

FACTORS_BEYOND = (2, 4)
"""Multiples of the longest trained level's tokens at which a trained model is tested too."""

_GOLDEN = (math.sqrt(5) - 1) / 2


def mixture(num_steps: int, num_levels: int) -> list[int]:
    """The level of each step, from 0; the same for every mechanism and seed.

    All levels from the first step to the last, easy ones more often, as what is learned there serves above. The easiest
    quarter of a ladder has half of the steps.

    >>> mixture(12, 3)
    [1, 0, 2, 0, 0, 1, 0, 2, 0, 0, 1, 0]
    """
    return [int(evenly(step) ** 2 * num_levels) for step in range(num_steps)]


def evenly(step: int) -> float:
    """A number in [0, 1); those of the first steps, however many, are spread evenly over it.

    They are the multiples of the golden ratio, modulo 1.
    """
    return (step + 1) * _GOLDEN % 1


def sized_in(suite: Suite, name: str, arguments: Mapping[str, object]) -> Sized:
    """Resolve a task of a suite and a command: on a ladder no options, and the length of the last level.

    Raises:
        UnknownName: If the task or an option does not exist.
        UsageError: If a value is out of range, the task has no ladder, or it has one and options are given.
    """
    if suite.ladder is None:
        return sized(name, {**suite.tasks.get(name, {}), **arguments})
    levels = course_of(suite, name).levels
    if arguments:
        option = next(iter(arguments))
        raise UsageError(
            f"{name}:{option} is {arguments[option]!r}; allowed: no options in suite {suite.name!r}, whose ladder "
            "sets them"
        )
    return Sized(levels[-1].length, {})


@dataclass(frozen=True)
class Course:
    """The training of a cell on a ladder: levels, order and sizes of the batches."""

    levels: tuple[Level, ...]
    ladder: LadderSettings
    training: TrainingSettings

    @cached_property
    def order(self) -> list[int]:
        """The level of each step, from 0."""
        return mixture(self.training.steps, len(self.levels))

    @cached_property
    def num_batches(self) -> list[int]:
        """Steps on each level."""
        counts = Counter(self.order)
        return [counts[level] for level in range(len(self.levels))]

    @cached_property
    def batch_sizes(self) -> list[int]:
        """Sequences of a step on each level."""
        return [
            max(
                self.training.batch_size,
                math.ceil(self.ladder.batch_answers / level_bounds(level).answers),
                self.ladder.batch_tokens // level.length,
            )
            for level in self.levels
        ]

    def sequences(self, num_steps: int) -> int:
        """Sequences of the first ``num_steps`` steps."""
        return sum(self.batch_sizes[level] for level in self.order[:num_steps])

    def tokens(self, num_steps: int) -> int:
        """Tokens of the first ``num_steps`` steps."""
        return sum(self.batch_sizes[level] * self.levels[level].length for level in self.order[:num_steps])


def beyond(levels: Sequence[Level]) -> dict[int, Level]:
    """Find the levels beyond a ladder on which its models are tested, by their multiple of its longest sequences.

    A level of the task's own has a load and a committed baseline. Where there is none of that length, or it has tokens
    that no trained level has, it is the last trained level stretched. Nobody has counted the load of that: it is 0.
    Where lower positions are the easier ones, only those behind the trained length are scored. A factor is missing
    where the task has no such sequences.

    >>> {factor: level.load for factor, level in beyond(TASKS["parity_running"].ladder(longest=256)).items()}
    {2: 512, 4: 1024}
    """
    last, found = levels[-1], {}
    for factor in FACTORS_BEYOND:
        candidates = own_levels(type(last.task), factor * last.length)
        with suppress(UsageError):
            candidates.append(_stretched(last, factor))
        for level in candidates:
            if _is_known(level, levels):
                found[factor] = level
                break
    return found


def own_levels(task: type[Task], length: int) -> list[Level]:
    """List the levels of a task's own that have one length, also those of suites with extended levels."""
    longest = max(LENGTHS)
    every = [*task.ladder(longest), *(task.ladder(longest, is_extended=True) if task.extended_levels else ())]
    return [level for level in every if level.length == length]


def _is_known(level: Level, trained: Sequence[Level]) -> bool:
    """Return whether every token of a level is one of the trained levels' too."""
    inputs, answers = _tokens(level)
    for each in reversed(trained):  # most often the longest has them all
        known_inputs, known_answers = _tokens(each)
        inputs, answers = inputs - known_inputs, answers - known_answers
        if not inputs | answers:
            return True
    return False


def _stretched(level: Level, factor: int) -> Level:
    task, length = level.task.stretched(level.length, factor)
    task.check_length(length)
    return Level(task, length, load=0, first_new=level.length if level.first_new else 0)


@lru_cache(maxsize=4096)
def _tokens(level: Level) -> tuple[frozenset[int], frozenset[int]]:
    """The tokens of a fixed sample of a level's inputs, and those of its targets."""
    sample = level.task.sample(np.random.Generator(np.random.Philox(key=0)), 128, level.length)
    # Counted, which is faster than sorting or hashing them.
    counts = map(np.bincount, (sample.inputs.ravel(), sample.targets[sample.targets != IGNORE]))
    inputs, answers = (frozenset(np.flatnonzero(count).tolist()) for count in counts)
    return inputs, answers


def course_of(suite: Suite, task: str) -> Course:
    """The training on the ladder of a task.

    Raises:
        UnknownName: If there is no such task.
        UsageError: If the suite has no ladder, or the task has no levels for it.
    """
    if suite.ladder is None:
        raise UsageError(f"suite {suite.name!r} has no ladder; allowed: one whose file has [ladder]")
    levels = TASKS[task].ladder(suite.ladder.longest, is_extended=suite.ladder.extended)
    if not levels:
        raise UsageError(
            f"task {task!r} has no levels of up to {suite.ladder.longest} tokens, and suite {suite.name!r} climbs; "
            f"allowed: a task that 'synthbench list tasks --suite {suite.name}' shows"
        )
    return Course(tuple(levels), suite.ladder, suite.training)
