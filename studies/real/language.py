"""Compare the papers' language models with the rows of suite ``text``, for the end of the page.

Every number comes from rows that are matched as in ``studies/validity``. Claims without rows are left out.
"""

import json
import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from studies.real.claims import (
    REWA,
    Claim,
    Found,
    Quantity,
    between,
    counted,
    curvature,
    found_in,
    interval_of,
    over_heads,
    table,
)
from studies.validity.page import CHOOSING_SEED, MATCH, TEXT, TEXTS
from synthbench.reports.render.markdown import plain_table
from synthbench.reports.selection import full_runs, select
from synthbench.reports.table import fixed, in_words
from synthbench.results.schema import split_match

DOCSTRINGS, LIBRARY = TEXTS
DICTIONARY, PROSE = "sha256-5fd50e963124a10c", "sha256-9398a4473a7dca81"
"""Hashes of two texts, as in their rows; docs/real.md names the sources of the texts."""

WITHOUT_KNOWLEDGE = 8.0
"""Bits per byte of a guess among all 256 bytes; a diverged run gets this number."""

BLOCKS = {
    "transformer": "MLP, LayerNorm before",
    "aether": "Yat products, no LayerNorm",
    "aether:norm=pre": "Yat products, LayerNorm before",
    "aether:norm=post": "Yat products, LayerNorm after",
}
MIXERS = {"softmax": "softmax", "yat": "Yat"}


def bits(rows: pd.DataFrame) -> "pd.Series[float]":
    """Compute the bits per byte on the test of each row."""
    return (-rows["score"]).where(rows["status"] == "ok", WITHOUT_KNOWLEDGE)


def calibration_error(rows: pd.DataFrame) -> "pd.Series[float]":
    """Read the calibration error of each row; NaN if the run failed."""
    return rows["metrics"].map(lambda metrics: json.loads(metrics).get("calibration_error", math.nan))


def own(rows: pd.DataFrame, mechanism: str, block: str = "transformer", corpus: str = DOCSTRINGS) -> pd.DataFrame:
    """Select the matched rows of one mechanism in one block on one text."""
    is_own = (rows["suite"] == TEXT) & (rows["mech"] == mechanism) & (rows["block"] == block)
    some = rows[is_own & rows["match"].notna()]
    settings = zip(some["match"], some["task_args"], strict=True)
    is_wanted = [split_match(match)[0] == MATCH and json.loads(given)["corpus"] == corpus for match, given in settings]
    return some[np.array(is_wanted, dtype=bool)]


def of(mechanism: str, value: Quantity = bits, block: str = "transformer", corpus: str = DOCSTRINGS) -> Quantity:
    """Make a function that gives 100 times a value of one mechanism's rows, by seed; NaN is left out."""

    def by_seed(rows: pd.DataFrame) -> "pd.Series[float]":
        some = own(rows, mechanism, block, corpus).set_index("seed")
        return 100 * value(some).astype(float).dropna()

    return by_seed


_LOSSES = {
    "yat": 4.5747,
    "softmax": 4.6417,
    "slay": 4.6760,
    "yat-spherical": 4.7180,
    "linear": 5.0884,
    "cosformer": 5.1983,
    "performer": 5.4524,
}
"""Validation losses in nats per token (SLAY, table 5), lowest first; the loss of ``yat`` is that of Aether-GPT2."""

_NO_NORM = "aether"
_AETHER_NEEDS_FEWER = (
    "Aether (Yat attention, Yat products, no LayerNorm) needs fewer bits than a transformer with softmax attention"
)
_nmn = partial(Claim, suites=(TEXT,))
CLAIMS = (
    _nmn("Neural Matter Networks, tables 3, 4 and 7", _AETHER_NEEDS_FEWER,
         "457.47 − 464.17 = −6.70", -1, between(of("yat", block=_NO_NORM), of("softmax"))),
    *(_nmn("Neural Matter Networks, table 4", f"Aether with LayerNorm {where} needs more bits than without",
           "above 1000 − 457.47", 1, between(of("yat", block=f"aether:norm={norm}"), of("yat", block=_NO_NORM)))
      for norm, where in {"pre": "before each part", "post": "after each sum"}.items()),
    _nmn("Neural Matter Networks, figure 8",
         "Aether has the lower calibration error than a transformer with softmax attention (points)",
         "below 0", -1, between(of("yat", calibration_error, _NO_NORM), of("softmax", calibration_error))),
    *(_nmn("SLAY, table 5", f"{better} needs fewer bits than {worse}",
           f"{fixed(100 * low, 2)} − {fixed(100 * high, 2)} = {fixed(100 * (low - high), 2)}", -1,
           between(of(better), of(worse)))
      for (better, low), (worse, high) in pairwise(_LOSSES.items())),
)  # fmt: skip

_kappa = partial(of, "rewa-geometric", curvature)
_rewa = partial(Claim, REWA, suites=(TEXT,))
KAPPA = (
    _rewa("4: on code, the hyperbolic weight is above the spherical one, κ > 0", "above 0", 1, _kappa(corpus=LIBRARY)),
    _rewa("4: on a dictionary (for an encyclopedia), the spherical weight is above the hyperbolic one, κ < 0",
          "below 0", -1, _kappa(corpus=DICTIONARY)),
    _rewa("4: on prose (for novels), the Euclidean weight is above the hyperbolic one (hundredths)", "above 0", 1,
          between(*(of("rewa-geometric", over_heads(weight), corpus=PROSE) for weight in ("alpha", "gamma")))),
    *(_rewa(f"4: κ is higher on code than on {words}", "above 0", 1,
            between(_kappa(corpus=LIBRARY), _kappa(corpus=corpus)))
      for words, corpus in (("the dictionary", DICTIONARY), ("prose", PROSE))),
)  # fmt: skip


def paragraphs(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the paragraphs from the given rows; a section without rows is left out."""
    of_text = full_runs(rows[(rows["suite"] == TEXT) & rows["match"].notna()])
    if found := _known(CLAIMS, of_text):
        yield "## Language models"
        yield (
            "Suite [`text`](../../docs/real.md): models of two layers and 84,500 parameters within 5 %, on docstrings, "
            "in hundredths of a bit per byte. Published are hundredths of a nat per token, of models of 124 million "
            f"parameters on 2.5 billion tokens. A diverged run counts as {WITHOUT_KNOWLEDGE:g} bits per byte. "
            f"{counted(found)}."
        )
        yield table(found)
        yield f"Sources: {'; '.join(dict.fromkeys(claim.source for claim, *_ in found))}."
    yield from _factorial(of_text)
    if found := _known(KAPPA, of_text):
        yield "## κ on text"
        yield (
            "The fourth experiment of the REWA paper, on texts. Code is the standard library of Python; a dictionary "
            "(GCIDE) stands for an encyclopedia, An Anarchist FAQ for novels. κ × 100 of geometric REWA trained on "
            f"each; its weights start at 0.45, 1 and 0.45 (m = p = 5), so κ at −29. {counted(found)}."
        )
        yield table(found)


def _known(claims: Sequence[Claim], rows: pd.DataFrame) -> Found:
    """Return the claims for which at least two seeds have rows."""
    return [] if rows.empty else [one for one in found_in(claims, rows) if not math.isnan(one[2].value)]


def _factorial(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a section on attention, block and learning rate as causes of the published difference."""
    cells = {
        (mixer, block): some for mixer in MIXERS for block in BLOCKS if not (some := own(rows, mixer, block)).empty
    }
    if len(cells) < len(MIXERS) * len(BLOCKS):
        return
    rates = sorted({float(rate) for some in cells.values() for rate in some["lr"]})
    best = select(rows, TEXT).rows
    lines = []
    for (mixer, block), some in cells.items():
        of_seed = some[some["seed"] == CHOOSING_SEED].set_index("lr")
        by_rate = [fixed(float(value), 3) for value in bits(of_seed).reindex(rates)]
        chosen = own(best, mixer, block)
        rate = chosen.loc[chosen["seed"] == CHOOSING_SEED, "lr"]
        lines.append([MIXERS[mixer], BLOCKS[block], *by_rate, *rate, in_words(interval_of(bits(chosen).to_numpy()), 3)])
    yield "## Attention, LayerNorm and rate, each by itself"
    yield (
        "The one published difference in favour of Yat attention is −6.7 hundredths of a nat (Neural Matter Networks, "
        "table 7). Its models also differ in MLP and LayerNorm, and in learning rate (3e-4 and 1e-4). "
        f"Here each changes by itself. {' '.join(_shares(best))}"
    )
    by_rate = [f"{rate:g}, seed {CHOOSING_SEED}" for rate in rates]
    yield plain_table(lines, ["attention", "block", *by_rate, "rate chosen", "bits per byte"])


def _shares(rows: pd.DataFrame) -> Iterator[str]:
    """Describe the difference between Aether and a transformer, and the effects of attention and of block alone."""
    whole, attention, block = (
        in_words(interval_of(quantity(rows).to_numpy()), 1)
        for quantity in (
            between(of("yat", block=_NO_NORM), of("softmax")),
            between(of("yat"), of("softmax")),
            between(of("softmax", block=_NO_NORM), of("softmax")),
        )
    )
    yield f"Aether minus a transformer is {whole} hundredths of a bit, each at its own rate."
    yield f"With Yat attention in the transformer it is {attention}, with Aether's block around softmax {block}."
