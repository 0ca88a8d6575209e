"""Functions that ask for the values of keys, after all pairs of a key and a value have been read."""

import numpy as np
from jaxtyping import Int

from synthbench.tasks._targets import score_at


def ask(
    rng: np.random.Generator,
    inputs: Int[np.ndarray, "batch length"],
    keys: Int[np.ndarray, "batch keys tokens"],
    answers: Int[np.ndarray, "batch keys"],
    start: int,
    alpha: float = 1.0,
    *,
    with_replacement: bool = False,
) -> Int[np.ndarray, "batch length"]:
    """Write keys into the inputs again, as queries for their values, and return targets with these values.

    Each key is asked once; with ``with_replacement``, each query asks for a random key instead. The positions from
    ``start`` on are divided into slots, each of which has one position more than a key. Each key in turn draws one of
    the free slots. The n-th slot has a probability proportional to ``n ** (alpha - 1)``. The target of a query stands
    at the query's last token.
    """
    batch_size, num_keys, width = keys.shape
    length = inputs.shape[1]
    if with_replacement:
        asked = rng.integers(num_keys, size=(batch_size, num_keys))
        keys = np.take_along_axis(keys, asked[:, :, None], axis=1)
        answers = np.take_along_axis(answers, asked, axis=1)
    num_slots = (length - start) // (width + 1)
    # Alarms with these rates ring in the order of such draws.
    alarms = rng.standard_exponential((batch_size, num_slots)) / np.arange(1, num_slots + 1) ** (alpha - 1)
    starts = start + (width + 1) * np.argsort(alarms, axis=1)[:, :num_keys]
    for token in range(width):
        np.put_along_axis(inputs, starts + token, keys[:, :, token], axis=1)
    return score_at(answers, starts + width - 1, length)


def look_up(
    keys: Int[np.ndarray, "batch pairs"],
    values: Int[np.ndarray, "batch pairs"],
    inputs: Int[np.ndarray, "batch length"],
    vocab_size: int,
) -> Int[np.ndarray, "batch length"]:
    """Look up, for each input token, the value of the last pair whose key is this token; 0 without such a pair."""
    table = np.zeros((len(inputs), vocab_size), dtype=np.int64)
    rows = np.arange(len(inputs))
    # One pair after the other: in a single assignment NumPy may write equal keys in any order.
    for key, value in zip(keys.T, values.T, strict=True):
        table[rows, key] = value
    return np.take_along_axis(table, inputs, axis=1)
