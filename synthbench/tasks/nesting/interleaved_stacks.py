"""The task interleaved_stacks."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens, task

MOST_RUNS = 4
"""Largest number of runs of consecutive POPs that a shortcut counts."""


@task
@dataclass(frozen=True)
class InterleavedStacks(Task):
    """Read pushes onto several stacks and pops from them, in any order; at each pop, name the value that is removed.

    Token 0 is a PUSH onto stack 0, token 1 a PUSH onto stack 1, and tokens 2 and 3 are POPs from these stacks. The
    value that is pushed or removed, 4 to 6, follows as the next token.
    With ``num_stacks=2``, ``stack_ids=2`` and ``num_values=3``::

        inputs    0 4 1 6 0 5 2 5 3 6 2 4
        targets   . . . . . . 5 . 6 . 4 .

    Tests several states at once, each a stack: an operation changes one stack and leaves the others alone. A single
    stack tests only nesting; with many stacks, most operations between a PUSH and its POP concern other stacks.

    Each operation is on a random stack. PUSH is as likely as POP, except that an empty stack always gets a PUSH and a
    full stack always gets a POP. With ``pops=2``, a POP is scored only if the previous operation on its stack was also
    a POP. So the answer is never the value that was last pushed onto the stack. With ``buried=5``, a POP is scored only
    if at least five values were pushed onto the stack after the answer.

    Source: after the Kimi Team (2025), who test Kimi Delta Attention with 64 stacks. In their version, a separate token
    names the stack.
    """

    name: ClassVar = "interleaved_stacks"
    version: ClassVar = 2
    source: ClassVar = "kimi2025linear"
    length: ClassVar = 128
    # Each stack is used about as often on every level. A value under fewer pushes is mostly the one as many pushes back
    # as there were POPs in a row.
    levels: ClassVar = tuple(
        {"load": num_stacks, "length": length, "num_stacks": num_stacks, "stack_ids": 32, "buried": 5}
        for num_stacks, length in (
            (1, 48),
            (2, 96),
            (3, 128),
            (4, 192),
            (6, 256),
            (8, 384),
            (12, 512),
            (16, 768),
            (24, 1024),
        )
    )
    load: ClassVar = "stacks"
    num_stacks: int = option(4, "number of stacks in use", low=1, high=1024)
    stack_ids: int = option(4, "number of stacks that have ids", low=1, high=1024)
    depth: int = option(8, "most values on a stack", low=1, high=1024)
    num_values: int = option(8, "number of values", low=2, high=4096)
    pops: int = option(1, "operations on its stack that are POPs, at least, up to one that is asked", low=1, high=16)
    buried: int = option(
        0,
        "pushes onto its stack, at least, since the push of a value that is asked",
        low=0,
        high=1024,
        is_addition=True,
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, there are fewer ids than stacks, or no POP could be scored.
        """
        super().__post_init__()
        if self.num_stacks > self.stack_ids:
            raise UsageError(f"{self.name}:num_stacks is {self.num_stacks}; allowed: up to stack_ids={self.stack_ids}")
        if self.pops > self.depth:
            raise UsageError(
                f"{self.name}:pops is {self.pops}; allowed: up to depth={self.depth}, after which a stack is empty"
            )
        if self.buried and self.depth == 1:
            raise UsageError(
                f"{self.name}:buried is {self.buried}; allowed: 0, for with depth=1 nothing is under a value"
            )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: a PUSH and a POP for each stack, and the values."""
        return 2 * self.stack_ids + self.num_values

    @property
    def min_length(self) -> int:
        """Number of tokens in the shortest sequence, which ends with the first POP that can be scored.

        Such a sequence has as many PUSHes as POPs. Each operation has two tokens, but the value of the last POP is left
        out.
        """
        return 4 * max(self.pops, self.buried + 1) - 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw operations, the stack of each operation, and uniform values to push."""
        size = ((length + 1) // 2, batch_size)
        stacks = rng.integers(self.num_stacks, size=size)
        wants_push = rng.random(size) < 0.5
        values = rng.integers(self.num_values, size=size)
        is_pop = np.empty(size, dtype=bool)
        in_a_row = np.empty(size, dtype=np.int64)
        rows = np.arange(batch_size)
        since = np.empty(size, dtype=np.int64)
        heights, streaks, num_pushed = np.zeros((3, batch_size, self.num_stacks), dtype=np.int64)
        contents, pushed_at = np.zeros((2, batch_size, self.num_stacks, self.depth), dtype=np.int64)
        for operation, stack in enumerate(stacks):
            height = heights[rows, stack]
            pushes = (height == 0) | (wants_push[operation] & (height < self.depth))
            top = height - 1 + pushes
            value = np.where(pushes, values[operation], contents[rows, stack, top])
            contents[rows, stack, top] = values[operation] = value
            heights[rows, stack] = top + pushes
            num_pushed[rows, stack] += pushes
            pushed_at[rows, stack, top] = np.where(pushes, num_pushed[rows, stack], pushed_at[rows, stack, top])
            since[operation] = num_pushed[rows, stack] - pushed_at[rows, stack, top]
            streaks[rows, stack] = in_a_row[operation] = np.where(pushes, 0, streaks[rows, stack] + 1)
            is_pop[operation] = ~pushes
        tokens = np.empty((batch_size, size[0], 2), dtype=np.int64)
        tokens[:, :, 0] = (stacks + self.stack_ids * is_pop).T
        tokens[:, :, 1] = 2 * self.stack_ids + values.T
        targets = np.full_like(tokens, IGNORE)
        is_asked = (in_a_row >= self.pops) & (since >= self.buried)
        targets[:, :, 0] = np.where(is_asked, 2 * self.stack_ids + values, IGNORE).T
        inputs, targets = (part.reshape(batch_size, -1)[:, :length].copy() for part in (tokens, targets))
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess, since all values are equally likely."""
        return Bound(1 / self.num_values)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of three rules: the last value read, or the stack's last or second-last pushed value.

        A pushed value counts even if it has been popped since.
        """
        batch_size, length = inputs.shape
        rows = np.arange(batch_size)
        pushed = np.full((2, batch_size, self.stack_ids), 2 * self.stack_ids)
        found = np.zeros((3, length, batch_size), dtype=np.int64)
        for position in range(0, length, 2):
            stacks = inputs[:, position] % self.stack_ids
            found[:2, position] = pushed[:, rows, stacks]
            if position:
                found[2, position] = inputs[:, position - 1]
            if position + 1 < length:
                last, before = pushed[:, rows, stacks]
                is_push = inputs[:, position] < self.stack_ids
                pushed[1, rows, stacks] = np.where(is_push, last, before)
                pushed[0, rows, stacks] = np.where(is_push, inputs[:, position + 1], last)
        last_push, push_before, last_value = found.transpose(0, 2, 1)
        return {"last push": last_push, "push before": push_before, "last value": last_value}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of six rules that name the n-th latest value pushed onto a stack.

        Popped values count, too. In one rule, n is ``buried + 1``; in another, n is ``buried + 2``. In the other four,
        n is the total number of POPs in the stack's last 1, 2, 3 or 4 series of POPs. A PUSH onto the stack ends a
        series.
        """
        batch_size, length = inputs.shape
        rows = np.arange(batch_size)
        history = np.full((batch_size, self.stack_ids, length // 2 + 1), 2 * self.stack_ids)
        num_pushed = np.zeros((batch_size, self.stack_ids), dtype=np.int64)
        runs = np.zeros((MOST_RUNS, batch_size, self.stack_ids), dtype=np.int64)
        was_push = np.zeros((batch_size, self.stack_ids), dtype=bool)
        found = np.zeros((MOST_RUNS + 2, length, batch_size), dtype=np.int64)
        for position in range(0, length, 2):
            is_push, stacks = inputs[:, position] < self.stack_ids, inputs[:, position] % self.stack_ids
            begins = ~is_push & was_push[rows, stacks]
            latest = runs[:, rows, stacks]
            latest = np.where(begins, np.concatenate([np.zeros_like(latest[:1]), latest[:-1]]), latest)
            latest[0] += ~is_push
            runs[:, rows, stacks] = latest
            was_push[rows, stacks] = is_push
            place = num_pushed[rows, stacks]
            fixed = np.repeat([[self.buried + 1], [self.buried + 2]], batch_size, axis=1)
            back = np.concatenate([latest.cumsum(axis=0), fixed])
            found[:, position] = history[rows, stacks, (place - back).clip(0)]
            if position + 1 < length:
                pushing = np.flatnonzero(is_push)
                history[pushing, stacks[pushing], place[pushing]] = inputs[pushing, position + 1]
                num_pushed[pushing, stacks[pushing]] += 1
        names = [f"as far back as the POPs of {runs} runs" for runs in range(1, MOST_RUNS + 1)]
        names += ["as far back as can be asked", "one further back than can be asked"]
        return {**self.shortcuts(inputs), **dict(zip(names, found.transpose(0, 2, 1), strict=True))}
