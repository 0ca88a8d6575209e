"""Read a suite, a TOML file of tasks with a training protocol, strictly.

An unknown key, a wrong type or a value out of range raises an error that names the key.
"""

import math
import os
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from synthbench.errors import ContractError, UnknownName, UsageError
from synthbench.options import LARGEST, LARGEST_SEED, MAX_SEEDS, require_current
from synthbench.plugins import NAME, Offer, no_file, offers, raise_interrupt, reason


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be finite")
    return value


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) != len(values):
        raise ValueError("must not repeat a value")
    return values


Finite = Annotated[float, AfterValidator(_finite)]
Positive = Annotated[int, Field(gt=0, le=LARGEST)]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, le=LARGEST_SEED)], ...],
    Field(min_length=1, max_length=MAX_SEEDS),
    AfterValidator(_distinct),
]
CONDITIONS = ("stock", "bare")
"""``stock``: layers as their authors build them. ``bare``: only the recurrence, or only the attention scores."""
BEFORE = "2026.1"
"""Condition of older suites, whose layers lack parts that ``stock`` layers have."""
EXTRA = ".extra"
"""Suffix of a suite's name in rows of tasks that the suite does not list but that are trained with its protocol."""
Arguments = dict[str, bool | int | float | str]
_MAX_BITS = 1024
"""Limit on the bits of whole numbers; Python refuses to print numbers with many more bits, which TOML allows in
hexadecimal."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelSettings(_Strict):
    """Settings of the small model around the mechanism: blocks, position encoding and size."""

    block: str
    """Name of the block, with the arguments that differ from the defaults: ``aether:norm=pre``."""
    positions: str
    """Name of the position encoding, with arguments as for ``block``; ``own``: that of the mechanism's authors."""
    positions_otherwise: str | None = None
    """Encoding for mechanisms without the queries and keys that ``positions`` rotates. None: refuse such mechanisms."""
    model_dim: Annotated[int, Field(gt=0, le=4096)]  # a plan builds the model: larger ones exhaust the memory
    num_heads: Positive
    num_layers: Annotated[int, Field(gt=0, le=256)]
    bias: bool
    """True if the projections of q, k, v and the output have biases; the model's head always has a bias."""


class TrainingSettings(_Strict):
    """Settings for training a run; gradients are not clipped.

    The optimizer ``adamw`` applies weight decay to all parameters except those that a mechanism exempts from it.
    """

    optimizer: Literal["adamw"]
    learning_rates: Annotated[
        tuple[Annotated[Finite, Field(gt=0)], ...], Field(min_length=1), AfterValidator(_distinct)
    ]
    betas: tuple[Annotated[Finite, Field(ge=0, lt=1)], Annotated[Finite, Field(ge=0, lt=1)]]
    eps: Annotated[Finite, Field(gt=0)]
    weight_decay: Annotated[Finite, Field(ge=0)]
    steps: Positive
    batch_size: Positive
    """Number of sequences per training step; on a ladder, the minimum for every level."""
    schedule: Literal[
        "constant", "geometric-curriculum", "curriculum-rates", "warmup-cosine", "warmup-stable-decay"
    ] = "constant"
    """Schedule of the learning rate.

    ``geometric-curriculum`` also adds the geometries of a mechanism (such as spherical) one after another.
    ``curriculum-rates`` has the same learning rates, but all geometries are used from the start.
    """
    warmup_steps: Positive | None = None
    """Number of steps over which the learning rate grows linearly from 0."""
    decay_steps: Positive | None = None
    """Number of last steps over which ``warmup-stable-decay`` lowers the learning rate linearly to 0."""
    stop_at: Annotated[Finite, Field(gt=0, le=1)] | None = None
    """Skill on the validation sequences at which a run's training stops. None: training does not stop early."""

    @model_validator(mode="after")
    def _warms_up_where_it_says_so(self) -> "TrainingSettings":
        if self.schedule.startswith("warmup") != (self.warmup_steps is not None):
            raise ValueError("a schedule that warms up and warmup_steps need each other")
        if (self.schedule == "warmup-stable-decay") != (self.decay_steps is not None):
            raise ValueError("schedule 'warmup-stable-decay' and decay_steps need each other")
        if (ends := (self.warmup_steps or 0) + (self.decay_steps or 0)) >= self.steps:
            raise ValueError(
                f"warmup_steps and decay_steps are {ends} together; allowed: fewer than {self.steps} steps"
            )
        return self


class LadderSettings(_Strict):
    """Settings for training on all levels of difficulty of a task instead of one; docs/ladder.md explains why.

    The order of levels in training is the same for all mechanisms, all seeds, and all tasks with the same number of
    levels: see :func:`synthbench.training.ladder.mixture`.
    """

    longest: Positive
    """Length of the longest allowed level, in tokens; models for all tasks are built for sequences of this length."""
    batch_tokens: Positive
    """Target number of tokens per step: a batch has as many sequences as fit, but at least ``batch_size``."""
    batch_answers: Positive
    """Smallest mean number of answers per step; tasks with one question per sequence need more sequences."""
    extended: bool = False
    """True to use the extended ladder of each task that has one. Run ids depend only on the levels used."""


class TuningSettings(_Strict):
    """Settings for choosing a learning rate from several, separately for each task and mechanism.

    Models are trained with every rate on every tuning seed. The reported runs use the rate with the highest mean skill
    on validation sequences after the last step.
    """

    seeds: Seeds
    """Root seeds for tuning, none of which is a seed of the reported runs."""


class EvaluationSettings(_Strict):
    """Settings for evaluating a run; the test sequences are used only once, after the last training step."""

    test_sequences: Positive
    """Number of test sequences; on a ladder, the number per level."""
    curve_every: Positive
    """Number of steps between two points of the learning curve."""
    curve_sequences: Positive | None = None
    """Number of new validation sequences for each point of the learning curve; left out on a ladder."""
    threshold: Annotated[Finite, Field(gt=0, le=1)] | None = None
    """Skill on the validation sequences at which ``steps_to_threshold`` is measured; left out on a ladder."""
    validation_sequences: Positive | None = None
    """Number of validation sequences (on a ladder, per level) for choosing among several learning rates per seed."""
    stretches: Annotated[tuple[Annotated[int, Field(ge=2, le=LARGEST)], ...], AfterValidator(_distinct)] | None = None
    """Multiples of the trained length or load at which the trained model is tested too."""
    shifts: Annotated[tuple[Annotated[int, Field(gt=0, le=1 << 20)], ...], AfterValidator(_distinct)] | None = None
    """Distances by which all positions are shifted in further tests of the trained model; no part of a run's id."""


class Suite(_Strict):
    """Tasks with their options, and the protocol of training and evaluation.

    Results of different versions of a suite are never shown in one table.
    """

    name: str
    version: Annotated[str, Field(min_length=1)]
    description: str
    model: ModelSettings
    training: TrainingSettings
    evaluation: EvaluationSettings
    seeds: Seeds
    tasks: Annotated[dict[str, Arguments], Field(min_length=1)]
    """Arguments by task: ``length`` in tokens, and the options that differ from the defaults; empty on a ladder."""
    mechanisms: Annotated[dict[str, Arguments], Field(min_length=1)]
    """Arguments by mechanism, in the order of the tables; other mechanisms run with their defaults."""
    tuning: TuningSettings | None = None
    """Choice of the learning rate by tuning; if left out, every learning rate is run."""
    ladder: LadderSettings | None = None
    """Training on levels; if left out, each task has one size."""
    condition: Literal["stock", "bare", "2026.1"] = "stock"
    """Condition of mechanisms: one of ``CONDITIONS``, or ``BEFORE``. Run ids depend only on the options that the
    condition sets."""
    merged: dict[str, str] = {}
    """Names under which categories with few tasks are shown, by category; no part of a row's id."""
    quick: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_distinct)] | None = None
    """Tasks of a quick first verdict; by default, all tasks of the suite. No part of a row's id."""
    studies: Annotated[tuple[str, ...], AfterValidator(_distinct)] = ()
    """Studies that use rows of the suite: folders under ``studies/`` in the repository. No part of a row's id."""

    @model_validator(mode="after")
    def _tunes_on_other_seeds(self) -> "Suite":
        if self.tuning is not None:
            if shared := set(self.tuning.seeds) & set(self.seeds):
                raise ValueError(f"tuning.seeds has {min(shared)}, which is a reported seed")
            if len(self.training.learning_rates) < 2:
                raise ValueError("tuning chooses among learning rates; name at least two in training.learning_rates")
        return self

    @model_validator(mode="after")
    def _has_either_a_ladder_or_sizes(self) -> "Suite":
        curve = (self.evaluation.curve_sequences, self.evaluation.threshold)
        if self.ladder is None:
            if self.evaluation.curve_sequences is None:
                raise ValueError("evaluation.curve_sequences is missing")
            if self.tuning is not None and self.evaluation.validation_sequences is not None:
                raise ValueError(
                    "tuning and evaluation.validation_sequences choose a learning rate; allowed: one of them"
                )
            return self
        if curve != (None, None):
            raise ValueError("evaluation.curve_sequences and evaluation.threshold go with sizes, not with a ladder")
        if sized := [name for name, arguments in self.tasks.items() if arguments]:
            raise ValueError(f"tasks.{sized[0]} has arguments, and a ladder sets all of them; allowed: {{}}")
        if len(self.training.learning_rates) > 1 and self.evaluation.validation_sequences is None:
            raise ValueError("several training.learning_rates need evaluation.validation_sequences, which choose one")
        if self.tuning is not None:
            raise ValueError("tuning goes with sizes, not with a ladder")
        if {self.training.stop_at, self.evaluation.stretches, self.evaluation.shifts} != {None}:
            raise ValueError(
                "training.stop_at, evaluation.stretches and evaluation.shifts go with sizes, not with a ladder"
            )
        return self

    @model_validator(mode="after")
    def _lists_its_quick_tasks(self) -> "Suite":
        if unlisted := [name for name in self.quick or () if name not in self.tasks]:
            raise ValueError(f"quick: {UnknownName('task of the suite', unlisted[0], self.tasks)}")
        return self


def with_tasks(suite: Suite, tasks: Mapping[str, Mapping[str, str]]) -> Suite:
    """Return a copy of a suite with the given tasks and their options instead of its own tasks.

    The name of the copy ends in :data:`EXTRA`, so that no table of the original suite shows rows of the copy.
    """
    return suite.model_copy(
        update={"name": f"{suite.name}{EXTRA}", "tasks": {name: dict(tasks[name]) for name in tasks}}
    )


def suite_names() -> list[str]:
    """List the names of all suites that come with synthbench or with installed packages."""
    return sorted([*_built_in(), *offers("suites")])


def _built_in() -> list[str]:
    names = (entry.name for entry in files("synthbench.suites").iterdir())
    return [name.removesuffix(".toml") for name in names if name.endswith(".toml")]


def load_suite(name: str) -> Suite:
    """Load a suite by its name, or from a file if the name ends in ``.toml``.

    Raises:
        UnknownName: If there is no suite with this name, or the file has an unknown key.
        UsageError: If the file cannot be read, or a value is missing, has the wrong type or is out of range. It is also
            raised for a former name of a suite, and for a file that differs from a built-in suite of the same name.
        ContractError: If an installed package declares the suite, but the suite cannot be loaded.
    """
    if name in offers("suites"):
        return _of_package(offers("suites")[name])
    if name.endswith(".toml"):
        path = Path(name)
        try:
            if not path.is_file():  # reading a pipe would wait
                raise no_file("suite file", name)
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise UsageError(f"suite file {name!r} cannot be read: {problem}") from None
        suite = parse_suite(text, origin=name, expected_name=path.stem)
        if suite.name in _built_in() and suite != load_suite(suite.name):
            raise UsageError(
                f"{name}: name is {suite.name!r}, which comes with synthbench and says something else; allowed: a name "
                "of its own, since rows of both would stand in one table"
            )
        return suite
    require_current(name)
    if name not in suite_names():
        if os.path.isfile(f"{name}.toml"):  # noqa: PTH113 - Path.is_file raises for a name that is too long for a file
            raise UsageError(f"no suite called {name!r}; there is a file {name}.toml: name it with its ending")
        raise UnknownName("suite", name, suite_names())
    text = files("synthbench.suites").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse_suite(text, origin=f"{name}.toml", expected_name=name)


def _of_package(offer: Offer) -> Suite:
    """Read a suite from an installed package; its entry point is a function that returns the path of a TOML file."""
    locate = offer.load()
    try:
        path = Path(locate())  # type: ignore[operator]  # whatever it is, it is foreign
        text = path.read_text(encoding="utf-8")
    except BaseException as problem:
        raise_interrupt(problem)
        raise ContractError(f"suite {offer.name!r} is broken: {reason(problem)}") from problem
    suite = parse_suite(text, origin=path.name, expected_name=offer.name.rpartition("/")[2])
    return suite.model_copy(update={"name": offer.name})


def parse_suite(text: str, *, origin: str, expected_name: str) -> Suite:
    """Read a suite from the text of a TOML file; error messages begin with ``origin``.

    Raises:
        UnknownName: If the text has an unknown key.
        UsageError: If the text is not TOML, if a value is missing, has the wrong type or is out of range, or if the
            suite's name is not ``expected_name``.
    """
    try:
        content = _tuples(tomllib.loads(text))
    except (ValueError, RecursionError) as problem:  # an integer of 5,000 digits, or 5,000 brackets in each other
        raise UsageError(f"{origin} is not TOML: {problem}") from None
    try:
        suite = Suite.model_validate(content)
    except ValidationError as problem:
        raise _refusal(origin, problem) from None
    if suite.name != expected_name or not NAME.fullmatch(suite.name):
        raise UsageError(
            f"{origin}: name is {suite.name!r}; allowed: the file's name, {expected_name!r}, in lower case"
        )
    if suite.name.endswith(EXTRA):
        raise UsageError(f"{origin}: name is {suite.name!r}; allowed: any that does not end in {EXTRA!r}")
    return suite


def _tuples(value: Any) -> Any:
    """Replace lists from TOML, nested ones too, by tuples, which the immutable :class:`Suite` requires."""
    if isinstance(value, Mapping):
        return {key: _tuples(entry) for key, entry in value.items()}
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ValueError(f"a whole number has more than {_MAX_BITS} bits")
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value


def _refusal(origin: str, problem: ValidationError) -> UsageError:
    # A misspelt key causes two errors, an unknown key and a missing one; the first is more helpful.
    first = min(problem.errors(include_url=False), key=lambda error: error["type"] != "extra_forbidden")
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        model: type[BaseModel] = Suite
        for part in first["loc"][:-1]:
            annotation = model.model_fields[str(part)].annotation
            model = next(of for of in (get_args(annotation) or (annotation,)) if issubclass(of, BaseModel))
        return UnknownName(f"key in {origin}", where.rpartition(".")[2], model.model_fields)
    if first["type"] == "missing":
        return UsageError(f"{origin}: {where} is missing")
    if first["type"] == "value_error" and isinstance(first["input"], Mapping):  # settings that do not fit each other
        return UsageError(f"{origin}: {first['msg'].removeprefix('Value error, ')}")
    return UsageError(f"{origin}: {where} is {first['input']!r}; {first['msg']}")
