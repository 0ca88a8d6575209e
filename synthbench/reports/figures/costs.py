"""Skill against what it takes: the state of a layer, training time, parameters."""

import math
from collections.abc import Callable, Mapping

from synthbench.reports.devices import run_seconds
from synthbench.reports.figures.drawing import DOUBLE, SINGLE, Drawing
from synthbench.reports.figures.facts import Facts
from synthbench.reports.figures.scatter import Point, draw_scatter
from synthbench.reports.grid import Key, Row, mechanism_key
from synthbench.reports.leaderboard import Entry


def skill_state(facts: Facts) -> Drawing | None:
    """Skill against the numbers that one layer keeps; None if the ranked mechanisms do not differ there."""
    return _drawing(
        facts,
        name="skill-state",
        title="Skill against state size",
        words="State: numbers that one layer keeps after a whole sequence, the largest over the tasks.",
        costs={"state": ("state of a layer, numbers", lambda entry: entry.mechanism.state)},
        width=SINGLE,
    )


def cost(facts: Facts) -> Drawing | None:
    """Skill against training time and parameters; None if the ranked mechanisms do not differ in either."""
    rows_of: dict[Key, list[Row]] = {}
    for row in facts.records:
        rows_of.setdefault(mechanism_key(row), []).append(row)
    by_device = {key: run_seconds(rows) for key, rows in rows_of.items()}
    devices = sorted({device for seconds in by_device.values() for device in seconds})

    def seconds_of(entry: Entry) -> float:
        seconds = by_device[entry.mechanism.key]
        return seconds.get(devices[0], math.nan) if len(devices) == 1 else math.nan

    return _drawing(
        facts,
        name="cost",
        title="Skill against cost",
        words=(
            "Training: wall clock of a job over the runs that it trained together, the median over tasks and seeds, on "
            f"{' and '.join(devices)}; times on several devices do not compare and are left out, as is a cost that is "
            "the same for all. Parameters: of the mechanisms of all layers."
        ),
        costs={
            "seconds": ("training of a run, s", seconds_of),
            "parameters": ("parameters", lambda entry: entry.mechanism.num_parameters),
        },
        width=DOUBLE,
    )


def _drawing(
    facts: Facts,
    *,
    name: str,
    title: str,
    words: str,
    costs: Mapping[str, tuple[str, Callable[[Entry], float]]],
    width: float,
) -> Drawing | None:
    """A scatter of the costs in which the ranked mechanisms differ."""
    entries = facts.board.entries if facts.board else ()
    telling = {
        key: (axis, cost_of)
        for key, (axis, cost_of) in costs.items()
        if len({cost for entry in entries if not math.isnan(cost := cost_of(entry))}) > 1
    }
    points = [
        Point(entry.mechanism.label, entry.mechanism.family, entry.middle, found)
        for entry in entries
        if not all(map(math.isnan, found := tuple(cost_of(entry) for _axis, cost_of in telling.values())))
    ]
    if not points:
        return None
    axes = [axis for axis, _cost_of in telling.values()]
    return Drawing(
        name=name,
        title=title,
        caption=(
            "Skill: interquartile mean of all runs, with its 95 % interval over resampled seeds. Shapes and colours: "
            f"families. {words}"
        ),
        header=("mechanism", "family", *telling, "skill", "low", "high"),
        lines=tuple((point.label, point.family, *point.costs, *point.skill) for point in points),
        draw=lambda: draw_scatter(points, axes, width if len(axes) == len(costs) else SINGLE),
    )
