"""Measurements, on samples of any task, of the accuracy of simple rules and shortcuts."""

import numpy as np
from jaxtyping import Int

from synthbench.tasks._rules import search
from synthbench.tasks.base import IGNORE, Batch, Bound, Level, Task, Tokens

NUM_TOKENS = 2**19
"""Tokens of the sample from which the rule is learned, and of the one on which it is scored."""

NUM_ANSWERS = 2**13
"""Fewest targets of such a sample of a level: of several equally good rules the luckiest is the base."""

MOST_SEARCHED = 256
"""Tokens of the longest level on which generic rules are tried: on longer ones few scored positions fit into memory."""


def measured_local_ceiling(task: Task, length: int) -> Bound:
    """Measure the accuracy of the best rule that sees only the current token and its position.

    See :func:`synthbench.tasks.local_ceiling`.
    """
    floor = task.floor(length)
    if task.readout != "position":
        return floor
    fit, fresh = (_sample(task, length, seed) for seed in (0, 1))
    seen, learned = _most_frequent(_pairs(task, fit.inputs), fit.targets)
    pairs = _pairs(task, fresh.inputs)
    # A pair that was never seen takes the answer of a neighbouring pair. At worst it is wrong, as a constant would be.
    predictions = learned[np.searchsorted(seen, pairs).clip(max=len(seen) - 1)]
    reached = accuracy(predictions, fresh.targets)
    return reached if reached.value > floor.value else floor


def measured_shortcuts(task: Task, length: int) -> dict[str, Bound]:
    """Measure the accuracy of each rule of ``task.shortcuts``; keys are the names of the rules."""
    inputs, targets = _sample(task, length, 0)
    return {name: accuracy(predictions, targets) for name, predictions in task.shortcuts(inputs).items()}


def measured_bases(level: Level) -> dict[str, float]:
    """Measure the accuracy of simple rules, called baselines, on the targets that a level scores.

    Keys are the baselines' names. ``floor`` answers with one constant per position. ``local`` is the best rule that
    sees only the current token and position. ``place`` copies, at each position, the token read at the place that most
    often holds the answer. ``seen`` guesses uniformly among the token ids read so far, but only among ids that are an
    answer anywhere in the sample. ``unasked`` is like ``seen``, but leaves out ids that were an answer earlier in the
    sequence.

    The task's own rules are baselines, too. If sequences have at most ``MOST_SEARCHED`` tokens, the best generic rule
    of each family in :mod:`synthbench.tasks._rules` is another baseline.
    """
    fit, fresh = (
        Batch(inputs, level.new_targets(targets))
        for inputs, targets in (large_sample(level.task, level.length, seed) for seed in (0, 1))
    )
    alone = np.zeros_like(fit.inputs[:1])
    bases = {
        "floor": _learned(level.task, fit, fresh, (alone, alone)),
        "local": _learned(level.task, fit, fresh, (fit.inputs, fresh.inputs)),
        "place": accuracy(np.take_along_axis(fresh.inputs, _best_places(fit)[None], axis=1), fresh.targets).value,
        **guesses(fresh, level.task.vocab_size),
    }
    for name, predictions in level.task.level_shortcuts(fresh.inputs).items():
        bases[name] = accuracy(predictions, fresh.targets).value
    if level.length > MOST_SEARCHED:
        return bases
    found = search(fit, fresh, level.task.vocab_size, left_out=level.task.no_shortcuts)
    return bases | {best.rule: best.accuracy for best in found.values()}


def answers_per_sequence(task: Task, length: int) -> float:
    """Compute the mean number of scored positions in a sequence, over a fixed sample."""
    return float((_sample(task, length, 0).targets != IGNORE).sum(axis=1).mean())


def _learned(task: Task, fit: Batch, fresh: Batch, seen: tuple[np.ndarray, np.ndarray]) -> float:
    """Learn the most frequent answer for each pair of position and token on ``fit``; return the accuracy on ``fresh``.

    ``seen`` holds the tokens of both samples that the rule sees: the inputs, or zeros to hide them.
    """
    seen_pairs, learned = _most_frequent(np.broadcast_to(_pairs(task, seen[0]), fit.targets.shape), fit.targets)
    pairs = np.broadcast_to(_pairs(task, seen[1]), fresh.targets.shape)
    predictions = learned[np.searchsorted(seen_pairs, pairs).clip(max=len(seen_pairs) - 1)]
    return accuracy(predictions, fresh.targets).value


def _best_places(batch: Batch) -> Int[np.ndarray, " length"]:
    """Find, for each scored position t, the position up to t whose token is most often the answer at t."""
    inputs, targets = batch
    places = np.arange(inputs.shape[1])
    for position in np.flatnonzero((targets != IGNORE).any(axis=0)):
        is_right = inputs[:, : position + 1] == targets[:, position, None]
        places[position] = is_right.sum(axis=0).argmax()
    return places


def guesses(batch: Batch, vocab_size: int) -> dict[str, float]:
    """Compute the accuracies of two rules that guess uniformly among possible answers read so far.

    A possible answer is a token id that is a target anywhere in the batch. The rule ``seen`` guesses among all possible
    answers read. The rule ``unasked`` leaves out ids that were a target at an earlier position of the sequence.
    """
    inputs, targets = batch
    (num_rows, length), never = inputs.shape, inputs.shape[1] + 1
    rows = np.arange(num_rows)
    read = np.full((num_rows, vocab_size + 1), never)  # first position of each token; last column: no token
    asked = read.copy()
    tokens = np.where(targets == IGNORE, vocab_size, targets)
    for position in reversed(range(length)):
        read[rows, inputs[:, position]] = position
        asked[rows, tokens[:, position]] = position
    is_answer = np.zeros(vocab_size + 1, dtype=bool)
    is_answer[targets[targets != IGNORE]] = True
    read[:, ~is_answer] = never
    num_read = _counts_up_to(read, length)
    num_left = num_read - _counts_up_to(np.maximum(read, asked + 1), length)
    row, place = np.nonzero(targets != IGNORE)
    token = targets[row, place]
    was_read = read[row, token] <= place
    is_left = was_read & (asked[row, token] >= place)
    return {
        "seen": float((was_read / np.maximum(num_read[row, place], 1)).mean()),
        "unasked": float((is_left / np.maximum(num_left[row, place], 1)).mean()),
    }


def _counts_up_to(firsts: Int[np.ndarray, "batch tokens"], length: int) -> Tokens:
    """Count, in each row and for each position p below ``length``, the values of ``firsts`` that are at most p."""
    counts = np.zeros((len(firsts), firsts.max(initial=length) + 1), dtype=np.int64)
    np.add.at(counts, (np.arange(len(firsts))[:, None], firsts), 1)
    found: Tokens = counts.cumsum(axis=1)[:, :length]
    return found


def _sample(task: Task, length: int, seed: int, num_sequences: int | None = None) -> Batch:
    num_drawn = num_sequences or max(256, NUM_TOKENS // length)
    return task.sample(np.random.Generator(np.random.Philox(seed)), num_drawn, length)


def large_sample(task: Task, length: int, seed: int) -> Batch:
    """Draw a sample with about ``NUM_ANSWERS`` scored targets or more."""
    batch = _sample(task, length, seed)
    num_targets = int((batch.targets != IGNORE).sum())
    if num_targets >= NUM_ANSWERS:
        return batch
    return _sample(task, length, seed, -(-NUM_ANSWERS * len(batch.targets) // num_targets))


def accuracy(predictions: Tokens, targets: Tokens) -> Bound:
    """Compute the accuracy of predictions at the scored positions, with its standard error.

    The result is a :class:`Bound` of the kind ``bound``. Positions of a sequence are not independent, so the standard
    error treats whole sequences as the independent samples.
    """
    is_scored = targets != IGNORE
    is_right = (predictions == targets) & is_scored
    share = is_right.sum() / is_scored.sum()
    residuals = is_right.sum(axis=1) - share * is_scored.sum(axis=1)
    return Bound(float(share), "bound", float(np.sqrt((residuals**2).sum()) / is_scored.sum()))


def _pairs(task: Task, inputs: Tokens) -> Tokens:
    """Compute, at each position, a number that is unique to the pair of position and token there."""
    return inputs + task.vocab_size * np.arange(inputs.shape[1])


def _most_frequent(pairs: Tokens, targets: Tokens) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return the distinct pair numbers at scored positions, sorted, and the most frequent target of each pair.

    A pair number stands for a position and the token there.
    """
    is_scored = targets != IGNORE
    base = int(targets.max()) + 1
    codes, counts = np.unique(pairs[is_scored] * base + targets[is_scored], return_counts=True)
    seen, answers = np.divmod(codes, base)
    order = np.lexsort((-counts, seen))
    kept, first = np.unique(seen[order], return_index=True)
    return kept, answers[order][first]
