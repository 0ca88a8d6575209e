"""Scores in bits per token: the name of the metric, conversion from a loss, and a score to choose learning rates by."""

import math
from collections.abc import Mapping

BITS = "minus bits per token"
"""Name of the metric for tasks whose answers cannot be predicted with certainty. Values are at most 0, and higher for
better models."""


def bits_of(nats: float) -> float:
    """Convert a loss from nats to bits.

    >>> bits_of(math.log(256))
    8.0
    """
    return nats / math.log(2)


def choice_in(metrics: Mapping[str, float | None]) -> float | None:
    """Return a run's validation score, used to choose the best learning rate; None if the metrics do not contain it.

    The score lies between 0 and 1, and higher is better. It is the accuracy on the validation sequences. For a task
    scored in bits per token, it is ``2 ** -bits``, the geometric mean of the probabilities given to the right tokens.

    >>> choice_in({"validation_accuracy": 0.5}), choice_in({"validation_accuracy": 0.5, "validation_bits": 2.0})
    (0.5, 0.25)
    """
    bits = metrics.get("validation_bits")
    return metrics.get("validation_accuracy") if bits is None else 2.0**-bits
