"""The command line: each file has one command or a small group of commands, with their output.

Results go to stdout, progress and messages to stderr. Slow imports are inside the functions of the commands, so that
``--help`` answers at once.
"""

import sys

from synthbench.distribution import conflict, is_overwritten


def main() -> None:
    """Run the command line in ``sys.argv`` and exit.

    If another installed package has overwritten the package ``synthbench``, exit with an error.
    """
    if is_overwritten():  # before the import below, which may be that of the other package
        sys.stderr.write(f"synthbench: {conflict()}\n")
        sys.exit(2)
    from synthbench.cli.app import run_app

    run_app()
