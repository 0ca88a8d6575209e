"""Separate processes for the code of plugins, where it may hang, exit or crash without harm.

This module imports nothing slow, so a separate process can start while its parent still imports PyTorch.
"""

import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as AttemptTimeout
from contextlib import ExitStack
from multiprocessing import get_context
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from synthbench import plugins
from synthbench.errors import ContractError, SynthbenchError, UsageError
from synthbench.process import become_worker, begin, end_children, exit_of, orphans_ended, require_guarded_main

T = TypeVar("T")

TIMEOUT_S = 300.0
"""Default time limit of an attempt, in seconds."""


class IsolatedProcess:
    """One or more separate processes that run the code of plugins.

    An attempt is one call of :meth:`attempt`, which runs a function in such a process. The processes start at
    :meth:`start`, or else at the first attempt.

    Args:
        plugins: Files and modules of plugins to load before each attempt.
        timeout_s: Time limit of an attempt, in seconds; None for :data:`TIMEOUT_S`.
        num_workers: Number of attempts that may run at once, each in its own process.

    Raises:
        UsageError: If the time limit is not a positive number.
    """

    def __init__(self, plugins: Sequence[str], timeout_s: float | None = None, num_workers: int = 1) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise UsageError(f"timeout is {timeout_s}; allowed: more than 0 seconds")
        self.plugins = list(plugins)
        self._timeout_s = timeout_s or TIMEOUT_S
        self._ended = ExitStack()
        self._pool = ProcessPool(
            max_workers=num_workers,
            context=get_context("spawn"),
            initializer=begin,
            initargs=(f"{__name__}:{_initialise.__name__}",),
        )

    def __enter__(self) -> "IsolatedProcess":  # noqa: PYI034 - beartype cannot check Self here
        """Return this object; its processes have not started yet."""
        self._ended.enter_context(orphans_ended())
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._pool.stop()
        self._pool.join()
        self._ended.close()

    def start(self) -> None:
        """Start the processes without waiting; they import the code of the checks in the background.

        Raises:
            UsageError: If the running script has no ``if __name__ == "__main__":`` guard.
        """
        require_guarded_main()
        self._pool.schedule(os.getpid)  # any call starts them

    def try_plugins(self) -> None:
        """Load the plugins one by one in a separate process, so that an error names the plugin that fails.

        Plugins that the calling process has already loaded are not tried.

        Raises:
            ContractError: If a plugin cannot be loaded, takes too long or ends its process.
        """
        for number, plugin in enumerate(self.plugins, start=1):
            if not plugins.is_loaded(plugin):
                self._call(f"plugin {plugin!r}", self.plugins[:number], plugins.load, [])

    def attempt(self, what: str, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in one of the separate processes and return its result.

        Args:
            what: Name of the checked component in messages, such as ``mechanism 'x'``.
            function: Function of a module that the process can import.
            arguments: Arguments of the function; they and the result must be picklable.

        Raises:
            UsageError: If the running script has no ``if __name__ == "__main__":`` guard.
            SynthbenchError: If the function raises a :class:`SynthbenchError`.
            ContractError: If the call takes too long, its process dies, or the function raises any other exception.
        """
        return self._call(what, self.plugins, function, *arguments)

    def _call(self, what: str, loaded: Sequence[str], function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in one of the separate processes, after loading the plugins ``loaded`` there."""
        require_guarded_main()
        future = self._pool.schedule(_loaded, args=[what, loaded, function, *arguments], timeout=self._timeout_s)
        try:
            result: T = future.result()
        except AttemptTimeout:
            raise ContractError(f"{what} hangs: its process was ended after {self._timeout_s:g} s") from None
        except ProcessExpired as problem:
            raise ContractError(f"{what} ends the process that it runs in, with {exit_of(problem.exitcode)}") from None
        return result


def _initialise() -> None:
    become_worker()
    os.dup2(2, 1)  # stdout is for results
    importlib.import_module("synthbench.contract.components")  # before the code of a plugin could change it


def _loaded(what: str, names: Sequence[str], function: Callable[..., T], *arguments: Any) -> T:
    try:
        plugins.load(names)
        return function(*arguments)
    except SynthbenchError:
        raise
    except BaseException as problem:  # noqa: BLE001 - as text, since another process may be unable to load it
        raise ContractError(f"{what}: {plugins.reason(problem)}") from None
    finally:
        end_children()
