"""What the tasks of induction with several occurrences share: they differ in the policy that picks one of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.knobs import knob
from synthbench.tasks._draws import distinct
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task

Policy = Callable[[Int[np.ndarray, "batch repeats"]], Int[np.ndarray, " batch"]]
"""Picks one of the successors of a trigger, which are given in the order of their positions."""


def _first(successors: Int[np.ndarray, "batch repeats"]) -> Int[np.ndarray, " batch"]:
    return successors[:, 0]


def _latest(successors: Int[np.ndarray, "batch repeats"]) -> Int[np.ndarray, " batch"]:
    return successors[:, -1]


def _majority(successors: Int[np.ndarray, "batch repeats"]) -> Int[np.ndarray, " batch"]:
    """The most common one; of several, the smallest: where all differ, position tells nothing."""
    ordered = np.sort(successors, axis=1)
    votes = (ordered[:, :, None] == ordered[:, None, :]).sum(axis=2)
    return np.take_along_axis(ordered, votes.argmax(axis=1)[:, None], axis=1)[:, 0]


POLICIES: Mapping[str, Policy] = MappingProxyType({"first": _first, "latest": _latest, "majority": _majority})


@dataclass(frozen=True)
class ControlledInduction(Task):
    """Each trigger occurs equally often among background symbols; asked for one, name one of its successors.

    Ids: the background symbols, of which the successors are drawn, then the triggers.
    """

    policy: ClassVar[str]
    """Which successor is asked: a key of ``POLICIES``."""
    source: ClassVar = "olsson2022induction"
    length: ClassVar = 64
    # Tiny has no other trigger to tell apart: what is left, the policy, is learned in a few hundred steps.
    sizes: ClassVar = {
        "tiny": {"length": 16, "num_symbols": 8, "num_triggers": 1, "repeats": 2},
        "small": {"length": length},
        "hard": {"length": 256, "num_triggers": 16, "repeats": 6},
    }
    num_symbols: int = knob(64, "number of background symbols", low=8, high=4096)
    num_triggers: int = knob(5, "number of triggers; all but the one that is asked distract", low=1, high=1024)
    repeats: int = knob(3, "how often each trigger occurs before it is asked", low=2, high=8)

    @property
    def vocab_size(self) -> int:
        """The background symbols and the triggers."""
        return self.num_symbols + self.num_triggers

    @property
    def min_length(self) -> int:
        """All triggers with their successors, and the trigger that is asked."""
        return 2 * self.num_triggers * self.repeats + 1

    def draw_successors(self, rng: np.random.Generator, num_sets: int) -> Int[np.ndarray, "sets repeats"]:
        """The successors of triggers; all those of one trigger differ."""
        return distinct(rng, num_sets, self.repeats, self.num_symbols)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Put triggers with their successors at random places of a random background, and ask for one trigger."""
        self.check_length(length)
        num_slots = self.num_triggers * self.repeats
        # A slot is a trigger and its successor. Which of so many slots and single symbols in a row are slots?
        keys = rng.random((batch_size, length - 1 - num_slots))
        slots = np.sort(np.argpartition(keys, num_slots - 1, axis=1)[:, :num_slots], axis=1)
        # Each earlier slot takes one position more than a symbol.
        starts = rng.permuted(slots + np.arange(num_slots), axis=1)
        triggers = self.num_symbols + np.arange(num_slots)[None] // self.repeats
        successors = self.draw_successors(rng, batch_size * self.num_triggers).reshape(batch_size, num_slots)
        inputs = rng.integers(self.num_symbols, size=(batch_size, length))
        np.put_along_axis(inputs, starts, triggers, axis=1)
        np.put_along_axis(inputs, starts + 1, successors, axis=1)
        inputs[:, -1] = self.num_symbols + rng.integers(self.num_triggers, size=batch_size)
        return Batch(inputs, score_last(POLICIES[self.policy](self._successors(inputs)), length))

    def floor(self, length: int) -> Bound:
        """One in all background symbols."""
        self.check_length(length)
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """All successors have been read."""
        self.check_length(length)
        return Bound(1.0)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """The other policies."""
        successors = self._successors(inputs)
        return {
            name: np.broadcast_to(policy(successors)[:, None], inputs.shape)
            for name, policy in POLICIES.items()
            if name != self.policy
        }

    def _successors(self, inputs: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, "batch repeats"]:
        """What followed the trigger that is asked, in the order of positions."""
        rows, positions = np.nonzero(inputs[:, :-1] == inputs[:, -1:])
        return inputs[rows, positions + 1].reshape(len(inputs), self.repeats)
