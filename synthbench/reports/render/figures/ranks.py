"""The rank of every mechanism with its interval."""

from matplotlib.figure import Figure

from synthbench.reports.leaderboard import Entry
from synthbench.reports.render.figures.drawing import DARK, SINGLE, SMALL, Drawing, place, shown, strokes, widest
from synthbench.reports.render.figures.facts import Facts

_PITCH = 0.115
"""Inches from line to line."""


def ranks(facts: Facts) -> Drawing | None:
    """The drawing; None if fewer than two mechanisms are ranked."""
    entries = facts.board.entries if facts.board else ()
    if len(entries) < 2:
        return None
    return Drawing(
        name="ranks",
        title="Ranks",
        caption=(
            "Rank by mean skill over the tasks, with 95 % intervals that hold for all mechanisms at once, for tasks "
            "like these. Two mechanisms with overlapping intervals may well change places."
        ),
        header=("mechanism", "rank", "low", "high"),
        lines=tuple((entry.mechanism.label, *entry.rank) for entry in entries),
        draw=lambda: _draw(entries),
    )


def _draw(entries: tuple[Entry, ...]) -> Figure:
    labels = [shown(entry.mechanism.label) for entry in entries]
    left, height = widest(labels) + 0.1, _PITCH * len(entries)
    figure = Figure(figsize=(SINGLE, 0.34 + height + 0.06))
    axis = place(figure, left, 0.34, SINGLE - left - 0.1, height)
    axis.grid(axis="x", color="#E6E6E6", linewidth=0.4)
    ranks = [entry.rank for entry in entries]
    starts = [(float(rank.low), float(line)) for line, rank in enumerate(ranks)]
    ends = [(float(rank.high), float(line)) for line, rank in enumerate(ranks)]
    strokes(axis, starts, ends, color=DARK, linewidth=1.1, solid_capstyle="butt")
    axis.plot(
        [rank.value for rank in ranks], range(len(ranks)), marker="o", color="#D55E00", markersize=3, linestyle=""
    )
    axis.set_yticks(range(len(entries)), labels)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_ylim(len(entries) - 0.5, -0.5)
    axis.set_xlim(0.5, len(entries) + 0.5)
    step = 1 if len(entries) <= 12 else 5 if len(entries) <= 60 else 10 * -(-len(entries) // 100)
    # The first rank and round ones.
    axis.set_xticks([1, *(rank for rank in range(step, len(entries) + 1, step) if rank > 1)])
    axis.set_xlabel("rank", size=SMALL, labelpad=1)
    return figure
