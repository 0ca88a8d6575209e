"""Submissions: all result rows of some mechanisms in a suite, and what is needed to run them again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from synthbench import plugins
from synthbench.blocks import BLOCKS
from synthbench.contract.checks import first_failure
from synthbench.contract.components import examine
from synthbench.contract.isolated import IsolatedProcess
from synthbench.errors import StoreError, UnknownName, UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.options import registered, require_current, split_terms
from synthbench.plugins import origin_of
from synthbench.positions import POSITIONS
from synthbench.registry import Registry
from synthbench.results import Store
from synthbench.results.store import curves_of, only
from synthbench.runner.environment import resolve_device
from synthbench.runner.plan import Plan, plan_request, select_components
from synthbench.runner.request import Request
from synthbench.runner.run import foreign_components
from synthbench.suites import load_suite, suite_names
from synthbench.training.ladder_scores import USED, with_committed_baselines
from synthbench.trust.audit import digest
from synthbench.trust.bundle import PLUGIN_FILE, Manifest, environment_of, faults_of_bundle, opened, pack, sha256_of
from synthbench.trust.compare import Row, tolerance_of
from synthbench.trust.verify import Sampling, Verification, verify


@dataclass(frozen=True)
class Submission:
    """The result of :func:`submit`: the manifest of the written bundle, or the reasons why no bundle was written."""

    manifest: Manifest | None
    """Manifest of the bundle; None if there were problems."""
    problems: tuple[str, ...]


def submit(request: Request, target: Path, *, plugin: Path | None = None, package: str | None = None) -> Submission:
    """Write a bundle to submit, with all rows of some mechanisms in a suite; if rows are missing, write nothing.

    Args:
        request: Request with the suite, the mechanisms and the options of their runs, the device and the store. The
            device ``auto`` means the type of device on which the rows were made.
        target: Path of the bundle to write: a folder or a ``.tar.gz`` file.
        plugin: Plugin file that defines the mechanisms; None if a package defines them.
        package: Installed package that defines the mechanisms, with its version: ``name==version``.

    Raises:
        UsageError: If a name or value is not allowed, if the target exists, or if the suite is given as a file instead
            of a name.
        StoreError: If the store cannot be read, or if the bundle cannot be written.
    """
    if plugin is not None and not PLUGIN_FILE.fullmatch(plugin.name):
        raise UsageError(f"plugin file is called {plugin.name!r}; allowed: lower-case letters, digits, '_' and .py")
    plugins.load(request.plugins)
    terms = (term for text in request.mechanisms for term in split_terms(text))
    named = tuple(registered(term, MECHANISMS.resolve) for term in terms)
    request = replace(request, mechanisms=named or request.mechanisms)
    store = Store.open(request.results, create=False)
    table = store.table(is_checked=True)
    rows = {row["run_id"]: {**row, "verified_by": None} for row in table.to_pylist()}
    device_type = _device_type(request, list(rows.values()))
    plan = _whole(request, device_type)
    wanted = _wanted(plan)
    chosen = [rows[name] for name in wanted if name in rows]
    _, lost = curves_of(store, only(table, wanted))
    problems = [*_incomplete(wanted, rows), *(f"lost curve: {wanted[name]}" for name in sorted(lost))]
    problems += _without_code(plan, plugin, package)
    if problems:
        return Submission(None, tuple(problems))
    suite = load_suite(request.suite)
    manifest = Manifest(
        suite=suite.name,
        suite_version=suite.version,
        mechanisms=tuple(request.mechanisms),
        block=request.block,
        positions=request.positions,
        device_type=device_type,
        plugin=None if plugin is None else plugin.name,
        plugin_sha256=None if plugin is None else sha256_of(plugin),
        package=package,
        num_rows=len(chosen),
        num_curves=sum(row["curve_sha256"] is not None for row in chosen),
        digest=digest(chosen),
        environment=environment_of(chosen),
    )
    pack(store, list(wanted), manifest, plugin, target)
    return Submission(manifest, ())


def receive(
    path: Path,
    sampling: Sampling,
    *,
    runs_plugin: bool = False,
    into: Path | None = None,
    by: str | None = None,
    on_plan: Callable[[int], None] = lambda _num_rows: None,
) -> Verification:
    """Verify rows by running a sample of them again; if nothing is wrong, copy all rows into a store.

    Args:
        path: Rows to verify: a store's folder, a Parquet file or a bundle.
        sampling: Settings: which rows are run again, and how.
        runs_plugin: True to run the plugin in the bundle, which is somebody else's code.
        into: Folder of the store into which the rows are copied, which may be ``path`` itself. None: nothing is copied.
        by: Name of the person who verifies the rows; required if ``into`` is given, and not allowed otherwise.
        on_plan: Function that is called before the re-runs; its argument is the number of rows to run again.

    Raises:
        UsageError: If a value is not allowed, or if the manifest names something that is not installed.
        StoreError: If the rows cannot be read, if the store cannot be written, or if the plugin to run is not the file
            whose hash the manifest states.
        ContractError: If a plugin cannot be loaded.
    """
    if (into is None) != (by is None):
        raise UsageError("--into, the store that takes the rows, and --by, who verifies them, need each other")
    with opened(path) as (store, manifest):
        if runs_plugin and manifest is not None and manifest.plugin is not None:
            brought = plugins.resolved(str(store.root / "plugin" / manifest.plugin))
            if sha256_of(Path(brought)) != manifest.plugin_sha256:  # other code than what the sender says was run
                raise StoreError(f"{path} is refused: its manifest has another hash than plugin/{manifest.plugin}")
            sampling = replace(sampling, plugins=[*sampling.plugins, brought])
        try:
            wrong = [] if manifest is None else _faults_of_bundle(store, manifest, sampling)
        except UnknownName as problem:
            if runs_plugin or manifest is None or manifest.plugin is None:
                raise
            raise UsageError(
                f"no {problem.kind} called {problem.name!r} here; the bundle brings {manifest.plugin!r}, which is "
                "somebody else's code: read it, then run it with --run-plugin"
            ) from None
        if into is not None or store.has_curves():
            store.curves()  # reports lost curves, whose rows would not be copied
        verification = verify(store, sampling, on_plan=on_plan)
        verification.faults = [*(("bundle", fault) for fault in wrong), *verification.faults]
        if into is not None and (into / "store.json").exists():
            verification.faults += _contradictions(Store.open(into, create=False), store)
        if verification.ok and into is not None and by is not None:
            target = Store.open(into, create=True)
            target.import_rows(store, checksums=verification.checksums)
            target.verify(verification.confirmed(by))
    return verification


def _contradictions(ours: Store, theirs: Store) -> list[tuple[str, str]]:
    """List runs whose results differ between two stores, as pairs: run id, and description of the difference.

    Scores may differ by a tolerance, since machines round differently. Runs that reached a limit of time or memory are
    not compared, as limits differ between machines.
    """
    columns = ["run_id", "n_eval_examples", *USED]
    our_rows, their_rows = (
        map(with_committed_baselines, store.table().select(columns).to_pylist()) for store in (ours, theirs)
    )
    known = {row["run_id"]: row for row in our_rows}
    contradictions = []
    for row in their_rows:
        our = known.get(row["run_id"], row)
        if {our["status"], row["status"]} & {"timeout", "oom"}:
            continue
        is_far = None not in (our["score"], row["score"]) and abs(our["score"] - row["score"]) > tolerance_of(our, 0.0)
        if is_far or our["status"] != row["status"]:
            ended, has = (f"{side['status']!r} with the score {side['score']}" for side in (row, our))
            contradictions.append((row["run_id"], f"it ended {ended}; the store has this run with {has}"))
    return contradictions


def _faults_of_bundle(store: Store, manifest: Manifest, sampling: Sampling) -> list[str]:
    """List how a bundle contradicts its manifest: missing or extra rows, wrong counts, and failed component checks."""
    suite = load_suite(_installed(manifest.suite))
    if suite.version != manifest.suite_version:
        raise UsageError(f"suite {suite.name!r} is {manifest.suite_version} in the manifest and {suite.version} here")
    device_type = resolve_device(manifest.device_type, must_exist=False).type
    request = Request(
        suite=manifest.suite,
        mechanisms=manifest.mechanisms,
        block=manifest.block,
        positions=manifest.positions,
        plugins=tuple(sampling.plugins),
    )
    rows = {row["run_id"]: row for row in store.table(is_checked=True).to_pylist()}
    if sampling.plugins or _may_be_foreign(manifest):
        with IsolatedProcess(sampling.plugins, sampling.timeout_s) as isolated:
            isolated.try_plugins()
            wanted, broken = isolated.attempt("the plan of the bundle", asked_for, request, device_type)
    else:
        wanted, broken = asked_for(request, device_type)
    extra = [
        f"{row['task']} / {row['mech']} / seed {row['seed']} ({name}) is no row of this submission"
        for name, row in rows.items()
        if name not in wanted
    ]
    return [*broken, *faults_of_bundle(store, list(rows.values()), manifest), *_incomplete(wanted, rows), *extra]


def asked_for(request: Request, device_type: str) -> tuple[dict[str, str], list[str]]:
    """Return a description of each row that a submission must have, by run id, and a list of failed checks.

    Foreign components, which do not come with synthbench, are checked. They must already be loaded in this process.
    """
    components = foreign_components(select_components(request))
    broken = [f"checks: {said}" for component in components if (said := first_failure(examine(component)))]
    return _wanted(_whole(request, device_type)), broken


def _may_be_foreign(manifest: Manifest) -> bool:
    """Return whether a manifest names a mechanism, block or position encoding that does not come with synthbench."""
    around: list[tuple[Registry[Any], str | None]] = [(BLOCKS, manifest.block), (POSITIONS, manifest.positions)]
    terms = [*around, *((MECHANISMS, term) for term in manifest.mechanisms)]
    names = ((registry, term.partition(":")[0]) for registry, term in terms if term)
    return not all(registry.is_built_in(part) for registry, name in names for part in name.split("+"))


def _installed(suite: str) -> str:
    require_current(suite)
    if suite not in suite_names():
        raise UsageError(f"suite is {suite!r}; allowed in a submission: {', '.join(suite_names())}")
    return suite


def _whole(request: Request, device_type: str) -> Plan:
    """Plan all runs of the requested suite and mechanisms, as if no row were stored yet."""
    _installed(request.suite)
    return plan_request(replace(request, rerun="all"), torch.device(device_type))


def _wanted(plan: Plan) -> dict[str, str]:
    """Describe every row of a plan, with run ids as keys; rows of runs that only choose a learning rate count too."""
    return {
        run.run_id: f"{run.cell.task_name} / {run.cell.mechanism_name} / seed {run.seed}"
        + (f" / tuning at {run.learning_rate:g}" if run.is_tuning else "")
        for job in plan.jobs
        for run in (*(run for cell in job.cells for run in cell.tuning_runs()), *job.runs)
    }


def _incomplete(wanted: Mapping[str, str], rows: Mapping[str, Row]) -> list[str]:
    problems = [f"missing: {what}" for name, what in wanted.items() if name not in rows]
    for what, row in [(what, rows[name]) for name, what in wanted.items() if name in rows]:
        if not row["is_full"]:
            problems.append(f"not full: {what}")
        if row["status"] in ("contract", "unsupported"):
            problems.append(f"{row['status']}: {what}: {row['error_message']!r}")  # may be a stranger's, and is printed
    return problems


def _without_code(plan: Plan, plugin: Path | None, package: str | None) -> list[str]:
    """List mechanisms whose code a reader of the bundle would lack, since neither plugin nor package is named."""
    names = sorted({cell.mechanism_name for job in plan.jobs for cell in job.cells})
    if plugin is not None or package is not None:
        return []
    return [
        f"no code: mechanism {name!r} comes from {origin}; name it with --plugin or --package"
        for name in names
        if (origin := origin_of(MECHANISMS[name])) != "builtin"
    ]


def _device_type(request: Request, rows: Sequence[Row]) -> str:
    device = request.device
    if device == "auto":
        terms = {term.partition(":")[0] for term in request.mechanisms}
        devices = {row["device_type"] for row in rows if row["suite"] == request.suite and row["mech"] in terms}
        if len(devices) > 1:
            raise UsageError(f"the rows were made on {' and '.join(sorted(devices))}; choose one with --device")
        device = devices.pop() if devices else "cpu"
    return resolve_device(device, must_exist=False).type
