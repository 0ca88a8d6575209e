"""Schedules of the learning rate, and a curriculum for mechanisms with three geometries, added phase by phase."""

import math
from typing import ClassVar

from synthbench.suites.config import TrainingSettings
from synthbench.training.ensemble import SequenceModel
from synthbench.training.optimiser import Optimiser


class Schedule:
    """A schedule of the learning rates: at each step, every run uses the same fraction of its own full rate.

    In this class, the fraction is always 1. Subclasses override :meth:`share`.
    """

    keeps_program: ClassVar[bool] = True
    """True if only numbers in tensors change from step to step, so that a step can be recorded and replayed."""

    def share(self, step: int) -> float:  # noqa: ARG002
        """Return the fraction of the full rate that every run uses at a step; steps count from 0."""
        return 1.0

    def apply(self, step: int, optimiser: Optimiser, model: SequenceModel) -> float:  # noqa: ARG002
        """Set the learning rates before a step is taken; return their fraction of the full rates."""
        share = self.share(step)
        optimiser.set_rates(share)
        return share


class WarmupCosine(Schedule):
    """A schedule with a linear increase to the run's full learning rate, then a decrease to 0 along half a cosine.

    The first step uses the full rate divided by ``warmup_steps``. A step after the last would have the rate 0.

    Source: Loshchilov & Hutter (2017), eq. 5, without restarts; warm-up as in Goyal et al. (2017), section 2.2.
    """

    def __init__(self, num_steps: int, warmup_steps: int) -> None:
        """Set the number of all steps, and of the first steps that warm up."""
        self.num_steps, self.warmup_steps = num_steps, warmup_steps

    def share(self, step: int) -> float:
        """Return the fraction of the full rate at a step (from 0): increasing in the warm-up, then decreasing."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / (self.num_steps - self.warmup_steps)
        return (1 + math.cos(math.pi * progress)) / 2


class WarmupStableDecay(Schedule):
    """A schedule with a linear increase to the run's full learning rate, a constant part, then a linear decrease to 0.

    The first step uses the full rate divided by ``warmup_steps``. A step after the last would have the rate 0.

    Source: Hu et al. (2024), MiniCPM, section 4.
    """

    def __init__(self, num_steps: int, warmup_steps: int, decay_steps: int) -> None:
        """Set the number of all steps, of the first steps that warm up, and of the last steps that decay."""
        self.num_steps, self.warmup_steps, self.decay_steps = num_steps, warmup_steps, decay_steps

    def share(self, step: int) -> float:
        """Return the fraction of the full rate at a step (from 0): increasing, constant, then decreasing."""
        return min(1.0, (step + 1) / self.warmup_steps, (self.num_steps - step) / self.decay_steps)


class CurriculumRates(Schedule):
    """The learning rates of :class:`GeometricCurriculum`, for models that use all geometries from the first step on.

    Training has four phases of equal length. The rate is the full rate in the first phase, and a tenth of it in the
    second and third. In the fourth phase, the rate decreases linearly from this tenth to 0.
    """

    PHASES = ((1.0, 1.0), (0.1, 0.1), (0.1, 0.1), (0.1, 0.0))
    """The share of the run's rate at the beginning and at the end of each phase."""

    def __init__(self, num_steps: int) -> None:
        """Set the number of steps."""
        self.num_steps = num_steps

    def share(self, step: int) -> float:
        """Return the fraction of the full rate at a step (from 0), interpolated linearly within the step's phase."""
        position = step * len(self.PHASES) / self.num_steps
        first, last = self.PHASES[int(position)]
        return first + (last - first) * (position - int(position))


class GeometricCurriculum(CurriculumRates):
    """Training in four equal phases: spherical geometry alone, Euclidean added, hyperbolic added, and then annealing.

    Source: the REWA paper, algorithm 7. The paper lowers the learning rate to a tenth for the second phase. Here, the
    third phase keeps this rate, and the fourth phase (annealing) lowers it to 0. The paper gives no lengths of phases.
    The paper's Riemannian optimiser is not needed: hyperbolic points are computed from Euclidean parameters by the
    exponential map.
    """

    keeps_program = False

    def apply(self, step: int, optimiser: Optimiser, model: SequenceModel) -> float:
        """Set the learning rates for a step; at the first step of a phase, tell every mechanism which phase begins."""
        index, before = (int(at * len(self.PHASES) / self.num_steps) for at in (step, step - 1))
        if step == 0 or before != index:
            for layer in model.layers:
                layer.mixer.enter_phase(index + 1)
        return super().apply(step, optimiser, model)


def make_schedule(settings: TrainingSettings) -> Schedule:
    """Build the learning-rate schedule that a suite's training settings name."""
    if settings.warmup_steps is not None and settings.decay_steps is not None:
        return WarmupStableDecay(settings.steps, settings.warmup_steps, settings.decay_steps)
    if settings.warmup_steps is not None:
        return WarmupCosine(settings.steps, settings.warmup_steps)
    if settings.schedule == "constant":
        return Schedule()
    of_curriculum = GeometricCurriculum if settings.schedule == "geometric-curriculum" else CurriculumRates
    return of_curriculum(settings.steps)
