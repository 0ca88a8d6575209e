"""Schedules of the learning rate, and a curriculum for mechanisms with three geometries, added phase by phase."""

import math
from dataclasses import dataclass

from synthbench.suites.config import TrainingSettings
from synthbench.training.ensemble import SequenceModel
from synthbench.training.optimiser import Optimiser

PHASES = ((1.0, 1.0), (0.1, 0.1), (0.1, 0.1), (0.1, 0.0))
"""The share of the run's rate at the beginning and at the end of each phase of ``geometric-curriculum``.

The phases have equal lengths: spherical geometry alone, Euclidean added, hyperbolic added, and then annealing. With
``curriculum-rates``, the rates are the same, for models that use all geometries from the first step on.

Source: the REWA paper, algorithm 7. The paper lowers the learning rate to a tenth for the second phase. Here, the third
phase keeps this rate, and the fourth phase (annealing) lowers it to 0. The paper gives no lengths of phases. The
paper's Riemannian optimiser is not needed: hyperbolic points are computed from Euclidean parameters by the exponential
map.
"""


@dataclass(frozen=True)
class Schedule:
    """A schedule of the learning rates: at each step, every run uses the same fraction of its own full rate."""

    settings: TrainingSettings

    @property
    def keeps_program(self) -> bool:
        """True if only numbers in tensors change from step to step, so that a step can be recorded and replayed."""
        return self.settings.schedule != "geometric-curriculum"

    def share(self, step: int) -> float:
        """Return the fraction of the full rate that every run uses at a step; steps count from 0.

        A schedule that warms up begins with the fraction 1 / ``warmup_steps``, which increases linearly to 1. Then
        ``warmup-cosine`` decreases it along half a cosine, and ``warmup-stable-decay`` linearly in the last
        ``decay_steps`` steps. With both, a step after the last would have the fraction 0.

        Source: for ``warmup-cosine``, Loshchilov & Hutter (2017), eq. 5, without restarts; warm-up as in Goyal et al.
        (2017), section 2.2. For ``warmup-stable-decay``, Hu et al. (2024), MiniCPM, section 4.
        """
        settings = self.settings
        if settings.schedule == "constant":
            return 1.0
        if settings.warmup_steps is None:
            position = step * len(PHASES) / settings.steps
            first, last = PHASES[int(position)]
            return first + (last - first) * (position - int(position))
        if settings.decay_steps is not None:
            return min(1.0, (step + 1) / settings.warmup_steps, (settings.steps - step) / settings.decay_steps)
        if step < settings.warmup_steps:
            return (step + 1) / settings.warmup_steps
        progress = (step - settings.warmup_steps) / (settings.steps - settings.warmup_steps)
        return (1 + math.cos(math.pi * progress)) / 2

    def apply(self, step: int, optimiser: Optimiser, model: SequenceModel) -> float:
        """Set the learning rates before a step is taken; return their fraction of the full rates.

        At the first step of a phase of ``geometric-curriculum``, tell every mechanism which phase begins.
        """
        if not self.keeps_program:
            index, before = (int(at * len(PHASES) / self.settings.steps) for at in (step, step - 1))
            if step == 0 or before != index:
                for layer in model.layers:
                    layer.mixer.enter_phase(index + 1)
        share = self.share(step)
        optimiser.set_rates(share)
        return share
