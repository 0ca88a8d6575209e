"""Sets the learning rate over the steps, and what a curriculum says to the mechanisms."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from synthbench.suites.config import TrainingSettings
from synthbench.training.ensemble import SequenceModel
from synthbench.training.optimiser import Optimiser


class Schedule(ABC):
    """The learning rates of every step, as shares of each run's own rate."""

    keeps_program: ClassVar[bool] = True
    """True if only numbers in tensors change from step to step, so that a step can be recorded and replayed."""

    @abstractmethod
    def share(self, step: int) -> float:
        """The share of its own rate that every run has in a step, counted from 0."""

    def apply(self, step: int, optimiser: Optimiser, model: SequenceModel) -> float:  # noqa: ARG002
        """Set the learning rates of a step before it is taken; returns their share."""
        share = self.share(step)
        optimiser.set_rates(share)
        return share


class Constant(Schedule):
    """One learning rate throughout."""

    def share(self, step: int) -> float:  # noqa: ARG002
        """All of it."""
        return 1.0

    def apply(self, step: int, optimiser: Optimiser, model: SequenceModel) -> float:  # noqa: ARG002
        """Leave everything as it is."""
        return 1.0


class WarmupCosine(Schedule):
    """Linearly up to the run's rate, then down to 0 by half a cosine.

    The first step has the rate divided by ``warmup_steps``, the one after the last would have 0.

    Source: Loshchilov & Hutter (2017), eq. 5, without restarts; the warm-up of Goyal et al. (2017), section 2.2.
    """

    def __init__(self, num_steps: int, warmup_steps: int) -> None:
        """Divide the steps."""
        self.num_steps, self.warmup_steps = num_steps, warmup_steps

    def share(self, step: int) -> float:
        """Up, then down."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / (self.num_steps - self.warmup_steps)
        return (1 + math.cos(math.pi * progress)) / 2


class WarmupStableDecay(Schedule):
    """Linearly up to the run's rate, that rate for most of the steps, then linearly down to 0.

    The first step has the rate divided by ``warmup_steps``, the one after the last would have 0.

    Source: Hu et al. (2024), MiniCPM, section 4.
    """

    def __init__(self, num_steps: int, warmup_steps: int, decay_steps: int) -> None:
        """Divide the steps."""
        self.num_steps, self.warmup_steps, self.decay_steps = num_steps, warmup_steps, decay_steps

    def share(self, step: int) -> float:
        """Up, level, down."""
        return min(1.0, (step + 1) / self.warmup_steps, (self.num_steps - step) / self.decay_steps)


class Phase(NamedTuple):
    """The learning rate at the beginning and the end of a phase, as shares of the run's rate."""

    first: float
    last: float


class CurriculumRates(Schedule):
    """The learning rates of the geometric curriculum, with all geometries active from the first step: its control.

    Four phases of equal length: the full rate, a tenth of it, a tenth again, then linearly down to 0.
    """

    PHASES = (Phase(1.0, 1.0), Phase(0.1, 0.1), Phase(0.1, 0.1), Phase(0.1, 0.0))

    def __init__(self, num_steps: int) -> None:
        """Divide the steps."""
        self.num_steps = num_steps

    def share(self, step: int) -> float:
        """Move along the phase of a step."""
        position = step * len(self.PHASES) / self.num_steps
        phase = self.PHASES[int(position)]
        return phase.first + (phase.last - phase.first) * (position - int(position))


class GeometricCurriculum(CurriculumRates):
    """Four phases of equal length: spherical geometry only, then Euclidean too, then hyperbolic too, then annealing.

    Source: the REWA paper, algorithm 7. It gives no lengths, and a tenth of the rate for the second phase; ours keeps
    that tenth in the third and anneals it to 0 in the fourth. Its Riemannian optimiser is not needed: hyperbolic points
    are images of Euclidean parameters under the exponential map.
    """

    keeps_program = False

    def apply(self, step: int, optimiser: Optimiser, model: SequenceModel) -> float:
        """Set the rates; at the first step of a phase every mechanism hears of it."""
        index, before = (int(at * len(self.PHASES) / self.num_steps) for at in (step, step - 1))
        if step == 0 or before != index:
            for layer in model.layers:
                layer.mixer.enter_phase(index + 1)
        return super().apply(step, optimiser, model)


def make_schedule(settings: TrainingSettings) -> Schedule:
    """The schedule that a suite names."""
    if settings.warmup_steps is not None and settings.decay_steps is not None:
        return WarmupStableDecay(settings.steps, settings.warmup_steps, settings.decay_steps)
    if settings.warmup_steps is not None:
        return WarmupCosine(settings.steps, settings.warmup_steps)
    if settings.schedule == "constant":
        return Constant()
    of_curriculum = GeometricCurriculum if settings.schedule == "geometric-curriculum" else CurriculumRates
    return of_curriculum(settings.steps)
