"""Shared code of induction tasks: a token occurs several times, and a policy picks one of the tokens after it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.options import Value, option
from synthbench.tasks._draws import distinct
from synthbench.tasks._targets import score_at
from synthbench.tasks.base import Batch, Bound, Task

Policy = Callable[[Int[np.ndarray, "questions repeats"]], Int[np.ndarray, " questions"]]
"""Picks one of a trigger's successors, given in order of position."""


def _first(successors: Int[np.ndarray, "questions repeats"]) -> Int[np.ndarray, " questions"]:
    return successors[:, 0]


def _latest(successors: Int[np.ndarray, "questions repeats"]) -> Int[np.ndarray, " questions"]:
    return successors[:, -1]


def _majority(successors: Int[np.ndarray, "questions repeats"]) -> Int[np.ndarray, " questions"]:
    """Pick the most frequent of each trigger's successors (tokens that followed it); in a tie, the smallest id."""
    ordered = np.sort(successors, axis=1)
    votes = (ordered[:, :, None] == ordered[:, None, :]).sum(axis=2)
    return np.take_along_axis(ordered, votes.argmax(axis=1)[:, None], axis=1)[:, 0]


POLICIES: Mapping[str, Policy] = MappingProxyType({"first": _first, "latest": _latest, "majority": _majority})

# With a single trigger, the policy alone would give the answer. Few symbols and, on low levels, few ids make learning
# fast: with 16 background symbols instead of 8, softmax learned nothing in 1,000 steps, and with 32 trigger ids on
# every level, no mechanism learned induction_latest. The ladder ends where the triggers run out of ids.
TRIGGER_LEVELS: Sequence[Mapping[str, Value]] = tuple(
    {
        "load": num_triggers,
        "length": 8 * num_triggers,
        "num_symbols": 8,
        "num_triggers": num_triggers,
        "num_asked": num_triggers,
        "trigger_ids": 32,
        "ids_used": max(num_triggers, 4),
    }
    for num_triggers in (2, 3, 4, 6, 8, 12, 16, 24, 32)
)
"""Ladder of the policies that pick by position: more triggers, each with 3 successors and asked."""


@dataclass(frozen=True)
class ControlledInduction(Task):
    """Base class of tasks with repeated tokens, called triggers, among background symbols.

    The sequence ends with one or more triggers. At each of them, the model must name one of the tokens that followed
    earlier copies of the same trigger, for example the latest.

    All triggers occur equally often. The tokens after them, called successors, are drawn from the background symbols.
    Token ids are, in this order, the background symbols and the triggers.
    """

    policy: ClassVar[str]
    """Which successor is asked: a key of ``POLICIES``."""
    source: ClassVar = "olsson2022induction"
    length: ClassVar = 64
    # With a single trigger, only the policy must be learned, which takes a few hundred steps.
    num_symbols: int = option(64, "number of background symbols", low=8, high=4096)
    num_triggers: int = option(5, "number of triggers; all but the one that is asked distract", low=1, high=1024)
    repeats: int = option(3, "how often each trigger occurs before it is asked", low=2, high=8)
    num_asked: int = option(
        1, "number of triggers that are asked, one after the other", low=1, high=1024, is_addition=True
    )
    trigger_ids: int = option(
        0,
        "number of ids that triggers have, of which each sequence draws its own; 0 is as many as there are triggers",
        low=0,
        high=4096,
        is_addition=True,
    )
    ids_used: int = option(
        0,
        "number of ids that sequences draw from, the first ones; 0 is trigger_ids",
        low=0,
        high=4096,
        is_addition=True,
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or there are fewer triggers than questions, or fewer ids
                than triggers.
        """
        super().__post_init__()
        if self.num_asked > self.num_triggers:
            raise UsageError(
                f"{self.name}:num_asked is {self.num_asked}; allowed: up to num_triggers={self.num_triggers}"
            )
        for name in ("trigger_ids", "ids_used"):
            if 0 < getattr(self, name) < self.num_triggers:
                raise UsageError(
                    f"{self.name}:{name} is {getattr(self, name)}; "
                    f"allowed: 0, or from num_triggers={self.num_triggers} on"
                )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the background symbols and the triggers."""
        return self.num_symbols + max(self.num_triggers, self.trigger_ids, self.ids_used)

    @property
    def min_length(self) -> int:
        """Number of tokens of all copies of triggers, each with the token after it, and of the triggers at the end."""
        return 2 * self.num_triggers * self.repeats + self.num_asked

    def draw_successors(self, rng: np.random.Generator, num_sets: int) -> Int[np.ndarray, "sets repeats"]:
        """Draw the tokens that follow each of ``num_sets`` triggers; after each trigger, all these tokens differ."""
        return distinct(rng, num_sets, self.repeats, self.num_symbols)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Put triggers, each with the token that follows it, at random places among random symbols.

        The last tokens are triggers, too, and each asks for a token that followed its earlier copies.
        """
        num_slots = self.num_triggers * self.repeats
        # A slot is a trigger and its successor. Draw which items in a row of slots and single symbols are slots.
        keys = rng.random((batch_size, length - self.num_asked - num_slots))
        slots = np.sort(np.argpartition(keys, num_slots - 1, axis=1)[:, :num_slots], axis=1)
        # Each earlier slot takes one position more than a single symbol.
        starts = rng.permuted(slots + np.arange(num_slots), axis=1)
        triggers = self.num_symbols + np.arange(num_slots)[None] // self.repeats
        successors = self.draw_successors(rng, batch_size * self.num_triggers).reshape(batch_size, num_slots)
        inputs = rng.integers(self.num_symbols, size=(batch_size, length))
        np.put_along_axis(inputs, starts, triggers, axis=1)
        np.put_along_axis(inputs, starts + 1, successors, axis=1)
        inputs[:, -self.num_asked :] = self.num_symbols + distinct(rng, batch_size, self.num_asked, self.num_triggers)
        if num_ids := self.ids_used or self.trigger_ids:
            names = self.num_symbols + distinct(rng, batch_size, self.num_triggers, num_ids)
            rows, places = np.nonzero(inputs >= self.num_symbols)
            inputs[rows, places] = names[rows, inputs[rows, places] - self.num_symbols]
        return Batch(inputs, self._at_the_end(POLICIES[self.policy](self._successors(inputs)), length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """Return 1: everything that followed the trigger has been read before the question."""
        return Bound(1.0)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the answers of rules that name a wrong successor (a token that followed a trigger).

        The rules name the first, the latest and the most frequent successor of the trigger asked about, except the
        successor that the task asks for. With several questions, a further rule treats all triggers as the same token.
        """
        successors = self._successors(inputs)
        found = {name: policy(successors) for name, policy in POLICIES.items() if name != self.policy}
        # With a single question, adding this shortcut would require a new version of the task.
        if self.num_asked > 1:
            found["any trigger"] = self._whichever(inputs)
        return {name: self._at_the_end(answers, inputs.shape[1]) for name, answers in found.items()}

    def _whichever(self, inputs: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, " questions"]:
        """Pick one of the tokens that followed any trigger, as if all triggers were one; give it as every answer."""
        rows, positions = np.nonzero(inputs[:, : -self.num_asked] >= self.num_symbols)
        picked = POLICIES[self.policy](inputs[rows, positions + 1].reshape(len(inputs), -1))
        return np.repeat(picked, self.num_asked)

    def _successors(self, inputs: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, "questions repeats"]:
        """Find the tokens that followed each trigger of a question, in order of position."""
        context, asked = np.split(inputs, [-self.num_asked], axis=1)
        rows, _, positions = np.nonzero(context[:, None] == asked[:, :, None])
        return inputs[rows, positions + 1].reshape(-1, self.repeats)

    def _at_the_end(self, answers: Int[np.ndarray, " questions"], length: int) -> Int[np.ndarray, "batch length"]:
        """Put each answer at the position of its question at the end of the sequence, and ``IGNORE`` elsewhere."""
        questions = np.arange(length - self.num_asked, length)
        rows = answers.reshape(-1, self.num_asked)
        return score_at(rows, np.broadcast_to(questions, rows.shape), length)
