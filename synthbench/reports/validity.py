"""Whether scores on synthetic tasks predict the loss of a language model: what ``docs/validity.md`` plans, from rows.

A predictor is one number a mechanism has on synthetic tasks; an outcome is minus its bits per byte on a text that was
held out. Both are means over seeds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from synthbench.errors import UsageError
from synthbench.registry import CONTROL
from synthbench.reports.aggregates import Interval, balanced
from synthbench.reports.bits import of_kind
from synthbench.reports.cells import COLUMNS, Cells, MechanismFacts, Row, Runs, TaskFacts, grid, records, runs_by_cell
from synthbench.reports.correlation import (
    LEAST,
    complete,
    contrast,
    fitted,
    interval,
    interval_over_families,
    permutation_p,
    spearman,
    without_each,
)
from synthbench.reports.folder import Files
from synthbench.reports.render import markdown
from synthbench.reports.render.spreadsheet import csv_text
from synthbench.reports.selection import select
from synthbench.reports.table import Cell, Column, Line, Table, fixed, grouped, interval_cell

Numbers = Float[np.ndarray, " mechanisms"]

SYNTHETIC, PUBLISHED, TEXT = "climb", "paper", "text"
"""Suites: the one in question, the one with the published tasks, and the language model."""

MATCHED_BY = "params"
"""What ``--match`` holds equal in the second condition."""

REPEATED = "repeated"
"""The kind of bytes that an earlier context predicts."""

RECALL = "recall"
"""The category that should predict the loss on these."""

MAD = ("in_context_recall", "noisy_recall", "fuzzy_recall", "memorization", "selective_copying", "compression")
"""The six tasks of Poli et al. (2024), Mechanistic design and scaling of hybrid architectures."""

EARLY = 10
"""The language model itself after one part of this many of its steps is a predictor too."""

PARAMETERS, STATE, STEP = "parameters", "state", "milliseconds a step"


@dataclass(frozen=True)
class Study:
    """The numbers of all mechanisms that have both sides, in one condition."""

    is_matched: bool
    mechanisms: tuple[MechanismFacts, ...]
    """As in the rows of the language model."""
    predictors: Mapping[str, Numbers]
    """By name, that in question first; NaN where a mechanism lacks rows."""
    categories: Mapping[str, Numbers]
    """Mean height on the synthetic tasks of each category."""
    outcomes: Mapping[str, Mapping[str, Numbers]]
    """By text and kind of bytes; kind "" is all bytes."""
    early: Mapping[str, Numbers]
    """By text: minus the validation loss after a part of the steps."""
    covariates: Mapping[str, Numbers]
    """What else may decide the order; ranks take no logarithm into account."""
    halves: Mapping[str, tuple[Numbers, Numbers]]
    """Of the predictor in question and of each text: means over the first and over the other seeds."""

    @property
    def families(self) -> list[str]:
        """The family of each mechanism."""
        return [mechanism.family for mechanism in self.mechanisms]

    @property
    def main(self) -> Numbers:
        """The predictor in question."""
        return self.predictors[SYNTHETIC]

    @property
    def condition(self) -> str:
        """In words."""
        return f"matched in {PARAMETERS}" if self.is_matched else "as they are"

    def predictors_of(self, text: str) -> dict[str, Numbers]:
        """All predictors of the loss on a text."""
        return {**self.predictors, f"the same model at 1/{EARLY} of its steps": self.early[text]}


class Prediction(NamedTuple):
    """What was predicted before the rows, and what came out."""

    words: str
    came_true: bool | None
    """None if rows are missing that would tell."""
    found: str


def studies_of(rows: pd.DataFrame, curves: pd.DataFrame) -> list[Study]:
    """The study in each condition that the rows have, mechanisms as they are first.

    Raises:
        UnknownName: If there are no full rows of a suite that it needs.
        UsageError: If fewer mechanisms have both sides than a correlation needs, or one has two settings.
    """
    synthetic = grid(select(rows, SYNTHETIC).without_variants().rows)
    chosen = select(rows, TEXT).rows
    runs = records(chosen, [*COLUMNS, "step_ms_median"])
    text = grid(chosen, runs)
    found = []
    for is_matched in (False, True):
        pairs = _pairs(synthetic, text, is_matched=is_matched)
        if len(pairs) >= LEAST:
            found.append(_study(rows, curves, synthetic, text, runs, pairs, is_matched=is_matched))
        elif not is_matched:
            raise UsageError(
                f"{len(pairs)} mechanisms have all ladders of {SYNTHETIC} and rows of {TEXT}; a correlation "
                f"needs at least {LEAST}: synthbench run --suite {TEXT} --mech all"
            )
    return found


def _pairs(synthetic: Cells, text: Cells, *, is_matched: bool) -> dict[str, tuple[MechanismFacts, MechanismFacts]]:
    """The mechanisms that have all synthetic tasks and some text, by name; on the synthetic side as they are."""
    of_text = _by_name(text, _is_matched if is_matched else _is_plain)
    return {
        name: (one, of_text[name])
        for name, one in _by_name(synthetic, _is_plain).items()
        if name in of_text and all(synthetic.cell(task, one).n for task in synthetic.tasks)
    }


def _study(
    rows: pd.DataFrame,
    curves: pd.DataFrame,
    synthetic: Cells,
    text: Cells,
    runs: list[Row],
    pairs: Mapping[str, tuple[MechanismFacts, MechanismFacts]],
    *,
    is_matched: bool,
) -> Study:
    names = list(pairs)
    main, mechanisms = zip(*pairs.values(), strict=True)
    heights = _means(synthetic, main)
    weights = balanced([task.category for task in synthetic.tasks])
    categories = {
        name: heights[:, [task.category == name for task in synthetic.tasks]].mean(axis=1)
        for name in synthetic.categories
    }
    by_task = {task.name: heights[:, number] for number, task in enumerate(synthetic.tasks)}
    mad = [by_task[name] for name in MAD if name in by_task]
    by_cell = runs_by_cell(runs)
    steps = [
        [row["step_ms_median"] for task in text.tasks for row in by_cell.get((task.key, one.key), [])]
        for one in mechanisms
    ]
    covariates = {
        PARAMETERS: np.array([one.num_parameters for one in mechanisms]),
        STATE: np.array([one.state for one in mechanisms]),
        STEP: np.array([np.median(values) for values in steps]),
    }
    predictors = {
        SYNTHETIC: heights @ weights,
        f"{SYNTHETIC}, every task alike": heights.mean(axis=1),
        **({"mqar": by_task["mqar"]} if "mqar" in by_task else {}),
        **({f"{len(mad)} tasks of MAD": np.mean(mad, axis=0)} if mad else {}),
        **_published(rows, names),
        f"{PARAMETERS} alone": covariates[PARAMETERS],
        f"{STATE} alone": covariates[STATE],
    }
    kinds = {"": text, **{kind: of_kind(text, by_cell, kind) for kind in (REPEATED, "other")}}
    texts = {task.label: task for task in text.tasks}
    outcomes = {
        name: {kind: _means(cells, mechanisms, [task])[:, 0] for kind, cells in kinds.items()}
        for name, task in texts.items()
    }
    halves = {SYNTHETIC: _halves(synthetic, main, synthetic.tasks, weights)}
    halves |= {name: _halves(text, mechanisms, [task], np.ones(1)) for name, task in texts.items()}
    early = {name: _early(text, task, mechanisms, by_cell, curves) for name, task in texts.items()}
    return Study(is_matched, mechanisms, predictors, categories, outcomes, early, covariates, halves)


def predictions_of(studies: Sequence[Study]) -> list[Prediction]:
    """What the plan predicts, judged by its own rules; with one text nothing is."""
    study, matched = studies[0], next((one for one in studies if one.is_matched), None)
    losses = {text: outcome[""] for text, outcome in study.outcomes.items()}
    second = 0.0 if len(losses) > 1 else math.nan
    main = {text: interval(spearman, study.main, loss) for text, loss in losses.items()}
    given = study.covariates[PARAMETERS]
    partials = {text: interval(spearman, study.main, loss, given) for text, loss in losses.items()}
    of_matched = [_plain(matched.main, one[""]) for one in matched.outcomes.values()] if matched else [math.nan]
    published = next((values for name, values in study.predictors.items() if name.endswith("published tasks")), None)
    of_published = {text: math.nan if published is None else _plain(published, loss) for text, loss in losses.items()}
    early = {text: _plain(study.early[text], loss) for text, loss in losses.items()}
    of_recall, weighted = _contrast(study), _weighted(study)
    mean = float(np.mean([one.value for one in main.values()]))
    return [
        Prediction(
            f"{SYNTHETIC} predicts the order on both texts: each rho above 0, the mean at least .5",
            _judged(by=all(one.low > 0 for one in main.values()) and mean >= 0.5, needs=[second, *main.values()]),
            f"{_listed(main)}; mean {fixed(mean, 2)}",
        ),
        Prediction(
            f"not by size alone: partial rho given {PARAMETERS} above 0, and rho in the matched condition above .3",
            _judged(
                by=all(one.low > 0 for one in partials.values()) and min(of_matched) > 0.3,
                needs=[second, *partials.values(), *of_matched],
            ),
            f"partial {_listed(partials)}; matched {', '.join(fixed(one, 2) for one in of_matched)}",
        ),
        Prediction(
            "the published tasks do not predict it: rho below .2 on both texts",
            _judged(by=max(of_published.values()) < 0.2, needs=[second, *of_published.values()]),
            ", ".join(f"{text} {fixed(one, 2)}" for text, one in of_published.items()),
        ),
        Prediction(
            "recall predicts the loss on repeated bytes more than on others",
            _judged(by=of_recall.low > 0, needs=[second, of_recall]),
            f"difference of rho {_with_ends(of_recall)}",
        ),
        Prediction(
            f"a language model at 1/{EARLY} of its steps predicts itself better than {SYNTHETIC} does",
            _judged(by=all(early[text] > main[text].value for text in losses), needs=[second, *early.values()]),
            ", ".join(f"{text} {fixed(one, 2)}" for text, one in early.items()),
        ),
        Prediction(
            "weights fitted to the categories on another text bring less than .05",
            _judged(by=all(one.fitted - one.equal < 0.05 for one in weighted.values()), needs=[second]),
            "; ".join(
                f"{text} {fixed(one.fitted, 2)}, equal weights {fixed(one.equal, 2)}" for text, one in weighted.items()
            )
            or "one text",
        ),
    ]


def tables_of(studies: Sequence[Study]) -> list[Table]:
    """The correlations of each condition, the predictions, families left out, and the numbers of the mechanisms."""
    tables = [_predictions_table(predictions_of(studies))]
    for study in studies:
        tables += [_correlations_table(study), _families_table(study), _mechanisms_table(study)]
    return tables


def files_of(studies: Sequence[Study], tables: Sequence[Table]) -> Files:
    """The files of ``reports/validity`` by name: a page, and the numbers of all mechanisms."""
    first = predictions_of(studies)[0]
    verdict = {True: "came true", False: "did not come true", None: "cannot be judged yet"}[first.came_true]
    introduction = (
        f"Does the mean height of a mechanism on {SYNTHETIC} predict the loss of a language model with it? The "
        f"prediction that it does {verdict}: {first.found}, over {len(studies[0].mechanisms)} mechanisms. "
        "docs/validity.md is the plan, which was committed before the rows."
    )
    columns: dict[str, list[object]] = {"condition": [], "mechanism": [], "family": []}
    numbers: dict[str, list[object]] = {}
    for study in studies:
        columns["condition"] += [study.condition] * len(study.mechanisms)
        columns["mechanism"] += [mechanism.label for mechanism in study.mechanisms]
        columns["family"] += study.families
        for name, values in _columns_of(study).items():
            numbers.setdefault(name, []).extend(values.tolist())
    lines = zip(*columns.values(), *numbers.values(), strict=True)
    return {
        "README.md": markdown.document("Validity", tables, introduction),
        "mechanisms.csv": csv_text([*columns, *numbers], lines),
    }


def _is_plain(mechanism: MechanismFacts) -> bool:
    return mechanism.match is None


def _is_matched(mechanism: MechanismFacts) -> bool:
    return mechanism.match is not None and mechanism.match.startswith(f"{MATCHED_BY}=")


def _by_name(cells: Cells, is_wanted: Callable[[MechanismFacts], bool]) -> dict[str, MechanismFacts]:
    """The wanted mechanisms that are no controls, by name.

    Raises:
        UsageError: If one has two settings.
    """
    found: dict[str, MechanismFacts] = {}
    for mechanism in filter(is_wanted, cells.mechanisms):
        if mechanism.family == CONTROL:
            continue
        if mechanism.name in found:
            raise UsageError(
                f"{mechanism.name} has two settings, {found[mechanism.name].label} and {mechanism.label}; allowed: one"
            )
        found[mechanism.name] = mechanism
    return found


def _means(
    cells: Cells, mechanisms: Sequence[MechanismFacts], tasks: Sequence[TaskFacts] | None = None
) -> Float[np.ndarray, "mechanisms tasks"]:
    """Mean scores over seeds; NaN without rows."""
    shown = cells.tasks if tasks is None else tasks
    return np.array([[cells.cell(task, mechanism).mean for task in shown] for mechanism in mechanisms])


def _published(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Numbers]:
    """Mean skill over the published tasks; NaN where a mechanism lacks one."""
    if PUBLISHED not in set(rows["suite"]):
        return {}
    cells = grid(select(rows, PUBLISHED).rows)
    by_name = {mechanism.name: mechanism for mechanism in cells.mechanisms if mechanism.match is None}
    skills = [
        np.mean([cells.cell(task, by_name[name]).skill for task in cells.tasks]) if name in by_name else math.nan
        for name in names
    ]
    return {f"{len(cells.tasks)} published tasks": np.array(skills)}


def _halves(
    cells: Cells, mechanisms: Sequence[MechanismFacts], tasks: Sequence[TaskFacts], weights: Float[np.ndarray, " tasks"]
) -> tuple[Numbers, Numbers]:
    """Weighted means over the first seeds and over the others; NaN without one of these."""
    at = len(cells.seeds) // 2
    return tuple(
        np.array(
            [
                [
                    np.mean([cells.cell(task, one).scores.get(seed, math.nan) for seed in seeds] or [math.nan])
                    for task in tasks
                ]
                for one in mechanisms
            ]
        )
        @ weights
        for seeds in (cells.seeds[:at], cells.seeds[at:])
    )


def _early(
    cells: Cells,
    task: TaskFacts,
    mechanisms: Sequence[MechanismFacts],
    by_cell: Runs,
    curves: pd.DataFrame,
) -> Numbers:
    """Minus the mean validation loss at the first point of a curve after a part of the steps; NaN without one."""
    losses = curves[(curves["split"] == "validation") & (curves["metric"] == "loss")]
    found = []
    for mechanism in mechanisms:
        estimate = cells.cell(task, mechanism)
        ids = [row["run_id"] for row in by_cell.get((task.key, mechanism.key), [])]
        points = losses[losses["run_id"].isin(ids) & (losses["step"] >= estimate.steps_planned / EARLY)]
        first = points.sort_values("step").groupby("run_id")["value"].first()
        found.append(-float(first.mean()) if len(first) else math.nan)
    return np.array(found)


def _contrast(study: Study) -> Interval:
    """Rho of recall with the loss on repeated bytes less that on others, of the mean ranks on all texts."""
    kinds = [
        np.mean([stats.rankdata(outcome[kind]) for outcome in study.outcomes.values()], axis=0)
        for kind in (REPEATED, "other")
    ]
    return interval(contrast, study.categories[RECALL], *kinds)


class Weighted(NamedTuple):
    """Rho of predictions by two kinds of weights of the categories."""

    fitted: float
    equal: float


def _weighted(study: Study) -> dict[str, Weighted]:
    """For each text, with weights that were fitted on another one."""
    categories = np.array(list(study.categories.values())).T
    return {
        text: Weighted(
            _plain(fitted(study.families, categories, study.outcomes[other][""]), study.outcomes[text][""]),
            _plain(study.main, study.outcomes[text][""]),
        )
        for other, text in permutations(study.outcomes, 2)
    }


def _plain(x: Numbers, y: Numbers) -> float:
    """Rho over the mechanisms that have both; NaN for too few."""
    x, y = complete(x, y)
    return float(spearman(x, y)) if x.size >= LEAST else math.nan


def _judged(*, by: bool, needs: Sequence[Interval | float]) -> bool | None:
    known = [number for one in needs for number in (one if isinstance(one, Interval) else (one,))]
    return None if any(map(math.isnan, known)) else by


def _with_ends(rho: Interval) -> str:
    return f"{fixed(rho.value, 2)} ({fixed(rho.low, 2)} to {fixed(rho.high, 2)})"


def _listed(by_text: Mapping[str, Interval]) -> str:
    return ", ".join(f"{text} {_with_ends(rho)}" for text, rho in by_text.items())


def _predictions_table(predictions: Sequence[Prediction]) -> Table:
    words = {True: "yes", False: "no", None: "rows are missing"}
    return Table(
        name="predictions",
        title="Predictions made before the rows",
        caption="Each with the rule of the plan by which it is true, and what came out.",
        headings=("Prediction",),
        columns=(Column("True", "word"), Column("Found", "text")),
        lines=tuple(Line((one.words,), (Cell(words[one.came_true]), Cell(one.found))) for one in predictions),
    )


def _correlations_table(study: Study) -> Table:
    lines = [
        Line((text, name), _correlation_cells(study, name, predictor, outcome[""]))
        for text, outcome in study.outcomes.items()
        for name, predictor in study.predictors_of(text).items()
    ]
    reliable = "; ".join(f"{name} {fixed(_plain(*of_halves), 2)}" for name, of_halves in study.halves.items())
    over_families = _listed(
        {
            text: interval_over_families(spearman, study.families, study.main, outcome[""])
            for text, outcome in study.outcomes.items()
        }
    )
    return Table(
        name=f"correlations-{MATCHED_BY}" if study.is_matched else "correlations",
        title=f"Correlations, mechanisms {study.condition}",
        caption=(
            "Spearman's rho with minus the bits per byte of each text, with its 95 % interval by a bootstrap over "
            "mechanisms (BCa, 10,000 draws), and p by permutation. Partial: given parameters, then also state, then "
            f"also the time of a step. Last: rho of {SYNTHETIC} less this one, over the same draws. Of {SYNTHETIC} by "
            f"a bootstrap over families: {over_families}. Between two halves of the seeds: {reliable}."
        ),
        headings=("Text", "Predictor"),
        columns=tuple(
            map(Column, ("n", "rho", "p", "given parameters", "and state", "and time", f"{SYNTHETIC} − this"))
        ),
        lines=grouped(lines),
    )


def _correlation_cells(study: Study, name: str, predictor: Numbers, loss: Numbers) -> tuple[Cell, ...]:
    given = [[PARAMETERS, STATE, STEP][:num] for num in range(4)]
    alone, *partials = (
        interval_cell(interval(spearman, predictor, loss, *(study.covariates[one] for one in names))) for names in given
    )
    gain = Cell("") if name == SYNTHETIC else interval_cell(interval(contrast, loss, study.main, predictor))
    return (
        Cell(str(complete(predictor, loss)[0].size)),
        alone,
        Cell(fixed(permutation_p(predictor, loss), 3)),
        *partials,
        gain,
    )


def _families_table(study: Study) -> Table:
    by_text = {text: list(without_each(study.families, study.main, one[""])) for text, one in study.outcomes.items()}
    lines = [
        Line((family,), (Cell(str(num)), *(Cell(fixed(of_text[number][2], 2)) for of_text in by_text.values())))
        for number, (family, num, _rho_without) in enumerate(next(iter(by_text.values())))
    ]
    return Table(
        name=f"families-{MATCHED_BY}" if study.is_matched else "families",
        title=f"One family left out, mechanisms {study.condition}",
        caption=f"Rho of {SYNTHETIC} with each text without the mechanisms of a family.",
        headings=("Without",),
        columns=(Column("mechanisms"), *map(Column, by_text)),
        lines=tuple(lines),
    )


def _columns_of(study: Study) -> dict[str, Numbers]:
    outcomes = {
        f"{text}, {kind or 'all'}": -values
        for text, of_text in study.outcomes.items()
        for kind, values in of_text.items()
    }
    return {**study.predictors, **study.categories, **outcomes, **study.covariates}


def _mechanisms_table(study: Study) -> Table:
    shown = {
        SYNTHETIC: study.main,
        **{text: -outcome[""] for text, outcome in study.outcomes.items()},
        **study.covariates,
    }
    order = np.argsort(-study.main, kind="stable")
    decimals = {SYNTHETIC: 3, **dict.fromkeys(study.outcomes, 3), PARAMETERS: 0, STATE: 0, STEP: 0}
    return Table(
        name=f"mechanisms-{MATCHED_BY}" if study.is_matched else "mechanisms",
        title=f"The mechanisms, {study.condition}",
        caption=f"Mean height on {SYNTHETIC}, all categories with equal weight; bits per byte on each text; and size.",
        headings=("Mechanism", "Family"),
        columns=tuple(map(Column, shown)),
        lines=tuple(
            Line(
                (study.mechanisms[at].label, study.mechanisms[at].family),
                tuple(Cell(fixed(float(values[at]), decimals[name])) for name, values in shown.items()),
            )
            for at in order
        ),
    )
