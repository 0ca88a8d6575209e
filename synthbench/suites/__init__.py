"""The suites, each a TOML file with tasks, their options, and the protocol of training and evaluation."""

from synthbench.suites.config import BEFORE, CONDITIONS, EXTRA, Suite, load_suite, suite_names, with_tasks

__all__ = ["BEFORE", "CONDITIONS", "EXTRA", "Suite", "load_suite", "suite_names", "with_tasks"]
