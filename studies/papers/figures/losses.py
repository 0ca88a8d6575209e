"""Figures 3 of the SLAY paper and 9 of Neural Matter Networks: loss against step, from the rows of suite ``text``."""

from collections.abc import Hashable, Mapping
from functools import cache

import pandas as pd

import synthbench
from studies.pages import store
from studies.papers.figures.curves import Axis, Curve, Curves, Panel
from studies.papers.figures.figure import figure

CORPUS = "sha256-837739805885dfce"
"""The text that comes with the package."""


@cache
def losses() -> dict[Hashable, pd.DataFrame]:
    """Load losses of runs on the text, by split, mechanism and block: one line per step, one column per seed.

    Each seed is shown at its best learning rate in validation.
    """
    names = ["run_id", "suite", "task_args", "mech", "block", "seed", "best_eval_loss"]
    rows = synthbench.load("packaged", names)
    rows = rows[(rows["suite"] == "text") & rows["task_args"].str.contains(CORPUS)]
    best = rows.sort_values("best_eval_loss").drop_duplicates(["mech", "block", "seed"])
    points = store().curves(best["run_id"])
    groups = points[points["metric"] == "loss"].merge(best, on="run_id").groupby(["split", "mech", "block"])
    return {key: of.pivot_table(index="step", columns="seed", values="value") for key, of in groups}


def by_step(models: Mapping[str, tuple[str, str]]) -> Curves:
    """Draw the losses of some models, given as mechanism and block by label: the mean over seeds, and their range."""
    panels = []
    for split in ("validation", "train"):
        curves = []
        for label, (mechanism, block) in models.items():
            seeds = losses()[split, mechanism, block]
            mean, low, high = (of.to_numpy() for of in (seeds.mean(axis=1), seeds.min(axis=1), seeds.max(axis=1)))
            curves.append(Curve(label, seeds.index.to_numpy(float), mean, low, high))
        panels.append(Panel(split, curves, Axis("step"), Axis("loss, nats per byte", ends=(1.4, 3.2))))
    return Curves(panels)


@figure("slay-03-loss")
def of_mechanisms() -> Curves:
    """Loss against step, by mechanism.

    Figure 3, of smaller models: suite `text`, about 84,500 parameters, 600 steps on 2.2 MB of docstrings; mean and
    range of seeds 1 to 3. Softmax attention is the lowest throughout, the two Yat kernels come next. All linear
    mechanisms lie above: they end at 2.14 to 2.28 in validation, softmax at 1.70.
    """
    names = ("softmax", "yat", "yat-spherical", "slay", "performer", "linear", "cosformer")
    return by_step({name: (name, "transformer") for name in names})


@figure("nmn-09-loss")
def of_blocks() -> Curves:
    """Loss against step, by block.

    Figure 9, of the same models. Softmax attention in a transformer is the lowest in validation. Aether, which has no
    norm, ends 0.04 above the transformer with either attention, and 0.04 and 0.05 above it in training.
    """
    pairs = [(mechanism, block) for block in ("transformer", "aether") for mechanism in ("softmax", "yat")]
    return by_step({f"{block}, {mechanism}": (mechanism, block) for mechanism, block in pairs})
