"""Error rates of ``synthbench quick``: ``python -m docs.first_verdict``; ``--check`` compares with statistics.md.

Searches are simulated with the residuals of studies/error_rates. Known mechanisms are replayed from the packaged rows,
each against three references, and compared with the full suite.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from tabulate import tabulate

from studies import pages
from studies.error_rates.page import RESIDUALS
from synthbench.first_verdict import HOPELESS, NUM_FIRST, Baselines, Decision, decide, level_of, p_better, runs_of
from synthbench.options import MAIN_SUITE
from synthbench.reports.statistics import SIGNIFICANCE
from synthbench.results import published
from synthbench.runner.request import Request
from synthbench.suites import load_suite

PAGE = Path(__file__).parent / "statistics.md"
BEGIN, END = "<!-- Written by docs/first_verdict.py. -->\n", "<!-- Until here: quick. -->\n"
NUM_IDEAS = 200
NUM_SEARCHES = 100
LEAD = 0.10
"""Lead of a good idea over the reference, on average over tasks."""
CATEGORIES = ["recall"] * 4 + ["state_tracking"] * 3 + ["composition"] * 4 + ["copying"] * 3
REFERENCES = ("softmax", "gla", "deltanet")


class Search(NamedTuple):
    """Result of a simulated search: which ideas are good, and the decision on each idea."""

    is_good: Bool[np.ndarray, " ideas"]
    decisions: list[str]

    @property
    def false_share(self) -> float:
        """Share of the kept ideas that are no better; 0 if none is kept."""
        kept = self._of("keep")
        return float((kept & ~self.is_good).sum() / max(kept.sum(), 1))

    def share_of_good(self, decision: str) -> float:
        """Share of the good ideas with a decision; NaN without good ones."""
        return float(self._of(decision)[self.is_good].mean()) if self.is_good.any() else float("nan")

    def _of(self, decision: str) -> Bool[np.ndarray, " ideas"]:
        return np.array([one == decision for one in self.decisions])


def search(index: int, share_good: float, spread: float) -> Search:
    """Simulate a search over ``NUM_IDEAS`` ideas against one reference, whose run all comparisons share.

    Args:
        index: Number of the search, which determines all random draws.
        share_good: Chance that an idea is better by ``LEAD``; the others are as good as the reference.
        spread: Standard deviation over tasks of an idea's lead, without the noise of the runs.
    """
    rng = np.random.Generator(np.random.Philox(key=(index, int(1000 * (share_good + 10 * spread)))))
    residuals = RESIDUALS[rng.choice(len(RESIDUALS), len(CATEGORIES), replace=False)]
    is_good = rng.random(NUM_IDEAS) < share_good
    leads = np.where(is_good, LEAD, 0.0)[:, None] + spread * rng.standard_normal((NUM_IDEAS, len(CATEGORIES)))
    reference = _noise(residuals, 1, rng)
    public = leads + _noise(residuals, NUM_IDEAS, rng) - reference
    fresh = leads + _noise(residuals, NUM_IDEAS, rng) - _noise(residuals, NUM_IDEAS, rng)
    decisions: list[str] = []
    for on_public, on_fresh in zip(public, fresh, strict=True):
        decision: Decision = "discard"
        if p_better(-on_public[:NUM_FIRST], CATEGORIES[:NUM_FIRST]) > HOPELESS:
            level = level_of(len(decisions) + 1, decisions.count("keep"))
            better, worse = (p_better(sign * on_public, CATEGORIES) for sign in (1, -1))
            decision = decide(better, worse, level)
            if decision == "keep" and p_better(on_fresh, CATEGORIES) > SIGNIFICANCE:
                decision = "undecided"
        decisions.append(decision)
    return Search(is_good, decisions)


def _noise(
    residuals: Float[np.ndarray, "tasks mechanisms seeds"], num_ideas: int, rng: np.random.Generator
) -> Float[np.ndarray, "ideas tasks"]:
    """Draw the noise of one run on each task; each idea scatters like one of the measured mechanisms."""
    num_tasks, num_mechanisms, num_seeds = residuals.shape
    like = rng.integers(num_mechanisms, size=(num_ideas, 1))
    drawn: Float[np.ndarray, "ideas tasks"] = residuals[
        np.arange(num_tasks), like, rng.integers(num_seeds, size=(num_ideas, num_tasks))
    ]
    return drawn


def simulated() -> Iterator[list[str]]:
    """Yield the lines of the table on searches."""
    for spread in (0.0, 0.05, 0.1):
        for share in (0.05, 0.0):
            searches = [search(index, share, spread) for index in range(NUM_SEARCHES)]
            false = float(np.mean([one.false_share for one in searches]))
            shares = [np.nanmean([one.share_of_good(name) for one in searches]) if share else None
                      for name in ("keep", "discard")]  # fmt: skip
            printed = ("–" if one is None else f"{one:.3f}" for one in shares)
            yield [f"{share:g}", f"{spread:g}", f"{false:.3f}", *printed]


class Replay(NamedTuple):
    """A known mechanism as if it were new, against one reference."""

    mechanism: str
    decision: str
    lead: float
    """Lead of its mean over the full suite; NaN for a mechanism that is not ranked."""
    covers: bool
    """True if the interval of ranks that other families predict contains its rank among all others."""


def known_runs() -> pd.DataFrame:
    """Read the packaged runs of the main suite."""
    return runs_of(Request(suite=MAIN_SUITE, device="cpu"), (published(),))


def replay(runs: pd.DataFrame, reference: str) -> Iterator[Replay]:
    """Judge each mechanism as if it were a first idea; its rank is predicted without the rows of its family."""
    suite = load_suite(MAIN_SUITE)
    tasks, rate = suite.quick or tuple(suite.tasks), suite.training.learning_rates[0]
    every = Baselines(runs, suite, tasks, rate)
    first = runs[(runs["rate"] == rate) & (runs["seed"] == suite.seeds[0]) & runs["task"].isin(tasks)]
    for mechanism in every.means.columns.drop(reference):
        own = first[first["mech"] == mechanism].drop_duplicates("task").set_index("task")["score"]
        if len(own) < len(tasks):
            continue
        better, worse = every.p_values(own, every.means[reference])
        _, early = every.p_values(own[list(tasks[:NUM_FIRST])], every.means[reference])
        decision = "discard" if early <= HOPELESS else decide(better, worse, level_of(1, 0))
        full = every.full.get(mechanism, float("nan"))
        of_other_families = Baselines(runs[runs["mech_family"] != every.facts["family"][mechanism]], suite, tasks, rate)
        others = every.full.drop(mechanism, errors="ignore")
        rank = of_other_families.predict(own).rank_among(others.to_numpy())
        covers = rank.low <= 1 + int((others > full).sum()) <= rank.high
        yield Replay(mechanism, decision, full - every.full[reference], covers)


def replayed() -> Iterator[str]:
    """Yield the paragraphs on known mechanisms."""
    runs = known_runs()
    lines: dict[str, list[str]] = {}
    covered: dict[str, bool] = {}
    for reference in REFERENCES:
        for one in replay(runs, reference):
            line = lines.setdefault(one.mechanism, [one.mechanism, *["–"] * len(REFERENCES)])
            truth = "" if np.isnan(one.lead) else f" ({one.lead:+.2f})"
            line[1 + REFERENCES.index(reference)] = f"{one.decision}{truth}"
            if not np.isnan(one.lead):
                covered[one.mechanism] = one.covers
    headings = ["mechanism", *(f"against {reference}" for reference in REFERENCES)]
    yield tabulate(sorted(lines.values()), headings, tablefmt="pipe", disable_numparse=True)
    yield (
        "Predicted without the rows of its family, the interval of the rank contains the true one for "
        f"{sum(covered.values())} of {len(covered)} mechanisms."
    )


def text() -> str:
    """Write both tables."""
    headings = ["share of good ideas", "spread", "false discovery rate", "good ones kept", "good ones discarded"]
    searches = tabulate(list(simulated()), headings, tablefmt="pipe", disable_numparse=True)
    return "\n\n".join([searches, *replayed()]) + "\n"


def main() -> int:
    """Write the tables into the page, or compare them with the page."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return pages.main({PAGE: before + begin + text() + END + rest.partition(END)[2]})


if __name__ == "__main__":
    sys.exit(main())
