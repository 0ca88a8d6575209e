"""Scores with tables of their own: their names in rows, and scores in bits from a loss."""

import math
from collections.abc import Mapping

BITS = "minus bits per token"
"""Name of the metric of tasks whose answers are uncertain: higher for better models and at most 0."""


def bits_of(nats: float) -> float:
    """Convert a loss to bits.

    >>> bits_of(math.log(256))
    8.0
    """
    return nats / math.log(2)


def choice_in(metrics: Mapping[str, float | None]) -> float | None:
    """Return the fraction by which a row's learning rate is chosen, higher is better; None if there is none.

    It is the accuracy on the validation sequences; of a task in bits, the geometric mean of the probabilities that the
    model gave to the right tokens there.

    >>> choice_in({"validation_accuracy": 0.5}), choice_in({"validation_accuracy": 0.5, "validation_bits": 2.0})
    (0.5, 0.25)
    """
    bits = metrics.get("validation_bits")
    return metrics.get("validation_accuracy") if bits is None else 2.0**-bits
