"""Describe a task from its code, with an example sequence, for the page of a report on the results."""

import json
from typing import Any

import numpy as np

from synthbench.errors import UnknownName, UsageError
from synthbench.registry import version_of
from synthbench.reports.report import Description, Example, Token
from synthbench.tasks import IGNORE, TASKS, sized

LONGEST = 512
"""Largest length of an example, in tokens."""
_FIRST, _LAST = 40, 100
"""Numbers of tokens shown at the start and at the end of a longer sequence; the end has most answers."""
_SEED = 0


def describe(name: str, version: str, arguments: str) -> Description | None:
    """Describe the task of a row (the stored result of a run) from the task's code, with an example sequence.

    Args:
        name: Name of the task in the row.
        version: Version of the task in the row.
        arguments: Options and length of the task in the row, as JSON. If they list several levels of difficulty, the
            example is from the first level.

    Returns:
        The description. None if this version of the task is not installed, if the task refuses the arguments, or if the
            example would have more than ``LONGEST`` tokens.
    """
    if name not in TASKS or version_of(TASKS[name]) != version:
        return None
    given = _first_level(json.loads(arguments))
    if not isinstance(given, dict):
        return None
    try:
        at_size = sized(name, given)
        task = TASKS[name](**at_size.options)
        if at_size.length > LONGEST:
            return None
        batch = task.sample(np.random.Generator(np.random.Philox(_SEED)), 1, at_size.length)
    except (UnknownName, UsageError):
        return None
    tokens = tuple(
        Token(int(token), None if target == IGNORE else int(target))
        for token, target in zip(batch.inputs[0], batch.targets[0], strict=True)
    )
    is_long = len(tokens) > _FIRST + _LAST
    drawn = Example(
        pieces=(tokens[:_FIRST], tokens[-_LAST:]) if is_long else (tokens,),
        num_hidden=len(tokens) - _FIRST - _LAST if is_long else 0,
        length=at_size.length,
        vocab_size=task.vocab_size,
        is_bottleneck=task.readout == "bottleneck",
    )
    summary = (TASKS[name].__doc__ or "").split("\n\n")[0]
    return Description(" ".join(summary.split()), task.not_tested, drawn)


def _first_level(given: Any) -> Any:
    """Return the arguments and length of the first level if ``given`` lists levels; otherwise return ``given``."""
    try:
        level = given["rungs"][0]
        return {**level["task"], "length": level["length"]}
    except (KeyError, IndexError, TypeError):  # not the arguments of a run on a ladder
        return given
