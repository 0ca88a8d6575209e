"""The order of mechanisms and their colours, which all figures of a report share."""

from collections.abc import Collection

import numpy as np

from synthbench.reports.aggregates import balanced
from synthbench.reports.cells import DIGITS, MechanismFacts
from synthbench.reports.render.figures.drawing import COLOURS, Look, looks
from synthbench.reports.report import Report
from synthbench.reports.verdicts import ranked_tasks


def best_first(report: Report) -> list[MechanismFacts]:
    """Sort mechanisms by mean skill, best first, with equal weight for all categories.

    A run without a score has skill 0.
    """
    tasks = ranked_tasks(report.cells)
    weights = balanced([task.category for task in tasks])

    def mean_skill(mechanism: MechanismFacts) -> float:
        skills = [report.cells.skill_on(task, mechanism).value for task in tasks]
        return round(float(weights @ np.nan_to_num(skills)), DIGITS)  # rounding errors must not order equal means

    return sorted(report.cells.mechanisms, key=mean_skill, reverse=True)


def looks_of(report: Report) -> dict[str, Look]:
    """Choose a colour and line style for each of the best mechanisms; all figures of a report share them.

    The keys are labels of mechanisms.
    """
    best = best_first(report)[: len(COLOURS)]
    return looks([mechanism.label for mechanism in report.cells.mechanisms if mechanism in best])


def pale_words(report: Report, drawn: Collection[str]) -> str:
    """Return the part of a caption that explains pale lines; empty if no label in ``drawn`` has a pale line."""
    num_pale = len(set(drawn) - set(looks_of(report)))
    num_coloured = len(set(drawn)) - num_pale
    return f" In colour: the {num_coloured} with the best mean skill; pale: the other {num_pale}." * bool(num_pale)
