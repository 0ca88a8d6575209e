"""Skill against what it takes: the state of a layer, training time, parameters."""

import math
from collections.abc import Callable, Mapping

import pandas as pd

from synthbench.reports.figures.drawing import DOUBLE, SINGLE, Drawing
from synthbench.reports.figures.facts import Facts
from synthbench.reports.figures.scatter import Point, draw_scatter
from synthbench.reports.leaderboard import Entry
from synthbench.reports.statistics import Key, mechanism_key


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
    seconds = _seconds(facts.rows)
    devices = sorted({f"{row['device_name']} ({row['device_type']})" for row in facts.rows.to_dict("records")})
    return _drawing(
        facts,
        name="cost",
        title="Skill against cost",
        words=(
            "Training: wall clock of a job over the runs that it trained together, the mean over tasks and seeds, on "
            f"{' and '.join(devices)}. Parameters: of the mechanisms of all layers. A cost that is the same for all "
            "is left out."
        ),
        costs={
            "seconds": ("training of a run, s", lambda entry: seconds.get(entry.mechanism.key, math.nan)),
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


def _seconds(rows: pd.DataFrame) -> dict[Key, float]:
    """Mean training seconds of a run by mechanism; of those that ended well."""
    finished = rows[rows["status"] == "ok"].sort_values("run_id")
    seconds: dict[Key, list[float]] = {}
    for row in finished.to_dict("records"):
        if not pd.isna(row["train_s"]):
            seconds.setdefault(mechanism_key(row), []).append(row["train_s"] / row["ensemble_size"])
    return {key: sum(values) / len(values) for key, values in seconds.items()}
