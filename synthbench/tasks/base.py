"""Defines a task: a seeded generator of token sequences with scored targets, a floor and a causal ceiling."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from synthbench.errors import ContractError, UnknownName, UsageError
from synthbench.options import Value, arguments_of, check, coerce, options_of
from synthbench.registry import Registry

T = TypeVar("T")

Tokens = Int[np.ndarray, "batch length"]
"""A token, or a target, for every position of every sequence."""

LENGTHS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Tokens of a level's sequences, for tasks of any length: shared shapes share compiled programs."""

IGNORE = -100
"""The target of a position that is neither trained nor scored."""

Split = Literal["train", "validation", "test"]
"""Purpose of sequences: training, choice of a learning rate, or the score."""

SPLITS: tuple[Split, ...] = get_args(Split)

Measure = Literal["accuracy", "bits"]
"""Measure of a score: the share of right answers, or the bits that the answers cost, with a minus sign."""

Readout = Literal["position", "bottleneck"]
"""True if an answer is read from its own position's vector, or all of them from the last one's."""


class Batch(NamedTuple):
    """Sequences and what to predict at each position; a model at position t has seen the inputs 0..t."""

    inputs: Tokens
    targets: Tokens


class Bound(NamedTuple):
    """A floor or a ceiling of the score: of the accuracy a fraction in [0, 1], of bits at most 0.

    ``exact`` bounds hold to rounding, or to ``standard_error`` where an exact posterior was averaged over sampled
    inputs. A ``bound`` is an inequality: the true floor is higher, or the true ceiling lower.
    """

    value: float
    kind: Literal["exact", "bound"] = "exact"
    standard_error: float = 0.0


class Level(NamedTuple):
    """One level of a task's ladder: what it samples, and which targets are new on it."""

    task: "Task"
    length: int
    """Tokens of a sequence."""
    load: int
    """Difficulty, in the unit of :attr:`Task.load`."""
    first_new: int
    """Targets before this position are trained and not scored: a lower level has them, or they are easier."""

    def new_targets(self, targets: Integer[np.ndarray, "*leading length"]) -> Int[np.ndarray, "*leading length"]:
        """Keep the targets that count for this level; replace others by ``IGNORE``."""
        kept: Int[np.ndarray, "*leading length"] = targets.astype(np.int64)
        kept[..., : self.first_new] = IGNORE
        return kept


@dataclass(frozen=True)
class Task(ABC):
    """A seeded generator of token sequences with scored targets.

    Facts are class variables, options are fields. ``length`` is always the number of tokens that the model reads.
    """

    kind: ClassVar = "task"
    name: ClassVar[str]
    """The registered name: the file's name."""
    version: ClassVar[int] = 1
    """Version to raise with every change of the samples, a floor, a ceiling or a shortcut."""
    source: ClassVar[str]
    """Key of the paper in :mod:`synthbench.sources`."""
    length: ClassVar[int]
    """Length of the published task, in tokens; a suite may set another."""
    levels: ClassVar[Sequence[Mapping[str, Value]]] = ()
    """The ladder, easiest level first: the ``load`` of each, its ``length`` in tokens, and the options that differ.

    Loads grow by about the square root of 2. All levels have the same token ids. Each scores only what no easier level
    covers: its strings are longer. Where sequences begin with shorter ones, only positions from ``first_new`` on are
    scored. A task without levels is not ranked.
    """
    extended_levels: ClassVar[Sequence[Mapping[str, Value]]] = ()
    """The ladder of suites that ask for it, if not :attr:`levels`: harder, or without levels that a rule nearly solves.

    Rows are named by the levels of their ladder, so :attr:`levels` stays unchanged; and more levels may need more ids.
    """
    load: ClassVar[str] = "tokens"
    """Unit of the load, in the plural: ``pairs``."""
    readout: ClassVar[Readout] = "position"
    """Place where answers are read; with a bottleneck the target at a position may depend on the whole sequence."""
    measure: ClassVar[Measure] = "accuracy"
    """Measure of its scores. In bits nothing bounds a score but 0, so rows have no skill; see :meth:`references`."""
    no_shortcuts: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Generic rules that do what the task asks for, or more: patterns of their names, and the reason in one sentence.

    They are left out of the shortcut baseline of a level; see :mod:`synthbench.tasks._rules`.
    """
    not_tested: ClassVar[str] = ""
    """One sentence: what a high score does *not* show."""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            UsageError: If an option lies outside its range.
        """
        check(self)

    def __init_subclass__(cls, **named: Any) -> None:
        """Make ``sample``, ``floor`` and ``ceiling`` refuse the lengths that ``check_length`` refuses."""
        super().__init_subclass__(**named)
        for name in ("sample", "floor", "ceiling"):
            if name in vars(cls):
                setattr(cls, name, _length_checked(vars(cls)[name]))

    @classmethod
    def category(cls) -> str:
        """Return the name of the folder that holds the task's file; a plugin's task may name another category."""
        package, _, _ = cls.__module__.rpartition(".")
        return package.rpartition(".")[2] if package.startswith("synthbench.tasks.") else "plugin"

    @property
    def vocab_size(self) -> int:
        """Number of token ids, which is also the number of output classes: the option ``vocabulary`` if it has one.

        Raises:
            ContractError: If it has none and does not define this.
        """
        size = getattr(self, "vocabulary", None)
        if not isinstance(size, int):
            raise ContractError(f"task {self.name!r} has no vocab_size, and no option vocabulary in its place")
        return size

    def coordinates(self, length: int) -> Float[np.ndarray, "length axes"]:
        """Return the coordinates of the tokens: by default 0, 1, ... on one axis."""
        return np.arange(length, dtype=np.float64)[:, None]

    @property
    def min_length(self) -> int:
        """The shortest sequence, in tokens, for which the task is defined: by default one token."""
        return 1

    @abstractmethod
    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw ``batch_size`` independent sequences of ``length`` tokens.

        Raises:
            UsageError: If the task has no sequence of this length.
        """

    @abstractmethod
    def floor(self, length: int) -> Bound:
        """Return the expected score of the best predictor without the input: one constant per position.

        In bits it is that of one distribution for all positions, learned from the training split.
        """

    def ceiling(self, length: int) -> Bound:
        """Return the expected score of the best causal predictor, which at position t knows the inputs 0..t.

        By default it is 1: every answer is determined by the tokens read.
        """
        self.check_length(length)
        return Bound(1.0)

    def of_split(self, split: Split) -> "Task":
        """Return the task that draws the sequences of one split: itself, unless its data are finite and divided.

        It has the same options, ids and coordinates, so it names the same streams. :meth:`sample` of the task itself
        draws training sequences.
        """
        return self

    def references(self, length: int) -> dict[str, float]:
        """Return scores on the test split of simple predictors learned from the training split, by name.

        They are accuracies or, for a task in bits, bits per token.
        """
        return {}

    def kinds(self, inputs: Tokens) -> dict[str, Bool[np.ndarray, "batch length"]]:
        """Mark kinds of positions, by name, whose losses rows report separately.

        The kind of a position must be known from the inputs up to it.
        """
        return {}

    @classmethod
    def arguments_of_level(cls, number: object) -> dict[str, Value]:
        """Return the length and options of a level, counted from 1.

        Raises:
            UsageError: If the task has no such level.
        """
        numbers = {str(index): level for index, level in enumerate(cls.levels, start=1)}
        if str(number) not in numbers:
            allowed = f"1 to {len(cls.levels)}" if cls.levels else "none, since it has no ladder"
            raise UsageError(f"level of task {cls.name!r} is {number}; allowed: {allowed}")
        return {name: value for name, value in numbers[str(number)].items() if name not in ("load", "first_new")}

    @classmethod
    def ladder(cls, longest: int, *, is_extended: bool = False) -> list[Level]:
        """List the levels of sequences of up to ``longest`` tokens, the easiest first.

        >>> [level.load for level in TASKS["parity_running"].ladder(longest=16)]
        [6, 8, 12, 16]

        Args:
            longest: Tokens of the longest sequence.
            is_extended: Take :attr:`extended_levels` of a task that has them.
        """
        found: list[Level] = []
        for arguments in (cls.extended_levels if is_extended else ()) or cls.levels:
            options = dict(arguments)
            load, length, first_new = (int(options.pop(name, 0)) for name in ("load", "length", "first_new"))
            if length <= longest:
                found.append(Level(cls(**options), length, load, first_new))
        return found

    def stretched(self, length: int, factor: int) -> "tuple[Task, int]":
        """Return the task for tests out of range: ``factor`` times the length or the load.

        Ids mean the same in both. By default only the length grows.

        Args:
            length: The length that was trained on, in tokens.
            factor: A power of 2, from 2.
        """
        return self, factor * length

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Predict, by name, with rules that avoid what the task tests.

        A rule may use all tokens up to a position, but not do what the task asks for: the answer of a shorter chain,
        the latest value of any key. Predictions at unscored positions are arbitrary.
        """
        return {}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Predict with the shortcuts that count for a level's baseline: by default :meth:`shortcuts`.

        Rows at a size store the accuracy of :meth:`shortcuts`, where a new rule would need a new version; later rules
        are added here instead.
        """
        return self.shortcuts(inputs)

    def check_length(self, length: int) -> None:
        """Refuse a length below ``min_length``.

        Raises:
            UsageError: If the task has no sequence of this length.
        """
        if length < self.min_length:
            raise UsageError(f"length of task {self.name!r} is {length}; allowed: {self.min_length} and more")


def _length_checked(method: Callable[..., T]) -> Callable[..., T]:
    """Wrap a method whose last argument is a length, so that it refuses lengths that the task lacks."""

    @wraps(method)
    def checked(self: Task, *arguments: Any, **named: Any) -> T:
        self.check_length(named["length"] if "length" in named else arguments[-1])
        return method(self, *arguments, **named)

    return checked


TASKS: Registry[Task] = Registry("task", room="synthbench.tasks")


def running_levels(shortest: int, **shared: Value) -> tuple[dict[str, Value], ...]:
    """Build the ladder, by length, of a task whose longer sequences begin with shorter ones.

    >>> running_levels(768, num_inputs=4)[0]
    {'load': 768, 'length': 768, 'first_new': 512, 'num_inputs': 4}

    Args:
        shortest: Tokens of the first level, one of :data:`LENGTHS`; positions of the previous length are not scored.
        shared: Options that all levels have.
    """
    return tuple(
        {"load": length, "length": length, "first_new": first_new, **shared}
        for first_new, length in pairwise(LENGTHS)
        if length >= shortest
    )


def task(unit: type[T]) -> type[T]:
    """Register a task under its name; the class decorator of every task."""
    TASKS.register(unit)
    return unit


class Sized(NamedTuple):
    """A task's arguments in full: the length in tokens and the options that are set."""

    length: int
    options: dict[str, Value]


def sized(name: str, arguments: Mapping[str, object]) -> Sized:
    """Resolve ``level``, ``length`` and options; given values win over the level's.

    Args:
        name: The task's registered name.
        arguments: Values, or texts that are read as the option's type; ``rung`` is the former name of ``level``.

    Raises:
        UnknownName: If the task or an argument does not exist.
        UsageError: If a value is out of range, or the task has no such level, or no sequence of the length.
    """
    given = dict(arguments)
    level = given.pop("level", given.pop("rung", None))
    of_level = {} if level is None else TASKS[name].arguments_of_level(level)
    merged = {"length": TASKS[name].length, **of_level, **given}
    text = str(merged.pop("length"))
    try:
        length = int(text)
    except ValueError:
        raise UsageError(f"{name}:length is {text!r}; allowed: a whole number of tokens") from None
    try:
        options = coerce("task", TASKS[name], merged)
    except UnknownName as problem:
        raise UnknownName(f"argument of task {name!r}", problem.name, ["level", "length", *problem.allowed]) from None
    unit = TASKS[name](**options)
    unit.check_length(length)
    if any(options_of(TASKS[name])[option].is_location for option in options):
        options |= arguments_of(unit)  # the hash too: what lies there may change before a worker reads it
    return Sized(length, options)
