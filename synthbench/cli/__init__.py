"""The command line: each file has one command or a small group of commands, with their output.

Results go to stdout, progress and messages to stderr. Slow imports are inside the functions of the commands, so that
``--help`` answers at once.
"""

import io
import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run the command line in ``sys.argv`` and exit.

    If another installed package has overwritten the package ``synthbench``, exit with an error.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C amid the imports below would print a traceback.
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    _open_streams()
    from synthbench.distribution import conflict, is_overwritten

    if is_overwritten():  # before the import below, which may be that of the other package
        sys.stderr.write(f"synthbench: {conflict()}\n")
        sys.exit(2)
    from synthbench.cli.app import run_app

    run_app()


class _Messages(io.FileIO):
    """Stderr that drops text that cannot be written, so that a closed pipe or a full disk does not end the work."""

    def write(self, data: Any) -> int:
        """Write bytes, or drop them."""
        try:
            written = super().write(data)
        except OSError:
            written = None  # as if it would block
        return len(data) if written is None else written


def _open_streams() -> None:
    """Open the null device in place of each standard stream that the shell closed (as ``2>&-`` does).

    Otherwise, a file of results could get the file descriptor of stdout or stderr.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the smallest free number, and workers inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    if sys.stderr is sys.__stderr__:
        raw = _Messages(2, "w", closefd=False)
        encoding = getattr(sys.stderr, "encoding", "utf-8")
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=True)
