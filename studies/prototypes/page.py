"""Write the results of the page from ``runs.csv``: ``python -m studies.prototypes.page``, or ``--check``."""

import math
from collections.abc import Iterator
from functools import partial

import pandas as pd

from studies.pages import each, fill
from studies.prototypes.train import KEY, ROWS, SETTINGS
from studies.real.claims import Claim, Found, Quantity, between, counted, interval_of, table
from synthbench.reports.aggregates import over_runs
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.table import fixed, in_words, percent

LINEAR = "softmax"
"""The mechanism whose kernel is an inner product."""
GAIN = "against the inner product"
ALPHA = "alpha"
TABLES = {
    "digits": [{"accuracy, %": "score", GAIN: GAIN, "inverted, %": "inverted", "growth, %": "growth", ALPHA: ALPHA}],
    "labels": [
        {"P@1, %": "score", GAIN: GAIN, "P@3, %": "P@3", "P@5, %": "P@5", ALPHA: ALPHA},
        {f"PSP@{k}, %": f"PSP@{k}" for k in (1, 3, 5)}
        | {f"unnormalised PSP@{k}": f"unnormalised PSP@{k}" for k in (1, 3, 5)},
    ],
}
"""Tables by task; each heading is mapped to a column of the rows."""


def of(mechanism: str, column: str = "score") -> Quantity:
    """Make a function that gives a column of one mechanism's rows by seed, in per cent."""
    return lambda rows: 100 * rows[rows["mechanism"] == mechanism].set_index("seed")[column]


DIGITS, LABELS = ("digits", "digits-short"), ("labels", "labels-short")
NMN = "Neural Matter Networks, table 1 and section 3.3"
EURLEX = "SLAY, table 4, and Neural Matter Networks, table 2"
YAT, INNER = "Yat", "the inner product"
NAMES = {YAT: "yat", INNER: LINEAR, "SLAY": "slay", "Performer": "performer"}
_digits = partial(Claim, NMN, suites=DIGITS)
CLAIMS = (
    _digits(f"digits: {YAT} is right more often than {INNER}", "92.38 − 92.08 = +0.30", 1,
            between(of("yat"), of(LINEAR))),
    _digits(f"digits: with prototypes inverted, {INNER} is right less often than a guess (10 %)",
            "0.01 − 10 = −9.99", -1, lambda rows: of(LINEAR, "inverted")(rows) - 10),
    _digits(f"digits: inverted, {YAT} is right more often than a guess", "87.87 − 10 = +77.87", 1,
            lambda rows: of("yat", "inverted")(rows) - 10),
    _digits(f"digits: prototypes of {INNER} grow", "+13.8", 1, of(LINEAR, "growth")),
    _digits(f"digits: prototypes of {YAT} shrink", "−4.5", -1, of("yat", "growth")),
    _digits(f"digits: prototypes of {YAT} grow less than those of {INNER}", "−4.5 − 13.8 = −18.3", -1,
            between(of("yat", "growth"), of(LINEAR, "growth"))),
    *(Claim(EURLEX, f"labels: {better} has the higher {metric} than {worse}",
            f"{fixed(high, 2)} − {fixed(low, 2)} = +{fixed(high - low, 2)}", 1,
            between(of(NAMES[better], column), of(NAMES[worse], column)), LABELS)
      for better, worse, metric, column, high, low in (
          (YAT, INNER, "P@1", "score", 64.65, 62.35),
          (INNER, "SLAY", "P@1", "score", 62.35, 49.78),
          ("SLAY", "Performer", "P@1", "score", 49.78, 34.42),
          (INNER, YAT, "unnormalised PSP@1", "unnormalised PSP@1", 121.17, 115.42),
      )),
)  # fmt: skip


def blocks(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the paragraphs and tables of the page."""
    rows = rows[rows["data"] == rows.groupby("setting")["data"].transform("first")]
    is_again = rows.duplicated(KEY)
    chosen = by_validation(rows[~is_again])
    found: Found = [
        (claim, setting, interval_of(claim.difference(chosen[chosen["setting"] == setting]).to_numpy()))
        for claim in CLAIMS
        for setting in claim.suites
    ]
    yield f"{counted(found)}, on the data here. Sources: {NMN}; {EURLEX}."
    yield table(found)
    for setting, of_setting in SETTINGS.items():
        yield f"### {setting}"
        own = chosen[chosen["setting"] == setting]
        for columns in TABLES[of_setting.task]:
            yield plain_table(list(_lines(own, columns)), ["mechanism", *columns])
        yield f"Floor: {percent(own['floor'].iloc[0])} %. {own['seed'].nunique()} seeds."
    yield "### Runs repeated by the script"
    yield from repeats(rows[~is_again], rows[is_again])


def by_validation(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the learning rate of each seed that is best in validation; of equally good rates, the smallest."""
    best_first = rows.sort_values(["validation", "rate"], ascending=[False, True])
    return best_first.drop_duplicates(["setting", "mechanism", "seed"])


def _lines(rows: pd.DataFrame, columns: dict[str, str]) -> Iterator[list[str]]:
    """Yield one line per mechanism, the highest score first, then the line of the nearest mean."""
    seeds = {str(name): own.set_index("seed") for name, own in rows.groupby("mechanism")}
    for name in sorted(seeds, key=lambda name: -seeds[name]["score"].mean()):
        yield [f"`{name}`", *(_cell(seeds[name], seeds[LINEAR], column) for column in columns.values())]
    if "score" in columns.values():
        yield ["nearest mean", percent(rows["nearest mean"].iloc[0]), *[""] * (len(columns) - 1)]


def _cell(own: pd.DataFrame, linear: pd.DataFrame, column: str) -> str:
    """Format the mean over seeds with its interval, in per cent except for ``alpha`` and unnormalised scores."""
    if column == ALPHA or column.startswith("unnormalised"):
        return in_words(over_runs(own[column].tolist()))
    if column == GAIN:
        gains = 100 * (own["score"] - linear["score"]).dropna()
        return "--" if own is linear else in_words(over_runs(gains.tolist(), low=-100, high=100), 1)
    low, high = (-100.0, math.inf) if column == "growth" else (0.0, 100.0)
    return in_words(over_runs((100 * own[column]).tolist(), low=low, high=high), 1)


def repeats(rows: pd.DataFrame, again: pd.DataFrame) -> Iterator[str]:
    """Compare repeated runs with the rows of the first runs."""
    both = again.merge(rows, on=KEY, suffixes=("", "_was"))
    num_equal = int((both["score"] == both["score_was"]).sum())
    yield (
        f"{len(both)} runs again, on {' and '.join(both['device'].unique())}; {num_equal} have the very score of their "
        "row. Batches and first weights are the same, so what differs is rounding."
    )
    lines = [
        [run.setting, f"`{run.mechanism}`", f"{run.rate}", f"{run.seed}", percent(run.score_was), percent(run.score)]
        for run in each(both)
    ]
    yield plain_table(lines, ["setting", "mechanism", "rate", "seed", "row, %", "again, %"])


if __name__ == "__main__":
    fill(__file__, blocks(pd.read_csv(ROWS)))
