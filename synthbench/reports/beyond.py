"""Tests beyond the trained length: skill on sequences 2 and 4 times as long as the longest training sequences."""

from collections.abc import Callable

from synthbench.reports.cells import Cells, MechanismFacts, clipped, mean_of
from synthbench.reports.ladder import scored_levels
from synthbench.reports.table import NOTHING, Table, fixed, sources_of, table_of

FACTORS = (2, 4)
"""Tested lengths, as multiples of the longest trained sequence; a row may lack metrics at these lengths."""

CAPTION = (
    "Skill of the trained models on sequences of 2 and 4 times the tokens of the longest level that they were trained "
    "on, and on that level: mean over seeds, then over tasks, each cut to [0, 1]. Tasks: those in the means. "
    f"{NOTHING}: the mechanism, or its positions, reads no more tokens than it was trained on. No score contains them."
)


def beyond_table(cells: Cells) -> Table | None:
    """Make a table of each mechanism's mean skill on the longest level in training, and on even longer sequences.

    A level is one difficulty of a task. Mechanisms that were not tested on longer sequences are left out. The result is
    None if tasks have no levels, or if no mechanism was tested on longer sequences.
    """
    skills = {mechanism: _skills(cells, mechanism) for mechanism in cells.mechanisms}
    shown = [mechanism for mechanism in cells.mechanisms if skills[mechanism]]
    if not cells.has_ladder or not shown:
        return None

    def mean(place: int) -> Callable[[MechanismFacts], str]:
        return lambda mechanism: fixed(mean_of([of_task[place] for of_task in skills[mechanism]]), 2)

    return table_of(
        "beyond",
        "Beyond the trained length",
        CAPTION,
        ("Mechanism",),
        shown,
        lambda mechanism: (mechanism.label,),
        {
            "Tasks": lambda mechanism: str(len(skills[mechanism])),
            "longest trained": mean(0),
            **{f"{factor} x": mean(place) for place, factor in enumerate(FACTORS, start=1)},
        },
        sources=sources_of(cells.tasks, shown),
    )


def _skills(cells: Cells, mechanism: MechanismFacts) -> list[list[float]]:
    """Return a list of mean skills over seeds for each task where the mechanism was tested beyond the trained length.

    The first skill of a list is on the longest trained level (difficulty of the task). A skill for each multiple of its
    length in ``FACTORS`` follows, NaN if not tested.
    """
    found = []
    for task in cells.tasks:
        tested = [
            metrics
            for metrics in cells.cell(task, mechanism).metrics.values()
            if scored_levels(metrics) and any(f"x{factor}.length" in metrics for factor in FACTORS)
        ]
        if tested:
            trained = mean_of([scored_levels(metrics)[-1].skill for metrics in tested], clipped)
            beyond = [mean_of([metrics.get(f"x{factor}.skill") for metrics in tested], clipped) for factor in FACTORS]
            found.append([trained, *beyond])
    return found
