"""Training on a ladder (the levels of a task): each step's level and batch size, and levels of longer tests."""

import math
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
"""Multiples of the longest trained length at which a trained model is also tested."""

_GOLDEN = (math.sqrt(5) - 1) / 2


def mixture(num_steps: int, num_levels: int) -> list[int]:
    """List the index (from 0) of the level to train on at each step; the list is the same for all mechanisms and seeds.

    All levels are mixed throughout. Easy levels come more often, since harder levels build on them: the easiest quarter
    of the levels gets half of the steps.

    >>> mixture(12, 3)
    [1, 0, 2, 0, 0, 1, 0, 2, 0, 0, 1, 0]
    """
    return [int(evenly(step) ** 2 * num_levels) for step in range(num_steps)]


def evenly(step: int) -> float:
    """Map each step to a number in [0, 1), such that the numbers of the first n steps are evenly spread for every n.

    The numbers are the multiples of the golden ratio, modulo 1.
    """
    return (step + 1) * _GOLDEN % 1


def sized_in(suite: Suite, name: str, arguments: Mapping[str, object]) -> Sized:
    """Return the length and the options with which a suite uses a task.

    ``arguments`` override the suite's options. If the suite has a ladder (levels of each task), the result is the
    length of the task's last level, without options.

    Raises:
        UnknownName: If the task or an option does not exist.
        UsageError: If a value is out of range. A suite with a ladder allows neither options nor a task whose levels are
            all too long.
    """
    if suite.ladder is None:
        return sized(name, {**suite.tasks.get(name, {}), **arguments})
    levels = ladder_schedule(suite, name).levels
    if arguments:
        option = next(iter(arguments))
        raise UsageError(
            f"{name}:{option} is {arguments[option]!r}; allowed: no options in suite {suite.name!r}, whose ladder "
            "sets them"
        )
    return Sized(levels[-1].length, {})


@dataclass(frozen=True)
class LadderSchedule:
    """The plan of training on a ladder: the levels of a task, their order over the steps, and their batch sizes."""

    levels: tuple[Level, ...]
    ladder: LadderSettings
    training: TrainingSettings

    @cached_property
    def order(self) -> list[int]:
        """The index (from 0) of the level on which each step trains."""
        return mixture(self.training.steps, len(self.levels))

    @cached_property
    def num_batches(self) -> list[int]:
        """Number of steps on each level."""
        return [int(count) for count in np.bincount(self.order, minlength=len(self.levels))]

    @cached_property
    def batch_sizes(self) -> list[int]:
        """Number of sequences per step on each level."""
        return [
            max(
                self.training.batch_size,
                math.ceil(self.ladder.batch_answers / level_bounds(level).answers),
                self.ladder.batch_tokens // level.length,
            )
            for level in self.levels
        ]

    def sequences(self, num_steps: int) -> int:
        """Count the sequences of the first ``num_steps`` steps."""
        return sum(self.batch_sizes[level] for level in self.order[:num_steps])

    def tokens(self, num_steps: int) -> int:
        """Count the tokens of the first ``num_steps`` steps."""
        return sum(self.batch_sizes[level] * self.levels[level].length for level in self.order[:num_steps])


def beyond(levels: Sequence[Level]) -> dict[int, Level]:
    """Find test levels that are 2 and 4 times as long as the longest trained level; 2 and 4 are the keys.

    ``levels`` are the trained levels, easiest first. If the task defines no level of the wanted length, the last
    trained level is stretched to this length; the load (difficulty) is then unknown, and set to 0. A key is missing if
    the level is impossible, or has tokens that the trained levels lack. If the last trained level scores nothing at its
    first positions (``first_new`` above 0), the stretched level scores only positions beyond the trained length.

    >>> {factor: level.load for factor, level in beyond(TASKS["parity_running"].ladder(longest=256)).items()}
    {2: 512, 4: 1024}
    """
    last, found = levels[-1], {}
    for factor in FACTORS_BEYOND:
        candidates = own_levels(type(last.task), factor * last.length)
        with suppress(UsageError):
            task, length = last.task.stretched(last.length, factor)
            task.check_length(length)
            candidates.append(Level(task, length, load=0, first_new=last.length if last.first_new else 0))
        if (known := next((level for level in candidates if _is_known(level, levels)), None)) is not None:
            found[factor] = known
    return found


def own_levels(task: type[Task], length: int) -> list[Level]:
    """List the levels of a given length that a task itself defines, including levels of its extended ladder."""
    longest = max(LENGTHS)
    every = [*task.ladder(longest), *(task.ladder(longest, is_extended=True) if task.extended_levels else ())]
    return [level for level in every if level.length == length]


def _is_known(level: Level, trained: Sequence[Level]) -> bool:
    """Return whether every token of a level also occurs in the trained levels."""
    inputs, answers = _tokens(level)
    for each in reversed(trained):  # the longest level usually has all tokens
        known_inputs, known_answers = _tokens(each)
        inputs, answers = inputs - known_inputs, answers - known_answers
        if not inputs | answers:
            return True
    return False


@lru_cache(maxsize=4096)
def _tokens(level: Level) -> tuple[frozenset[int], frozenset[int]]:
    """Collect the tokens in the inputs, and those in the targets, of a fixed sample of a level's sequences."""
    sample = level.task.sample(np.random.Generator(np.random.Philox(key=0)), 128, level.length)
    # Counting the tokens is faster than sorting or hashing them.
    counts = map(np.bincount, (sample.inputs.ravel(), sample.targets[sample.targets != IGNORE]))
    inputs, answers = (frozenset(np.flatnonzero(count).tolist()) for count in counts)
    return inputs, answers


def ladder_schedule(suite: Suite, task: str) -> LadderSchedule:
    """Return the levels of a task and their order in training, by the settings of a suite.

    Raises:
        UnknownName: If there is no such task.
        UsageError: If the suite has no ladder, or all levels of the task are too long for the suite.
    """
    if suite.ladder is None:
        raise UsageError(f"suite {suite.name!r} has no ladder; allowed: one whose file has [ladder]")
    levels = TASKS[task].ladder(suite.ladder.longest, is_extended=suite.ladder.extended)
    if not levels:
        raise UsageError(
            f"task {task!r} has no levels of up to {suite.ladder.longest} tokens, which suite {suite.name!r} needs; "
            f"allowed: a task that 'synthbench list tasks --suite {suite.name}' shows"
        )
    return LadderSchedule(tuple(levels), suite.ladder, suite.training)
