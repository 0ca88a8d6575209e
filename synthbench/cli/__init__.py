"""The command line: one command or small group per file, with its output.

Results go to stdout, progress and messages to stderr. Slow imports are inside the commands, so that ``--help`` answers
at once.
"""

import sys

from synthbench.distribution import conflict, is_overwritten


def main() -> None:
    """Run the command line in ``sys.argv`` and exit; refuse if another package has overwritten this one."""
    if is_overwritten():  # before the import below, which may be that of the other package
        sys.stderr.write(f"synthbench: {conflict()}\n")
        sys.exit(2)
    from synthbench.cli.app import run_app

    run_app()
