"""Shared code of tasks that ask for the running product of elements of a group."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens
from synthbench.tasks.state_tracking._groups import Group
from synthbench.tasks.state_tracking._running import running

Elements = Int[np.ndarray, "batch elements"]


def inputs_option(fewest: int, most: int) -> Any:
    """Declare the option ``num_inputs``, the number of different elements that occur as inputs.

    At least ``fewest`` are needed to generate the group; ``most`` is also the default.
    """
    return option(most, "different elements that occur as inputs, the first by number", low=fewest, high=most)


@dataclass(frozen=True)
class GroupWords(Task):
    """Base class of tasks that show random elements of a group and ask, after each one, for the product so far.

    Tokens and answers are the numbers of elements in :mod:`synthbench.tasks.state_tracking._groups`.
    """

    group: ClassVar[Group]
    first_input: ClassVar[int] = 0
    """The identity; a task without it begins at 1."""
    num_inputs: int = inputs_option(1, 1)
    tokens_per_element: int = option(
        1, "tokens an element takes: itself, then identities; its product is asked at the last", low=1, high=64
    )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the number of elements of the group, each of which can be an answer."""
        return self.group.order

    @property
    def min_length(self) -> int:
        """Number of tokens of one element and the identities after it."""
        return self.tokens_per_element

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw elements; each element takes ``tokens_per_element`` tokens: the element itself, then only identities.

        The last token of each element asks for the product so far.
        """
        step = self.tokens_per_element
        elements = self.first_input + rng.integers(self.num_inputs, size=(batch_size, -(-length // step)))
        inputs = np.zeros((batch_size, length), dtype=np.int64)
        inputs[:, ::step] = elements
        targets = np.full_like(inputs, IGNORE)
        # The last element may be cut off before its product is asked.
        targets[:, step - 1 :: step] = self._products(elements[:, : length // step])
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of naming the likeliest product of as many elements as have been read."""
        return Bound(_likeliest(self.group, self.first_input, self.num_inputs, length // self.tokens_per_element))

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of rules that use only the latest one or four elements, or ignore the order of factors."""
        step = self.tokens_per_element
        elements = inputs[:, ::step]
        guesses = {"latest element": elements, "latest four elements": self._products(elements, window=4)}
        # In other groups this rule would be the task itself, or name a constant.
        if 1 < len(self.group.commutators) < self.group.order:
            guesses["order ignored"] = self.group.representatives[self._products(elements)]
        return {name: np.repeat(guess, step, axis=1)[:, : inputs.shape[1]] for name, guess in guesses.items()}

    def _products(self, elements: Elements, window: int | None = None) -> Elements:
        return running(elements, lambda first, second: self.group.products[first, second], window)


@cache
def _likeliest(group: Group, first_input: int, num_inputs: int, num_elements: int) -> float:
    """Compute the probability of the likeliest product of n uniform inputs, averaged over n from 1 to num_elements."""
    inputs = np.arange(first_input, first_input + num_inputs)
    numbers = np.arange(group.order)
    step = np.zeros((group.order, group.order))
    np.add.at(step, (numbers[:, None], group.products[:, inputs]), 1 / num_inputs)
    chances = (numbers == 0).astype(float)
    total = 0.0
    for _ in range(num_elements):
        chances = chances @ step
        total += chances.max()
    return total / num_elements
