"""Every task keeps the contract, and every check fires on a task that breaks it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from synthbench.contract.checks import make_all, require_all
from synthbench.contract.tasks import check_task, checks_of
from synthbench.errors import ContractError, UsageError
from synthbench.options import option
from synthbench.tasks.base import IGNORE, TASKS, Batch, Bound, Task
from synthbench.tasks.basic.copy import Copy
from synthbench.tasks.real.text import Text
from tests.contract._said import SAID, is_said


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_keeps_the_contract(name: str) -> None:
    task = TASKS[name]()
    check_task(task)


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_keeps_the_contract_at_another_length(name: str) -> None:
    task = TASKS[name]()
    length = task.min_length + (task.length - task.min_length) // 4 * 2
    # Its shortest length and its ladder are the same at any other; ``tests/tasks`` holds its floor at two lengths, and
    # batches of several sizes are drawn at two lengths above.
    without = ("lengths", "levels", "floor", "batch sizes")
    require_all((one for one in checks_of(task, length) if one.name not in without), type(task))


@dataclass(frozen=True)
class Echo(Copy):
    """A sound task, which the others break in one place each."""

    name: ClassVar = "echo"
    length: ClassVar = 8
    min_length: ClassVar = 2
    vocabulary: int = option(6, "number of tokens", low=2.0, high=64.0)


Sample = Callable[[Echo, np.random.Generator, int, int], Any]
SOUND = Echo.sample
STATE = np.random.default_rng(0)
LATEST = np.zeros((8192, 64), dtype=np.int64)


def sampling(change: Sample) -> Task:
    """The sound task with another sampler."""
    return broken(Echo, sample=change)


def altering(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Task:
    """The sound task, of whose inputs ``x`` and targets ``y`` others are made."""
    return sampling(lambda task, *how: Batch(*change(*SOUND(task, *how))))


def broken(sound: type[Task], **methods: Any) -> Task:
    """A sound task with other methods."""
    return type("Broken", (sound,), methods)()  # type: ignore[no-any-return]


def with_first(array: np.ndarray, value: int) -> np.ndarray:
    """The same ids but for one of the first sequence."""
    array[0, 1] = value
    return array


def reused(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    inputs, targets = SOUND(task, rng, batch_size, length)
    view = LATEST[:batch_size, :length]
    view[:] = inputs
    return Batch(view, targets)


def seed_of_rng(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    key = int(rng.bit_generator.state["state"]["key"][0])
    return SOUND(task, np.random.default_rng(key), batch_size, length)


def global_draw(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    np.random.random_sample()  # noqa: NPY002  that is the fault
    return SOUND(task, rng, batch_size, length)


def refuse_shortest(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    if length == task.min_length:
        raise UsageError("too short")
    return SOUND(task, rng, batch_size, length)


def mislabelling(is_wrong: Callable[[int], bool]) -> Task:
    """The sound task, but for its targets in batches of some sizes."""

    def sample(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        inputs, targets = SOUND(task, rng, batch_size, length)
        return Batch(inputs, (targets + is_wrong(batch_size)) % task.vocabulary)

    return sampling(sample)


def crash_at_seven(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    if task.vocabulary == 7:
        raise ZeroDivisionError("by zero")
    return SOUND(task, rng, batch_size, length)


@dataclass(frozen=True)
class Sum(Echo):
    """A sound task with a ladder: the sum of all tokens so far, which no token tells."""

    levels: ClassVar = tuple(
        {"load": length, "length": length, "first_new": first_new} for first_new, length in ((2, 4), (4, 8), (8, 16))
    )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        inputs, targets = SOUND(self, rng, batch_size, length)
        targets[:] = inputs.cumsum(axis=1) % self.vocabulary
        return Batch(inputs, targets)


@dataclass(frozen=True)
class LastBits(Echo):
    """The sum of the last twelve bits, modulo 2: more than any rule of a baseline sees."""

    levels: ClassVar = ({"load": 32, "length": 32, "first_new": 16},)
    vocabulary: int = option(2, "number of tokens", low=2.0, high=64.0)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        inputs = rng.integers(2, size=(batch_size, length))
        sums = np.pad(inputs.cumsum(axis=1), ((0, 0), (12, 0)))
        return Batch(inputs, (sums[:, 12:] - sums[:, :-12]) % 2)


def test_a_task_without_a_vocabulary_says_so() -> None:
    mute = type("Mute", (Task,), {"name": "mute", "sample": Echo.sample, "floor": Echo.floor})()
    with pytest.raises(ContractError, match=r"'mute' has no vocab_size, and no option vocabulary"):
        _ = mute.vocab_size


def climbing(*levels: dict[str, Any], **methods: Any) -> Task:
    """The sound task with other levels, or other methods."""
    return broken(Sum, **({"levels": levels} if levels else {}), **methods)


def step(load: int, length: int, first_new: int = 0, **options: Any) -> dict[str, Any]:
    return {"load": load, "length": length, "first_new": first_new, **options}


def asking_early(task: Sum, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    inputs, targets = Sum.sample(task, rng, batch_size, length)
    targets[:, 8:] = IGNORE
    return Batch(inputs, targets)


BROKEN = {
    "text-for-length": broken(Echo, length="8"),
    "numpy-for-vocabulary": broken(Echo, vocab_size=np.int64(6)),
    "no-source": broken(Echo, source=None),
    "another-measure": broken(Echo, measure="guesses"),
    "path-for-category": broken(Echo, category=lambda *_: "a/../b"),
    "unhashable": broken(Echo, __hash__=None),
    "flat-coordinates": broken(Echo, coordinates=lambda *_: np.zeros(3)),
    "plain-tuple": broken(Echo, sample=lambda *how: tuple(SOUND(*how))),
    "masked-array": altering(lambda x, y: (np.ma.masked_array(x), y)),
    "half-integers": altering(lambda x, y: (x.astype(np.int32), y)),
    "one-too-long": sampling(lambda task, rng, size, length: SOUND(task, rng, size, length + 1)),
    "crash": sampling(lambda *_: 1 / 0),
    "input-too-large": altering(lambda x, y: (with_first(x, 6), y)),
    "target-too-small": altering(lambda x, y: (x, with_first(y, -1))),
    "nothing-scored": altering(lambda x, y: (x, np.full_like(y, IGNORE))),
    "one-array-twice": altering(lambda x, _: (x, x)),
    "reused-array": sampling(reused),
    "state-of-its-own": sampling(lambda task, _, *size: SOUND(task, STATE, *size)),
    "own-seed-for-all": sampling(lambda task, _, *size: SOUND(task, np.random.default_rng(0), *size)),
    "seed-of-the-generator": sampling(seed_of_rng),
    "global-draw": sampling(global_draw),
    "refused-shortest": sampling(refuse_shortest),
    "even-batches": sampling(lambda task, rng, size, length: SOUND(task, rng, size + size % 2 * (size > 1), length)),
    "wrong-alone": mislabelling(lambda size: size == 1),
    "wrong-in-large-batches": mislabelling(lambda size: size > 1000),
    "ceiling-below-floor": broken(Echo, ceiling=lambda *_: Bound(0.1)),
    "ceiling-above-one": broken(Echo, ceiling=lambda *_: Bound(1.5)),
    "negative-error": broken(Echo, floor=lambda *_: Bound(0.1, standard_error=-1.0)),
    "zeros-as-answers": altering(lambda x, y: (x, y * (np.arange(y.shape[1]) % 2))),
    "options-of-a-split": broken(Text, of_split=lambda *_: broken(Echo, name="text")),
    "equal-splits": broken(Text, of_split=lambda task, _split: dataclasses.replace(task)),
    "numbers-for-kinds": broken(Text, kinds=lambda _task, inputs: {"zero": inputs}),
    "kind-of-the-future": broken(Text, kinds=lambda _task, inputs: {"last": inputs == inputs[:, -1:]}),
    "cut-shortcut": broken(Echo, shortcuts=lambda _, x: {"late": x[:, 1:]}),
    "no-shortcut": broken(Echo, level_shortcuts=lambda *_: {"none": None}),
    "number-for-floor": broken(Echo, floor=lambda *_: 0.5),
    "kind-of-a-bound": broken(Echo, floor=lambda *_: Bound(0.5, "guess")),  # type: ignore[arg-type]
    "positive-bits": broken(Text, ceiling=lambda *_: Bound(0.5), references=lambda *_: {"unigram": 5.0}),
    "negative-reference": broken(Text, references=lambda *_: {"unigram": 5.0, "bigram": -1.0}),
    "floor-below-frequencies": broken(Text, floor=lambda *_: Bound(-6.0, "bound")),
    "crash-at-an-option": sampling(crash_at_seven),
    "deaf-option": broken(Echo, sample=lambda _, *how: SOUND(Echo(2), *how), floor=lambda *_: Bound(0.5)),
    "unknown-option-of-a-level": climbing(step(4, 4, colour=3)),
    "value-out-of-range-of-a-level": climbing(step(4, 4, vocabulary=1)),
    "too-short-a-level": climbing(step(4, 4), step(5, 1)),
    "level-without-length": climbing({"load": 4}),
    "equal-loads": climbing(step(4, 4), step(4, 8)),
    "shorter-level": climbing(step(4, 8), step(5, 6)),
    "other-vocabulary-of-a-level": climbing(step(4, 4), step(5, 4, vocabulary=9)),
    "other-coordinates-of-a-level": climbing(coordinates=lambda _task, length: np.linspace(0, 1, length)[:, None]),
    "nothing-new-on-a-level": climbing(sample=asking_early),
    "begins-above-the-level-below": climbing(step(4, 4), step(8, 8, 5)),
    "begins-at-its-end": climbing(step(4, 4, 4)),
    "no-room-above-copying": climbing(sample=SOUND),
    "no-room-below-the-ceiling": climbing(ceiling=lambda _task, length: Bound(1.0 if length < 16 else 0.3)),
    "rule-outside-of-the-baseline": LastBits(),
    "all-rules-left-out": broken(LastBits, no_shortcuts={"*": "All is the task."}),
    "no-such-rule": broken(LastBits, no_shortcuts={"a miracle": "None."}),
}


def test_the_sound_tasks_pass() -> None:
    for task in (Echo(), Sum()):
        check_task(task)


@pytest.mark.parametrize("name", BROKEN)
def test_each_check_fires(name: str) -> None:
    check = SAID[name].partition(":")[0]
    made = make_all((one for one in checks_of(BROKEN[name], 8) if one.is_needed or one.name == check), object)
    (message,) = [result.detail for result in made if result.check == check and result.state == "FAILED"]

    assert is_said(name, f"{check}: {message}"), message
