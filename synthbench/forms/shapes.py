"""Type names for shapes of tensors, shared by all mechanisms.

``*batch`` stands for any leading axes, such as runs that train together, sequences or heads. The axis ``queries`` may
be shorter than ``length``; it then holds only the last positions.
"""

from jaxtyping import Float
from torch import Tensor

Tokens = Float[Tensor, "*batch length model_dim"]
Token = Float[Tensor, "*batch 1 model_dim"]

KeyHeads = Float[Tensor, "*batch heads length key_dim"]
ValueHeads = Float[Tensor, "*batch heads length value_dim"]
QueryHeads = Float[Tensor, "*batch heads queries key_dim"]
AnswerHeads = Float[Tensor, "*batch heads queries value_dim"]
"""Outputs of attention: one mixture of values for each query."""

KeyRows = Float[Tensor, "*batch length key_dim"]
ValueRows = Float[Tensor, "*batch length value_dim"]
FeatureRows = Float[Tensor, "*batch length features"]
AnswerRows = Float[Tensor, "*batch queries value_dim"]

Queries = Float[Tensor, "*batch queries key_dim"]
Keys = Float[Tensor, "*batch keys key_dim"]
PairScores = Float[Tensor, "*batch queries keys"]
"""One number for every pair of a query and a key."""
