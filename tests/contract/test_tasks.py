"""Every task keeps the contract, and every check fires on a task that breaks it."""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from synthbench.contract.checks import make_all, require_all
from synthbench.contract.tasks import check_task, checks_of
from synthbench.errors import ContractError, UsageError
from synthbench.options import option
from synthbench.tasks.base import IGNORE, SPLITS, TASKS, Batch, Bound, Split, Task


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_keeps_the_contract(name: str) -> None:
    check_task(TASKS[name]())


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_keeps_the_contract_at_another_length(name: str) -> None:
    task = TASKS[name]()
    length = task.min_length + (task.length - task.min_length) // 4 * 2
    # Its shortest length and its ladder are the same at any other; ``tests/tasks`` holds its floor at two lengths.
    require_all(one for one in checks_of(task, length) if one.name not in ("lengths", "levels", "floor"))


@dataclass(frozen=True)
class Echo(Task):
    """A sound task, which the others break in one place each."""

    name: ClassVar = "echo"
    source: ClassVar = "slay2026"
    length: ClassVar = 8
    min_length: ClassVar = 2
    vocabulary: int = option(6, "number of tokens", low=2.0, high=64.0)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        inputs = rng.integers(self.vocabulary, size=(batch_size, length))
        return Batch(inputs, inputs.copy())

    def floor(self, length: int) -> Bound:
        return Bound(1 / self.vocabulary)


Sample = Callable[[Echo, np.random.Generator, int, int], Batch]
SOUND = Echo.sample
STATE = np.random.default_rng(0)
LATEST = np.zeros((8192, 64), dtype=np.int64)


def sampling(change: Sample) -> Task:
    """The sound task with another sampler."""
    return broken(Echo, sample=change)


def altering(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Task:
    """The sound task, of whose inputs ``x`` and targets ``y`` others are made."""
    return sampling(lambda task, *how: Batch(*change(*SOUND(task, *how))))


def test_the_first_failure_of_a_task_is_raised() -> None:
    with pytest.raises(ContractError, match="share memory"):
        check_task(altering(lambda x, _: (x, x)))


def broken(sound: type[Task], **methods: Any) -> Task:
    """A sound task with other methods."""
    return type("Broken", (sound,), methods)()  # type: ignore[no-any-return]


def with_first(array: np.ndarray, value: int) -> np.ndarray:
    """The same ids but for one of the first sequence."""
    array[0, 1] = value
    return array


def with_zeros(targets: np.ndarray) -> np.ndarray:
    targets[:, ::2] = 0
    return targets


def one_too_long(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    task.check_length(length)
    return SOUND(task, rng, batch_size, length + 1)


def reused(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    inputs, targets = SOUND(task, rng, batch_size, length)
    view = LATEST[:batch_size, :length]
    view[:] = inputs
    return Batch(view, targets)


def own_seed(task: Echo, _rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    return SOUND(task, np.random.default_rng(0), batch_size, length)


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


def crash(_task: Echo, _rng: np.random.Generator, _batch_size: int, _length: int) -> Batch:
    raise ZeroDivisionError("by zero")


def deaf(task: Echo, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    task.check_length(length)
    inputs = rng.integers(2, size=(batch_size, length))
    return Batch(inputs, inputs.copy())


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


@dataclass(frozen=True)
class Story(Task):
    """A sound task in bits on finite data: the next token of a text, a part of which is held out."""

    name: ClassVar = "echo"
    source: ClassVar = "slay2026"
    length: ClassVar = 8
    measure: ClassVar = "bits"
    where: str = option("", "place of the text", is_location=True)
    vocab_size: ClassVar = 4
    min_length: ClassVar = 2
    split: Split = "train"

    def of_split(self, split: Split) -> Task:
        return dataclasses.replace(self, split=split)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        text = TOLD[SPLITS.index(self.split)]
        windows = text[rng.integers(len(text) - length, size=(batch_size, 1)) + np.arange(length + 1)]
        return Batch(windows[:, :-1].copy(), windows[:, 1:].copy())

    def floor(self, length: int) -> Bound:
        return Bound(-1.75, "bound", 0.01)

    def ceiling(self, length: int) -> Bound:
        return Bound(0.0, "bound")

    def references(self, length: int) -> dict[str, float]:
        return {"unigram": 1.75}

    def kinds(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        return {"zero": inputs == 0}


TOLD = np.random.default_rng(0).choice(4, p=[1 / 2, 1 / 4, 1 / 8, 1 / 8], size=(3, 50_000))


def climbing(*levels: dict[str, Any], **methods: Any) -> Task:
    """The sound task with other levels, or other methods."""
    return broken(Sum, **({"levels": levels} if levels else {}), **methods)


def step(load: int, length: int, first_new: int = 0, **options: Any) -> dict[str, Any]:
    return {"load": load, "length": length, "first_new": first_new, **options}


def stretched_coordinates(_task: Echo, length: int) -> Any:
    return np.linspace(0, 1, length)[:, None]


def asking_early(task: Sum, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
    inputs, targets = Sum.sample(task, rng, batch_size, length)
    targets[:, 8:] = IGNORE
    return Batch(inputs, targets)


BROKEN: list[tuple[str, Task, str]] = [
    ("facts", broken(Echo, length="8"), r"length is '8'; allowed: int, 1 to 16777216"),
    ("facts", broken(Echo, vocab_size=np.int64(6)), r"vocab_size is np.int64\(6\); allowed: int"),
    ("facts", broken(Echo, source=None), r"source is None; allowed: one line of text"),
    ("facts", broken(Echo, measure="guesses"), r"measure is 'guesses'; allowed: accuracy or bits"),
    ("facts", broken(Echo, category=lambda *_: "a/../b"), r"category is 'a/../b'; allowed: a name such as recall"),
    ("facts", broken(Echo, __hash__=None), r"hashing it gave TypeError: unhashable type.*; declare fields"),
    ("facts", broken(Echo, coordinates=lambda *_: np.zeros(3)), r"coordinates are not finite numbers of shape \[8, nu"),
    (
        "shapes",
        broken(Echo, sample=lambda *how: tuple(SOUND(*how))),
        r"sampling gave tuple; allowed: Batch\(inputs, targets\)",
    ),
    (
        "shapes",
        altering(lambda x, y: (np.ma.masked_array(x), y)),
        r"inputs are MaskedArray; allowed: an array of int64",
    ),
    ("shapes", altering(lambda x, y: (x.astype(np.int32), y)), r"inputs are int32; allowed: an array of int64"),
    ("shapes", sampling(one_too_long), r"shape \(1, 9\); allowed: \(1, 8\)"),
    ("shapes", sampling(crash), r"sampling 1 sequences gave ZeroDivisionError: by zero"),
    ("ids", altering(lambda x, y: (with_first(x, 6), y)), r"inputs\[0, 1\] is 6, .*allowed: 0 to 5$"),
    ("ids", altering(lambda x, y: (x, with_first(y, -1))), r"targets\[0, 1\] is -1, .*allowed: 0 to 5 or -100$"),
    ("scored", altering(lambda x, y: (x, np.full_like(y, IGNORE))), r"none of 64 sequences has a target"),
    ("aliasing", altering(lambda x, _: (x, x)), r"inputs and targets share memory"),
    ("aliasing", sampling(reused), r"inputs of two batches share memory"),
    ("seeding", sampling(lambda task, _, *size: SOUND(task, STATE, *size)), r"same state gave different batches"),
    ("seeding", sampling(own_seed), r"different seeds gave the same inputs"),
    ("seeding", sampling(seed_of_rng), r"two calls with one generator gave the same inputs"),
    ("global generator", sampling(global_draw), r"changed the state of numpy.random"),
    ("lengths", sampling(refuse_shortest), r"length 2: min_length is 2, but sampling refuses it: too short"),
    ("bounds", broken(Echo, ceiling=lambda *_: Bound(0.1)), r"floor 0.166667 lies above .* 0.100000"),
    ("bounds", broken(Echo, ceiling=lambda *_: Bound(1.5)), r"the ceiling is 1.5; allowed: 0 to 1"),
    ("bounds", broken(Echo, floor=lambda *_: Bound(0.1, standard_error=-1.0)), r"standard error of the floor is -1.0"),
    (
        "floor",
        altering(lambda x, y: (x, with_zeros(y))),
        r"scores 0.58.. on 8192 sequences, 0.41.. above the floor 0.1667",
    ),
    ("splits", broken(Story, of_split=lambda *_: Echo()), r"split 'train' has another options; allowed: th"),
    (
        "splits",
        broken(Story, of_split=lambda task, _split: dataclasses.replace(task)),
        r"split 'validation' has the seq",
    ),
    ("kinds", broken(Story, kinds=lambda _task, inputs: {"zero": inputs}), r"kind 'zero' is int64 of shape \(64, 8\)"),
    (
        "kinds",
        broken(Story, kinds=lambda _task, inputs: {"last": inputs == inputs[:, -1:]}),
        r"kind 'last' of a position depends on later tokens",
    ),
    (
        "shortcuts",
        broken(Echo, shortcuts=lambda _, x: {"late": x[:, 1:]}),
        r"'late' is int64 of shape \(64, 7\); allowed",
    ),
    ("shortcuts", broken(Echo, level_shortcuts=lambda *_: {"none": None}), r"'none' is NoneType; allowed: integers of"),
    ("bounds", broken(Echo, floor=lambda *_: 0.5), r"the floor is 0.5; allowed: a Bound, exact or bound"),
    (
        "bounds",
        broken(Echo, floor=lambda *_: Bound(0.5, "guess")),  # type: ignore[arg-type]
        r"kind='guess'.*; allowed: a Bound, exact or bound",
    ),
    ("bounds", broken(Story, ceiling=lambda *_: Bound(0.5)), r"the ceiling is 0.5; allowed: -64 to 0"),
    (
        "bounds",
        broken(Story, references=lambda *_: {"bigram": -1.0}),
        r"the reference 'bigram' is -1.0; allowed: 0 to 64",
    ),
    (
        "floor",
        broken(Story, floor=lambda *_: Bound(-2.0, "bound")),
        r"the frequencies of tokens score -1.7... bits on 8192 sequences, 0.2... above the floor -2.0000",
    ),
    ("options", sampling(crash_at_seven), r"with vocabulary=7, sampling gave ZeroDivisionError: by zero"),
    (
        "options",
        broken(Echo, sample=deaf, floor=lambda *_: Bound(0.5)),
        r"the option vocabulary=6 changes nothing \(tried 7, 5, 12, 3, 2, 64, 4, 8, 16, 32\)",
    ),
    ("levels", climbing(step(4, 4, colour=3)), r"its ladder gave TypeError: .*unexpected keyword .*'colour'"),
    ("levels", climbing(step(4, 4, vocabulary=1)), r"its ladder gave UsageError: echo:vocabulary is 1; allowed"),
    ("levels", climbing(step(4, 4), step(5, 1)), r"length 1: sampling 64 sequences gave UsageError"),
    ("levels", climbing({"load": 4}), r"length 0: sampling 64 sequences gave UsageError"),
    ("levels", climbing(step(4, 4), step(4, 8)), r"load 4 stands above that of load 4; allowed: increasing loads"),
    ("levels", climbing(step(4, 8), step(5, 6)), r"load 5 is shorter than the one below; allowed: 8 tokens and"),
    ("levels", climbing(step(4, 4), step(5, 4, vocabulary=9)), r"has 9 token ids; allowed: the 6 of the level"),
    ("levels", climbing(coordinates=stretched_coordinates), r"load 8 has other coordinates than the level below"),
    ("levels", climbing(sample=asking_early), r"load 16 scores nothing from position 8 on"),
    ("levels", climbing(step(4, 4), step(8, 8, 5)), r"load 8 has the first_new 5; allowed: 0 to 4, the length of"),
    ("levels", climbing(step(4, 4, 4)), r"load 4 has the first_new 4; allowed: 0 to 3, one less than the length"),
    ("levels", climbing(sample=SOUND), r"load 4 has the base 1.0000, by '.*'; allowed: up to 0.8000, the"),
    (
        "levels",
        climbing(ceiling=lambda _task, length: Bound(1.0 if length < 16 else 0.3)),
        r"load 16 has the base 0\..*; allowed: up to 0.1000, the ceiling less 0.2",
    ),
    ("levels", LastBits(), r"load 32 is solved to 1\.00 of its skill .* 'table of the last 12'"),
    ("levels", broken(LastBits, no_shortcuts={"*": "All is the task."}), r"leaves out (\d+) of \1 rules; .* half"),
    ("levels", broken(LastBits, no_shortcuts={"a miracle": "None."}), r"has 'a miracle', which is no rule's name"),
]


def test_the_sound_tasks_pass() -> None:
    for task in (Echo(), Sum(), Story()):
        check_task(task)


@pytest.mark.parametrize(("check", "task", "message"), BROKEN, ids=[message for _, _, message in BROKEN])
def test_each_check_fires(check: str, task: Task, message: str) -> None:
    made = make_all(one for one in checks_of(task, 8) if one.is_needed or one.name == check)
    failed = {result.check: result.detail for result in made if result.state == "FAILED"}

    assert re.search(message, failed[check])
    assert "task 'echo' at length" in failed[check]


def test_a_length_that_the_task_refuses_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="length of task 'echo' is 1; allowed: 2 to"):
        check_task(Echo(), 1)
