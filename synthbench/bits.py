"""Scores that have tables of their own: what rows call them, and how those in bits follow from a loss."""

import math
from collections.abc import Mapping

BITS = "minus bits per token"
"""Name of the metric of tasks whose answers are uncertain: higher for better models and at most 0."""


def bits_of(nats: float) -> float:
    """A loss in bits.

    >>> bits_of(math.log(256))
    8.0
    """
    return nats / math.log(2)


def choice_in(metrics: Mapping[str, float | None]) -> float | None:
    """What the metrics of a row say for its learning rate, a fraction: higher is better; None if nothing.

    The accuracy on the validation sequences; of a task in bits, the geometric mean of the probabilities that the model
    gave to the right tokens there.

    >>> choice_in({"validation_accuracy": 0.5}), choice_in({"validation_accuracy": 0.5, "validation_bits": 2.0})
    (0.5, 0.25)
    """
    bits = metrics.get("validation_bits")
    return metrics.get("validation_accuracy") if bits is None else 2.0**-bits
