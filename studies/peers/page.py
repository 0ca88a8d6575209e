"""Put the published numbers of other suites beside our rows on the same tasks: ``python -m studies.peers.page``.

The script writes the tables of README.md; ``--check`` compares them. Two numbers are equivalent if a test shows that
they lie less than ``MARGIN`` apart. Runs with a change, such as a convolution or a longer budget, show the cause of a
difference. If no such run comes close enough, the stated cause is a guess.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from studies.pages import each, fill, joined, selected
from synthbench.reports.aggregates import over_runs
from synthbench.reports.cells import shown_label
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.table import NOTHING, fixed
from synthbench.suites import load_suite, suite_names

HERE = Path(__file__).parent
MAIN = "peers"
MARGIN = 0.1
"""Two numbers less than this apart are equivalent."""
Z = 1.645
"""Quantile of the normal distribution: equivalence is tested at 5 %, at both ends."""
NEARER = 3.0
"""Number of standard errors by which a changed run must come nearer to a published number to explain a difference."""
UNKNOWN = 2.0
"""Multiple of our standard error that stands for the errors of both numbers, since published ones have none."""
AFFORDABLE = 4.0
"""Largest cost in core-hours at which we make runs at the published budget."""
FACTS = ["score", "skill", "floor", "ceiling"]
EXPLAINS = "explains it", "explains a part"
SETTING = ["suite", "block", "positions", "match", "mech_args"]


class Result(NamedTuple):
    """Our result for a published number, in one setting."""

    by_seed: "pd.Series[float]"
    """Mean over the test lengths of the published number, by seed."""
    trained: float
    """The mean at the training length; a low value shows that the task was not learned."""
    difference: float
    """Our mean − the published number."""
    error: float
    """Standard error of our mean over seeds, or over test sequences if that is larger; NaN with fewer than two
    seeds."""
    error_of_both: float
    """Standard error of the difference: ``UNKNOWN`` times ``error``, combined with the error of reading the number."""
    changes: Mapping[str, str]
    """Differences from the main setting, by kind; empty for the main setting."""

    @property
    def verdict(self) -> Literal["equivalent", "differs", "undecided"]:
        """Classify the 90 % interval of the difference: within the margin, beyond it, or at its edge."""
        distance, half = abs(self.difference), Z * self.error_of_both
        return "equivalent" if distance + half < MARGIN else "differs" if distance - half > MARGIN else "undecided"

    def explains(self, main: "Result") -> str:
        """Say whether the change in this result explains why the main result differs from the published number.

        The change explains a part if this result is significantly nearer to the number, and all if it is also
        equivalent.
        """
        nearer = abs(main.difference) - abs(self.difference)
        if math.isnan(self.error_of_both):
            return "one seed, which shows nothing"
        if nearer > NEARER * math.hypot(self.error, main.error):
            return EXPLAINS[self.verdict != "equivalent"]
        return "does not explain it" if self.verdict == "differs" else "undecided, as the seeds scatter too much"


def numbers() -> pd.DataFrame:
    """Read the published numbers; the default reading error is half a unit of a number's last digit."""
    read = pd.read_csv(HERE / "published.csv", dtype={"published": str}).fillna({"guess": ""})
    decimals = read["published"].str.partition(".")[2].str.len()
    return read.assign(
        value=read["published"].astype(float),
        reading=read["reading"].fillna(0.5 * 10.0**-decimals),
        factors=read["tests"].map(lambda tests: [int(test.removeprefix("x")) for test in tests.split()]),
        arguments=read["mech_args"].map(json.loads),
    )


def rows_of_suites() -> pd.DataFrame:
    """Read the rows of every suite that names this study."""
    suites = [load_suite(name) for name in suite_names() if name in set(joined().rows["suite"])]
    names = [suite.name for suite in suites if HERE.name in suite.studies]
    return pd.concat([selected(name).rows for name in names], ignore_index=True)


def at_lengths(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line for each run and each multiple of the training length at which the run was tested."""
    rows = rows[rows["status"] == "ok"].assign(match=rows["match"].fillna(""))
    metrics, parts = rows["metrics"].map(json.loads), [rows.assign(factor=1)]
    for factor in (2, 4, 8):
        facts = {
            name: metrics.map(lambda of, key=f"x{factor}.{name}": of.get(key, math.nan)).astype(float) for name in FACTS
        }
        # A test at twice the length has half as many sequences.
        parts.append(rows.assign(factor=factor, n_eval_examples=rows["n_eval_examples"] // factor, **facts))
    return pd.concat(parts, ignore_index=True)


def result_of(number: Any, tests: pd.DataFrame, changes: Mapping[str, str]) -> Result:
    """Average the runs of one setting that were tested at all lengths of a number."""
    used = tests[tests["factor"].isin(number.factors)]
    by_seed = used.pivot_table(number.measure, "seed", "factor").reindex(columns=number.factors).dropna().mean(axis=1)
    gap = used["ceiling"] - used["floor"] if number.measure == "skill" else 1.0
    # Of drawing other test sequences, if answers are right or wrong independently.
    variance = used["score"] * (1 - used["score"]) / gap**2 / used["n_eval_examples"].clip(lower=1)
    of_tests, of_seeds = math.sqrt(variance.sum()) / len(used), by_seed.std() / math.sqrt(max(1, len(by_seed)))
    error = math.nan if len(by_seed) < 2 else max(of_seeds, of_tests)
    of_both = math.hypot(UNKNOWN * error, number.reading / math.sqrt(3))
    trained = tests.loc[tests["factor"] == 1, number.measure].mean()
    return Result(by_seed, trained, by_seed.mean() - number.value, error, of_both, changes)


def compare(number: Any, tests: pd.DataFrame) -> tuple[list[Result], float]:
    """Return the result in the suite's setting, then the results with changes, fewest first; and the published budget.

    The budget is in core-hours of one run, computed from our fastest training step.
    """
    is_asked = tests["mech_args"].map(lambda text: number.arguments.items() <= json.loads(text).items())
    own = tests[(tests["task"] == number.task) & (tests["mech"] == number.mechanism) & is_asked]
    groups = dict(list(own.groupby(SETTING)))
    mains = [key for key in groups if key[:4] == (MAIN, number.block, number.positions, "")]
    if not mains:
        return [], math.nan
    main = groups.pop(mains[0])
    results = [
        result_of(number, group, changes_of(main.iloc[-1], group.iloc[-1])) for group in (main, *groups.values())
    ]
    if not len(results[0].by_seed):
        return [], math.nan
    changed = sorted(results[1:], key=lambda result: (len(result.changes), [*result.changes.values()]))
    seconds = (main["step_ms_median"] / 1000 / main["ensemble_size"] / main["batch_size"]).min()
    hours = number.steps * number.batch * seconds / 3600
    return [results[0], *(result for result in changed if len(result.by_seed))], hours


def changes_of(main: "pd.Series[Any]", other: "pd.Series[Any]") -> dict[str, str]:
    """Describe the differences between the settings of two rows, by kind of setting."""
    before, after = settings_of(main), settings_of(other)
    changes: dict[str, list[str]] = {}
    for kind, name in {**before, **after}:
        values = [shown(settings.get((kind, name))) for settings in (after, before)]
        if len(set(values)) == 2:
            changes.setdefault(kind, []).append(f"{name} {' instead of '.join(values)}")
    return {kind: ", ".join(words) for kind, words in changes.items()}


def settings_of(row: "pd.Series[Any]") -> dict[tuple[str, str], object]:
    """Read the settings of a row by kind and name; the rates are those from which validation could choose."""
    config = json.loads(row["config_json"])
    rates = config.get("tuning", {}).get("learning_rates", [config.get("learning_rate")])
    parts = {
        **{name: {name: row[name]} for name in ("positions", "block", "match")},
        "options": json.loads(row["mech_args"]),
        "size": config["model"],
        "budget": {**config["training"], "rates": rates},
        "tests": config["evaluation"],
    }
    return {(kind, name): value for kind, part in parts.items() for name, value in part.items()}


def shown(value: object) -> str:
    """Print a value of a configuration."""
    if isinstance(value, list):
        return " or ".join(map(shown, value))
    return f"{value:,}" if isinstance(value, int) else "none" if value is None else str(value)


def cause_of(number: Any, main: Result, changed: Sequence[Result]) -> str:
    """Say what causes a difference, and how that is known."""
    whole, parts = ([" and ".join(one.changes) for one in changed if one.explains(main) == words] for words in EXPLAINS)
    guess = f"a guess: {number.guess}" if number.guess else "not known"
    if whole:
        return f"{whole[0]}, shown below"
    return f"in part {' or '.join(parts)}, shown below; the rest is {guess}" if parts else guess


def lines_of(number: Any, labels: Mapping[str, str], results: Sequence[Result], hours: float) -> Iterator[list[str]]:
    """Yield the line of a published number, then, if our number differs, one line for each change."""
    label = " ".join([labels[number.mechanism], *(f"{name}={value}" for name, value in number.arguments.items())])
    main, changed = results[0], results[1:] if results[0].verdict == "differs" else ()
    cause = cause_of(number, main, changed) if main.verdict == "differs" else NOTHING
    budget = fixed(hours, 1) + (" (out of reach)" if hours > AFFORDABLE else "")
    test = [", ".join(f"{factor}×" for factor in number.factors), number.measure, fixed(number.value, 3)]
    yield [number.task, label, *test, *printed(main), cause, budget, number.setting, number.source]
    for one in changed:
        cause = f"{', '.join(one.changes.values())}: {one.explains(main)}"
        yield ["", f"changed: {' and '.join(one.changes)}", "", "", "", *printed(one), cause, "", "", ""]


def printed(result: Result) -> list[str]:
    """Print the numbers of a result."""
    mean, low, high = (fixed(end, 3) for end in over_runs(result.by_seed.to_numpy(), high=1.0))
    ours = mean if low == NOTHING else f"{mean} ({low} to {high})"
    difference = fixed(result.difference, 3, is_signed=True)
    return [ours, difference, fixed(result.error_of_both, 3), result.verdict, fixed(result.trained, 3)]


def tables() -> Iterator[str]:
    """Yield the summary and the table."""
    rows = rows_of_suites()
    tests, labels = at_lengths(rows), dict(zip(rows["mech"], rows["mech_label"].map(shown_label), strict=True))
    found = [(number, *compare(number, tests)) for number in each(numbers())]
    known = [(results[0].verdict, hours) for _, results, hours in found if results]
    affordable = [(verdict, hours) for verdict, hours in known if hours <= AFFORDABLE]
    yield (
        f"Of {len(known)} published numbers, {counts(known)}. Of the {len(affordable)} with a budget of at most "
        f"{AFFORDABLE:g} core-hours a run here, {counts(affordable)}. {len(found) - len(known)} more have no rows yet."
    )
    lines = [line for number, results, hours in found if results for line in lines_of(number, labels, results, hours)]
    headings = ["task", "mechanism", "test", "measure", "published", "ours", "difference", "SE", "verdict", "at 1×"]
    yield plain_table(lines, [*headings, "cause", "their budget", "their protocol", "source"])


def counts(known: Sequence[tuple[str, float]]) -> str:
    """Count verdicts."""
    of = Counter(verdict for verdict, _ in known)
    return f"{of['equivalent']} are equivalent to ours, {of['differs']} different and {of['undecided']} undecided"


if __name__ == "__main__":
    fill(__file__, tables())
