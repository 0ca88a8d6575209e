"""Ties a process to the driver that started it, before anything heavy is imported: importing torch takes seconds."""

import fcntl
import importlib
import os
from multiprocessing import parent_process
from typing import Any


def end_with_driver() -> None:
    """Let the kernel end this process when its driver is gone, however that ended and whatever this process is doing.

    No thread could do that while code in C holds the interpreter's lock. Does nothing in a process without a driver.
    """
    driver = parent_process()
    if driver is None:
        return
    # An end of a pipe that only the driver holds open. When it closes the kernel sends SIGIO, which ends a process.
    fcntl.fcntl(driver.sentinel, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(driver.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(driver.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if not driver.is_alive():  # it has closed already, of which nothing is sent
        os._exit(1)


def begin(place: str, *arguments: Any) -> None:
    """Tie this process to its driver, then import a function and call it: the initialiser of a pool of processes.

    Args:
        place: Module and name, ``package.module:function``.
        arguments: Of the function; of types that need no import of ours.
    """
    end_with_driver()
    module, _, name = place.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)
