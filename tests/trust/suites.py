"""Suites that the tests of verification and submission change."""

import pytest

from synthbench.runner import plan
from synthbench.suites import Suite
from synthbench.suites.config import TuningSettings
from synthbench.trust import replan, submission


def choosing(suite: Suite) -> Suite:
    """Let a suite choose among two rates by one seed."""
    training = suite.training.model_copy(update={"learning_rates": (1e-3, 1e-2)})
    return suite.model_copy(update={"training": training, "tuning": TuningSettings(seeds=(7,))})


def take(suite: Suite, patch: pytest.MonkeyPatch) -> None:
    """Let everything that loads a suite load this one."""
    for module in (plan, replan, submission):
        patch.setattr(module, "load_suite", lambda _name: suite)
