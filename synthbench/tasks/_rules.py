"""Generic rules, the same for all tasks; the best of these rules count towards a level's shortcut baseline.

A rule sees the tokens up to a scored position and returns the probability that it names the answer: 0, 1, or a fraction
if it guesses among candidates. Rules are grouped into families. The best rule of a family is chosen on one sample and
scored on another, so that trying many rules does not reward luck.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, UInt64

from synthbench.tasks._draws import previous
from synthbench.tasks.base import IGNORE, Batch, Tokens

Mask = Bool[np.ndarray, "scored length"]
Bits = UInt64[np.ndarray, "scored words"]
"""A mask, packed."""
Chances = Float[np.ndarray, " scored"]
"""Probability that a rule names the answer, by scored position."""

NUM_CHOOSING = 2**12
"""Scored positions by which the best runs of a family are compared."""
NUM_COMPARED = 8
"""Runs that are compared on all of these: those that do best on a quarter of them."""
NUM_SCORED = 2**14
"""Scored positions on which the best runs are scored."""
NUM_CELLS = 2**21
"""Most tokens that are looked at from all scored positions together, but at least 2**13 positions are scored."""
NUM_IN_TABLES = 2**16
"""Scored positions from which tables are learned, and on which they are scored; twice as many of short sequences."""
SHORT = 48
"""Most tokens of a short sequence: there long contexts come again, so that a table of more of them knows more."""
NUM_CODES = 2**22
"""Most numbers that are counted in an array rather than sorted."""
MOST_TOKENS = 10
"""Most of the last tokens that a table sees."""
MOST_BACK = 16
"""How many answers back a rule goes, and how many on from the beginning."""
VOTES_EQUAL = 1e-9
"""Sums of weights that differ by less are equal, in whatever order they were added."""
MOST_CONTEXT = 5
"""Most tokens that must be equal where a rule looks for an earlier copy of the last ones."""
SHARES = tuple(map(Fraction, ("1/4", "1/3", "2/5", "1/2", "3/5", "2/3", "3/4")))
"""Parts of the tokens that windows have, at either end."""
COUNT_SHARES = tuple(map(Fraction, ("1/4", "1/3", "1/2", "2/3", "3/4", "4/5", "9/10")))
WIDE_SHARES = tuple(map(Fraction, ("1/8", "1/5")))
WIDE_TOKENS, WIDE_BACK, WIDE_CONTEXT = 12, 48, 9
"""The same for the wider search, whose rules count into no baseline."""
NAMES: Mapping[Fraction, str] = MappingProxyType({Fraction(1, 2): "half", Fraction(1, 3): "third"})


@dataclass(frozen=True)
class View:
    """Scored positions of a batch, each with its whole sequence: the data from which a rule guesses.

    For each scored position, a rule returns the probability that its guess is the answer.
    """

    tokens: Int[np.ndarray, "scored length"]
    places: Int[np.ndarray, " scored"]
    """Where each scored position stands."""
    answers: Int[np.ndarray, " scored"]
    starts: Int[np.ndarray, " scored"]
    """Tokens read up to the first scored position of the sequence."""
    copies: Int[np.ndarray, "scored length"]
    """Where the latest earlier copy of each token stands; -1 if there is none."""
    asked: Mask
    """Tokens that were the answer at an earlier scored position."""
    is_candidate: Bool[np.ndarray, " ids"]
    """Ids that are an answer anywhere in the batch."""

    @classmethod
    def of(cls, batch: Batch, vocab_size: int, most: int) -> "View":
        """Build a view of the scored positions of a batch.

        If there are more than ``most`` scored positions, the view has a random sample of ``most`` positions.
        """
        inputs, targets = batch
        is_scored = targets != IGNORE
        rows, places = np.nonzero(is_scored)
        if len(rows) > most:
            kept = np.sort(np.random.Generator(np.random.Philox(0)).permutation(len(rows))[:most])
            rows, places = rows[kept], places[kept]
        num_ids = max(vocab_size, int(targets.max()) + 1)
        is_candidate = np.zeros(num_ids, dtype=bool)
        is_candidate[targets[is_scored]] = True
        used, inverse = np.unique(rows, return_inverse=True)
        length = inputs.shape[1]
        first_asked = np.full((len(used), num_ids), length)
        for position in reversed(range(length)):
            answers = targets[used, position]
            has_answer = answers != IGNORE
            first_asked[np.flatnonzero(has_answer), answers[has_answer]] = position
        asked_at = np.take_along_axis(first_asked, inputs[used], axis=1)
        return cls(
            tokens=inputs[rows],
            places=places,
            answers=targets[rows, places],
            starts=is_scored.argmax(axis=1)[rows] + 1,
            copies=previous(inputs[used])[inverse],
            asked=asked_at[inverse] < places[:, None],
            is_candidate=is_candidate,
        )

    def part(self, most: int) -> "View":
        """Return a view of a random sample of ``most`` scored positions.

        The sample has at least one position, and all positions if there are fewer than ``most``.
        """
        kept = np.sort(np.random.Generator(np.random.Philox(1)).permutation(len(self.places))[: max(most, 1)])
        by_position = ("tokens", "places", "answers", "starts", "copies", "asked")
        return replace(self, **{name: getattr(self, name)[kept] for name in by_position})

    @cached_property
    def positions(self) -> Int[np.ndarray, " length"]:
        """All positions of a sequence: 0, 1, ..."""
        return np.arange(self.tokens.shape[1])

    @cached_property
    def is_read(self) -> Mask:
        """Mask of the tokens up to and including the scored position: the tokens read."""
        is_read: Mask = self.positions <= self.places[:, None]
        return is_read

    @cached_property
    def is_right(self) -> Mask:
        """Mask of the tokens, read or not, that equal the answer at the scored position."""
        is_right: Mask = self.tokens == self.answers[:, None]
        return is_right

    @cached_property
    def is_answer(self) -> Mask:
        """Mask of the tokens read whose id is an answer anywhere in the batch."""
        is_answer: Mask = self.is_candidate[self.tokens] & self.is_read
        return is_answer

    @cached_property
    def is_latest(self) -> Mask:
        """Mask of the latest occurrence of each token id among the tokens read."""
        is_latest = self.is_read.copy()
        row, place = np.nonzero((self.copies >= 0) & self.is_read)
        is_latest[row, self.copies[row, place]] = False
        return is_latest

    @cached_property
    def present(self) -> Int[np.ndarray, "scored 1"]:
        """Token at the scored position."""
        return np.take_along_axis(self.tokens, self.places[:, None], axis=1)

    @cached_property
    def is_equal(self) -> Mask:
        """Mask of the tokens before the scored position that equal the token at the scored position."""
        is_equal: Mask = (self.tokens == self.present) & (self.positions < self.places[:, None])
        return is_equal

    @cached_property
    def matches(self) -> dict[tuple[int, bool], Mask]:
        """Cache of the results of :func:`_matches`, with its arguments as keys."""
        return {}

    @cached_property
    def bits(self) -> dict[object, Bits]:
        """Cache of the masks that :meth:`packed` returns."""
        return {}

    def packed(self, key: object, make: Callable[[], Mask]) -> Bits:
        """Return the mask that ``make`` computes, packed into bits; compute it only at the first call with this key.

        Packed masks intersect faster.
        """
        if key not in self.bits:
            mask = make()
            padded = np.pad(mask, ((0, 0), (0, -mask.shape[1] % 64)))
            self.bits[key] = np.packbits(padded, axis=1).view(np.uint64)
        return self.bits[key]

    @cached_property
    def bins(self) -> Int[np.ndarray, "scored length"]:
        """Index of the bin in which each token is counted; every pair of scored position and token id has a bin."""
        bins: Int[np.ndarray, "scored length"] = (
            self.tokens + len(self.is_candidate) * np.arange(len(self.tokens))[:, None]
        )
        return bins

    def counts(self, mask: Mask) -> Int[np.ndarray, "scored ids"]:
        """Count, for each scored position, how often each token id occurs among the tokens where ``mask`` is True."""
        num_ids = len(self.is_candidate)
        bins = np.bincount(self.bins[mask], minlength=len(mask) * num_ids)
        return bins.reshape(len(mask), num_ids)

    def with_counts(self, is_kept: Callable[[Int[np.ndarray, "scored ids"]], Any]) -> Mask:
        """Mark tokens for which ``is_kept`` returns True, given the count of the token's id among the tokens read."""
        kept: Mask = np.take_along_axis(is_kept(self.counts(self.is_read)), self.tokens, axis=1)
        return kept


@dataclass(frozen=True)
class Window:
    """The last tokens read (if ``is_later``) or the first tokens read.

    ``share`` is the size of the window as a fraction of all tokens read. With ``of_context``, only tokens up to the
    first scored position of the sequence count as read.
    """

    share: Fraction
    is_later: bool
    of_context: bool = False
    """Of what was read up to the first question instead."""

    @property
    def name(self) -> str:
        """Name of the window in names of rules, such as ``later half of the context``."""
        if self.share == 1:
            return "tokens read"
        side = "later" if self.is_later else "earlier"
        part = NAMES.get(self.share, f"{self.share.numerator}/{self.share.denominator}")
        return f"{side} {part}" + (" of the context" if self.of_context else "")

    def bounds(self, view: View) -> tuple[Int[np.ndarray, "scored 1"], Int[np.ndarray, "scored 1"]]:
        """Return, for each scored position, the window's first position and its end (its last position plus 1)."""
        end = (view.starts if self.of_context else view.places + 1)[:, None]
        size = -(-end * self.share.numerator // self.share.denominator)
        return (end - size, end) if self.is_later else (np.zeros_like(end), size)

    def mask(self, view: View) -> Mask:
        """Mark, for each scored position, the positions in the window."""
        begin, end = self.bounds(view)
        mask: Mask = (view.positions >= begin) & (view.positions < end)
        return mask


Rule = Callable[[View], Chances]
ALL = Window(Fraction(1), is_later=True)


def windows(shares: tuple[Fraction, ...] = SHARES, *, with_context: bool = False) -> list[Window]:
    """List windows on the tokens read: for each fraction in ``shares``, one window at the end and one at the beginning.

    With ``with_context``, also list the same windows on the context (all tokens up to the first scored position of the
    sequence).
    """
    return [
        Window(share, is_later, of_context)
        for of_context in ((False, True) if with_context else (False,))
        for is_later in (True, False)
        for share in shares
    ]


def _share(is_right: Mask, is_candidate: Mask) -> Chances:
    """Return the probability that a uniform guess among the marked candidates is right; 0 if there are none."""
    chances: Chances = (is_right & is_candidate).sum(axis=1) / np.maximum(is_candidate.sum(axis=1), 1)
    return chances


def _tied(scores: Integer[np.ndarray, "scored ids"], view: View) -> Chances:
    """Return the probability that the candidate with the highest score is the answer; ties are broken at random."""
    scores = np.where(view.is_candidate, scores, -1)
    is_best = scores == scores.max(axis=1, keepdims=True)
    chances: Chances = is_best[np.arange(len(scores)), view.answers] / is_best.sum(axis=1)
    return chances


def token_back(view: View, steps: int) -> Chances:
    """Apply the rule that names the token ``steps`` positions before the scored position."""
    at = view.places - steps
    chances: Chances = (view.tokens[np.arange(len(at)), at.clip(0)] == view.answers) * (at >= 0).astype(float)
    return chances


def answer_back(view: View, steps: int, *, is_from_start: bool = False, is_distinct: bool = False) -> Chances:
    """Apply the rule that names the n-th latest answer read, where n is ``steps`` and counts from 1.

    An answer read is a token read so far whose id is a target anywhere in the batch. With ``is_from_start``, the rule
    names the n-th earliest answer read. With ``is_distinct``, each id counts only once.
    """
    is_counted = view.is_answer
    if is_distinct:
        is_counted = is_counted & ((view.copies < 0) if is_from_start else view.is_latest)
    rank = is_counted.cumsum(axis=1)
    wanted = steps if is_from_start else rank[:, -1:] - steps + 1
    chances: Chances = (is_counted & (rank == wanted) & view.is_right).any(axis=1).astype(float)
    return chances


def guess(view: View, window: Window, *, is_distinct: bool = True, without: str = "") -> Chances:
    """Apply the rule that guesses uniformly among the tokens in a window that are a target anywhere in the batch.

    Each id counts once if ``is_distinct``, else once per occurrence. If ``without`` is given, tokens that
    ``EXCLUSIONS[without]`` marks are left out.
    """
    candidates = view.packed((window, is_distinct), lambda: _answers_in(view, window, is_distinct=is_distinct))
    if without:
        candidates = candidates & view.packed(without, lambda: ~EXCLUSIONS[without](view))
    right = candidates & view.packed("right", lambda: view.is_right)
    num_right, num_candidates = (np.bitwise_count(bits).sum(axis=1) for bits in (right, candidates))
    chances: Chances = num_right / np.maximum(num_candidates, 1)
    return chances


def _answers_in(view: View, window: Window, *, is_distinct: bool) -> Mask:
    """Mark the tokens in a window that are a target anywhere in the batch.

    If ``is_distinct``, mark only the first occurrence of each id in the window.
    """
    begin, _ = window.bounds(view)
    mask: Mask = view.is_answer & window.mask(view)
    if is_distinct:
        mask &= view.copies < begin
    return mask


def _is_neighbour(view: View) -> Mask:
    """Mark all copies of the present token (at the scored position), and of the neighbours of its earlier copies."""
    num_ids = len(view.is_candidate)
    beside = np.zeros((len(view.tokens), num_ids), dtype=bool)
    row, place = np.nonzero(view.is_equal)
    for step in (-1, 1):
        beside[row, view.tokens[row, (place + step).clip(0)]] = True
    beside[np.arange(len(beside)), view.present[:, 0]] = True
    return np.take_along_axis(beside, view.tokens, axis=1)


def _is_recent(view: View, num_tokens: int) -> Mask:
    """Mark the tokens that equal one of the last ``num_tokens`` tokens read."""
    recent = np.zeros((len(view.tokens), len(view.is_candidate)), dtype=bool)
    for step in range(num_tokens):
        at = (view.places - step).clip(0)
        recent[np.arange(len(at)), view.tokens[np.arange(len(at)), at]] = True
    return np.take_along_axis(recent, view.tokens, axis=1)


EXCLUSIONS: Mapping[str, Callable[[View], Mask]] = MappingProxyType(
    {
        "asked": lambda view: view.asked,
        "the present": lambda view: view.tokens == view.present,
        "neighbours": _is_neighbour,
        "neighbours and asked": lambda view: _is_neighbour(view) | view.asked,
        "the last 2": partial(_is_recent, num_tokens=2),
        "the last 4": partial(_is_recent, num_tokens=4),
        "repeated": lambda view: view.with_counts(lambda counts: counts > 1),
        "repeated and asked": lambda view: view.with_counts(lambda counts: counts > 1) | view.asked,
        "single": lambda view: view.with_counts(lambda counts: counts == 1),
        "even": lambda view: view.with_counts(lambda counts: counts % 2 == 0),
        "odd": lambda view: view.with_counts(lambda counts: counts % 2 == 1),
    }
)
"""Ids that a guess leaves out."""


def frequent(view: View, window: Window, *, place: int = 0, is_rarest: bool = False) -> Chances:
    """Apply the rule that names the most frequent possible answer among the tokens read in a window.

    A possible answer is a target anywhere in the batch. If ``place`` is 1, the rule names the second most frequent
    possible answer. If ``is_rarest``, the rule names the rarest possible answer that occurs in the window.
    """
    counts = view.counts(window.mask(view) & view.is_read)
    if is_rarest:
        counts = np.where(counts > 0, counts.shape[1] * view.tokens.shape[1] - counts, 0)
    for _ in range(place):
        best = np.where(view.is_candidate, counts, -1).argmax(axis=1)
        counts[np.arange(len(counts)), best] = 0
    return _tied(counts, view)


def frequent_beside(view: View) -> Chances:
    """Apply the rule that names, of all ids that followed earlier copies of the present token, the most frequent id.

    The present token is the token at the scored position. An id's frequency is its count among all tokens read, not
    only after copies. Only ids that are a target anywhere in the batch can be named. If no such id has followed a copy,
    the rule guesses.
    """
    after = np.zeros_like(view.is_equal)
    after[:, 1:] = view.is_equal[:, :-1]
    after &= view.is_answer
    counts = view.counts(view.is_read)
    chances = _tied(np.where(view.counts(after) > 0, counts, 0), view)
    return np.where(after.any(axis=1), chances, guess(view, ALL))


def count(view: View, share: Fraction, *, is_later: bool = True, slack: int = 0) -> Chances:
    """Apply the rule that counts earlier copies of the present token in a part of the text, and scales the count up.

    The present token is the token at the scored position. The text is everything before the scored position, without
    final tokens that are the same in all sequences, such as a question mark. The part is the last fraction ``share`` of
    the text if ``is_later``, else the first. The count is divided by ``share`` to estimate the count in the whole text.
    With ``slack`` above 0, the rule guesses uniformly among the numbers that differ from the estimate by at most
    ``slack``.
    """
    end, before = view.places, view.places - 1
    while (before >= 0).all() and len(np.unique(view.tokens[np.arange(len(before)), before])) == 1:
        end, before = before, before - 1
    size = -(-end * share.numerator // share.denominator)
    begin = end - size if is_later else np.zeros_like(end)
    in_part = (view.positions >= begin[:, None]) & (view.positions < (begin + size)[:, None])
    found = (view.is_equal & in_part).sum(axis=1)
    scaled = (2 * found * end + size) // np.maximum(2 * size, 1)
    low, high = np.flatnonzero(view.is_candidate)[[0, -1]]
    scaled = scaled.clip(low, high)
    least, most = (scaled - slack).clip(low), (scaled + slack).clip(max=high)
    is_near = (view.answers >= least) & (view.answers <= most)
    chances: Chances = is_near / (most - least + 1)
    return chances


def _matches(view: View, context: int, *, is_backwards: bool) -> Mask:
    """Mark where an earlier copy of the last ``context`` tokens read ends.

    If ``is_backwards``, mark instead where a copy of these tokens in reversed order begins.
    """
    if context == 1:
        return view.is_equal
    if (context, is_backwards) not in view.matches:
        step, length = context - 1, len(view.positions)
        at = view.places - step
        wanted = np.where(at >= 0, view.tokens[np.arange(len(at)), at.clip(0)], -1)[:, None]
        source = view.positions + (step if is_backwards else -step)
        is_inside = (source >= 0) & (source < length) & (source < view.places[:, None])
        is_same = view.tokens[:, source.clip(0, length - 1)] == wanted
        view.matches[context, is_backwards] = _matches(view, step, is_backwards=is_backwards) & is_same & is_inside
    return view.matches[context, is_backwards]


def _longest_matches(view: View, context: int, *, is_backwards: bool) -> Mask:
    """Mark, as :func:`_matches` does, the longest copies of the last tokens read, up to ``context`` tokens."""
    matched = _matches(view, context, is_backwards=is_backwards)
    for fewer in reversed(range(1, context)):
        shorter = _matches(view, fewer, is_backwards=is_backwards)
        matched = np.where(matched.any(axis=1, keepdims=True), matched, shorter)
    return matched


WHICH = ("the latest", "the first", "the most frequent", "a random")


def beside_copy(view: View, which: str, context: int = 1, *, is_backwards: bool = False) -> Chances:
    """Apply the rule that names the token after an earlier copy of the last ``context`` tokens read.

    If ``is_backwards``, the rule instead looks for these tokens in reversed order, and names the token before them. If
    there is no copy, the rule looks for a copy of fewer tokens. If several tokens are found, ``which`` says which token
    is named: ``the latest``, ``the first``, ``the most frequent`` or ``a random`` token.
    """
    matched = _longest_matches(view, context, is_backwards=is_backwards)
    return _pick(view, matched, which, -1 if is_backwards else 1)


def beside_copy_in(view: View, window: Window, which: str = "a random") -> Chances:
    """Apply the rule that finds, in a window, a copy of the token at the scored position, and names the token after it.

    If the window has no copy, the rule takes a random earlier copy outside the window. If several tokens are found in
    the window, ``which`` says which token is named, as in :func:`beside_copy`.
    """
    inside = view.is_equal & window.mask(view)
    has_copy = inside.any(axis=1)
    among_all = _pick(view, view.is_equal, "a random", 1)
    return among_all if not has_copy.any() else np.where(has_copy, _pick(view, inside, which, 1), among_all)


def _only_latest(mask: Mask) -> Mask:
    only = np.zeros_like(mask)
    row = np.flatnonzero(mask.any(axis=1))
    only[row, mask.shape[1] - 1 - mask[row, ::-1].argmax(axis=1)] = True
    return only


def _pick(view: View, matched: Mask, which: str, step: int) -> Chances:
    """Apply the rule that names a token ``step`` positions after a marked position.

    The named token must be a target anywhere in the batch. If several tokens qualify, ``which`` selects one. If none
    qualifies, the rule guesses uniformly among the different tokens read that are a target anywhere.
    """
    beside = np.zeros_like(matched)
    beside[:, max(step, 0) : len(view.positions) + min(step, 0)] = matched[
        :, max(-step, 0) : len(view.positions) - max(step, 0)
    ]
    beside &= view.is_answer
    if which == "the latest":
        chances = _share(view.is_right, _only_latest(beside))
    elif which == "the first":
        chances = _share(view.is_right, beside & (beside.cumsum(axis=1) == 1))
    elif which == "the most frequent":
        chances = _tied(view.counts(beside), view)
    else:
        chances = _share(view.is_right, beside)
    return np.where(beside.any(axis=1), chances, guess(view, ALL))


def families(length: int, *, is_wide: bool = False) -> dict[str, dict[str, Rule]]:
    """Build the rules that need no learning, as ``{family name: {rule name: rule}}``.

    Args:
        length: Number of tokens of a sequence.
        is_wide: Include additional rules that no baseline uses: other windows, longer contexts, more steps back.
    """
    back = range(1, min(WIDE_BACK if is_wide else MOST_BACK, length) + 1)
    parts = windows((*SHARES, *WIDE_SHARES) if is_wide else SHARES, with_context=True)
    contexts = range(1, (WIDE_CONTEXT if is_wide else MOST_CONTEXT) + 1)
    excluded = itertools.product(parts, EXCLUSIONS) if is_wide else []
    copies: dict[str, Rule] = {
        f"{side} {which} copy of the last {context}": partial(
            beside_copy, which=which, context=context, is_backwards=side == "before"
        )
        for side in ("after", "before")
        for which in WHICH
        for context in contexts
    }
    return {
        "one token": {f"token {steps} back": partial(token_back, steps=steps) for steps in range(length)},
        "one answer": {
            f"{'distinct ' if is_distinct else ''}answer {steps} {'on' if is_from_start else 'back'}": partial(
                answer_back, steps=steps, is_from_start=is_from_start, is_distinct=is_distinct
            )
            for steps in back
            for is_from_start in (False, True)
            for is_distinct in (False, True)
        },
        "guess": {
            **{f"any of the {window.name}": partial(guess, window=window) for window in parts},
            **{
                f"any token of the {window.name}": partial(guess, window=window, is_distinct=False)
                for window in (ALL, *parts)
            },
            **{f"any unasked of the {window.name}": partial(guess, window=window, without="asked") for window in parts},
        },
        "set": {
            **{f"any but {name}": partial(guess, window=ALL, without=name) for name in EXCLUSIONS},
            **{
                f"any of the {window.name} but {name}": partial(guess, window=window, without=name)
                for window, name in excluded
            },
        },
        "frequent": {
            "most frequent of all tokens": partial(frequent, window=ALL),
            **{f"most frequent of the {window.name}": partial(frequent, window=window) for window in parts},
            "second most frequent": partial(frequent, window=ALL, place=1),
            "rarest": partial(frequent, window=ALL, is_rarest=True),
            "after any copy, the most frequent of all": frequent_beside,
        },
        "count": {
            **{
                f"count in the {Window(share, is_later).name}, scaled": partial(count, share=share, is_later=is_later)
                for is_later in (True, False)
                for share in COUNT_SHARES
            },
            "count to within 1": partial(count, share=Fraction(1), slack=1),
        },
        "copy": copies,
        "copy in a part": {
            **{f"after any copy in the {window.name}": partial(beside_copy_in, window=window) for window in parts},
            **{
                f"after {which} copy in the {window.name}": partial(beside_copy_in, window=window, which=which)
                for which in ("the most frequent", *(["the latest"] if is_wide else []))
                for window in parts
            },
        },
    }


VOTES = ("distance", "place")


def reached_by_votes(fit: View, fresh: View) -> dict[str, float]:
    """Learn two voting rules on ``fit``; return the accuracy of each rule on ``fresh``, with the rules' names as keys.

    Every token read that is a target anywhere in the sample votes for its own id. The weight of a vote depends on the
    place of the token: it is the log-odds, relative to a random guess, that a token at this place is the answer. In one
    rule, places are distances to the scored position; in the other rule, they are positions in the sequence.
    """
    reached = {}
    for kind in VOTES:
        known, asked = (_ranges(view, kind) for view in (fit, fresh))
        size = int(max(known.max(), asked.max())) + 1
        num_right = np.bincount(known[fit.is_answer & fit.is_right], minlength=size)
        num_votes = np.bincount(known[fit.is_answer], minlength=size)
        chance = 1 / max(int(fit.is_candidate.sum()), 2)
        odds = (num_right + chance) / (num_votes - num_right + 1 - chance)
        weights = np.log(odds * (1 - chance) / chance)
        num_ids = len(fresh.is_candidate)
        votes = np.bincount(
            fresh.bins[fresh.is_answer], weights[asked[fresh.is_answer]], minlength=len(asked) * num_ids
        ).astype(float)
        votes = votes.reshape(len(asked), num_ids)
        votes[:, ~fresh.is_candidate] = -np.inf
        best = votes.max(axis=1, keepdims=True)
        is_best = votes >= best - VOTES_EQUAL
        reached[f"vote by {kind}"] = float((is_best[np.arange(len(asked)), fresh.answers] / is_best.sum(axis=1)).mean())
    return reached


def _ranges(view: View, kind: str) -> Int[np.ndarray, "scored length"]:
    """Return the number of the range that holds each token's position or its distance to the scored position.

    The first 16 values have a range each, and all others share 32 ranges of equal size.
    """
    length = len(view.positions)
    edges = np.unique(np.concatenate([np.arange(min(16, length)), np.linspace(16, max(16, length), 33).astype(int)]))
    places = view.places[:, None] - view.positions if kind == "distance" else view.positions[None]
    number_of = np.searchsorted(edges, view.positions, side="right")
    numbers: Int[np.ndarray, "scored length"] = np.broadcast_to(number_of[places.clip(0)], view.tokens.shape)
    return numbers


class Scored(NamedTuple):
    """Scored positions of a batch with their sequences and answers, on which lookup tables are learned and scored.

    A lookup table is a rule that maps a few tokens to an answer.
    """

    inputs: Tokens
    rows: Int[np.ndarray, " scored"]
    places: Int[np.ndarray, " scored"]
    answers: Int[np.ndarray, " scored"]

    @classmethod
    def of(cls, batch: Batch) -> "Scored":
        """Take the first scored positions of a batch, up to a limit; the limit is higher for short sequences."""
        rows, places = np.nonzero(batch.targets != IGNORE)
        most = NUM_IN_TABLES * (2 if batch.inputs.shape[1] <= SHORT else 1)
        kept = slice(most)  # sequences are independent: the first are as good as any
        rows, places = rows[kept], places[kept]
        return cls(batch.inputs, rows, places, batch.targets[rows, places])

    def back(self, steps: int) -> Int[np.ndarray, " scored"]:
        """Return the token ``steps`` positions before each scored position; -1 before the start of the sequence."""
        at = self.places - steps
        return np.where(at >= 0, self.inputs[self.rows, at.clip(0)], -1)


class Halves(NamedTuple):
    """Accuracies of a lookup table on each half of a sample.

    The best of several tables is chosen on one half, and scored on the other half.
    """

    earlier: float
    later: float


TABLES = (
    ("", (), 1, MOST_TOKENS, 0),
    (" by place", ("place",), 1, 3, 0),
    (" by distance from the first mark", ("mark",), 0, 3, 0),
    (" and the first", ("first",), 1, 3, 1),
    (" by place and first mark", ("place", "mark"), 0, 1, 0),
    (" by place and answers read", ("place", "size"), 0, 1, 0),
)
"""Tables: the end of the name, what they see besides the last tokens, the fewest and most of these, tokens among it."""


def reached_by_tables(fit: Batch, fresh: Batch, most_tokens: int = MOST_TOKENS) -> dict[str, Halves]:
    """Learn lookup tables on ``fit``; return each table's accuracies on both halves of ``fresh``, by the table's name.

    A table looks at a few features: the last few tokens and, in some tables, also the position, the first token or
    similar. The table names the answer that was most frequent with the same features in ``fit``. If ``fit`` lacks this
    combination of features, a table with fewer features answers. Only tables that see, on average, at most half of the
    tokens read are included.
    """
    learned, scored = Scored.of(fit), Scored.of(fresh)
    skipped = 0
    # Skip tokens that are the same at all scored positions, such as a question mark: they tell nothing.
    while skipped < fit.inputs.shape[1] and len(np.unique(learned.back(skipped))) == 1:
        skipped += 1
    is_mark = np.ones(1 + max(int(part.inputs.max()) for part in (fit, fresh)), dtype=bool)
    answers = np.unique(learned.answers)
    is_mark[answers[answers < len(is_mark)]] = False
    last, extra = [], []
    for part in (learned, scored):
        marks = is_mark[part.inputs].argmax(axis=1)[part.rows]
        sizes = (~is_mark[part.inputs]).cumsum(axis=1)[part.rows, part.places]
        last.append([part.back(skipped + steps) for steps in range(most_tokens)])
        extra.append(
            {"place": part.places, "mark": part.places - marks, "first": part.inputs[part.rows, 0], "size": sizes}
        )
    is_short = [steps <= (float(learned.places.mean()) + 1 - skipped) / 2 for steps in range(most_tokens + 2)]
    reached = {}
    is_later = scored.rows > scored.rows[len(scored.rows) // 2]
    if not is_later.any():
        is_later = np.arange(len(scored.rows)) >= len(scored.rows) // 2
    for name, keyed, fewest, most, extra_tokens in TABLES:
        known, codes = np.zeros_like(learned.answers), np.zeros_like(scored.answers)
        for key in keyed:
            known, codes = _codes(known, extra[0][key], codes, extra[1][key])
        predictions = np.full(len(scored.answers), np.bincount(learned.answers).argmax())
        if keyed:
            predictions = _with_table(known, learned.answers, codes, predictions)
        for size in range(fewest, (most if keyed else most_tokens) + 1):
            if not is_short[size + extra_tokens]:
                break
            if size:
                known, codes = _codes(known, last[0][size - 1], codes, last[1][size - 1])
                predictions = _with_table(known, learned.answers, codes, predictions)
            is_right = predictions == scored.answers
            reached[_table_name(size, name)] = Halves(
                *(float(is_right[half].mean()) if half.any() else 0.0 for half in (~is_later, is_later))
            )
    return reached


def _table_name(size: int, end: str) -> str:
    return f"table of {f'the last {size}' if size else 'places'}{end}"


def _codes(
    known: Int[np.ndarray, " learned"],
    key: Int[np.ndarray, " learned"],
    codes: Int[np.ndarray, " scored"],
    other_key: Int[np.ndarray, " scored"],
) -> tuple[Int[np.ndarray, " learned"], Int[np.ndarray, " scored"]]:
    """Combine the code and a further key of each position into a new code.

    Equal pairs of code and key have the same new code in both samples.
    """
    base = int(max(key.max(), other_key.max())) + 2
    pairs, other_pairs = known * base + key + 1, codes * base + other_key + 1
    size = int(max(pairs.max(), other_pairs.max())) + 1
    if size > NUM_CODES:
        _, numbers = np.unique(np.concatenate([pairs, other_pairs]), return_inverse=True)
        return numbers[: len(pairs)], numbers[len(pairs) :]
    is_used = np.zeros(size, dtype=bool)
    is_used[pairs] = is_used[other_pairs] = True
    dense = is_used.cumsum() - 1
    return dense[pairs], dense[other_pairs]


def _with_table(
    known: Int[np.ndarray, " learned"],
    answers: Int[np.ndarray, " learned"],
    codes: Int[np.ndarray, " scored"],
    predictions: Int[np.ndarray, " scored"],
) -> Int[np.ndarray, " scored"]:
    """Replace each prediction by the most frequent answer to the position's code, if the code occurs in ``known``.

    In a tie, take the answer with the smallest id.
    """
    base = int(answers.max()) + 1
    num_codes = int(max(known.max(), codes.max())) + 1
    if num_codes * base <= NUM_CODES:
        table = np.bincount(known * base + answers, minlength=num_codes * base).reshape(num_codes, base)
        best = table.argmax(axis=1)[codes]
        return np.where(table.max(axis=1)[codes] > 0, best, predictions)
    pairs, counts = np.unique(known * base + answers, return_counts=True)
    seen, found = np.divmod(pairs, base)
    order = np.lexsort((found, -counts, seen))
    kept, first = np.unique(seen[order], return_index=True)
    at = np.searchsorted(kept, codes).clip(max=len(kept) - 1)
    return np.where(kept[at] == codes, found[order][first][at], predictions)


class Reached(NamedTuple):
    """The best rule of a family of rules, and its accuracy on a sample that was not used to choose the rule."""

    rule: str
    accuracy: float


def search(
    fit: Batch,
    fresh: Batch,
    vocab_size: int,
    *,
    left_out: Iterable[str] = (),
    scale: float = 1.0,
    is_wide: bool = False,
) -> dict[str, Reached]:
    """Find the best rule of each family, and the rule's accuracy; keys of the result are the names of the families.

    Args:
        fit: The sample on which rules are chosen and tables are learned.
        fresh: The sample on which the chosen rules are scored.
        vocab_size: Number of token ids.
        left_out: Patterns of the names of rules to leave out, with wildcards as in file names.
        scale: Factor on the number of scored positions to examine; shortcut baselines use 1.
        is_wide: Include additional rules that no baseline uses.
    """
    patterns = tuple(left_out)
    length = fit.inputs.shape[1]
    choosing = View.of(fit, vocab_size, int(scale * max(2**10, min(NUM_CHOOSING, NUM_CELLS // 4 // length))))
    scored = View.of(fresh, vocab_size, int(scale * max(2**13, min(NUM_SCORED, NUM_CELLS // length))))
    few = choosing.part(len(choosing.places) // 4)
    found = {}
    for family, rules in families(length, is_wide=is_wide).items():
        left = {name: rule for name, rule in rules.items() if not is_left_out(name, patterns)}
        if len(left) > NUM_COMPARED:
            left = {name: left[name] for name in _by_accuracy(left, few)[:NUM_COMPARED]}
        if left:
            chosen = _by_accuracy(left, choosing)[0] if len(left) > 1 else next(iter(left))
            found[family] = Reached(chosen, float(rules[chosen](scored).mean()))
    for name, accuracy in reached_by_votes(choosing, scored).items():
        if not is_left_out(name, patterns):
            found[name] = Reached(name, accuracy)
    tables = reached_by_tables(fit, fresh, WIDE_TOKENS if is_wide else MOST_TOKENS)
    if reached := {name: of for name, of in tables.items() if not is_left_out(name, patterns)}:
        by_earlier, by_later = (max(reached, key=lambda name: reached[name][half]) for half in (0, 1))
        accuracy = (reached[by_later].earlier + reached[by_earlier].later) / 2
        found["table"] = Reached(by_earlier, accuracy)
    return found


def _by_accuracy(rules: Mapping[str, Rule], view: View) -> list[str]:
    """Sort the names of rules by the rules' accuracies, from the highest to the lowest."""
    reached = {name: float(rule(view).mean()) for name, rule in rules.items()}
    return sorted(reached, key=lambda name: -reached[name])


def is_left_out(name: str, patterns: Iterable[str]) -> bool:
    """Return True if one of the patterns, with wildcards as in file names, matches the rule's name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def rule_names(length: int) -> set[str]:
    """Collect the names of all generic rules that shortcut baselines use for sequences of ``length`` tokens."""
    names = {name for rules in families(length).values() for name in rules}
    names |= {f"vote by {kind}" for kind in VOTES}
    return names | {_table_name(size, name) for name, _, low, high, _ in TABLES for size in range(low, high + 1)}
