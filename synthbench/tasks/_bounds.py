"""Probability distributions from which tasks compute floors (scores without the input) and ceilings (best scores)."""

import numpy as np
from jaxtyping import Float, Num

from synthbench.tasks.base import Bound


def _log_factorials(largest: int) -> Float[np.ndarray, " counts"]:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, largest + 1)))])


def binomials(num_draws: int, probabilities: Float[np.ndarray, " cases"]) -> Float[np.ndarray, "cases counts"]:
    """Compute binomial probabilities: one row per success probability, one column per number of successes 0..num_draws.

    All success probabilities must be above 0.
    """
    counts = np.arange(num_draws + 1)
    log_factorials = _log_factorials(num_draws)
    # At success probability 1 the logarithm of failure is kept finite: multiplied by 0 failures it is 0, not undefined.
    failure = np.maximum(1 - probabilities, np.finfo(float).tiny)
    chances: Float[np.ndarray, "cases counts"] = np.exp(
        (log_factorials[-1] - log_factorials - log_factorials[::-1])
        + counts * np.log(probabilities)[:, None]
        + (num_draws - counts) * np.log(failure)[:, None]
    )
    return chances


def binomial(num_draws: int, probability: float) -> Float[np.ndarray, " counts"]:
    """Compute the probability of each number of successes, 0 to ``num_draws``, in independent draws."""
    return binomials(num_draws, np.array([probability])).ravel()


def at_least(num_draws: int, num_symbols: int) -> Float[np.ndarray, "symbols counts"]:
    """Compute, for each symbol v and count k, the probability that at least k of ``num_draws`` symbols are <= v.

    Symbols are drawn uniformly from 0..num_symbols-1. The result has a row for each v and a column for each k from 0 to
    ``num_draws``.
    """
    counts = binomials(num_draws, np.arange(1, num_symbols + 1) / num_symbols)
    return counts[:, ::-1].cumsum(axis=1)[:, ::-1]


def sampled(right: Float[np.ndarray, " batch"], scored: Num[np.ndarray, " batch"]) -> Bound:
    """Estimate an accuracy and its standard error from each sequence's numbers of right answers and scored positions.

    The accuracy is the total number of right answers divided by the total number of scored positions. Positions of a
    sequence are not independent, so the standard error treats whole sequences as the independent samples.
    """
    value = right.sum() / scored.sum()
    standard_error = np.sqrt(((right - value * scored) ** 2).sum()) / scored.sum()
    return Bound(float(value), standard_error=float(standard_error))


def clip_counts(probabilities: Float[np.ndarray, " counts"], largest: int) -> Float[np.ndarray, " clipped"]:
    """Compute the distribution of ``min(count, largest)`` from the probabilities of the counts 0, 1, ..."""
    # Rounding may lift a sum of probabilities above 1.
    return np.append(probabilities[:largest], min(1.0, probabilities[largest:].sum()))


def poisson(rate: float, largest: int) -> Float[np.ndarray, " counts"]:
    """Compute the Poisson probability of each count 0..largest; ``rate`` is the mean count."""
    chances: Float[np.ndarray, " counts"] = np.exp(
        np.arange(largest + 1) * np.log(rate) - rate - _log_factorials(largest)
    )
    return chances


def capped_totals(num_symbols: int, rate: float, cap: int, largest: int) -> Float[np.ndarray, " totals"]:
    """Compute, for each n in 0..largest, the probability that Poisson counts sum to n while no count is above ``cap``.

    There are ``num_symbols`` independent counts, each with mean ``rate``. Given their sum n, the counts are distributed
    like the counts of the symbols in n uniform draws. Hence ``result[n] / poisson(num_symbols * rate, largest)[n]`` is
    the probability that no symbol occurs more than ``cap`` times in n draws.
    """
    base = poisson(rate, largest)
    base[cap + 1 :] = 0
    power = np.zeros(largest + 1)
    power[0] = 1
    # Repeated squaring of the distribution. Totals above the largest are cut off: adding counts never lowers a total.
    while num_symbols:
        if num_symbols % 2:
            power = np.convolve(power, base)[: largest + 1]
        base = np.convolve(base, base)[: largest + 1]
        num_symbols //= 2
    return power
