"""The suites: tasks with their options, and the protocol. A suite is a TOML file."""

from synthbench.suites.config import BEFORE, CONDITIONS, EXTRA, Suite, extended, load_suite, suite_names

__all__ = ["BEFORE", "CONDITIONS", "EXTRA", "Suite", "extended", "load_suite", "suite_names"]
