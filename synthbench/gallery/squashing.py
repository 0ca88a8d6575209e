"""Figure 10 of the Neural Matter Networks paper: functions that squash scores which are never negative."""

from collections.abc import Callable

import torch
from torch import Tensor

from synthbench.forms.scores import SUM_DELTA
from synthbench.forms.squashing import soft_sigmoid, soft_tanh, softermax
from synthbench.gallery.curves import Curve, Curves, Panel
from synthbench.gallery.figure import figure

POWERS = (0.5, 1.0, 2.0, 4.0)
OTHERS = (1.0, 1.0, 1.0)
"""Scores beside the one that is drawn."""


def first_of_softermax(x: Tensor, power: float) -> Tensor:
    """The softermax of a score among the others."""
    scores = torch.cat([x.unsqueeze(-1), torch.tensor(OTHERS, dtype=x.dtype).expand(len(x), -1)], dim=-1)
    return softermax(scores, power, SUM_DELTA)[..., 0]


def first_of_softmax(x: Tensor) -> Tensor:
    """The softmax of the same, to compare."""
    others = torch.tensor(OTHERS, dtype=x.dtype).exp().sum()
    return x.exp() / (x.exp() + others)


@figure(
    "nmn-10-squashing",
    "Squashing functions",
    "Figure 10. Softermax of a score beside three scores of 1, soft-sigmoid, soft-tanh, for four powers n; beside "
    "each, the softmax, the logistic sigmoid or tanh. All begin at their smallest value at a score of 0, where the "
    "exponential ones do not; n sets how steep the passage through a score of 1 is.",
)
def squashing() -> Curves:
    """Softermax, soft-sigmoid and soft-tanh of four powers, each beside its exponential relative."""
    x = torch.linspace(0, 5, 201, dtype=torch.float64)
    functions: dict[str, tuple[Callable[[Tensor, float], Tensor], Tensor, tuple[float, float]]] = {
        "softermax beside 1, 1, 1": (first_of_softermax, first_of_softmax(x), (0.0, 1.02)),
        "soft-sigmoid": (soft_sigmoid, torch.sigmoid(x), (0.0, 1.02)),
        "soft-tanh": (soft_tanh, torch.tanh(x), (-1.0, 1.02)),
    }
    return Curves(
        tuple(
            Panel(
                title,
                (
                    *(Curve(f"n = {power:g}", x.numpy(), squash(x, power).numpy()) for power in POWERS),
                    Curve("exponential relative", x.numpy(), relative.numpy()),
                ),
                "score",
                "squashed",
                y_range=limits,
            )
            for title, (squash, relative, limits) in functions.items()
        )
    )
