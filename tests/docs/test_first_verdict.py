"""Error rates of a first verdict: simulated searches, and known mechanisms against three references."""

import numpy as np
import pandas as pd
import pytest

from docs import first_verdict as simulation
from synthbench.first_verdict import Baselines, Prediction


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_searches_keep_half_of_the_good_ideas_and_few_others(spread: float) -> None:
    searches = [simulation.search(index, 0.05, spread) for index in range(12)]

    assert np.nanmean([one.share_of_good("keep") for one in searches]) >= 0.5
    assert np.nanmean([one.share_of_good("discard") for one in searches]) <= 0.05
    assert np.mean([one.false_share for one in searches]) <= 0.06
    idle = [simulation.search(index, 0.0, spread) for index in range(12)]
    assert np.mean([one.false_share for one in idle]) <= 0.09  # one of twelve


def test_known_mechanisms_are_judged_as_the_full_suite_does_and_their_rank_is_predicted_from_other_families(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[str]] = []

    class Spy(Baselines):
        def predict(self, scores: "pd.Series[float]") -> Prediction:
            seen.append(set(self.facts["family"]))
            return super().predict(scores)

    monkeypatch.setattr(simulation, "Baselines", Spy)
    runs = simulation.known_runs()
    replays = {reference: list(simulation.replay(runs, reference)) for reference in simulation.REFERENCES}
    every = [one for of_reference in replays.values() for one in of_reference]

    assert not [one for one in every if one.decision == "keep" and one.lead <= 0]
    assert not [one for one in every if one.decision == "discard" and one.lead > 0]
    assert {one.decision for one in every if one.mechanism == "mean"} == {"discard"}
    assert sum(one.decision == "keep" for one in replays["gla"]) >= 5
    known = [one.covers for one in replays["softmax"] if not np.isnan(one.lead)]
    assert np.mean(known) >= 0.8
    families = runs.drop_duplicates("mech").set_index("mech")["mech_family"]
    assert [set(families) - others for others in seen] == [{families[one.mechanism]} for one in every]
