"""Reports on the measurements of a device: tables in Markdown and CSV, and figures with their numbers.

A report depends only on the rows: the same rows give the same bytes.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from synthbench.bench import fidelity, forms, scaling, suite
from synthbench.bench.rows import SHOWN_AS, Row, load
from synthbench.errors import StoreError
from synthbench.options import RUN_SUITE
from synthbench.reports.render.figures.drawing import COMPACT, DOUBLE, SINGLE, Drawing, files_of, looks, shown
from synthbench.reports.render.markdown import escape, plain_table
from synthbench.reports.render.spreadsheet import csv_text
from synthbench.suites import load_suite

MOST_CURVES = 7
"""Limit on the curves of a figure: the number of colours."""
NUMBERS = (
    ("median_ms", "milliseconds", 1.0),
    ("peak_bytes", "MiB", 2.0**-20),
    ("tokens_per_s", "tokens per second", 1.0),
)
"""Quantities in the figures of scaling, each as column, label and factor."""

Facts = Sequence[Mapping[str, Any]]


class Panel(NamedTuple):
    """One plot: a column of the rows against another column, with one curve per group of rows."""

    title: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    """Points (x, y) of each curve, by its label."""
    x_label: str
    y_label: str


def devices(folder: Path) -> list[Path]:
    """List the subfolders of a folder that contain rows of measurements, in alphabetical order.

    Raises:
        StoreError: If no subfolder contains rows.
    """
    folders = sorted({file.parent for name in _SECTIONS for file in folder.glob(f"*/{name}.parquet")})
    if not folders:
        raise StoreError(f"no rows in {str(folder)!r}; allowed: a folder with a folder of rows for each device")
    return folders


def build(folder: Path, *, has_figures: bool = True) -> dict[str, str | bytes]:
    """Build a report on the tables in a folder, such as ``scaling.parquet``; return file contents by file name."""
    tables = {name: load(folder / f"{name}.parquet") for name in _SECTIONS if (folder / f"{name}.parquet").exists()}
    names = sorted({row["device_name"] for rows in tables.values() for row in rows})
    blocks = [f"# {escape(', '.join(names))}"]
    files: dict[str, str | bytes] = {}
    for name, rows in tables.items():
        text, drawings = _SECTIONS[name](rows)
        blocks += [*text, _about(rows, f"{name}.csv")]
        files[f"{name}.csv"] = csv_text(list(rows[0]), [list(row.values()) for row in rows])
        for drawing in drawings if has_figures else ():
            blocks += [f"![{escape(drawing.title)}](figures/{drawing.name}.svg)", escape(drawing.caption)]
            files |= files_of(drawing)
    return {"README.md": "\n\n".join(blocks) + "\n", **files}


def _about(rows: Sequence[Row], file: str) -> str:
    """Describe the rows: their file and number, and the dates and software of the measurements."""
    versions = sorted({f"torch {row['torch']}, synthbench {row['synthbench_version']}" for row in rows})
    days = sorted({row["measured_at"][:10] for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"Rows: [{file}]({file}), {len(rows)} of them, measured {span} with {escape('; '.join(versions))}."


def _scaling(rows: Sequence[Row]) -> tuple[list[str], list[Drawing]]:
    blocks: list[str] = ["## Scaling"]
    drawings: list[Drawing] = []
    for (dtype, batch_size), group in _grouped(rows, "dtype", "batch_size"):
        # After the longest measured length: why the next length failed, such as ``oom`` (out of memory).
        facts = [
            fact if fact["ended"] == "ok" else {**fact, "longest": f"{fact['longest']} ({fact['ended']})"}
            for fact in scaling.summary(group)
        ]
        if not facts:
            continue
        blocks += [
            f"### {escape(dtype)}, batch {batch_size}",
            (
                "8 heads of 32. The longest length that was measured, the cost at this length, and the powers of the "
                f"length with which time and memory grow, fitted over the last factor of {scaling.FITTED_SPAN}. The "
                f"fit uses only lengths on the same side of {scaling.ONE_PIECE:,}: up to this length, mechanisms may "
                "attend in one piece, and their cost grows differently. In brackets: why the next length failed."
            ),
            _markdown(_side_by_side(facts, ("mechanism", "form"), "direction", _OF_SCALING)),
        ]
        if ratios := scaling.against_naive(group):
            blocks += [
                (
                    "How many times faster a mechanism attends than it does in its naive form, by length, and its "
                    "share of that form's memory at the longest. Naive is the published form, or scores that are all "
                    "written out."
                ),
                _markdown(ratios),
            ]
        for direction in forms.DIRECTIONS:
            measured = [row for row in group if row["direction"] == direction and row["status"] == "ok"]
            suffix = f"{direction.replace('+', '-')}-{dtype}-batch-{batch_size}"
            drawn = [_of_forms(measured, name, direction, suffix) for name in ("slay", "linear", "yat-spherical")]
            drawings += filter(None, [_of_mechanisms(measured, direction, suffix), *drawn])
    return blocks, drawings


def _of_mechanisms(rows: Sequence[Row], direction: str, suffix: str) -> Drawing | None:
    """Draw the cost of one layer against the length, for each mechanism of the suite ``RUN_SUITE``."""
    title = f"Cost of a layer against the length, {direction}"
    caption = "Width 256, 8 heads, with projections; both axes are logarithmic."
    curves = {name: (name, "layer") for name in load_suite(RUN_SUITE).mechanisms}
    return _drawing(rows, curves, f"layers-{suffix}", title, caption)


def _of_forms(rows: Sequence[Row], mechanism: str, direction: str, suffix: str) -> Drawing | None:
    """Draw the cost of one mechanism's attention, with a curve for each form (way to compute it)."""
    caption = "8 heads of 32, from queries, keys and values to the outputs of the heads."
    curves = {form: (mechanism, form) for form in forms.FORMS if form not in ("layer", "attend")}
    return _drawing(rows, curves, f"forms-{mechanism}-{suffix}", f"Forms of {mechanism}, {direction}", caption)


def _drawing(
    rows: Sequence[Row], curves: Mapping[str, tuple[str, str]], name: str, title: str, caption: str
) -> Drawing | None:
    """Draw time, memory and speed against the length, with a curve for each selected mechanism and form."""
    chosen = {label: [row for row in rows if (row["mechanism"], row["form"]) == of] for label, of in curves.items()}
    ordered = {label: sorted(found, key=lambda row: row["length"]) for label, found in chosen.items() if found}
    if not ordered:
        return None
    panels = [_panel(label, ordered, "length", column, label, factor) for column, label, factor in NUMBERS]
    return _drawing_of(panels, name, title, caption)


def _panel(title: str, curves: Mapping[str, Sequence[Row]], x: str, y: str, y_label: str, factor: float = 1.0) -> Panel:
    """Plot the column ``y``, times ``factor``, against the column ``x``; leave out curves beyond ``MOST_CURVES``."""
    points = {
        label: [(float(row[x]), factor * row[y]) for row in rows]
        for label, rows in itertools.islice(curves.items(), MOST_CURVES)
    }
    return Panel(title, points, x, y_label)


def _drawing_of(panels: Sequence[Panel], name: str, title: str, caption: str) -> Drawing:
    lines = tuple(
        (panel.title, label, *point) for panel in panels for label, points in panel.curves.items() for point in points
    )
    return Drawing(name, title, caption, ("panel", "curve", "x", "y"), lines, lambda: _draw(panels))


def _draw(panels: Sequence[Panel]) -> Figure:
    """Draw panels side by side, with one legend below; both axes are logarithmic."""
    look = looks(list(dict.fromkeys(label for panel in panels for label in panel.curves)))
    figure = Figure(figsize=(SINGLE if len(panels) == 1 else DOUBLE, 2.2), layout="constrained")
    handles = {}
    for index, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), index)
        axes.set_title(shown(panel.title), pad=3, loc="left")
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label, yscale="log")
        axes.set_xscale("log", base=2)
        for side in (axes.xaxis, axes.yaxis):
            side.set_major_formatter(COMPACT)
            side.set_minor_locator(NullLocator())
        for label, points in panel.curves.items():
            colour, dashes, marker = look[label]
            (handles[shown(label)],) = axes.plot(
                *zip(*points, strict=True), color=colour, linestyle=dashes, marker=marker, markersize=2.5
            )
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=MOST_CURVES)
    return figure


def _fidelity(rows: Sequence[Row]) -> tuple[list[str], list[Drawing]]:
    blocks = [
        "## Fidelity",
        (
            "Relative L2 error of a layer's outputs against the exact spherical Yat kernel: mean over seeds ± standard "
            "deviation. An estimator is useful only if its error is below that of the running mean (`mean`), which "
            "ignores queries and keys."
        ),
    ]
    for (bias,), group in _grouped(rows, "bias"):
        blocks.append(f"### Projections {'with' if bias else 'without'} biases")
        by_budget: dict[str, list[dict[str, Any]]] = {}
        for fact in fidelity.summary(group):
            spread = "" if fact["rel_l2_std"] is None else f" ± {_cell(fact['rel_l2_std'])}"
            by_budget.setdefault(fact["budget"], []).append(fact | {"error": f"{_cell(fact['rel_l2'])}{spread}"})
        tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for facts in by_budget.values():
            tables.setdefault(tuple(fact["estimator"] for fact in facts), []).extend(facts)
        for estimators, facts in tables.items():
            num_budgets = len(facts) // len(estimators)
            line, column = ("estimator", "budget") if len(estimators) > num_budgets else ("budget", "estimator")
            blocks.append(_markdown(_side_by_side(facts, (line,), column, ("error",))))
    return blocks, []


def _context(rows: Sequence[Row]) -> tuple[list[str], list[Drawing]]:
    about = "The longest sequence that fits in the given memory, to within a 16th, and what stopped the search there."
    given = ("mechanism", "gigabytes", "batch_size", "dtype", "tried_to", "max_seconds")
    return ["## Context", about, _markdown(_side_by_side(rows, given, "direction", ("length", "ended")))], []


def _suite(rows: Sequence[Row]) -> tuple[list[str], list[Drawing]]:
    about = f"Run-steps a second of the task model, batch as in the suite `{RUN_SUITE}`; ratios of one run."
    facts = [{SHOWN_AS.get(name, name): row[name] for name in suite.SHOWN} for row in rows]
    blocks, drawings = ["## Training steps", about, _markdown(facts)], []
    for (length,), group in _grouped([row for row in rows if row["rates"] == 1], "length"):
        by_mechanism = {
            key: sorted(part, key=lambda row: row["members"]) for (key,), part in _grouped(group, "mechanism")
        }
        if max(map(len, by_mechanism.values())) < 2:
            continue
        panels = []
        for way in ("batched", "captured"):
            timed = {name: [row for row in part if row[way]] for name, part in by_mechanism.items()}
            if any(timed.values()):
                panels.append(_panel(way, timed, "members", way, "run-steps per second")._replace(x_label="runs"))
        title = f"Training at length {length} against the runs of a program"
        caption = "Batched: launched step by step. Captured: replayed from a CUDA graph."
        drawings.append(_drawing_of(panels, f"runs-{length}", title, caption))
    return blocks, drawings


_SECTIONS: Mapping[str, Callable[[Sequence[Row]], tuple[list[str], list[Drawing]]]] = {
    "scaling": _scaling,
    "fidelity": _fidelity,
    "context": _context,
    "suite": _suite,
}


def _grouped(rows: Sequence[Row], *columns: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    """Group rows by the values of some columns, and sort the groups by these values."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[column] for column in columns)

    return [(values, list(group)) for values, group in itertools.groupby(sorted(rows, key=key), key=key)]


_OF_SCALING = ("longest", "ms", "peak_mb", "time_exponent", "memory_exponent")


def _side_by_side(facts: Facts, names: Sequence[str], across: str, shown: Sequence[str]) -> Facts:
    """Join all facts that agree on the columns ``names`` into one line of a table.

    The line has a column for each name in ``shown`` at each value of ``across``.
    """
    columns = [f"{name}, {value}" for name in shown for value in dict.fromkeys(fact[across] for fact in facts)]
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for fact in facts:
        key = tuple(fact[name] for name in names)
        line = lines.setdefault(key, dict(zip(names, key, strict=True)) | dict.fromkeys(columns))
        line |= {f"{name}, {fact[across]}": fact[name] for name in shown}
    return list(lines.values())


def _markdown(facts: Facts) -> str:
    """Write a table in Markdown; a column with the same value on every line is stated only once, below the table.

    If all values of a column are missing, the column is omitted. The first column always stays in the table.
    """
    first, *others = list(facts[0])
    shared = {name for name in others if len(facts) > 1 and all(fact[name] == facts[0][name] for fact in facts)}
    header = [first, *(name for name in others if name not in shared)]
    stated = [
        f"{escape(name)} = {_cell(facts[0][name])}" for name in others if name in shared and facts[0][name] is not None
    ]
    lines = [[_cell(fact[name]) for name in header] for fact in facts]
    is_number = [any(isinstance(fact[name], int | float) for fact in facts) for name in header]
    table = plain_table(lines, list(map(escape, header)), ["right" if number else "left" for number in is_number])
    return "\n\n".join([table, *([f"On every line: {'; '.join(stated)}."] if stated else [])])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else escape(str(value))
