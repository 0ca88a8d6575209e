"""Where code of a plugin stands: the file and line that a message names."""

import inspect
import sys
from pathlib import Path
from traceback import walk_tb

OURS = frozenset({"synthbench", "torch", "builtins", "abc"})
"""Top-level modules in which no author looks for a fault of their own."""


LONGEST = 300
"""Characters of an exception that are told: compilers print what they were compiling."""


def place_of(unit: type) -> str:
    """Where a class is written: ``my_idea.py:12``; empty for one of synthbench, or of which no file is known."""
    author_class = written(unit)
    if _is_ours(author_class):
        return ""
    try:
        file, line = inspect.getfile(author_class), inspect.getsourcelines(author_class)[1]
    except (OSError, TypeError):
        return ""
    return f"{Path(file).name}:{line}"


def raised_at(problem: BaseException, unit: type) -> str:
    """Innermost line of the class's file that led to an exception: ``my_idea.py:12``; empty if there is none."""
    return last_line(problem, {file for one in written(unit).__mro__ if (file := _file_of(one)) and not _is_ours(one)})


def last_line(problem: BaseException, files: set[str]) -> str:
    """Innermost line of some files that led to an exception: ``my_idea.py:12``; empty if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(problem.__traceback__)]
    inside = [f"{Path(file).name}:{line}" for file, line in frames if file in files]
    return inside[-1] if inside else ""


def described(problem: BaseException, unit: type) -> str:
    """An exception in one line: type, message and the line of the class's file that led to it, else its first."""
    place = raised_at(problem, unit) or place_of(unit)
    text = " ".join(f"{type(problem).__name__}: {problem}".split())
    return (text if len(text) <= LONGEST else f"{text[:LONGEST]} ...") + (f" ({place})" if place else "")


def written(unit: type) -> type:
    """The class that an author wrote, where a mechanism was made of a module."""
    wrapped = getattr(unit, "module_class", unit)
    return wrapped if isinstance(wrapped, type) else unit


def _is_ours(unit: type) -> bool:
    return unit.__module__.partition(".")[0] in OURS


def _file_of(unit: type) -> str | None:
    return getattr(sys.modules.get(unit.__module__), "__file__", None)
