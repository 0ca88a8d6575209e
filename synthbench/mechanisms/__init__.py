"""The mechanisms (attention and other sequence mixers), one per file."""

from synthbench.mechanisms.base import (
    MECHANISMS,
    Attention,
    FeatureAttention,
    Layer,
    Mechanism,
    ScoreAttention,
    condition_options,
    mean_state,
    mechanism,
    num_parameters,
    options_of,
)

__all__ = [
    "MECHANISMS",
    "Attention",
    "FeatureAttention",
    "Layer",
    "Mechanism",
    "ScoreAttention",
    "condition_options",
    "mean_state",
    "mechanism",
    "num_parameters",
    "options_of",
]
