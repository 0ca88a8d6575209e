"""The contents of a report, before they are written to files."""

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from synthbench import sources
from synthbench.reports.bits import bits_tables, bits_verdict
from synthbench.reports.cells import Cells, Key, Row, grid, mechanism_key
from synthbench.reports.leaderboard import Leaderboard, leaderboard, leaderboard_tables
from synthbench.reports.selection import Selection
from synthbench.reports.separation import separation_table, summary
from synthbench.reports.table import Table, beyond_table, category_averages, load_table, score_table, steps_table
from synthbench.reports.variants import (
    Change,
    Variant,
    changes_of,
    conditions_of,
    conditions_table,
    summary_of,
    variant_tables,
    variants_of,
)
from synthbench.reports.verdicts import Verdicts, judge
from synthbench.results import PACKAGED

if TYPE_CHECKING:
    from synthbench.reports.render.figures import Drawing

RESERVED = (
    *("averages", "beyond", "bits", "full", "leaderboard", "readme", "separation"),
    *("steps_to_threshold", "variants"),
)
"""File name stems of pages and of the README; a category of the same name gets another stem."""

_OF_SETTING = ("d_model", "n_layers", "steps_planned", "batch_size", "seq_len")
_LAYERS = {
    "stock": " Layers are built as published (condition “stock”); “bare” layers lack convolutions and most gates.",
    "bare": " The layers are bare, that is, without convolutions and most gates.",
}
"""Conditions of layers in words, by their names in rows."""


def _span(values: "pd.Series[int]") -> str:
    """Format whole numbers as their range, or as one number if all are equal: ``64 to 128``, ``48``."""
    return " to ".join(dict.fromkeys(f"{end:,}" for end in (values.min(), values.max())))


class Token(NamedTuple):
    """An input token, and the target to predict at its position."""

    input: int
    target: int | None
    """The target; None if nothing is scored here."""


@dataclass(frozen=True)
class Example:
    """An example sequence of a task; if it is long, only its beginning and its end are shown."""

    pieces: tuple[tuple[Token, ...], ...]
    num_hidden: int
    """Number of tokens between the beginning and the end, which are not shown."""
    length: int
    vocab_size: int
    is_bottleneck: bool
    """True if all answers are read from the last position."""


class Description(NamedTuple):
    """A description of a task for reports, made from the task's code.

    It is made only if the installed version of the task is the version in the rows (results of runs).
    """

    summary: str
    """First sentences of its documentation."""
    not_tested: str
    """Abilities that a high score does not show; may be empty."""
    example: Example | None


Describe = Callable[[str, str, str], Description | None]
"""Function that describes a task, given its name, version and arguments (JSON) as in a row."""


class Page(NamedTuple):
    """One page of a report: a Markdown and a LaTeX file with the same tables."""

    title: str
    tables: tuple[Table, ...]
    introduction: str = ""


@dataclass(frozen=True)
class Report:
    """The contents of one report, computed once for all its files."""

    selection: Selection
    curves: pd.DataFrame | None
    """Learning curves; curves of runs outside the report are ignored. None: no curves are shown."""
    origins: "pd.Series[str] | None" = None
    """Name of the store of each row, indexed by ``run_id``; None if all rows are from one store."""
    describe: Describe | None = None
    """Function that describes a task from its code, for the page. None: no descriptions are shown."""

    @cached_property
    def cells(self) -> Cells:
        """The cells (task × mechanism) of the report.

        Tasks scored in bits per token are left out, unless all tasks are scored in bits.
        """
        others = [task for task in self.all_cells.tasks if not task.is_in_bits]
        return self.all_cells if len(others) in (0, len(self.all_cells.tasks)) else self.all_cells.among(others)

    @cached_property
    def all_cells(self) -> Cells:
        """The cells (task × mechanism) of all rows, including the rows of tasks scored in bits per token."""
        return grid(self.selection.rows)

    @cached_property
    def records(self) -> list[Row]:
        """The selected rows (one per run), the oldest first, as mappings from column to value."""
        rows = (row for cell in self.all_cells.estimates.values() for row in cell.rows)
        return sorted(rows, key=itemgetter("finished_at", "run_id"))

    @cached_property
    def stores(self) -> dict[str, int]:
        """Number of rows shown from each store, by the store's name; empty if all are from the user's own store."""
        if self.origins is None:
            return {}
        shown = self.origins.loc[self.selection.rows["run_id"]].value_counts()
        stores = {str(name): int(shown.get(name, 0)) for name in self.origins.unique()}
        if stores.get(PACKAGED) == 0:
            del stores[PACKAGED]
        return stores if len(stores) > 1 or PACKAGED in stores else {}

    @cached_property
    def averages(self) -> pd.DataFrame | None:
        """Learning curves averaged over seeds; None if no curves are shown."""
        return None if self.curves is None else mean_curves(self.cells, self.curves)

    @cached_property
    def board(self) -> Leaderboard | None:
        """The ranking of the mechanisms; None if all tasks are scored in bits per token."""
        return None if self.cells.is_apart else leaderboard(self.cells)

    @cached_property
    def own(self) -> frozenset[Key]:
        """Keys of the user's mechanisms, which tables list first: those with rows that do not come with synthbench.

        The set is empty if the report shows no rows that come with synthbench.
        """
        if self.origins is None or PACKAGED not in self.stores:
            return frozenset()
        rows = [row for row in self.records if self.origins[row["run_id"]] != PACKAGED]
        return frozenset(map(mechanism_key, rows))

    @cached_property
    def setting(self) -> str:
        """The training setup of the models, in a few sentences."""
        rows = self.selection.rows
        if not set(_OF_SETTING) <= set(rows.columns):
            return ""
        width, layers, steps, batch, _ = (_span(rows[name]) for name in _OF_SETTING)
        rates = " or ".join(f"{rate:g}" for rate in sorted(rows["lr"].dropna().unique()))
        chosen = " (chosen by validation)" if " or " in rates else ""
        found = sorted(set(rows.get("condition", pd.Series(dtype=str)).dropna()), reverse=True)
        compared = _LAYERS.get(found[0], "") if found else ""
        return (
            f"Each model has width {width} and {layers} layers, and trains on one task for {steps} steps of {batch} "
            f"sequences of up to {rows['seq_len'].max()} tokens, at learning rate {rates}{chosen}. So scores show what "
            f"is learned with this budget; the mechanisms differ in their numbers of parameters and the sizes "
            f"of their states.{compared}"
        )

    @cached_property
    def variants(self) -> list[Variant]:
        """Variants of mechanisms, each together with the main setting of the same mechanism.

        A variant is another setting (such as other options) that was run on only some of the main setting's tasks.
        """
        rows = self.selection.variants
        return variants_of(self.cells, grid(rows)) if len(rows) else []

    @cached_property
    def conditions(self) -> list[Variant]:
        """Pairs of a mechanism's stock layer and its bare layer.

        A stock layer is as published. A bare layer lacks convolutions and most gates.
        """
        return conditions_of(self.cells)

    @cached_property
    def changes(self) -> list[Change]:
        """Changes of a setting, such as a smaller state, that were tried on several mechanisms.

        The change from stock layers (as published) to bare layers (without convolutions and most gates) is included
        too, but only for mechanisms whose two layers differ in a single respect.
        """
        # Most stock layers lose several parts, or a convolution and its state: no single factor.
        single = (pair for pair in self.conditions if len(pair.differences) == 1 and not pair.is_of_another_size)
        return changes_of([*self.variants, *single])

    @cached_property
    def between_conditions(self) -> list[Table]:
        """A list with one table that compares the stock layer of each mechanism with its bare layer.

        A stock layer is built as published. A bare layer lacks convolutions and most gates. The list is empty if no
        mechanism was run with both layers.
        """
        pairs = self.conditions
        return [conditions_table(pairs, self.board.prior)] if pairs and self.board else []

    @cached_property
    def verdicts(self) -> Verdicts:
        """The verdict on each task: which mechanisms differ significantly."""
        return judge(self.cells)

    @cached_property
    def verdict(self) -> str:
        """The outcome of the report in lines: which mechanisms are the best, and on how many tasks they differ."""
        of_skill = [self.board.verdict(), summary(self.verdicts)] if self.board else []
        return "\n".join([*of_skill, *(page.introduction for page in self.pages_apart.values())])

    @cached_property
    def pages_apart(self) -> dict[str, Page]:
        """The pages on tasks scored in bits per token, by file name without suffix."""
        cells = self.all_cells
        in_bits = cells.among([task for task in cells.tasks if task.is_in_bits])
        if not in_bits.tasks:
            return {}
        return {"bits": Page("Bits per token", bits_tables(in_bits), bits_verdict(in_bits))}

    @cached_property
    def pages(self) -> dict[str, Page]:
        """The pages for Markdown and LaTeX, by file name without suffix."""
        return self.pages_apart if self.cells.is_apart else self.pages_apart | _tables_of_skill(self)

    @cached_property
    def drawings(self) -> "list[Drawing]":
        """The figures for which the rows have data."""
        from synthbench.reports.render.figures import drawings  # noqa: PLC0415 - only here matplotlib is needed

        # Figures compare accuracies and skills of mechanisms in models.
        return [] if self.cells.is_apart else drawings(self)

    @cached_property
    def cited(self) -> tuple[str, list[str]]:
        """BibTeX entries of all sources of the tables, and the keys of the sources without an entry."""
        return cite(key for page in self.pages.values() for table in page.tables for key in table.sources)


def _tables_of_skill(report: Report) -> dict[str, Page]:
    """Make the pages on tasks that are scored by accuracy or over levels, not in bits, by file name without suffix."""
    cells, verdicts = report.cells, report.verdicts
    pages: dict[str, Page] = {}
    for category in cells.categories:
        tables = _score_tables(report, category)
        outcome = summary({task.key: verdicts[task.key] for task in cells.tasks_of(category)})
        pages[stem_of(category, pages, RESERVED)] = Page(tables[0].title, tables, outcome)
    tables = _score_tables(report)
    pages["full"] = Page(tables[0].title, tables, report.verdict)
    if not cells.has_ladder:  # on a ladder, the leaderboard has the means of the categories
        averages = category_averages(cells)
        pages[averages.name] = Page(averages.title, (averages,), averages.outcome)
    separation = separation_table(cells, verdicts)
    pages[separation.name] = Page(separation.title, (separation,), summary(verdicts))
    if report.board is not None:
        tables = (*leaderboard_tables(report.board, report.own), *report.between_conditions)
        pages["leaderboard"] = Page("Leaderboard", tables, report.board.verdict())
    for extra in (steps_table(cells), beyond_table(cells)):
        if extra is not None:
            pages[extra.name] = Page(extra.title, (extra,), extra.outcome)
    if report.variants:
        pages["variants"] = Page(
            "Variants",
            tuple(variant_tables(report.variants, report.changes)),
            summary_of(report.variants, report.changes),
        )
    return pages


def _score_tables(report: Report, category: str | None = None) -> tuple[Table, ...]:
    """Tabulate scores on the tasks of one category; None means all tasks.

    If tasks have levels, a table of capacities (loads at half skill) follows.
    """
    table = score_table(report.cells, report.verdicts, category)
    return (table, load_table(report.cells, category)) if report.cells.has_ladder else (table,)


def stem_of(category: str, taken: Container[str], reserved: Container[str] = ()) -> str:
    """Make a safe file name, without suffix, for the page of a category.

    The name is never a path, and neither in ``reserved`` nor in ``taken``.
    """
    plain = re.sub(r"[^a-z0-9_-]+", "-", category.lower()).strip("-")[:64] or "category"
    stem = f"category-{plain}" if plain in reserved else plain
    number = 2
    while stem in taken:
        stem = f"{plain}-{number}"
        number += 1
    return stem


def cite(keys: Iterable[str]) -> tuple[str, list[str]]:
    """Return BibTeX entries of the sources with these keys, and the sorted keys that have no entry.

    The source of a plugin's component may have no entry.
    """
    all_keys = set(keys)
    known = {key for key in all_keys if sources.describe(key) != key}
    return sources.bibtex(known), sorted(all_keys - known)


def mean_curves(cells: Cells, curves: pd.DataFrame) -> pd.DataFrame:
    """Average the learning curves of each mechanism on each task over seeds.

    If a run stopped early, its curve is continued with its last value, up to the last step of the longest run. So runs
    that stop because they have learned the task still count in the mean at later steps.

    Args:
        cells: The cells of a report.
        curves: Learning curves, one row per point, with columns run_id, step, split, metric and value. Runs outside the
            report are ignored.

    Returns:
        One row per task, mechanism, split, metric and step, in the order of the report. Columns mean and std (the
        sample standard deviation) are in the metric's own unit; n counts the seeds that have a value at this step or an
        earlier one.
    """
    owners = pd.DataFrame(
        [
            (row["run_id"], row["seed"], task_rank, mechanism_rank)
            for task_rank, task in enumerate(cells.tasks)
            for mechanism_rank, cell in enumerate(cells.cells_of(task))
            for row in cell.rows
            if row["status"] == "ok"
        ],
        columns=["run_id", "seed", "task", "mechanism"],
    )
    curve = ["task", "mechanism", "split", "metric"]
    known = curves[curves["run_id"].isin(owners["run_id"])]
    points = known.astype({"run_id": str, "split": str, "metric": str, "value": "float64"}).merge(owners, on="run_id")
    of_runs = points.pivot_table(index=[*curve, "step"], columns="seed", values="value", aggfunc="last")
    filled = of_runs.groupby(level=curve).ffill()
    averages = pd.DataFrame({"mean": filled.mean(axis=1), "std": filled.std(axis=1), "n": filled.count(axis=1)})
    averages = averages.reset_index()
    averages["task"] = [cells.tasks[rank].label for rank in averages["task"]]
    averages["mechanism"] = [cells.mechanisms[rank].label for rank in averages["mechanism"]]
    return averages
