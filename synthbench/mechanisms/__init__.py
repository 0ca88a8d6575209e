"""The mechanisms that mix positions, one a file."""

from synthbench.mechanisms.base import (
    MECHANISMS,
    Attention,
    FeatureAttention,
    Mechanism,
    ScoreAttention,
    mechanism,
    num_parameters,
)

__all__ = [
    "MECHANISMS",
    "Attention",
    "FeatureAttention",
    "Mechanism",
    "ScoreAttention",
    "mechanism",
    "num_parameters",
]
