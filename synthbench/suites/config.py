"""Reads a suite strictly: an unknown key, a wrong type or a value out of range is an error that names it."""

import math
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from synthbench.errors import UnknownName, UsageError
from synthbench.registry import NAME


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be finite")
    return value


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) != len(values):
        raise ValueError("must not repeat a value")
    return values


Finite = Annotated[float, AfterValidator(_finite)]
Positive = Annotated[int, Field(gt=0)]
Arguments = dict[str, bool | int | float | str]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelSettings(_Strict):
    """The small model around the mechanism."""

    block: str
    """A block's name, with arguments where they differ from the defaults: ``aether:norm=pre``."""
    positions: str
    """A position encoding's name, with arguments in the same way."""
    model_dim: Positive
    num_heads: Positive
    num_layers: Positive
    bias: bool
    """Whether the projections of q, k, v and the output have biases; the head always has one."""


class TrainingSettings(_Strict):
    """How a member is trained. ``adamw`` decays every parameter, without warm-up or clipping."""

    optimizer: Literal["adamw"]
    learning_rates: Annotated[
        tuple[Annotated[Finite, Field(gt=0)], ...], Field(min_length=1), AfterValidator(_distinct)
    ]
    betas: tuple[Annotated[Finite, Field(ge=0, lt=1)], Annotated[Finite, Field(ge=0, lt=1)]]
    eps: Annotated[Finite, Field(gt=0)]
    weight_decay: Annotated[Finite, Field(ge=0)]
    steps: Positive
    batch_size: Positive
    schedule: Literal["constant", "geometric-curriculum"] = "constant"
    """What the learning rate does; the curriculum also brings in a mechanism's geometries one after the other."""


class EvaluationSettings(_Strict):
    """What is measured. The test stream is opened once, after the last step."""

    test_sequences: Positive
    curve_every: Positive
    """Steps between two points of the learning curve."""
    curve_sequences: Positive
    """Fresh validation sequences for each point of the curve."""
    threshold: Annotated[Finite, Field(gt=0, le=1)]
    """Skill on the validation sequences that counts as solved, for ``steps_to_threshold``."""


class Suite(_Strict):
    """Tasks with their sizes, and the protocol. Rows of two versions never meet in a table."""

    name: str
    version: str
    description: str
    model: ModelSettings
    training: TrainingSettings
    evaluation: EvaluationSettings
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), AfterValidator(_distinct)]
    tasks: Annotated[dict[str, Arguments], Field(min_length=1)]
    """Arguments by task: ``length`` in tokens, and knobs that differ from their default."""
    mechanisms: Annotated[dict[str, Arguments], Field(min_length=1)]
    """Arguments by mechanism, in the order of the tables; others run with their defaults."""


def suite_names() -> list[str]:
    """The suites that come with the package."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in files("synthbench.suites").iterdir()
        if entry.name.endswith(".toml")
    )


def load_suite(name: str) -> Suite:
    """Read a suite by its name, or from a file if the name ends in ``.toml``.

    Raises:
        UnknownName: If there is no suite of this name, or a key is not a suite's.
        UsageError: If the file cannot be read, or a value is missing, of the wrong type or out of range.
    """
    if name.endswith(".toml"):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise UsageError(f"suite file {name!r} cannot be read: {problem}") from None
        return parse_suite(text, origin=name, expected_name=path.stem)
    if name not in suite_names():
        raise UnknownName("suite", name, suite_names())
    text = files("synthbench.suites").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse_suite(text, origin=f"{name}.toml", expected_name=name)


def parse_suite(text: str, *, origin: str, expected_name: str) -> Suite:
    """Read a suite from the text of a TOML file.

    Raises:
        UnknownName: If a key is not a suite's.
        UsageError: If a value is missing, of the wrong type or out of range, or the name is not the file's.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UsageError(f"{origin} is not TOML: {problem}") from None
    try:
        suite = Suite.model_validate(_tuples(content))
    except ValidationError as problem:
        raise _refusal(origin, problem) from None
    if suite.name != expected_name or not NAME.fullmatch(suite.name):
        raise UsageError(
            f"{origin}: name is {suite.name!r}; allowed: the file's name, {expected_name!r}, in lower case"
        )
    return suite


def _tuples(value: Any) -> Any:
    """TOML has arrays, the frozen model has tuples."""
    if isinstance(value, Mapping):
        return {key: _tuples(entry) for key, entry in value.items()}
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value


def _refusal(origin: str, problem: ValidationError) -> UsageError:
    # A misspelt key shows as one key too many and one missing; the first says more.
    first = min(problem.errors(include_url=False), key=lambda error: error["type"] != "extra_forbidden")
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        model: type[BaseModel] = Suite
        for part in first["loc"][:-1]:
            model = model.model_fields[str(part)].annotation  # type: ignore[assignment]
        return UnknownName(f"key in {origin}", where.rpartition(".")[2], model.model_fields)
    if first["type"] == "missing":
        return UsageError(f"{origin}: {where} is missing")
    return UsageError(f"{origin}: {where} is {first['input']!r}; {first['msg']}")
