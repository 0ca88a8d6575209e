"""What the learning rate does over the steps, and what a curriculum says to the mechanisms."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch

from synthbench.runner.ensemble import SequenceModel
from synthbench.runner.optimiser import MemberAdamW, set_rates
from synthbench.suites.config import TrainingSettings


class Schedule(ABC):
    """Called before every step."""

    @abstractmethod
    def apply(self, step: int, optimiser: torch.optim.AdamW | MemberAdamW, model: SequenceModel) -> None:
        """Set the learning rates of step ``step``, counted from 0, and tell the mechanisms what they need to know."""


class Constant(Schedule):
    """One learning rate throughout."""

    def apply(self, step: int, optimiser: torch.optim.AdamW | MemberAdamW, model: SequenceModel) -> None:
        """Leave everything as it is."""


class Phase(NamedTuple):
    """The learning rate at the beginning and the end of a phase, as shares of the member's rate."""

    first: float
    last: float


class GeometricCurriculum(Schedule):
    """Four phases of equal length: spherical geometry only, then Euclidean too, then hyperbolic too, then annealing.

    Source: the REWA paper, algorithm 7. It gives no lengths, and a tenth of the rate for the second phase; ours keeps
    that tenth in the third and anneals it to 0 in the fourth. Its Riemannian optimiser is not needed: hyperbolic points
    are images of Euclidean parameters under the exponential map.
    """

    PHASES = (Phase(1.0, 1.0), Phase(0.1, 0.1), Phase(0.1, 0.1), Phase(0.1, 0.0))

    def __init__(self, num_steps: int) -> None:
        """Divide the steps."""
        self.num_steps = num_steps

    def apply(self, step: int, optimiser: torch.optim.AdamW | MemberAdamW, model: SequenceModel) -> None:
        """Move the rate along; at the first step of a phase every mechanism hears of it."""
        position = step * len(self.PHASES) / self.num_steps
        index = int(position)
        if step == 0 or int((step - 1) * len(self.PHASES) / self.num_steps) != index:
            for layer in model.layers:
                layer.mixer.enter_phase(index + 1)
        phase = self.PHASES[index]
        set_rates(optimiser, phase.first + (phase.last - phase.first) * (position - index))


def make_schedule(settings: TrainingSettings) -> Schedule:
    """The schedule that a suite names."""
    return Constant() if settings.schedule == "constant" else GeometricCurriculum(settings.steps)
