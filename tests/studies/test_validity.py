"""The study of validity on rows of which it is known what they should say."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from studies.pages import store
from studies.validity import correlation, page
from synthbench.registry import CONTROL
from synthbench.reports.selection import select
from synthbench.tasks.real.text import Text
from tests.reports._made import text_row

Bits = dict[str, float]
Studied = Callable[..., page.Study]
TASKS = ("mqar", "in_context_recall", "selective_copying", "parity_running", "bucket_sort")
NO_CURVES = pd.DataFrame({"run_id": [], "step": [], "split": [], "metric": [], "value": []})


@pytest.fixture(autouse=True, scope="module")
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correlation, "NUM_DRAWS", 200)
        yield


@pytest.fixture(scope="module")
def ladders() -> pd.DataFrame:
    """Some of the committed rows of climb."""
    rows = store().runs()
    return rows[(rows["suite"] == page.SYNTHETIC) & rows["task"].isin(TASKS) & rows["seed"].isin([1, 2])]


@pytest.fixture(scope="module")
def heights(ladders: pd.DataFrame) -> Bits:
    """Mean score of every complete mechanism that is no control, over all tasks alike."""
    rows = select(ladders[ladders["mech_family"] != CONTROL], page.SYNTHETIC).without_variants().rows
    means = rows.pivot_table("score", "mech", "task").dropna().mean(axis=1)
    return {str(name): float(mean) for name, mean in means.items()}


@pytest.fixture(scope="module")
def bits(heights: Bits) -> Bits:
    """Bits of a language model in the order of the heights."""
    return {name: 3 - height for name, height in heights.items()}


def text_rows(
    bits: Bits,
    *,
    texts: tuple[str, ...] = tuple(page.TEXTS),
    seeds: tuple[int, ...] = (1, 2),
    validation: float = 0.0,
    match: str | None = f"{page.MATCH} of {{}}",
    **changes: Any,
) -> pd.DataFrame:
    """Rows of a language model with about these bits, and in validation some more."""
    rows = []
    for text, (name, mean), seed in product(texts, bits.items(), seeds):
        score = mean + 0.001 * seed
        given = {
            "mech_label": name, "match": match and match.format(name), "block": page.BLOCK, "n_params_mixer": 9,
            "state_size": 9, "step_ms_median": 5.0, "steps_planned": 600, "metrics":
            {"repeated.bits": score - 1, "other.bits": score + 0.1, "validation_bits": score + validation},
        }  # fmt: skip
        rows.append(text_row(name, seed, score, text, **given | changes))
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def studied(ladders: pd.DataFrame) -> Studied:
    """The study of the ladders and of some other rows."""
    return lambda *others: page.study_of(pd.concat([ladders, *others]), NO_CURVES)


@pytest.fixture(scope="module")
def study(studied: Studied, bits: Bits) -> page.Study:
    """The study in which both sides have the same order."""
    return studied(text_rows(bits))


def test_the_wrong_order_is_said(studied: Studied, heights: Bits) -> None:
    """All predictions of the committed page came true, so it does not show how one is reported that did not."""
    found = page.predictions_of(studied(text_rows({name: 1 + height for name, height in heights.items()})))

    assert found[0].came_true is False
    assert "−" in found[0].found
    assert not found[3].came_true  # both kinds of bytes have the same order


def test_a_prediction_without_the_rows_that_decide_it_is_open(study: page.Study, studied: Studied, bits: Bits) -> None:
    one_text = studied(text_rows(bits, texts=(Text().corpus,)))
    explained_by_size = replace(study, covariates={**study.covariates, page.PARAMETERS: study.main})
    found = page.predictions_of(study)

    assert found[0].came_true
    assert found[2].came_true is None  # no published rows
    assert found[4].came_true is None  # without curves it is not known how the model began
    assert page.predictions_of(explained_by_size)[1].came_true is None  # nothing is left
    assert {prediction.came_true for prediction in page.predictions_of(one_text)} == {None}


def test_only_matched_rows_of_both_texts_count(study: page.Study, studied: Studied, bits: Bits) -> None:
    wrong: list[dict[str, Any]] = [
        *({"match": None}, {"match": "state of {}"}, {"texts": ("sha256-cc",)}, {"block": "aether:norm=none"})
    ]
    among_others = studied(text_rows(bits), *(text_rows(dict.fromkeys(bits, 2.0), **one) for one in wrong))

    files, files_among_others = (page.files_of(one, page.tables_of(one)) for one in (study, among_others))
    assert files == files_among_others


def test_all_rows_of_a_mechanism_have_the_rate_that_one_seed_chose_on_the_first_text(
    studied: Studied, bits: Bits
) -> None:
    first, second = page.TEXTS
    chosen = text_rows(bits, seeds=(1, 2, 3), lr=0.03)
    better = {name: value - 1 for name, value in bits.items()}
    others = [
        text_rows(better, texts=(first,), seeds=(1,), lr=0.01, validation=1.5),  # on the test only
        text_rows(better, texts=(first,), seeds=(2,), lr=0.01),
        text_rows(better, texts=(second,), seeds=(1,), lr=0.01),
    ]
    study = studied(chosen, *others)

    for text, outcome in study.outcomes.items():
        np.testing.assert_allclose(outcome[""], [-bits[one.name] - 0.002 for one in study.mechanisms])
        assert set(study.num_seeds[text]) == {3}
    assert set(study.num_seeds[page.SYNTHETIC]) <= {1, 2}
    assert set(study.rates) == {0.03}
