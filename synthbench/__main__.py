"""Entry point of ``python -m synthbench``."""

from synthbench.cli import main

main()
