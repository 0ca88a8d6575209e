"""The base class of tasks: generators of random token sequences with scored targets.

A task also states a floor, the best score of a predictor that ignores the input, and a ceiling, the best score of a
causal predictor.
"""

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
from synthbench.options import LARGEST, Value, arguments_of, check, coerce, options_of
from synthbench.registry import Registry

T = TypeVar("T")

Tokens = Int[np.ndarray, "batch length"]
"""Token ids or target ids, one for each position of each sequence."""

LENGTHS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Sequence lengths of levels, in tokens, for tasks of any length. Runs on levels of equal length can train together."""

IGNORE = -100
"""Target at positions that count neither in the training loss nor in the score."""

Split = Literal["train", "validation", "test"]
"""Purpose of a sequence: training, choosing the learning rate, or measuring the score."""

SPLITS: tuple[Split, ...] = get_args(Split)

Measure = Literal["accuracy", "bits"]
"""Unit of a score: the fraction of correct answers, or minus the mean number of bits per token."""

Readout = Literal["position", "bottleneck"]
"""Place where answers are read: each at its own position, or all from the output at the last position."""


class Batch(NamedTuple):
    """Input tokens and targets; a target is to be predicted from the inputs up to and including its own position.

    Positions with the target ``IGNORE`` count neither in the training loss nor in the score.
    """

    inputs: Tokens
    targets: Tokens


class Bound(NamedTuple):
    """The floor or ceiling of a task's score: its value, its kind (exact, or only a bound) and its standard error.

    A floor is the score of the best predictor that ignores the input. A ceiling is the score of the best causal
    predictor. The score is an accuracy in [0, 1] or, for a task scored in bits, the negative mean number of bits per
    token (at most 0). A value that was estimated on sampled inputs has a ``standard_error`` above 0. Apart from this
    error, a value of the kind ``exact`` is the true floor or ceiling. If the kind is ``bound``, the true floor may be
    higher, or the true ceiling lower.
    """

    value: float
    kind: Literal["exact", "bound"] = "exact"
    standard_error: float = 0.0


class Level(NamedTuple):
    """One level of a task's ladder, which is a list of levels of increasing difficulty.

    A level consists of the task with its options, the sequence length, the difficulty, and the first scored position.
    """

    task: "Task"
    length: int
    """Length of a sequence, in tokens."""
    load: int
    """Difficulty, in the unit of :attr:`Task.load`."""
    first_new: int
    """First scored position. Earlier targets are easier, so they are trained on but not scored."""

    def new_targets(self, targets: Integer[np.ndarray, "*leading length"]) -> Int[np.ndarray, "*leading length"]:
        """Return a copy of ``targets`` in which positions before ``first_new`` are not scored (``IGNORE``)."""
        kept: Int[np.ndarray, "*leading length"] = targets.astype(np.int64)
        kept[..., : self.first_new] = IGNORE
        return kept


@dataclass(frozen=True)
class Task(ABC):
    """Base class of tasks: generators of random token sequences with scored targets.

    Dataclass fields are the options of a task, which the user can set. Class variables state facts that no option
    changes. ``length`` always means the number of tokens that the model reads.
    """

    kind: ClassVar = "task"
    name: ClassVar[str]
    """The registered name, which is also the file's name without ``.py``."""
    version: ClassVar[int] = 1
    """Version number, raised whenever the samples, a floor, a ceiling or a shortcut changes."""
    source: ClassVar[str]
    """Key of the paper in :mod:`synthbench.sources`."""
    length: ClassVar[int]
    """Length of the published task, in tokens; a suite may set another length."""
    levels: ClassVar[Sequence[Mapping[str, Value]]] = ()
    """The ladder, easiest level first: each level's ``load``, its ``length`` in tokens, and its options.

    From one level to the next, the load grows by a factor of about the square root of 2. All levels have the same token
    ids. Each level scores only what no easier level covers, such as longer strings. If sequences begin like the
    sequences of an easier level, only positions from ``first_new`` on are scored. A task without levels cannot be in a
    suite that trains on levels.
    """
    extended_levels: ClassVar[Sequence[Mapping[str, Value]]] = ()
    """A second ladder for suites that ask for extended levels; if it is empty, these suites use :attr:`levels`.

    The second ladder adds harder levels, or omits levels that a simple rule nearly solves.
    """
    load: ClassVar[str] = "tokens"
    """Unit of the load, in the plural, such as ``pairs``."""
    readout: ClassVar[Readout] = "position"
    """Place where answers are read. With ``bottleneck``, the target at a position may depend on the whole sequence."""
    measure: ClassVar[Measure] = "accuracy"
    """Unit of the score. For a task in bits, no useful ceiling is known, so rows report no skill."""
    no_shortcuts: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Generic rules left out of the shortcut baseline: patterns of rule names, each with the reason in one sentence.

    Most of these rules do what the task asks for, so they are no shortcuts. See :mod:`synthbench.tasks._rules`.
    """
    not_tested: ClassVar[str] = ""
    """One sentence on what a high score does *not* show; empty if none is needed."""

    def __post_init__(self) -> None:
        """Check that the value of each option lies in the option's range.

        Raises:
            UsageError: If an option lies outside its range.
        """
        check(self)

    def __init_subclass__(cls, **named: Any) -> None:
        """Make the methods ``sample``, ``floor`` and ``ceiling`` of a new subclass call ``check_length`` first."""
        super().__init_subclass__(**named)
        for name in ("sample", "floor", "ceiling"):
            if name in vars(cls):
                setattr(cls, name, _length_checked(vars(cls)[name]))

    @classmethod
    def category(cls) -> str:
        """Return the category: for built-in tasks, the name of their folder; for other tasks, ``plugin`` by default."""
        package, _, _ = cls.__module__.rpartition(".")
        return package.rpartition(".")[2] if package.startswith("synthbench.tasks.") else "plugin"

    @property
    def vocab_size(self) -> int:
        """Number of token ids, and of the model's output classes; by default, the value of the option ``vocabulary``.

        Raises:
            ContractError: If the task neither has the option ``vocabulary`` nor defines this property.
        """
        size = getattr(self, "vocabulary", None)
        if not isinstance(size, int):
            raise ContractError(f"task {self.name!r} has no vocab_size, and no option vocabulary in its place")
        return size

    def coordinates(self, length: int) -> Float[np.ndarray, "length axes"]:
        """Return the coordinates that position encodings use for the tokens: by default 0, 1, ... on one axis."""
        return np.arange(length, dtype=np.float64)[:, None]

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence for which the task is defined; by default 1."""
        return 1

    @abstractmethod
    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw ``batch_size`` independent sequences of ``length`` tokens.

        Raises:
            UsageError: If the task has no sequence of this length.
        """

    @abstractmethod
    def floor(self, length: int) -> Bound:
        """Return the expected score of the best predictor that ignores the input and has a fixed answer per position.

        For a task scored in bits, the predictor instead learns one distribution over tokens from the training split,
        and uses it at all positions.
        """

    def ceiling(self, length: int) -> Bound:
        """Return the expected score of the best causal predictor, which at position t knows the inputs at 0 to t.

        The default is 1, the ceiling of tasks in which the tokens read always determine the answer.
        """
        self.check_length(length)
        return Bound(1.0)

    def of_split(self, split: Split) -> "Task":
        """Return this task, restricted to one split of its data: training, validation or test.

        Most tasks generate unlimited data, so by default this method returns the task itself. A task with finite data
        returns a copy whose :meth:`sample` draws only from the given split. The copy has the same options, token ids
        and coordinates. The original task draws training sequences.
        """
        return self

    def references(self, length: int) -> dict[str, float]:
        """Return a dictionary from names of simple predictors to their scores on the test split; by default, empty.

        The predictors learn from the training split. Scores are accuracies or, for a task scored in bits, mean numbers
        of bits per token (lower is better).
        """
        return {}

    def kinds(self, inputs: Tokens) -> dict[str, Bool[np.ndarray, "batch length"]]:
        """Divide positions into named kinds; return a dictionary from each kind's name to a mask of its positions.

        Each task defines its own kinds; by default, there are none. For example, one kind may be the positions where
        the last few tokens have occurred before. The kinds of a position may depend only on inputs up to this position.
        Rows of results report the loss on each kind.
        """
        return {}

    @classmethod
    def arguments_of_level(cls, number: object) -> dict[str, Value]:
        """Return the length and the options of a level as a dictionary; levels are numbered from 1.

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
        """List the levels whose sequences have at most ``longest`` tokens, from the easiest to the hardest.

        >>> [level.load for level in TASKS["parity_running"].ladder(longest=16)]
        [6, 8, 12, 16]

        Args:
            longest: Limit on the length of sequences, in tokens.
            is_extended: True to use the task's second ladder, :attr:`extended_levels`, if it has one.
        """
        found: list[Level] = []
        for arguments in (cls.extended_levels if is_extended else ()) or cls.levels:
            options = dict(arguments)
            load, length, first_new = (int(options.pop(name, 0)) for name in ("load", "length", "first_new"))
            if length <= longest:
                found.append(Level(cls(**options), length, load, first_new))
        return found

    def stretched(self, length: int, factor: int) -> "tuple[Task, int]":
        """Return a task and a length in tokens for tests beyond the training range.

        By default, the task stays the same, and the length is ``factor`` times the trained length. A subclass may
        instead multiply the load (the difficulty in the task's own unit, such as pairs). Token ids mean the same as in
        training.

        Args:
            length: Trained length, in tokens.
            factor: Growth of the length or load: a power of 2, at least 2.
        """
        return self, factor * length

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return a dictionary from the names of shortcut rules to their predictions; by default, it is empty.

        A shortcut rule is a simple way to guess answers without doing what the task tests. For example, a rule may make
        fewer hops than asked, or name the latest value, whatever its key. At each position, a rule may use all tokens
        up to and including this position. Predictions at unscored positions are arbitrary.
        """
        return {}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the predictions of the task's own rules for a level's shortcut baseline, with rule names as keys.

        The shortcut baseline is the highest accuracy of any rule: one of these, or one of the generic rules that are
        tried on all tasks. By default, the task's own rules are the rules of :meth:`shortcuts`. Add new rules here:
        rows of results store the accuracies of :meth:`shortcuts`, so adding a rule there would require a new version of
        the task.
        """
        return self.shortcuts(inputs)

    def check_length(self, length: int) -> None:
        """Refuse a length, in tokens, below ``min_length`` or above ``LARGEST``.

        Raises:
            UsageError: If the task has no sequence of this length.
        """
        if not self.min_length <= length <= LARGEST:
            raise UsageError(f"length of task {self.name!r} is {length}; allowed: {self.min_length} to {LARGEST}")


def _length_checked(method: Callable[..., T]) -> Callable[..., T]:
    """Return a function that calls :meth:`Task.check_length` with the method's last argument, then the method."""

    @wraps(method)
    def checked(self: Task, *arguments: Any, **named: Any) -> T:
        self.check_length(named["length"] if "length" in named else arguments[-1])
        return method(self, *arguments, **named)

    return checked


TASKS: Registry[Task] = Registry("task", room="synthbench.tasks")


def running_levels(shortest: int, **shared: Value) -> tuple[dict[str, Value], ...]:
    """Build a ladder (list of levels) of growing length; each level scores only positions that easier levels lack.

    Use it for tasks whose long sequences begin like short sequences.

    >>> running_levels(768, num_inputs=4)[0]
    {'load': 768, 'length': 768, 'first_new': 512, 'num_inputs': 4}

    Args:
        shortest: Sequence length of the first level, in tokens: an entry of :data:`LENGTHS`. The first level scores
            only positions beyond the next smaller length in :data:`LENGTHS`.
        shared: Task options, which have the same values on all levels.
    """
    return tuple(
        {"load": length, "length": length, "first_new": first_new, **shared}
        for first_new, length in pairwise(LENGTHS)
        if length >= shortest
    )


def task(unit: type[T]) -> type[T]:
    """Register a task class under its name; used as a class decorator."""
    TASKS.register(unit)
    return unit


class Sized(NamedTuple):
    """The length in tokens and the options of a task, as given by the user or set by a level."""

    length: int
    options: dict[str, Value]


def sized(name: str, arguments: Mapping[str, object]) -> Sized:
    """Convert the arguments that a user gave for a task into a length and options.

    The argument ``level`` is the number of a level, and selects this level's length and options. If a length or an
    option is given as well, it replaces the level's value.

    Args:
        name: The task's registered name.
        arguments: Values of ``level``, ``length`` and options, with their names as keys. A value may be a string, which
            is converted to the option's type. ``rung`` is accepted as the former name of ``level``.

    Raises:
        UnknownName: If the task or an argument does not exist.
        UsageError: If a value is out of range, if the task has no such level, or if it has no sequence of this length.
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
