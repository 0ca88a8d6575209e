"""The shapes of the tensors that mechanisms and forms share, each under one name.

Leading axes are free: ``*batch`` may hold runs that train together, sequences, and where no ``heads`` are named heads.
``queries`` are the last of ``length`` positions, or all of them.
"""

from jaxtyping import Float
from torch import Tensor

Tokens = Float[Tensor, "*batch length model_dim"]
Token = Float[Tensor, "*batch 1 model_dim"]

KeyHeads = Float[Tensor, "*batch heads length key_dim"]
ValueHeads = Float[Tensor, "*batch heads length value_dim"]
QueryHeads = Float[Tensor, "*batch heads queries key_dim"]
AnswerHeads = Float[Tensor, "*batch heads queries value_dim"]
"""Mixed values, one for each query."""

KeyRows = Float[Tensor, "*batch length key_dim"]
ValueRows = Float[Tensor, "*batch length value_dim"]
FeatureRows = Float[Tensor, "*batch length features"]
AnswerRows = Float[Tensor, "*batch queries value_dim"]

Queries = Float[Tensor, "*batch queries key_dim"]
Keys = Float[Tensor, "*batch keys key_dim"]
PairScores = Float[Tensor, "*batch queries keys"]
"""A number for every pair of a query and a key."""
