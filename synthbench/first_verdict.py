"""A first verdict on a mechanism: the code of ``synthbench quick``, for people and for automatic searches.

A mechanism is checked and trained on three tasks. Unless the mechanism is clearly worse than a reference mechanism on
these tasks, it is trained on further tasks of the suite. The final comparison with the reference is called a query. A
mechanism that beats the reference significantly must beat it again on a fresh seed, which no run has used before.
docs/statistics.md gives the error rates.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from filelock import FileLock
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.special import stdtr, stdtrit

from synthbench import plugins as plugin_files
from synthbench.bits import choice_in
from synthbench.canonical import canonical_json, sha256
from synthbench.cli.output import about, aligned
from synthbench.contract.checks import first_failure
from synthbench.contract.components import record
from synthbench.contract.isolated import IsolatedProcess
from synthbench.errors import ContractError, StoreError, SynthbenchError, UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.options import MAIN_SUITE, command_line, parse_term, registered, split_terms
from synthbench.registry import CONTROL
from synthbench.reports.aggregates import PerTask, Rank, balanced
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE
from synthbench.reports.table import NOTHING, fixed
from synthbench.results import Store, published
from synthbench.results.schema import to_frame
from synthbench.results.store import LIMITS, read_plain
from synthbench.runner import run as runner
from synthbench.runner.plan import cells_and_seeds
from synthbench.runner.request import Request
from synthbench.runner.run import CONTRACT, Prepared, RunReport, device_of, prepare
from synthbench.suites import Suite, load_suite
from synthbench.tasks import TASKS
from synthbench.training.cell import Cell, Run
from synthbench.training.ladder_scores import USED, rescored

SCHEMA_VERSION = 1
"""Version of the JSON output; it increases when a key is removed or changes its meaning."""
LEDGER = "quick.jsonl"
"""Default name of the ledger file in the results folder."""
NUM_FIRST = 3
"""Number of tasks in the first stage."""
HOPELESS = 0.01
"""Significance level of the test that may discard a mechanism after the first tasks. After all tasks, the level is
``SIGNIFICANCE - HOPELESS``."""
NOISE = 0.085
"""Standard deviation, over tasks, of the score difference between two runs of one mechanism. It is √2 times 0.06, the
standard deviation over seeds of the packaged runs of suite ``core``."""
PRIOR_DOF = 8.0
"""Degrees of freedom assigned to ``NOISE``; they are added to the degrees of freedom of the measured differences."""
RANK_CONFIDENCE = 0.9
FRESH = 1 << 20
"""Smallest seed for a confirmation."""
LOCKED_S = 60.0
"""Longest wait, in seconds, for a ledger that another process has locked; a suspended process never unlocks it."""

Decision = Literal["keep", "discard", "undecided"]


# ----- Tests -----


def p_better(differences: PerTask, categories: Sequence[str]) -> float:
    """Return the p value of a one-sided test that a mechanism is better than a reference; small values support this.

    The test is a t test of the mean difference of scores, with equal weight for all categories. Tasks are treated as a
    random sample. The variance of a difference is a weighted average of the measured variance and ``NOISE ** 2``.
    ``NOISE`` is the standard deviation of the difference between two runs of one mechanism.

    Args:
        differences: Score of the mechanism minus score of the reference, one per task; scores are in [0, 1].
        categories: Category of each task.

    Source: Smyth (2004), the moderated t statistic.

    >>> round(p_better(np.array([0.25, 0.5, 0.125]), ["recall"] * 3), 4)
    0.0006
    """
    weights = balanced(categories)
    dof = PRIOR_DOF + len(differences) - 1
    squares = float(((differences - differences.mean()) ** 2).sum())
    variance = (PRIOR_DOF * NOISE**2 + squares) / dof
    error = math.sqrt(variance * float((weights**2).sum()))
    return float(stdtr(dof, -float(weights @ differences) / error))


def level_of(query: int, num_kept: int) -> float:
    """Return the significance level of a query, which is one comparison of a mechanism with a reference.

    The mechanism is accepted if its p value is not above this level. The level comes from LOND, a procedure for a
    growing sequence of tests. LOND keeps the false discovery rate at or below ``SIGNIFICANCE``. This rate is the
    expected fraction of accepted mechanisms that are no better than their reference. The p values may be positively
    dependent, for example because several queries have the same reference.

    Args:
        query: Number of the query in the ledger (the file of all queries); 1 is the first.
        num_kept: Number of earlier queries with the decision ``keep``.

    Source: Javanmard & Montanari (2018) for LOND and for the weights of the queries; Zrnic et al. (2021) for dependent
        p values.

    >>> round(level_of(1, 0), 5), round(level_of(200, 10), 6)
    (0.00268, 0.000113)
    """
    share = 0.07720838 * math.log(max(query, 2)) / (query * math.exp(math.sqrt(math.log(query))))
    return SIGNIFICANCE * share * (num_kept + 1)


def decide(better: float, worse: float, level: float) -> Decision:
    """Decide whether to keep or discard a mechanism, given two one-sided p values of its comparison with a reference.

    ``better`` is small if the mechanism is better than the reference, and ``worse`` is small if it is worse. The result
    is ``keep`` if ``better`` is at most ``level``; :meth:`Ledger.confirm` must still confirm this decision. Otherwise,
    the result is ``discard`` if ``worse`` is at most ``SIGNIFICANCE - HOPELESS``, and ``undecided`` if not.

    Already after the first tasks, a mechanism is discarded if ``worse`` on these tasks is at most ``HOPELESS``. If a
    mechanism is as good as the reference, both tests together discard it with a probability of at most
    ``SIGNIFICANCE``. This probability is not corrected for the number of mechanisms.
    """
    if better <= level:
        return "keep"
    return "discard" if worse <= SIGNIFICANCE - HOPELESS else "undecided"


class Prediction(NamedTuple):
    """Prediction of a mechanism's mean score over all tasks of a suite, from its scores on a few tasks."""

    value: float
    error: float
    """Standard error of ``value``; NaN if the known mechanisms are of fewer than three families."""
    dof: int

    def rank_among(self, full: Float[np.ndarray, " mechanisms"]) -> Rank:
        """Return the predicted rank, with a 90 % interval, among mechanisms with mean scores ``full``; 1 is best."""
        if math.isnan(self.error):
            return Rank(1 + int((full > self.value).sum()), 1, 1 + len(full))
        reach = float(stdtrit(self.dof, (1 + RANK_CONFIDENCE) / 2)) * self.error + TOLERANCE
        above, high, low = ((full > bound).sum() for bound in (self.value, self.value - reach, self.value + reach))
        return Rank(1 + int(above), 1 + int(low), 1 + int(high))


def predict(
    score: float, quick: Float[np.ndarray, " mechanisms"], full: Float[np.ndarray, " mechanisms"], families: list[str]
) -> Prediction:
    """Predict a mechanism's mean score in the full suite from ``score``, its mean score on a few tasks with one seed.

    The prediction is ``score`` plus the average of ``full - quick`` over known mechanisms. For each known mechanism,
    ``quick`` holds the mean score on the same few tasks, ``full`` the mean score in the full suite, and ``families``
    the family.

    The ``error`` of the prediction is the root mean square error of a cross-validation. In it, ``full - quick`` of each
    known mechanism is predicted by the average of ``full - quick`` over mechanisms of other families.

    >>> expected = predict(0.5, np.array([0.2, 0.4, 0.6]), np.array([0.22, 0.4, 0.61]), ["a", "b", "c"])
    >>> round(expected.value, 3), round(expected.error, 3), expected.dof
    (0.51, 0.012, 2)
    """
    changes = full - quick
    dof = len(set(families)) - 1
    if dof < 2:
        return Prediction(score + float(changes.mean()) if len(changes) else score, math.nan, max(dof, 0))
    of_family = np.array(families)
    errors = [change - changes[of_family != family].mean() for change, family in zip(changes, families, strict=True)]
    return Prediction(score + float(changes.mean()), math.sqrt(float(np.mean(np.square(errors)))), dof)


# ----- The ledger -----


Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Entry(BaseModel):
    """A query (one comparison of a mechanism with a reference) as it is stored in a ledger."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    query: Annotated[int, Field(ge=1)]
    """Number of the query, from 1."""
    asked: str
    """Hash of the compared runs; comparisons with the same hash are one query."""
    source: str
    """Hash of the mechanism's code and options."""
    mechanism: str
    reference: str
    p_better: Probability
    p_worse: Probability
    level: Probability
    decision: Decision
    p_fresh: Probability | None = None
    """The p value of the confirmation on a fresh seed; None if there was none."""

    @property
    def is_candidate(self) -> bool:
        """True if the p value allows the decision ``keep``, which a fresh seed must still confirm."""
        return self.p_better <= self.level and self.p_fresh is None and self.decision == "undecided"

    @property
    def words(self) -> str:
        """Name of the query in messages: ``query 3 (slay:R=3)``."""
        return f"query {self.query} ({self.mechanism})"


@dataclass(frozen=True)
class Ledger:
    """File that records, as JSON lines, the queries of one search: comparisons of a mechanism with a reference.

    Several commands may use one file at the same time. If a query has several lines, only the last one counts.
    """

    path: Path
    """The file, which need not exist yet."""

    def entries(self) -> list[Entry]:
        """Read the queries from the file, in order.

        Raises:
            StoreError: If the file cannot be read.
        """
        refusal = f"{self.path} cannot be read as a ledger"
        try:
            content = read_plain(Path(os.path.realpath(self.path)), LIMITS.file_bytes)
            lines = content.decode("utf-8-sig").splitlines()
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise StoreError(f"{refusal}: {reason}") from problem
        entries: dict[int, Entry] = {}
        for number, line in enumerate(lines, 1):
            try:
                entry = Entry.model_validate_json(line)
            except ValidationError as problem:
                raise StoreError(f"{refusal}: line {number} is no query; take it out") from problem
            if entries.setdefault(entry.query, entry).asked != entry.asked:
                raise StoreError(
                    f"{refusal}: line {number} is another query {entry.query}; a ledger has the queries of one search"
                )
            entries[entry.query] = entry
        return list(entries.values())

    def enter(
        self,
        *,
        asked: str,
        source: str,
        mechanism: str,
        reference: str,
        p_values: tuple[float, float],
        is_hopeless: bool,
    ) -> Entry:
        """Decide on a new query (a comparison of a mechanism with a reference), and add the query to the file.

        ``p_values`` are two one-sided p values: the first is small if the mechanism is better than the reference, the
        second if it is worse. If ``is_hopeless`` is True, the decision is ``discard``. ``keep`` is written as
        ``undecided`` until it is confirmed on a new seed. ``asked`` is a hash of the compared runs. If the file has a
        query with this hash, that query is returned and nothing is added.

        Raises:
            StoreError: If the file cannot be read or written.
        """
        with self.appending() as (known, append):
            for entry in known:
                if entry.asked == asked:
                    return entry
            query = max((entry.query for entry in known), default=0) + 1  # a line may have been taken out
            level = level_of(query, sum(entry.decision == "keep" for entry in known))
            decision = "discard" if is_hopeless else decide(*p_values, level)
            entry = Entry(
                query=query,
                asked=asked,
                source=source,
                mechanism=mechanism,
                reference=reference,
                p_better=p_values[0],
                p_worse=p_values[1],
                level=level,
                decision="undecided" if decision == "keep" else decision,
            )
            append(entry)
        return entry

    def confirm(self, entry: Entry, p_fresh: float | None) -> Entry:
        """Record the result of repeating a comparison (query) on a new seed; return the query with the final decision.

        ``p_fresh`` is the one-sided p value on the new seed, small if the mechanism is better than the reference. The
        decision is ``keep`` if ``p_fresh`` is at most ``SIGNIFICANCE``, or if it is None (no confirmation is needed).
        Otherwise, the decision is ``undecided``.

        Raises:
            StoreError: If the file cannot be read or written.
        """
        is_kept = p_fresh is None or p_fresh <= SIGNIFICANCE
        confirmed = entry.model_copy(update={"p_fresh": p_fresh, "decision": "keep" if is_kept else "undecided"})
        with self.appending() as (_, append):
            append(confirmed)
        return confirmed

    @contextmanager
    def appending(self) -> Iterator[tuple[list[Entry], Callable[[Entry], None]]]:
        """Lock the file against other processes; yield the queries in the file, and a function that appends a query.

        Raises:
            StoreError: If the file cannot be read or written.
        """
        self.entries()  # refuses what is no ledger before a file is made, and a pipe, which would wait for a reader
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock", timeout=LOCKED_S):
                known = self.entries()
                with self.path.open("ab", buffering=0) as file:
                    yield known, partial(self._append, file)
        except OSError as problem:
            raise StoreError(f"cannot write the ledger {self.path}: {problem}") from problem

    def _append(self, file: FileIO, entry: Entry) -> None:
        """Append a query to the opened file; if the disk is full, leave the file as it was."""
        size = file.tell()
        # The last line of a file that was edited may lack its end.
        has_end = self.path.read_bytes()[-1:] in {b"", b"\n"}
        line = ("\n" * (not has_end) + entry.model_dump_json() + "\n").encode()
        try:
            while line:
                line = line[file.write(line) :]
        except OSError:
            file.truncate(size)
            raise


# ----- Rows of the mechanism and of others -----

_COLUMNS = ("run_id", "mech_family", "state_size", "step_ms_median", "wall_s", "ensemble_size", "error_message")


def runs_of(request: Request, stores: Sequence[Path]) -> pd.DataFrame:
    """Read the stored results (rows) of all runs that a request asks for; runs without a row are left out.

    Rows made for another suite count too if the run is the same. In the result, runs on the request's device come
    before runs on a CPU.

    Args:
        request: Request with the tasks, mechanisms, seeds, learning rates and the device of the runs.
        stores: Folders of stores. If several stores have a row of the same run, the row in the first of these stores is
            used.

    Returns:
        One row per run: ``mech``, ``task``, ``seed``, ``rate``, ``device``, ``score`` (0 for a failed run),
        ``has_fixed_state``, and the columns of the store that this module needs. Column ``choice`` is the validation
        score used to choose among learning rates; higher is better.
    """
    own = device_of(request)
    runs: dict[str, Run] = {}
    for device in dict.fromkeys((own.type, "cpu")):
        cells, seeds = cells_and_seeds(request, torch.device(device))
        runs |= {run.run_id: run for cell in cells for run in cell.runs(seeds)}
    columns = list(dict.fromkeys((*_COLUMNS, *USED)))
    tables = [Store.open(store, create=False).columns(columns) for store in stores if (store / "store.json").exists()]
    rows = pd.concat([to_frame(table) for table in tables], ignore_index=True)
    rows = rescored(rows[rows["run_id"].isin(list(runs))].drop_duplicates("run_id").reset_index(drop=True))
    found = [runs[run_id] for run_id in rows["run_id"]]
    a_cell = {run.cell.mechanism_name: run.cell for run in found}
    fixed = {name: has_fixed_state(cell) for name, cell in a_cell.items()}
    return rows.assign(
        mech=[run.cell.mechanism_name for run in found],
        task=[run.cell.task_name for run in found],
        seed=[run.seed for run in found],
        rate=[float(run.learning_rate or 0.0) for run in found],
        device=[run.cell.device_type for run in found],
        has_fixed_state=[fixed[run.cell.mechanism_name] for run in found],
        score=rows["score"].where(rows["status"] == "ok", 0.0).astype(float),
        choice=[choice_in(json.loads(text)) or 0.0 for text in rows["metrics"].fillna("{}")],
    ).sort_values("device", key=lambda column: column != own.type, kind="stable", ignore_index=True)


class Baselines:
    """Scores of mechanisms whose runs are stored; a new mechanism is compared with them and ranked among them."""

    def __init__(self, runs: pd.DataFrame, suite: Suite, tasks: Sequence[str], rate: float) -> None:
        """Average the scores of runs.

        Args:
            runs: Runs as :func:`runs_of` returns them.
            suite: The suite of the first verdict.
            tasks: The tasks on which a first verdict compares mechanisms.
            rate: The learning rate of a first verdict.
        """
        runs = runs.drop_duplicates(["mech", "task", "seed", "rate"])
        self._categories = {
            task: suite.merged.get(TASKS[task].category(), TASKS[task].category()) for task in suite.tasks
        }
        self.facts = runs.groupby("mech").agg(
            family=("mech_family", "first"), state=("state_size", "max"), is_fixed=("has_fixed_state", "first")
        )
        at_rate = runs[runs["rate"] == rate]
        self.means = _pivot(at_rate, tasks)
        """Mean scores over seeds at ``rate``, with one line per task in ``tasks`` and one column per mechanism."""
        variances = at_rate.groupby(["task", "mech"])["score"].var().groupby("task").mean().dropna()
        self._errors = (variances**0.5).to_dict()
        self._usual_error = float(variances.mean() ** 0.5) if len(variances) else None
        best = runs.sort_values(["choice", "rate"], ascending=[False, True]).drop_duplicates(["mech", "task", "seed"])
        full = self._mean(_pivot(best, list(suite.tasks)))
        first = _pivot(at_rate[at_rate["seed"] == suite.seeds[0]], tasks)
        is_control = (self.facts["family"] == CONTROL).to_dict()
        ranked = [name for name in suite.mechanisms if name in first and name in full and not is_control[name]]
        self.full = full[ranked]
        """Mean score of each ranked mechanism over the full suite, at the rate chosen for each task and seed."""
        self._first = first[ranked]

    def best_of_class(self, state: int, *, is_fixed: bool) -> str | None:
        """Return the default reference for a new mechanism: the best of the mechanisms with a comparable state.

        Candidates are the mechanisms of the suite that have runs of all tasks and, on the compared tasks, a run with
        the first seed. Controls (mechanisms that do not learn to mix tokens) are not candidates. The result is None if
        there is no candidate.

        If the new mechanism has a state of fixed size, only candidates with a fixed state of at most that size are
        considered. If no fixed state is that small, the candidates with the smallest fixed state are considered. If the
        state is not fixed, or if no candidate has a fixed state, all candidates are considered.

        Args:
            state: Size of the new mechanism's state: the number of values that a layer stores at the end of the longest
                sequence.
            is_fixed: True if the size of the state does not depend on the sequence length.
        """
        facts = self.facts.reindex(self.full.index)
        if is_fixed and facts["is_fixed"].any():
            facts = facts[facts["is_fixed"].astype(bool)]
            facts = facts[facts["state"] <= max(state, facts["state"].min())]
        return str(self.full[facts.index].idxmax()) if len(facts) else None

    def p_values(self, mine: "pd.Series[float]", others: "pd.Series[float]") -> tuple[float, float]:
        """Return the p values of two one-sided tests that compare scores by task.

        The first p value is small if ``mine`` is better than ``others``, the second if ``mine`` is worse.
        """
        differences, categories = (mine - others[mine.index]).to_numpy(), self._categories_of(mine)
        return p_better(differences, categories), p_better(-differences, categories)

    def predict(self, scores: "pd.Series[float]") -> Prediction:
        """Predict a mechanism's mean score in the full suite from its scores by task."""
        quick = self._mean(self._first.loc[list(scores.index)])
        families = list(self.facts["family"].reindex(self.full.index))
        return predict(self._mean_of(scores), quick.to_numpy(), self.full.to_numpy(), families)

    def task_scores(self, scores: "pd.Series[float]", reference: str | None) -> Iterator["TaskScore"]:
        """Yield the mechanism's score on each task, the standard error over seeds, and the reference's mean score."""
        for task in map(str, scores.index):
            beside = None if reference is None else float(self.means[reference][task])
            error = self._errors.get(task, self._usual_error)
            yield TaskScore(task, self._categories[task], float(scores[task]), error, beside)

    def profile(self, scores: "pd.Series[float]", reference: str | None) -> Iterator["Part"]:
        """Yield mean scores of the mechanism, its reference and the best mechanism: by category, then overall."""
        categories = self._categories_of(scores)
        for name in [*dict.fromkeys(categories), "mean"]:
            of_part = scores[[name in (category, "mean") for category in categories]]
            ranked = self._mean(self.means.loc[list(of_part.index), list(self.full.index)])
            best = str(ranked.idxmax()) if len(ranked) else None
            beside = None if reference is None else self._mean_of(self.means[reference][of_part.index])
            mine = self._mean_of(of_part)
            yield Part(name, len(of_part), mine, beside, None if best is None else float(ranked[best]), best)

    def _categories_of(self, scores: "pd.Series[float]") -> list[str]:
        return [self._categories[task] for task in scores.index]

    def _mean_of(self, scores: "pd.Series[float]") -> float:
        return float(scores.to_numpy() @ balanced(self._categories_of(scores)))

    def _mean(self, scores: pd.DataFrame) -> "pd.Series[float]":
        """Average each column over the tasks, with equal weight for all categories."""
        weights = balanced([self._categories[task] for task in scores.index])
        return pd.Series(weights @ scores.to_numpy(dtype=float), index=scores.columns, dtype=float)


def _pivot(runs: pd.DataFrame, tasks: Sequence[str]) -> pd.DataFrame:
    """Average scores over seeds: one line per task, and one column per mechanism with a run of every task."""
    return runs.pivot_table("score", "task", "mech").reindex(list(tasks)).dropna(axis=1)


def has_fixed_state(cell: Cell) -> bool:
    """Return True if the size of a mechanism's state does not depend on the sequence length.

    The computing time of such a mechanism grows linearly with the sequence length.
    """
    model = cell.model(torch.Generator())
    half, whole = (model.size(length).state_elements for length in (cell.longest // 2, cell.longest))
    return half == whole


# ----- The verdict -----


@dataclass(frozen=True)
class TaskScore:
    """The score of one run on a task (0 to 1), and the reference mechanism's mean score over the reference's seeds."""

    task: str
    category: str
    score: float
    standard_error: float | None
    """Standard error of ``score`` over seeds, estimated from all mechanisms on the task."""
    reference: float | None


@dataclass(frozen=True)
class Part:
    """Mean scores of a mechanism, its reference and the best mechanism in one task category, or in all categories."""

    category: str
    num_tasks: int
    score: float
    reference: float | None
    best: float | None
    """Mean score of ``best_mechanism``, the best ranked mechanism on these tasks."""
    best_mechanism: str | None


@dataclass(frozen=True)
class FirstVerdict:
    """The verdict on a mechanism from runs of some tasks with one seed; fields without a known value are None."""

    mechanism: str
    """Name of the mechanism as requested, with options: ``slay:R=3``."""
    suite: str
    suite_version: str
    seed: int
    rate: float
    num_quick_tasks: int
    """Number of tasks that the suite has for first verdicts; ``tasks`` is shorter if fewer were run."""
    is_packaged: bool
    """True if the rows come with synthbench and nothing was trained."""
    next_command: str
    """The command that runs the rest of the suite."""
    wall_s: float = 0.0
    schema_version: int = SCHEMA_VERSION
    tasks: tuple[TaskScore, ...] = ()
    profile: tuple[Part, ...] = ()
    """Means by category, then over all categories."""
    parameters: int | None = None
    """Number of parameters in the whole model."""
    state: int | None = None
    """Size of the state: how many numbers a layer keeps for the longest sequence."""
    has_fixed_state: bool | None = None
    step_ms: float | None = None
    combined_score: float | None = None
    """Mean score, 0 to 1, expected in the full suite, by which a search can rank mechanisms."""
    combined_score_error: float | None = None
    """Standard error of ``combined_score``; see :func:`predict`."""
    rank: Rank | None = None
    """Expected rank in the full suite (1 is the best), with a 90 % interval."""
    num_ranked: int = 0
    reference: str | None = None
    reference_state: int | None = None
    is_reference_named: bool = False
    """False if the user named no reference; the reference is then the best mechanism with a comparable state."""
    decision: Decision | None = None
    is_hopeless: bool = False
    """True if the mechanism was discarded after the first tasks."""
    p_better: float | None = None
    p_worse: float | None = None
    p_fresh: float | None = None
    """One-sided p value on a fresh seed; small if the mechanism is better than the reference."""
    level: float | None = None
    """Largest p value at which this query keeps the mechanism."""
    query: int | None = None
    """Number of the query in the ledger, from 1."""
    ledger: str | None = None
    same_source_as: str | None = None
    """An earlier query of the ledger with the same code and options."""
    error: Mapping[str, str] | None = None
    """``kind`` and ``message`` of the first failed run, if any; nothing is compared then."""

    @property
    def ok(self) -> bool:
        """True if every run has a score."""
        return self.error is None

    def __str__(self) -> str:
        """Format the verdict for people."""
        return "\n".join(lines_of(self))


def request_of(mechanism: str, suite: str, **how: Any) -> Request:
    """Build the request for a first verdict: a suite's ``quick`` tasks, with the suite's first seed and learning rate.

    Args:
        mechanism: Name of a single mechanism; options are set as in ``slay:R=3,P=8``.
        suite: Name of a suite whose tasks have several levels of difficulty. If the suite lists no ``quick`` tasks, the
            request has all tasks of the suite.
        how: Further fields of the request, such as ``device``.

    Raises:
        UnknownName: If there is no such suite.
        UsageError: If the suite's tasks have no levels, or if ``mechanism`` does not name exactly one mechanism.
    """
    terms = split_terms(mechanism)
    name = parse_term(terms[0])[0] if terms else ""
    if len(terms) != 1 or name == "all" or any(sign in name for sign in "*?[@!"):
        raise UsageError(f"mech is {mechanism!r}; allowed: one mechanism, as in softmax or slay:R=3,P=8")
    protocol = load_suite(suite)
    if protocol.ladder is None:
        raise UsageError(f"suite {suite!r} has no ladder; allowed: {MAIN_SUITE}, or a suite file with [ladder]")
    tasks = protocol.quick or tuple(protocol.tasks)
    rates = protocol.training.learning_rates[:1]
    return Request(suite=suite, tasks=tasks, mechanisms=(mechanism,), seeds=protocol.seeds[:1], rates=rates, **how)


def quick(
    mechanism: str,
    *,
    against: str | None = None,
    suite: str = MAIN_SUITE,
    ledger: Path | None = None,
    minutes: float | None = None,
    plugins: Sequence[str] = (),
    run: Callable[[Request], RunReport] = runner.run,
    note: Callable[[str], None] = lambda _text: None,
    **how: Any,
) -> FirstVerdict:
    """Give a first verdict on a mechanism; :func:`synthbench.quick` explains the arguments.

    Args:
        mechanism: Name of a mechanism, if necessary with options, or a plugin file that registers one mechanism.
        against: Name of the reference mechanism. None: :meth:`Baselines.best_of_class` chooses the reference.
        suite: Name of a suite whose tasks have several levels of difficulty.
        ledger: File that records every comparison with a reference. None: ``quick.jsonl`` in the folder of the store.
        minutes: Approximate limit on training time, in minutes. If all tasks would take longer, fewer tasks are run.
            None: no limit.
        plugins: Plugin files and Python modules to load.
        run: Function that trains all runs of a request that have no stored row, and stores their rows.
        note: Function that receives each progress message for the user.
        how: Further fields of the request, such as ``results``, ``device`` and ``workers``.

    Raises:
        UnknownName: If the mechanism, the reference or the suite does not exist.
        UsageError: If a value is not allowed.
        StoreError: If a store or the ledger cannot be read or written.
        ContractError: If a plugin cannot be loaded, or if the mechanism fails a check.
    """
    began = time.monotonic()
    if minutes is not None and not minutes > 0:
        raise UsageError(f"minutes is {minutes:g}; allowed: more than 0")
    is_file = mechanism.endswith(".py")
    every = map(plugin_files.resolved, [*plugins, mechanism] if is_file else plugins)
    with IsolatedProcess(list(dict.fromkeys(every))) as isolated:
        if is_file:
            mechanism = _only_mechanism(mechanism, isolated)
        request = request_of(mechanism, suite, plugins=isolated.plugins, **how)
        # With rerun, a repeated command has as many workers as the first, though fewer runs are left.
        planned = None if has_packaged_rows(request) else checked(replace(request, rerun="all"), isolated)
    num_workers = None if planned is None else planned.executor.num_workers or NUM_FIRST
    query = _Query(request, Ledger(ledger or request.results / LEDGER), minutes, run, note, num_workers)
    return replace(query.verdict(against), wall_s=time.monotonic() - began)


@dataclass(frozen=True)
class _Query:
    """The steps of a first verdict: check a mechanism, train it, compare it with a reference, and confirm a win."""

    request: Request
    ledger: Ledger
    minutes: float | None
    run: Callable[[Request], RunReport]
    note: Callable[[str], None]
    num_workers: int | None
    """Number of runs that train at the same time; None if all rows come with synthbench."""

    @property
    def is_packaged(self) -> bool:
        """True if the rows of the mechanism come with synthbench, so that nothing is trained."""
        return self.num_workers is None

    def verdict(self, against: str | None) -> FirstVerdict:
        """Train and compare the mechanism; see :func:`quick` for the reference, ``against``."""
        request, suite = self.request, load_suite(self.request.suite)
        cells, seeds = cells_and_seeds(request, device_of(request))
        cell, own_ids = cells[0], {run.run_id for cell in cells for run in cell.runs(seeds)}
        size, is_fixed = cell.model(torch.Generator()).size(cell.longest), has_fixed_state(cell)
        against = against and registered(against, MECHANISMS.resolve)
        baselines = Baselines(self._others(own_ids, against), suite, request.tasks, request.rates[0])
        reference = against or baselines.best_of_class(size.state_elements, is_fixed=is_fixed)
        if reference is not None and reference not in baselines.means:
            raise UsageError(
                f"against is {against!r}, which lacks runs of {', '.join(request.tasks)}; "
                f"synthbench quick --mech {against} makes them"
            )
        source = sha256(canonical_json([cell.code["mech"], cell.resolved_mechanism_arguments]))[:16]
        with self.ledger.appending() as (known, _):  # a ledger that cannot be written is refused before any training
            same = next((one.words for one in known if one.source == source), None)
        if same is not None and not self.is_packaged:
            self.note(f"the source is that of {same}")
        own = self._rows(published()) if self.is_packaged else self._trained(baselines, reference)
        verdict = FirstVerdict(
            mechanism=request.mechanisms[0],
            suite=suite.name,
            suite_version=suite.version,
            seed=seeds[0],
            rate=request.rates[0],
            num_quick_tasks=len(request.tasks),
            is_packaged=self.is_packaged,
            next_command=_next_command(request),
            parameters=size.num_parameters,
            state=size.state_elements,
            has_fixed_state=is_fixed,
            step_ms=_step_ms(own),
            reference=reference,
            reference_state=None if reference is None else int(baselines.facts["state"][reference]),
            is_reference_named=against is not None,
            error=_error_in(own),
        )
        return self._compared(verdict, own, baselines, source) if verdict.error is None else verdict

    def _others(self, own_ids: Collection[str], against: str | None) -> pd.DataFrame:
        """Read the stored runs of the suite's mechanisms and of the reference ``against``, if one is named.

        Raises:
            UsageError: If the reference is the mechanism itself.
        """
        request = replace(self.request, tasks=("all",), mechanisms=(), seeds=(), rates=())
        stores = (request.results, published())
        runs = runs_of(request, stores)
        if against is not None:
            named = runs_of(replace(request, mechanisms=(against,)), stores)
            if not named[named["run_id"].isin(own_ids)].empty:
                raise UsageError(f"against is {against!r}, the mechanism itself; allowed: another one")
            runs = pd.concat([runs[runs["mech"] != against], named.assign(mech=against)], ignore_index=True)
        return runs[~runs["run_id"].isin(own_ids)]

    def _trained(self, baselines: Baselines, reference: str | None) -> pd.DataFrame:
        """Train on the first tasks, then on as many other tasks as time allows; return the rows.

        The other tasks are omitted if a run failed or the mechanism is clearly worse than the reference.
        """
        tasks, num_at_once = self.request.tasks, self.num_workers or 1
        # The workers that the first tasks leave idle begin with the next tasks.
        num_begun = min(len(tasks), NUM_FIRST + -NUM_FIRST % num_at_once)
        begun = self._run(tasks=tasks[:num_begun])
        if _error_in(begun) is not None:
            return begun
        first = begun[begun["task"].isin(tasks[:NUM_FIRST])]
        if reference is not None and self._is_hopeless(first, baselines, reference):
            return first
        num_wanted = max(len(first), min(len(tasks), self._affordable(first)))
        if (num_left := num_wanted - num_begun) > 0:
            self.note(f"{num_begun} tasks are done; the other {num_left} take {about(num_left * self._task_s(first))}")
        return self._run(tasks=tasks[:num_wanted])

    def _is_hopeless(self, runs: pd.DataFrame, baselines: Baselines, reference: str) -> bool:
        """Tell whether only the first tasks were run, and the mechanism is clearly worse than the reference there."""
        are_first = NUM_FIRST == len(runs) < len(self.request.tasks)
        return are_first and baselines.p_values(_scores(runs), baselines.means[reference])[1] <= HOPELESS

    def _run(self, **changes: Any) -> pd.DataFrame:
        """Change fields of a copy of the request, train its runs that have no row yet, and return all its rows."""
        if self.run(replace(self.request, **changes)).is_interrupted:
            raise plugin_files.Interrupted
        return self._rows(self.request.results, **changes)

    def _rows(self, store: Path, **changes: Any) -> pd.DataFrame:
        return runs_of(replace(self.request, **changes), (store,))

    def _task_s(self, done: pd.DataFrame) -> float:
        """Estimate the seconds per task from finished rows; a command that is restarted gets the same estimate."""
        return float((done["wall_s"] / done["ensemble_size"]).mean()) / min(self.num_workers or 1, NUM_FIRST)

    def _affordable(self, done: pd.DataFrame) -> int:
        """Return the number of runs, finished runs included, that fit into ``minutes``."""
        return sys.maxsize if self.minutes is None else int(60 * self.minutes / self._task_s(done))

    def _compared(self, alone: FirstVerdict, own: pd.DataFrame, baselines: Baselines, source: str) -> FirstVerdict:
        scores, reference = _scores(own), alone.reference
        expected = baselines.predict(scores)
        verdict = replace(
            alone,
            tasks=tuple(baselines.task_scores(scores, reference)),
            profile=tuple(baselines.profile(scores, reference)),
            combined_score=min(1.0, max(0.0, expected.value)),
            combined_score_error=None if math.isnan(expected.error) else expected.error,
            num_ranked=len(baselines.full),
            rank=expected.rank_among(baselines.full.to_numpy()) if len(baselines.full) else None,
        )
        if reference is None:
            return verdict
        is_hopeless = self._is_hopeless(own, baselines, reference)
        entry = self.ledger.enter(
            asked=sha256(canonical_json([sorted(own["run_id"]), reference]))[:16],
            source=source,
            mechanism=alone.mechanism,
            reference=reference,
            p_values=baselines.p_values(scores, baselines.means[reference]),
            is_hopeless=is_hopeless,
        )
        if entry.is_candidate:
            entry = self._confirmed(entry, own, baselines)
        answer = entry.model_dump(include={"decision", "p_better", "p_worse", "p_fresh", "level", "query"})
        # Only among earlier queries, so that a repeated query has the same answer.
        same = (one.words for one in self.ledger.entries() if one.source == source and one.query < entry.query)
        answer["same_source_as"] = next(same, None)
        return replace(verdict, is_hopeless=is_hopeless, ledger=str(self.ledger.path), **answer)

    def _confirmed(self, entry: Entry, own: pd.DataFrame, baselines: Baselines) -> Entry:
        """Run mechanism and reference on a fresh seed, if there is time; return the query with the new decision.

        A search for mechanisms sees the results with the suite's seeds and adapts to them. Packaged mechanisms do not
        come from a search, so they are not run again.
        """
        if self.is_packaged:
            return self.ledger.confirm(entry, None)
        if 3 * len(own) > self._affordable(own):
            return entry
        seed = FRESH + int(entry.asked[:5], 16)
        self.note(f"it looks better than {entry.reference}; both run on fresh seed {seed} to confirm it")
        tasks = list(own["task"])
        mine, theirs = (
            _scores(self._run(tasks=tasks, seeds=(seed,), mechanisms=(term,)))
            for term in (entry.mechanism, entry.reference)
        )
        return self.ledger.confirm(entry, baselines.p_values(mine, theirs)[0])


def has_packaged_rows(request: Request) -> bool:
    """Return True if the results of all runs of a request come with synthbench, so that nothing needs training.

    Packaged results were made on a CPU, so the answer is False unless the requested device is ``cpu`` or ``auto``.
    """
    term = registered(request.mechanisms[0], MECHANISMS.resolve)
    if request.device not in ("auto", "cpu") or not MECHANISMS.is_built_in(parse_term(term)[0]):
        return False
    cells, seeds = cells_and_seeds(replace(request, plugins=()), torch.device("cpu"))
    ends = Store.open(published(), create=False).statuses()
    return all(run.run_id in ends for cell in cells for run in cell.runs(seeds))


def checked(request: Request, isolated: IsolatedProcess) -> Prepared:
    """Plan the runs of a request, and check all of its components that do not come with synthbench, in ``isolated``.

    Raises:
        ContractError: If a plugin cannot be loaded, or if a component fails a check.
    """
    prepared = prepare(request, isolated)
    if prepared.checks:
        Store.open(request.results, create=True)
        record(prepared.checks, request.results / CONTRACT)  # the runs need not repeat the checks
    for verdicts in prepared.checks.values():
        if (broken := first_failure(verdicts)) is not None:
            raise ContractError(broken)
    return prepared


def _only_mechanism(file: str, isolated: IsolatedProcess) -> str:
    """Load the plugins of ``isolated``, and return the only mechanism that the plugin file ``file`` registers.

    Raises:
        UsageError: If the file registers no mechanism or several.
        ContractError: If the file or another plugin cannot be loaded.
    """
    isolated.try_plugins()
    plugin_files.load(isolated.plugins)
    registered = plugin_files.components_of(plugin_files.module_of(plugin_files.resolved(file)))
    names = [name for kind, name in registered if kind == MECHANISMS.kind]
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise UsageError(f"{file} registers these mechanisms: {found}; allowed: one, or --mech NAME --plugin {file}")
    return names[0]


def _scores(runs: pd.DataFrame) -> "pd.Series[float]":
    """Return the score of each run, by task."""
    return runs.set_index("task")["score"]


def _step_ms(runs: pd.DataFrame) -> float | None:
    """Average the milliseconds of a training step over the runs; runs that train together share the time equally."""
    mean = float((runs["step_ms_median"] / runs["ensemble_size"]).mean())
    return None if math.isnan(mean) else mean


def _error_in(runs: pd.DataFrame) -> dict[str, str] | None:
    """Return ``kind`` and ``message`` of the error of the first run without a score; None if every run has a score."""
    failed = runs[runs["status"] != "ok"]
    if failed.empty:
        return None
    first = failed.iloc[0]
    return {"kind": first["status"], "message": f"{first['task']}: {first['error_message']}"}


def _next_command(request: Request) -> str:
    """Write the command that runs all tasks, rates and seeds of the suite for the mechanism of a request."""
    given = {"suite": request.suite, "mech": request.mechanisms[0], "plugin": list(request.plugins)}
    chosen = {name: getattr(request, name) for name in ("device", "results")}
    return command_line("run", given | {name: at for name, at in chosen.items() if at != getattr(Request, name)})


# ----- As text and JSON -----


def facts_of(verdict: FirstVerdict) -> dict[str, Any]:
    """Return a first verdict as one JSON object."""
    return {**asdict(verdict), "rank": verdict.rank and verdict.rank._asdict()}


def facts_of_error(problem: SynthbenchError) -> dict[str, Any]:
    """Return an error that stopped a first verdict, as a JSON object with some of the keys of :func:`facts_of`."""
    kind = type(problem).__name__.removesuffix("Error").lower()
    error = {"kind": "check" if isinstance(problem, ContractError) else kind, "message": str(problem)}
    return {"schema_version": SCHEMA_VERSION, "combined_score": None, "decision": None, "error": error}


def lines_of(verdict: FirstVerdict) -> Iterator[str]:
    """Format a first verdict as lines of text for people."""
    yield _reference_line(verdict)
    if verdict.error is not None:
        yield f"Nothing is compared, because a run ended with {verdict.error['kind']}: {verdict.error['message']}"
    if verdict.profile:
        yield (
            f"Score, suite {verdict.suite} {verdict.suite_version}, {len(verdict.tasks)} of {verdict.num_quick_tasks} "
            f"quick tasks, seed {verdict.seed}, rate {verdict.rate:g}; of others the mean over seeds."
        )
        yield from _table(verdict)
        yield _expectation(verdict)
    yield from _decision(verdict)
    if verdict.same_source_as is not None:
        yield f"Its source and options are those of {verdict.same_source_as}."
    origin = (
        "Its rows come with synthbench; nothing was trained."
        if verdict.is_packaged
        else f"It took {verdict.wall_s:.0f} s."
    )
    yield f"{origin} For all tasks and seeds: {verdict.next_command}"


def _reference_line(verdict: FirstVerdict) -> str:
    if verdict.reference is None:
        return "There is no reference: no mechanism has all runs of these tasks."
    how = "as named" if verdict.is_reference_named else "the best of the same class"
    kind = "fixed" if verdict.has_fixed_state else "growing"
    return (
        f"Reference: {verdict.reference}, {how}; it keeps {verdict.reference_state} numbers per layer, "
        f"{verdict.mechanism} {verdict.state} ({kind} state)."
    )


def _table(verdict: FirstVerdict) -> list[str]:
    lines = [["category", "tasks", verdict.mechanism, verdict.reference or "reference", "best"]]
    for part in verdict.profile:
        texts = (NOTHING if score is None else fixed(score, 2) for score in (part.score, part.reference, part.best))
        mine, beside, best = texts
        lines.append([part.category, str(part.num_tasks), mine, beside, f"{best} {part.best_mechanism or ''}".rstrip()])
    return aligned(lines)


def _expectation(verdict: FirstVerdict) -> str:
    """Return the sentence on the score and rank expected in the full suite."""
    error = "" if verdict.combined_score_error is None else f" ± {fixed(verdict.combined_score_error, 3)}"
    expected = f"Expected in the full suite: {fixed(verdict.combined_score or 0.0, 3)}{error}"
    if verdict.rank is None:
        return f"{expected}."
    return (
        f"{expected}, rank {verdict.rank.value} of {verdict.num_ranked + 1} "
        f"({verdict.rank.ends} with {100 * RANK_CONFIDENCE:.0f} % confidence)."
    )


def _decision(verdict: FirstVerdict) -> Iterator[str]:
    if verdict.decision is None or verdict.p_better is None or verdict.p_worse is None:
        return
    if verdict.decision == "discard":
        after = f" after {len(verdict.tasks)} tasks" if verdict.is_hopeless else ""
        yield f"Discard{after}: p is {verdict.p_worse:.2g} for worse than {verdict.reference}."
        return
    yield (
        f"{verdict.decision.capitalize()}: p is {verdict.p_better:.2g} for better than {verdict.reference}; "
        f"query {verdict.query} of {verdict.ledger} keeps at {verdict.level:.2g} or less."
    )
    if verdict.p_fresh is not None:
        yield f"On a fresh seed p is {verdict.p_fresh:.2g}; {SIGNIFICANCE:g} or less confirms."
    elif verdict.decision == "undecided" and verdict.level is not None and verdict.p_better <= verdict.level:
        yield "There was no time to confirm it on a fresh seed; the same command with more --minutes does."
