"""Test whether scores on synthetic tasks predict the loss of a language model, by the rules of ``plan.md``.

A predictor is a number for each mechanism, from synthetic tasks. An outcome is minus the bits per byte of a language
model with the mechanism on held-out text. Both are means over seeds.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from studies.pages import main, store
from studies.validity.correlation import (
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
from synthbench.errors import UsageError
from synthbench.registry import CONTROL
from synthbench.reports.aggregates import Interval, balanced
from synthbench.reports.bits import of_kind
from synthbench.reports.cells import (
    Cells,
    MechanismFacts,
    TaskFacts,
    arguments_in,
    by_seed,
    grid,
)
from synthbench.reports.folder import Files
from synthbench.reports.render import markdown
from synthbench.reports.render.spreadsheet import csv_text
from synthbench.reports.selection import full_runs, select
from synthbench.reports.table import Cell, Column, Table, fixed, in_words, interval_cell, p_text, table_of
from synthbench.reports.verdicts import is_ranked
from synthbench.results.schema import split_match
from synthbench.suites import load_suite
from synthbench.training.ladder_scores import rescored

Numbers = Float[np.ndarray, " mechanisms"]

SYNTHETIC, PUBLISHED, TEXT = "climb", "paper", "text"
"""Names of suites: the synthetic tasks in question, the published tasks, and the language model."""

MATCH, BLOCK = "params=84500", "transformer"
"""The value of ``--match`` that gives all language models about the same number of parameters, and their block."""

TEXTS = {"sha256-837739805885dfce": "docstrings", "sha256-c31cbf2f65f79c0d": "library"}
"""Names of the texts, by the hash in their rows. The learning rates are chosen on the first text."""
UNTRIED = 0.05
"""The next learning rate, which the mechanisms that chose the highest could ask for."""
CHOOSING_SEED = 1
"""The seed whose rows on the first text have several learning rates. All other rows have the best of these rates in
validation."""

REPEATED, OTHER = "repeated", "other"
"""Kinds of bytes: those that an earlier context predicts, and all others."""

PLAIN = ("linear", "slay", "performer-exp", "cosformer", "based", "retention")
"""The linear attentions whose gates, if any, do not depend on the input, and that have no delta rule."""

RECALL = "recall"
"""The category of tasks that should predict the loss on repeated bytes."""

MAD = ("in_context_recall", "noisy_recall", "fuzzy_recall", "memorization", "selective_copying", "compression")
"""The six tasks of Poli et al. (2024), Mechanistic design and scaling of hybrid architectures."""

EARLY = 10
"""The validation loss of the language model itself after one ``EARLY``-th of its steps is used as a predictor."""

AT_EARLY = f"the same model at 1/{EARLY} of its steps"

PARAMETERS, STATE, STEP = "parameters of mixers", "state", "milliseconds a step"


@dataclass(frozen=True)
class Study:
    """Numbers for all mechanisms that have rows of both the synthetic tasks and the language model."""

    mechanisms: tuple[MechanismFacts, ...]
    """The mechanisms, as in the rows of the synthetic tasks."""
    predictors: Mapping[str, Numbers]
    """Predictors by name, the one in question first; NaN where a mechanism lacks rows."""
    categories: Mapping[str, Numbers]
    """Mean score on the synthetic tasks of each category."""
    outcomes: Mapping[str, Mapping[str, Numbers]]
    """Outcomes by text and kind of bytes; kind ``""`` is all bytes."""
    early: Mapping[str, Numbers]
    """Minus the validation loss after one ``EARLY``-th of the steps, by text."""
    covariates: Mapping[str, Numbers]
    """Other quantities that may explain the order of the mechanisms."""
    rates: Numbers
    """The learning rate of each mechanism in the language model."""
    num_seeds: Mapping[str, Sequence[int]]
    """Number of seeds of each mechanism, on the synthetic tasks and on each text."""
    halves: Mapping[str, tuple[Numbers, Numbers]]
    """Means over the first half of the seeds and over the rest, for the main predictor and for each text."""

    @property
    def families(self) -> list[str]:
        """The family of each mechanism."""
        return [mechanism.family for mechanism in self.mechanisms]

    @property
    def main(self) -> Numbers:
        """The predictor in question."""
        return self.predictors[SYNTHETIC]

    @property
    def together(self) -> dict[str, Numbers]:
        """Mean over all texts of the ranks of the outcomes, by kind of bytes."""
        kinds = ("", REPEATED, OTHER)
        return {kind: _mean_rank(of_text[kind] for of_text in self.outcomes.values()) for kind in kinds}

    @property
    def sides(self) -> dict[str, tuple[dict[str, Numbers], Numbers]]:
        """All predictors of the loss, and minus the loss, by text; last for both texts together, if there are two."""
        losses = {text: of_text[""] for text, of_text in self.outcomes.items()}
        early = dict(self.early)
        if len(losses) > 1:
            losses["both"], early["both"] = self.together[""], _mean_rank(early.values())
        return {text: ({**self.predictors, AT_EARLY: early[text]}, loss) for text, loss in losses.items()}


def _mean_rank(columns: Iterable[Numbers]) -> Numbers:
    ranks: Numbers = np.mean([stats.rankdata(column) for column in columns], axis=0)
    return ranks


class Prediction(NamedTuple):
    """A prediction that was made before the rows, and its outcome."""

    words: str
    came_true: bool | None
    """None if rows are missing that would decide it."""
    found: str


def study_of(rows: pd.DataFrame, curves: pd.DataFrame) -> Study:
    """Compute all numbers of the study from the rows.

    Raises:
        UnknownName: If a suite that the study needs has no full rows.
        UsageError: If too few mechanisms have rows of both kinds for a correlation, or a mechanism has two settings.
    """
    synthetic = grid(select(rows, SYNTHETIC).without_variants().rows)
    chosen = _at_chosen_rates(rows)
    text = grid(chosen)
    of_text = _by_name(text.mechanisms)
    pairs = {
        name: (one, of_text[name])
        for name, one in _by_name(
            one for one in synthetic.mechanisms if one.match is None and one.block == BLOCK
        ).items()
        if name in of_text
        and all(synthetic.cell(task, one).n for task in synthetic.tasks)
        and all(text.cell(task, of_text[name]).n for task in text.tasks)
    }
    if len(pairs) < LEAST:
        raise _too_few(len(pairs))
    main, mechanisms = zip(*pairs.values(), strict=True)
    heights = _means(synthetic, main)
    weights = balanced([task.category for task in synthetic.tasks])
    categories = {
        name: heights[:, [task.category == name for task in synthetic.tasks]].mean(axis=1)
        for name in synthetic.categories
    }
    by_task = {task.name: heights[:, number] for number, task in enumerate(synthetic.tasks)}
    mad = [by_task[name] for name in MAD if name in by_task]
    names = list(pairs)
    # Of the seed that chose the rates, which ran on one device; times on several do not compare.
    steps = chosen[chosen["seed"] == CHOOSING_SEED].groupby("mech")["step_ms_median"].median()
    covariates = {
        # The language models have the same size, so what size may explain is the other side.
        PARAMETERS: np.array([one.num_parameters for one in main]),
        STATE: np.array([one.state for one in mechanisms]),
        STEP: steps[names].to_numpy(dtype=float),
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
    kinds = {"": text, **{kind: of_kind(text, kind) for kind in (REPEATED, OTHER)}}
    texts = {TEXTS[_corpus_of(task.key[2])]: task for task in text.tasks}
    outcomes = {
        name: {kind: _means(cells, mechanisms, [task])[:, 0] for kind, cells in kinds.items()}
        for name, task in texts.items()
    }
    halves = {SYNTHETIC: _halves(synthetic, main, synthetic.tasks, weights)}
    halves |= {name: _halves(text, mechanisms, [task], np.ones(1)) for name, task in texts.items()}
    num_seeds = {SYNTHETIC: [min(synthetic.cell(task, one).n for task in synthetic.tasks) for one in main]}
    num_seeds |= {name: [text.cell(task, one).n for one in mechanisms] for name, task in texts.items()}
    early = {name: _early(chosen[chosen["task_args"] == task.key[2]], names, curves) for name, task in texts.items()}
    rates = chosen.groupby("mech")["lr"].first()[names].to_numpy(dtype=float)
    return Study(main, predictors, categories, outcomes, early, covariates, rates, num_seeds, halves)


def _at_chosen_rates(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the matched rows of the language model on the study's texts, at one learning rate per mechanism.

    The rate is the best in validation on the first text with seed ``CHOOSING_SEED``.

    Raises:
        UsageError: If this seed has no rows on the first text.
    """
    of_suite = full_runs(rows[(rows["suite"] == TEXT) & (rows["block"] == BLOCK) & rows["match"].notna()])
    matched = of_suite[of_suite["match"].map(lambda match: split_match(match)[0]) == MATCH]
    corpora = matched["task_args"].map(_corpus_of)
    wanted = matched[corpora.isin(TEXTS)]
    first, *_ = TEXTS
    choosing = matched[(matched["seed"] == CHOOSING_SEED) & (corpora == first)]
    if choosing.empty:
        raise _too_few(0)
    rates = select(choosing, TEXT).rows.drop_duplicates("mech").set_index("mech")["lr"]  # of each seed the best
    return select(wanted[wanted["lr"] == wanted["mech"].map(rates)], TEXT).rows


def _corpus_of(task_args: str) -> str:
    """Return the hash of the text in a row of the language model."""
    return str(arguments_in(task_args).get("corpus"))


def _too_few(num: int) -> UsageError:
    return UsageError(
        f"{num} mechanisms have all ladders of {SYNTHETIC} and rows of {TEXT} with --match {MATCH} on each text; a "
        f"correlation needs at least {LEAST}: plan.md has the commands"
    )


def predictions_of(study: Study) -> list[Prediction]:
    """Judge the plan's predictions by its rules; with only one text, no prediction is judged."""
    losses = {text: outcome[""] for text, outcome in study.outcomes.items()}
    second = 0.0 if len(losses) > 1 else math.nan
    main = {text: interval(spearman, study.main, loss) for text, loss in losses.items()}
    given = study.covariates[PARAMETERS]
    partials = {text: interval(spearman, study.main, loss, given) for text, loss in losses.items()}
    missing = np.full(len(study.mechanisms), math.nan)
    published = next((values for name, values in study.predictors.items() if name.endswith("published tasks")), missing)
    of_published = {text: _plain(published, loss) for text, loss in losses.items()}
    early = {text: _plain(study.early[text], loss) for text, loss in losses.items()}
    # Rho of recall with the loss on repeated bytes less that on others, of the mean ranks on all texts.
    of_recall = interval(contrast, study.categories[RECALL], study.together[REPEATED], study.together[OTHER])
    # For each text, with weights of the categories that were fitted on another one, and with equal weights.
    categories = np.array(list(study.categories.values())).T
    weighted = {
        text: (
            _plain(fitted(study.families, categories, losses[other]), losses[text]),
            _plain(study.main, losses[text]),
        )
        for other, text in permutations(losses, 2)
    }
    mean = float(np.mean([one.value for one in main.values()]))

    def prediction(words: str, found: str, needs: Sequence[Interval | float], *, came_true: bool) -> Prediction:
        known = [number for one in (second, *needs) for number in (one if isinstance(one, Interval) else (one,))]
        return Prediction(words, None if any(map(math.isnan, known)) else came_true, found)

    return [
        prediction(
            f"{SYNTHETIC} predicts the order on both texts: each rho above 0, the mean at least .5",
            f"{_listed(main)}; mean {fixed(mean, 2)}",
            list(main.values()),
            came_true=all(one.low > 0 for one in main.values()) and mean >= 0.5,
        ),
        prediction(
            f"not by size alone: on each text, partial rho given the {PARAMETERS} in {SYNTHETIC} above 0",
            _listed(partials),
            list(partials.values()),
            came_true=all(one.low > 0 for one in partials.values()),
        ),
        prediction(
            "the published tasks do not predict it: rho below .2 on both texts",
            ", ".join(f"{text} {fixed(one, 2)}" for text, one in of_published.items()),
            list(of_published.values()),
            came_true=max(of_published.values()) < 0.2,
        ),
        prediction(
            "recall predicts the loss on repeated bytes more than on others",
            f"difference of rho {in_words(of_recall, 3)}",
            [of_recall],
            came_true=of_recall.low > 0,
        ),
        prediction(
            f"a language model at 1/{EARLY} of its steps predicts itself better than {SYNTHETIC} does",
            ", ".join(f"{text} {fixed(one, 2)}" for text, one in early.items()),
            list(early.values()),
            came_true=all(early[text] > main[text].value for text in losses),
        ),
        prediction(
            "weights fitted to the categories on another text bring less than .05",
            "; ".join(
                f"{text} {fixed(by_fit, 2)}, equal weights {fixed(equal, 2)}"
                for text, (by_fit, equal) in weighted.items()
            )
            or "one text",
            [],
            came_true=all(by_fit - equal < 0.05 for by_fit, equal in weighted.values()),
        ),
    ]


def rivals_of(study: Study) -> dict[str, dict[str, Interval]]:
    """Compute rho of one bit of architecture alone, and of the main predictor beside it, by text.

    The bit tells if a mechanism is one of :data:`PLAIN`. Last comes the main predictor given the early language model.
    """
    is_other = ~np.isin([one.name for one in study.mechanisms], PLAIN)
    bit = is_other.astype(float)
    return {
        text: {
            f"one of {(~is_other).sum()} plain linear attentions or not, alone": interval(spearman, bit, loss),
            f"{SYNTHETIC}, given this bit": interval(spearman, study.main, loss, bit),
            f"{SYNTHETIC}, among the other {is_other.sum()}": interval(spearman, study.main[is_other], loss[is_other]),
            f"{SYNTHETIC}, given {AT_EARLY}": interval(spearman, study.main, loss, predictors[AT_EARLY]),
        }
        for text, (predictors, loss) in study.sides.items()
    }


def tables_of(study: Study) -> list[Table]:
    """Make the tables of predictions, rivals, correlations, left-out families, and mechanisms."""
    came_true = {True: "yes", False: "no", None: "rows are missing"}
    predictions = table_of(
        "predictions",
        "Predictions made before the rows",
        "Each with the plan's rule, and the outcome.",
        ("Prediction",),
        predictions_of(study),
        lambda one: (one.words,),
        {Column("True", "word"): lambda one: came_true[one.came_true], Column("Found", "text"): lambda one: one.found},
    )
    by_text = {text: list(without_each(study.families, study.main, one[""])) for text, one in study.outcomes.items()}
    families = table_of(
        "families",
        "One family left out",
        f"Rho of {SYNTHETIC} with each text without the mechanisms of a family.",
        ("Without",),
        list(zip(*by_text.values(), strict=True)),
        lambda of_texts: (of_texts[0][0],),
        {
            "mechanisms": lambda of_texts: str(of_texts[0][1]),
            **{text: _rho_without(number) for number, text in enumerate(by_text)},
        },
    )
    return [predictions, _rivals_table(study), _correlations_table(study), families, _mechanisms_table(study)]


def _rivals_table(study: Study) -> Table:
    by_text = rivals_of(study)
    return table_of(
        "rivals",
        "Beside one bit of architecture",
        "Rho with its 95 % CI over mechanisms. Plain linear attentions have neither data-dependent gates nor a delta "
        f"rule: {', '.join(PLAIN)}. This bit was chosen after the rows.",
        ("Predictor",),
        list(next(iter(by_text.values()))),
        lambda name: (name,),
        {text: partial(_rival_cell, rivals) for text, rivals in by_text.items()},
    )


def _rival_cell(rivals: Mapping[str, Interval], name: str) -> Cell:
    return interval_cell(rivals[name])


def _rho_without(number: int) -> Callable[[Sequence[tuple[str, int, float]]], str]:
    return lambda of_texts: fixed(of_texts[number][2], 2)


def files_of(study: Study, tables: Sequence[Table]) -> Files:
    """Return file contents by name: a page, and the numbers of all mechanisms."""
    first = predictions_of(study)[0]
    verdict = {True: "came true", False: "did not come true", None: "cannot be judged yet"}[first.came_true]
    names = [mechanism.name for mechanism in study.mechanisms]
    alone, given = (
        {text: list(rivals.values())[at] for text, rivals in rivals_of(study).items() if text in study.outcomes}
        for at in (0, 1)
    )
    introduction = (
        f"Does the mean score of a mechanism on {SYNTHETIC} predict the loss of a language model with it? The "
        f"prediction that it does {verdict}, over {len(study.mechanisms)} mechanisms: {first.found}. "
        "plan.md was committed before the rows. One bit of architecture, plain linear attention or not, predicts it "
        f"too: {_listed(alone)}. Given this bit, {SYNTHETIC} has {_listed(given)}."
    )
    outcomes = {
        f"{text}, {kind or 'all'}": -values
        for text, of_text in study.outcomes.items()
        for kind, values in of_text.items()
    }
    numbers = {**study.predictors, **study.categories, **outcomes, **study.covariates, "rate": study.rates}
    lines = zip(names, study.families, *(values.tolist() for values in numbers.values()), strict=True)
    return {
        "README.md": markdown.document("Validity", tables, introduction),
        "mechanisms.csv": csv_text(["mechanism", "family", *numbers], lines),
    }


def _by_name(mechanisms: Iterable[MechanismFacts]) -> dict[str, MechanismFacts]:
    """Return the mechanisms by name, without controls.

    Raises:
        UsageError: If a mechanism has two settings.
    """
    found: dict[str, MechanismFacts] = {}
    for mechanism in mechanisms:
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
    """Compute mean scores over seeds; NaN without rows."""
    shown = cells.tasks if tasks is None else tasks
    return np.array([[cells.cell(task, mechanism).mean for task in shown] for mechanism in mechanisms])


def _published(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Numbers]:
    """Compute the mean skill over the published tasks that can be ranked; NaN for a mechanism that lacks a task."""
    if PUBLISHED not in set(rows["suite"]):
        return {}
    cells = grid(select(rows, PUBLISHED).without_variants().rows)
    ranked = [task for task in cells.tasks if is_ranked(task)]
    by_name = {mechanism.name: mechanism for mechanism in cells.mechanisms if mechanism.match is None}
    skills = [
        np.mean([cells.cell(task, by_name[name]).skill for task in ranked]) if name in by_name else math.nan
        for name in names
    ]
    return {f"{len(ranked)} of {len(cells.tasks)} published tasks": np.array(skills)}


def _halves(
    cells: Cells, mechanisms: Sequence[MechanismFacts], tasks: Sequence[TaskFacts], weights: Float[np.ndarray, " tasks"]
) -> tuple[Numbers, Numbers]:
    """Compute weighted means over the first half of the seeds and over the rest; NaN for a half without seeds."""
    at = len(cells.seeds) // 2

    def mean(seeds: Sequence[int]) -> Numbers:
        scores = [by_seed([cells.cell(task, one).scores for task in tasks], seeds) for one in mechanisms]
        means: Numbers = np.array(scores).mean(axis=2) @ weights if seeds else np.full(len(mechanisms), math.nan)
        return means

    return mean(cells.seeds[:at]), mean(cells.seeds[at:])


def _early(runs: pd.DataFrame, names: list[str], curves: pd.DataFrame) -> Numbers:
    """Compute minus the mean validation loss at the first point after one ``EARLY``-th of the steps, or NaN."""
    losses = curves[(curves["split"] == "validation") & (curves["metric"] == "loss")].merge(runs, on="run_id")
    late = losses[losses["step"] >= losses["steps_planned"] / EARLY].sort_values("step")
    first = late.drop_duplicates("run_id").astype({"value": float}).groupby("mech")["value"].mean()
    return -first.reindex(names).to_numpy()


def _plain(x: Numbers, y: Numbers) -> float:
    """Compute rho over the mechanisms that have both numbers; NaN with fewer than ``LEAST`` of them."""
    x, y = complete(x, y)
    return float(spearman(x, y)) if x.size >= LEAST else math.nan


def _listed(by_text: Mapping[str, Interval]) -> str:
    return ", ".join(f"{text} {in_words(rho)}" for text, rho in by_text.items())


def _correlations_table(study: Study) -> Table:
    reliable = "; ".join(f"{name} {fixed(_plain(*of_halves), 2)}" for name, of_halves in study.halves.items())
    over_families = {
        text: interval_over_families(spearman, study.families, study.main, loss)
        for text, (_, loss) in study.sides.items()
    }
    # Each of a text, the name of a predictor, its numbers, and minus the loss.
    rows = [
        (text, name, predictor, loss)
        for text, (predictors, loss) in study.sides.items()
        for name, predictor in predictors.items()
    ]

    def rho(*given: str) -> Callable[[tuple[str, str, Numbers, Numbers]], Cell]:
        covariates = [study.covariates[name] for name in given]
        return lambda row: interval_cell(interval(spearman, *row[2:], *covariates))

    return table_of(
        "correlations",
        "Correlations",
        "Spearman's rho with minus the bits per byte of each text and with the mean of the ranks on both. Its 95 % CI "
        "is a bootstrap over mechanisms (BCa, 10,000 draws), p is by permutation. Partial: given "
        f"{PARAMETERS} in {SYNTHETIC}, then also state, then also the time of a step. Last: rho of {SYNTHETIC} minus "
        f"this one, over the same draws. Of {SYNTHETIC} by a bootstrap over families: {_listed(over_families)}. "
        f"Between two halves of the seeds: {reliable}.",
        ("Text", "Predictor"),
        rows,
        lambda row: row[:2],
        {
            "n": lambda row: str(complete(*row[2:])[0].size),
            "rho": rho(),
            "p": lambda row: p_text(permutation_p(*row[2:])),
            "given parameters": rho(PARAMETERS),
            "and state": rho(PARAMETERS, STATE),
            "and time": rho(PARAMETERS, STATE, STEP),
            f"{SYNTHETIC} − this": lambda row: (
                "" if row[1] == SYNTHETIC else interval_cell(interval(contrast, row[3], study.main, row[2]))
            ),
        },
        is_grouped=True,
    )


def _rates_in_words(study: Study) -> str:
    """Say how many mechanisms chose the highest rate, when it was added, and what was not run."""
    rates = load_suite(TEXT).training.learning_rates or ()
    num_highest = int((study.rates == max(rates)).sum())
    return (
        f"{num_highest} of {len(study.rates)} mechanisms chose the highest of the rates "
        f"{', '.join(f'{rate:g}' for rate in rates)}. Rate 0.03 was added after softmax's bits on the test had been "
        "seen (commit d42fa384)." + f" Rate {UNTRIED:g} was not run." * (UNTRIED not in rates)
    )


def _mechanisms_table(study: Study) -> Table:
    def number(values: Numbers, decimals: int) -> Callable[[int], str]:
        return lambda at: fixed(float(values[at]), decimals)

    return table_of(
        "mechanisms",
        "The mechanisms",
        f"Mean score on {SYNTHETIC}, all categories with equal weight; bits per byte on each text; {PARAMETERS} "
        f"in {SYNTHETIC}. State, step and rate are of the language model; seeds of {', '.join(study.num_seeds)}. "
        f"{_rates_in_words(study)}",
        ("Mechanism", "Family"),
        np.argsort(-study.main, kind="stable").tolist(),
        lambda at: (study.mechanisms[at].label, study.mechanisms[at].family),
        {
            SYNTHETIC: number(study.main, 3),
            **{text: number(-outcome[""], 3) for text, outcome in study.outcomes.items()},
            **{name: number(values, 0) for name, values in study.covariates.items()},
            "rate": lambda at: f"{study.rates[at]:g}",
            "seeds": lambda at: ", ".join(str(nums[at]) for nums in study.num_seeds.values()),
        },
    )


def pages() -> dict[Path, str]:
    """Make the files of the study from the rows in ``results``."""
    study = study_of(rescored(store().runs()), store().curves())
    return {Path(__file__).with_name(name): str(text) for name, text in files_of(study, tables_of(study)).items()}


if __name__ == "__main__":
    sys.exit(main(pages()))
