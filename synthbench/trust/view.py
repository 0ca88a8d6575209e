"""Label result rows for the reports of a suite, including rows of other suites with equal training settings."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import pandas as pd

from synthbench.options import MAIN_SUITE
from synthbench.registry import version_of
from synthbench.reports.selection import protocol_of
from synthbench.suites import CONDITIONS, EXTRA, Suite, load_suite, suite_names
from synthbench.tasks import TASKS
from synthbench.training import identity
from synthbench.training.ladder import sized_in

_OF_MECHANISM = ("mech", "mech_version", "mech_args", "positions", "positions_version", "positions_args")
"""The parts of a configuration that a condition decides."""


def seen_from(rows: pd.DataFrame, suite: str) -> pd.DataFrame:
    """Prepare rows for the reports of a suite: add rows of other suites that fit the suite too, and label rows.

    :func:`as_listed`, :func:`also_of` and :func:`in_conditions` explain the steps. If the suite is not installed, the
    rows are returned unchanged.
    """
    if suite.removesuffix(EXTRA) not in suite_names():
        return rows
    rows = as_listed(rows, suite)
    also = also_of(rows, suite)
    shown = in_conditions(pd.concat([rows, also], ignore_index=True) if len(also) else rows, suite)
    merged = shown["task_category"].replace(load_suite(suite.removesuffix(EXTRA)).merged)
    return shown.assign(task_category=merged.where(shown["suite"] == suite, shown["task_category"]))


def also_of(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the rows of other suites that fit the given suite too, labelled as rows of the given suite.

    A row fits if it has the suite's protocol (settings of model, training and evaluation) and a task of the suite, with
    the same length, options and levels. Runs that the suite already has are left out. If ``name`` ends in ``.extra``,
    the rows that fit have the protocol of the suite without this suffix, and tasks that this suite does not list.
    """
    made = load_suite(name.removesuffix(EXTRA))
    may_agree = (rows["suite"] != name) & (rows["steps_planned"] == made.training.steps)
    may_agree &= ~rows["run_id"].isin(rows.loc[rows["suite"] == name, "run_id"])
    others = rows[may_agree & (rows["task"].isin(made.tasks) != name.endswith(EXTRA))]
    protocol = protocol_of(json.dumps(identity.of_suite(made) | identity.of_run(made, 0, None)))
    also = _of_its_size(others[others["config_json"].map(protocol_of) == protocol], made)
    return also.assign(suite=name, suite_version=made.version, is_full=True)


def as_listed(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Correct the suite name in a suite's rows: it gets the suffix ``.extra`` if the suite no longer lists the task.

    The suffix is removed if the suite now lists the task. Rows are left out if the suite has changed the length,
    options or levels of their task. Nothing changes unless the suite has the condition ``stock`` (layers as their
    authors build them) or ``bare`` (only the recurrence or the attention scores).
    """
    base = name.removesuffix(EXTRA)
    made = load_suite(base)
    if made.condition not in CONDITIONS:
        return rows
    is_of_suite = rows["suite"].isin([base, base + EXTRA]) & (rows["suite_version"] == made.version)
    installed = {name: version_of(TASKS[name]) for name in rows["task"].unique() if name in TASKS}
    may_differ = rows[is_of_suite & (rows["task_version"] == rows["task"].map(installed))]
    kept = rows.drop(may_differ.index.difference(_of_its_size(may_differ, made).index))
    today = kept["task"].isin(made.tasks).map({True: base, False: base + EXTRA})
    return kept.assign(suite=today.where(is_of_suite, kept["suite"]))


def _of_its_size(rows: pd.DataFrame, suite: Suite) -> pd.DataFrame:
    """Return the rows whose task has the same length and options as in a suite; on a ladder, the same levels."""
    names = [task for task in rows["task"].unique() if task in (suite.tasks if suite.ladder is None else TASKS)]
    sizes = {task: identity.task_options(suite, TASKS[task], *sized_in(suite, task, {})) for task in names}
    sizes = json.loads(json.dumps(sizes))
    options = rows["config_json"].map(lambda config: json.loads(config).get("task_args"))
    return rows[[given == sizes.get(task, given) for task, given in zip(rows["task"], options, strict=True)]]


def in_conditions(rows: pd.DataFrame, suite: str) -> pd.DataFrame:
    """Set three columns for the leaderboard in a suite's rows: ``condition``, ``sees_places`` and ``is_variant``.

    ``condition`` is ``stock`` for a layer as its authors build it, and ``bare`` for a layer of only the recurrence or
    the attention scores. An older row without a condition gets the condition that has the same configuration. A bare
    layer with rotary position encoding (``rope``) counts as ``bare`` too if it does not see absolute positions.

    ``sees_places`` is True if the layer sees absolute positions. It is null if this is unknown: the mechanism is not
    installed, or the row's configuration belongs to neither condition. ``is_variant`` is True if the row has neither
    condition. It is also True if the row's options differ from those of both conditions, unless the row is the user's
    own. For a suite without conditions, only ``is_variant`` is set: True for ``stock`` and ``bare`` rows whose layer is
    not that of the suite.
    """
    made = load_suite(suite.removesuffix(EXTRA))
    is_shown = rows["suite"] == suite
    shown = rows[is_shown if made.condition in CONDITIONS else is_shown & rows["condition"].isin(CONDITIONS)]
    if made.condition not in CONDITIONS:
        own = {name: {layer for layer, _ in _layer_of(made, name)} for name in shown["mech"].unique()}
        layers = zip(shown["mech"], shown["config_json"].map(_mechanism_in), strict=True)
        others = shown.index[[layer not in own[name] for name, layer in layers]]
        return rows.assign(is_variant=rows.index.isin(others))
    measured = recorded_layers() if made.name == MAIN_SUITE else {}
    of_name = {name: measured.get(name) or conditions_of(made, name) for name in shown["mech"].unique()}
    found = [
        of_name.get(name, {}).get(_mechanism_in(configuration), (condition, None))
        for name, configuration, condition in zip(shown["mech"], shown["config_json"], shown["condition"], strict=True)
    ]
    told = rows.assign(sees_places=None)
    told.loc[is_shown, "condition"] = [condition for condition, _ in found]
    told["sees_places"] = pd.Series([sees for _, sees in found], index=shown.index, dtype=object).reindex(rows.index)
    is_named = is_shown & told["sees_places"].notna()
    has_options = rows["mech"].isin(rows.loc[is_named, "mech"]) & ~is_named
    if "is_own" in rows:
        has_options &= ~rows["is_own"].astype(bool)
    return told.assign(is_variant=is_shown & (~told["condition"].isin(CONDITIONS) | has_options))


@cache
def recorded_layers() -> Mapping[str, Mapping[str, tuple[str, bool]]]:
    """Read stored results of :func:`conditions_of` for built-in mechanisms in the main suite, without PyTorch."""
    of_name: dict[str, dict[str, tuple[str, bool]]] = json.loads(
        resources.files(__package__).joinpath("layers.json").read_text()
    )
    return of_name


def conditions_of(
    suite: Suite, mechanism: str, known: Mapping[str, tuple[str, bool]] = MappingProxyType({})
) -> dict[str, tuple[str, bool]]:
    """Return the configurations that a mechanism's layer has in a suite under the conditions ``stock`` and ``bare``.

    A ``stock`` layer is as its authors build it; a ``bare`` layer is only the recurrence or the attention scores. The
    result maps each configuration to a pair: the condition, and True if the layer sees absolute positions. The second
    value is taken from ``known`` if possible, and is measured otherwise.
    """
    from synthbench.contract.places import sees_places  # noqa: PLC0415 - PyTorch
    from synthbench.mechanisms import MECHANISMS, Attention  # noqa: PLC0415 - PyTorch
    from synthbench.runner.plan import with_block_and_positions  # noqa: PLC0415 - PyTorch

    if mechanism not in MECHANISMS:
        return {}
    unit = MECHANISMS[mechanism]
    found: dict[str, tuple[str, bool]] = {}
    turned = [("bare", "rope")] if issubclass(unit, Attention) and not unit.rotation_note else []
    # A layer that is the same in both conditions is called stock.
    for condition, positions in (*((name, None) for name in CONDITIONS), *turned):
        among = with_block_and_positions(suite, block=None, positions=positions, condition=condition)
        for layer, options in _layer_of(among, mechanism):
            sees = known[layer][1] if layer in known else sees_places(unit, options, positions)
            if positions is None or not sees:
                found.setdefault(layer, (condition, sees))
    return found


def _layer_of(suite: Suite, mechanism: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the configuration and options of a mechanism in a suite; nothing if the mechanism is not installed."""
    from synthbench.mechanisms import MECHANISMS  # noqa: PLC0415 - PyTorch
    from synthbench.runner.plan import make_cells  # noqa: PLC0415 - PyTorch

    if mechanism in MECHANISMS:
        tasks: dict[str, dict[str, str]] = {next(iter(suite.tasks)): {}}
        (cell,) = make_cells(suite, tasks, {mechanism: {}}, device_type="cpu", is_full=True)
        yield _mechanism_in(json.dumps(cell.identity)), cell.mechanism_arguments


def _mechanism_in(config: str) -> str:
    given: Mapping[str, Any] = json.loads(config)
    return json.dumps({name: given.get(name) for name in _OF_MECHANISM}, sort_keys=True)
