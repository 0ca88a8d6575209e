"""The study of validity on rows of which it is known what they should say."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from studies.pages import store
from studies.validity import correlation, page
from synthbench.errors import UsageError
from synthbench.reports.cells import grid
from synthbench.reports.selection import select
from synthbench.tasks.real.text import Text
from tests.reports._made import make_frame, text_row

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
    """Mean height of every complete mechanism that is no control; unweighted."""
    cells = grid(select(ladders, page.SYNTHETIC).without_variants().rows)
    means = {one.name: [cells.cell(task, one).mean for task in cells.tasks] for one in cells.mechanisms}
    controls = {one.name for one in cells.mechanisms if one.family == "control"}
    return {
        name: float(np.mean(of_tasks))
        for name, of_tasks in means.items()
        if name not in controls and not np.isnan(of_tasks).any()
    }


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
    """Rows of a language model with about these bits, and in validation some more; at place n the state is 100 - n."""
    rows = []
    for text, (place, (name, mean)), seed in product(texts, enumerate(bits.items(), start=1), seeds):
        score = mean + 0.001 * seed
        given = {
            "mech_label": name, "match": match and match.format(name), "block": page.BLOCK, "n_params_mixer": 9,
            "state_size": 100 - place, "step_ms_median": 5.0, "steps_planned": 600, "metrics":
            {"repeated.bits": score - 1, "other.bits": score + 0.1, "validation_bits": score + validation},
        }  # fmt: skip
        rows.append(text_row(name, seed, score, text, **given | changes))
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def studied(ladders: pd.DataFrame) -> Studied:
    """The study of the ladders and of some other rows."""
    return lambda *others, curves=NO_CURVES: page.study_of(pd.concat([ladders, *others]), curves)


@pytest.fixture(scope="module")
def study(studied: Studied, bits: Bits) -> page.Study:
    """The study in which both sides have the same order."""
    return studied(text_rows(bits))


def test_an_order_that_is_the_same_on_both_sides_has_rho_one(study: page.Study, heights: Bits) -> None:
    predictions = page.predictions_of(study)

    assert {one.name for one in study.mechanisms} == set(heights)
    by_hand = study.predictors[f"{page.SYNTHETIC}, every task alike"]
    np.testing.assert_allclose(by_hand, [heights[one.name] for one in study.mechanisms])
    for outcome in study.outcomes.values():
        assert float(correlation.spearman(by_hand, outcome[""])) == pytest.approx(1)
        np.testing.assert_allclose(outcome["repeated"] - outcome["other"], 1.1)
    assert predictions[0].came_true
    assert predictions[2].came_true is None  # no published rows
    assert not predictions[3].came_true  # both kinds of bytes have the same order
    assert predictions[4].came_true is None  # without curves it is not known how the model began
    assert all(math.isnan(value) for values in study.early.values() for value in values)


def test_the_wrong_order_and_one_text_are_said(studied: Studied, heights: Bits) -> None:
    reversed_order = {name: 1 + height for name, height in heights.items()}
    first, *_ = page.TEXTS
    both = page.predictions_of(studied(text_rows(reversed_order)))
    one_text = studied(text_rows(reversed_order, texts=(first,)))

    assert both[0].came_true is False
    assert "−" in both[0].found
    assert {prediction.came_true for prediction in page.predictions_of(one_text)} == {None}


def test_one_bit_of_architecture_stands_beside_the_score(study: page.Study, studied: Studied, bits: Bits) -> None:
    heights = {one.name: height for one, height in zip(study.mechanisms, study.main.tolist(), strict=True)}
    # The plain linear attentions are worst, in the order of the score; the others are in the reverse order.
    losses = {name: 9 - heights[name] if name in page.PLAIN else 2 + heights[name] for name in bits}
    found = studied(text_rows(losses))
    others = [name for name in bits if name not in page.PLAIN]

    for alone, given, among, given_early in map(dict.values, page.rivals_of(found).values()):
        # Pearson's correlation of a bit with ranks of which it takes the lowest.
        share = len(others) / len(losses)
        assert alone.value == pytest.approx((3 * share * (1 - share) / (1 - len(losses) ** -2)) ** 0.5)
        assert among.value == pytest.approx(-1)
        assert given.value < alone.value
        assert math.isnan(given_early.value)  # without curves
    rivals = page.tables_of(found)[1]
    assert [line.labels[0] for line in rivals.lines][2] == f"climb, among the other {len(others)}"


def test_what_the_size_explains_is_taken_out_and_size_is_that_of_the_ladders(ladders: pd.DataFrame, bits: Bits) -> None:
    ordered = dict(sorted(bits.items(), key=lambda one: one[1]))
    num_parameters = {name: 1000 - place for place, name in enumerate(ordered)}  # as many, as it climbs high
    sized = ladders.assign(n_params_mixer=ladders["mech"].map(num_parameters))
    study = page.study_of(pd.concat([sized, text_rows(ordered)]), NO_CURVES)
    (correlations,) = [table for table in page.tables_of(study) if table.name == "correlations"]
    lines = {line.labels: line for line in correlations.lines}

    assert study.covariates[page.PARAMETERS].tolist() == [num_parameters[one.name] for one in study.mechanisms]
    assert lines["docstrings", f"{page.PARAMETERS} alone"].cells[1].value == "1.00"
    assert lines["docstrings", page.SYNTHETIC].cells[3].value == "--"  # nothing is left
    np.testing.assert_array_equal(
        np.argsort(study.covariates[page.PARAMETERS]), np.argsort(study.covariates[page.STATE])
    )
    assert page.predictions_of(study)[1].came_true is None


def test_the_time_of_a_step_is_that_of_the_seed_that_chose_the_rate(studied: Studied, bits: Bits) -> None:
    rows = text_rows(bits, seeds=(1,)), text_rows(bits, seeds=(2,), step_ms_median=0.1)

    assert set(studied(*rows).covariates[page.STEP]) == {5.0}


def test_only_matched_rows_of_both_texts_count(study: page.Study, studied: Studied, bits: Bits) -> None:
    wrong: list[dict[str, Any]] = [
        *({"match": None}, {"match": "state of {}"}, {"texts": ("sha256-cc",)}, {"block": "aether:norm=none"})
    ]
    among_others = studied(text_rows(bits), *(text_rows(dict.fromkeys(bits, 2.0), **one) for one in wrong))
    files = page.files_of(study, page.tables_of(study))

    assert files == page.files_of(among_others, page.tables_of(among_others))
    assert str(files["README.md"]).startswith("# Validity\n\nDoes the mean score")
    assert len(str(files["mechanisms.csv"]).splitlines()) == 1 + len(bits)


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


def test_the_texts_are_the_one_that_comes_with_synthbench_and_another(studied: Studied, bits: Bits) -> None:
    first, second = page.TEXTS
    others = dict(zip(bits, [*list(bits.values())[4:], *list(bits.values())[:4]], strict=True))
    study = studied(text_rows(bits, texts=(first,)), text_rows(others, texts=(second,)))
    losses = {text: loss for text, (_, loss) in study.sides.items()}
    names = [one.name for one in study.mechanisms]

    assert first == Text().corpus
    assert list(losses) == ["docstrings", "library", "both"]
    np.testing.assert_allclose(losses["library"], [-others[name] - 0.0015 for name in names])
    ranks = [pd.Series([-of_text[name] for name in names]).rank().to_numpy() for of_text in (bits, others)]
    np.testing.assert_allclose(losses["both"], sum(ranks) / 2)


def test_the_model_early_in_its_training_is_a_predictor(studied: Studied, bits: Bits) -> None:
    rows = text_rows(bits)
    early = {name: number for number, name in enumerate(bits)}
    at_60 = rows[["run_id"]].assign(step=60, value=rows["mech"].map(early).astype(float))
    points = pd.concat([at_60, at_60.assign(step=120, value=-1.0)], ignore_index=True)
    study = studied(rows, curves=points.assign(split="validation", metric="loss"))

    for values in study.early.values():
        assert values.tolist() == [-early[one.name] for one in study.mechanisms]


def test_published_tasks_whose_floor_is_their_ceiling_are_left_out_of_their_mean(studied: Studied, bits: Bits) -> None:
    skills = {name: number / 100 for number, name in enumerate(bits)}
    bounds = {"copy": (0.0, 1.0), "reverse": (0.0, 0.5), "retrieval": (0.0625, 0.0625)}
    published = [
        make_frame({name: [floor + skill * (ceiling - floor)] * 2}, task=task, floor=floor, ceiling=ceiling)
        for name, skill in skills.items()
        for task, (floor, ceiling) in bounds.items()
    ]
    study = studied(*published, text_rows(bits))

    expected = [skills[one.name] for one in study.mechanisms]
    np.testing.assert_allclose(study.predictors["2 of 3 published tasks"], expected)
    assert page.predictions_of(study)[2].came_true is not None


def test_too_few_mechanisms_and_two_settings_are_refused(studied: Studied, heights: Bits) -> None:
    few = text_rows(dict.fromkeys(list(heights)[:3], 2.0))
    other = few.assign(match=few["match"] + ":R=5", run_id=few["run_id"].str[::-1])

    of_three = "3 mechanisms have all ladders of climb and rows of text with --match params=84500"
    for rows, message in (([few], of_three), ([], "^0 mechanisms have all"), ([few, other], "has two settings")):
        with pytest.raises(UsageError, match=message):
            studied(*rows)
