"""The suites. A suite is a TOML file with tasks, their options, and the protocol of training and evaluation."""

from synthbench.suites.config import BEFORE, CONDITIONS, EXTRA, Suite, extended, load_suite, suite_names

__all__ = ["BEFORE", "CONDITIONS", "EXTRA", "Suite", "extended", "load_suite", "suite_names"]
