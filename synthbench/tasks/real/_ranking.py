"""How good a ranking of labels is: precision at k, and the same with rare labels counting more."""

import numpy as np
from jaxtyping import Float, Int

from synthbench.tasks.base import IGNORE

DEPTHS = (1, 3, 5)
"""The values of k that are reported."""

A, B = 0.55, 1.5
"""Of the propensities: what Jain et al. (2016) take for data other than Amazon's and Wikipedia's."""


def propensities(counts: Int[np.ndarray, " labels"], num_documents: int) -> Float[np.ndarray, " labels"]:
    r"""How probable it is that a label that applies to a document was given to it, for each label.

    :math:`p_l = 1 / (1 + C (N_l + B)^{-A})` with :math:`C = (\log N - 1)(B + 1)^A`. Source: Jain et al. (2016),
    section 4, where :math:`C e^{-A \log(N_l + B)}` stands for the same.

    Args:
        counts: How many documents to train on have each label, N_l.
        num_documents: Documents to train on, N.
    """
    c = (np.log(num_documents) - 1) * (B + 1) ** A
    found: Float[np.ndarray, " labels"] = 1 / (1 + c * (counts + B) ** -A)
    return found


def ranking_scores(
    ranked: Int[np.ndarray, "documents ranks"],
    targets: Int[np.ndarray, "documents columns"],
    propensity: Float[np.ndarray, " labels"],
) -> dict[str, float]:
    """P@k and PSP@k, means over documents as fractions, for each of :data:`DEPTHS` that there are ranks for.

    ``P@k`` is the share of right labels among the first k. In ``unnormalised PSP@k`` a right label counts as 1 over its
    propensity, which may give more than 1. ``PSP@k`` is that over the largest that any ranking of these documents could
    reach, at most 1, as in Jain et al. (2016) and in the tables of the Extreme Classification Repository.

    >>> scores = ranking_scores(np.array([[0, 2]]), np.array([[0, 1, IGNORE]]), np.array([0.5, 0.25, 0.5]))
    >>> {name: round(score, 3) for name, score in scores.items()}
    {'P@1': 1.0, 'PSP@1': 0.5, 'unnormalised PSP@1': 2.0}

    Args:
        ranked: Labels, the best first; none twice.
        targets: The labels that each document has; ``IGNORE`` fills the row.
        propensity: Of each label.
    """
    is_right = (ranked[:, :, None] == targets[:, None]).any(axis=-1)
    gained = is_right / propensity[ranked]
    # No ranking does better than the labels of a document, the least probable first.
    best = np.where(targets == IGNORE, 0, 1 / propensity[np.maximum(targets, 0)])
    best = np.sort(best, axis=1)[:, ::-1]
    scores = {}
    for k in DEPTHS:
        if k <= ranked.shape[1]:
            gain = float(gained[:, :k].sum(axis=1).mean() / k)
            scores[f"P@{k}"] = float(is_right[:, :k].mean())
            scores[f"PSP@{k}"] = gain / float(best[:, :k].sum(axis=1).mean() / k)
            scores[f"unnormalised PSP@{k}"] = gain
    return scores
