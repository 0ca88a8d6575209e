import pytest
import torch

from synthbench.errors import UsageError
from synthbench.positions import POSITIONS


def test_row_t_is_added_to_token_t() -> None:
    encoding = POSITIONS["learned"](model_dim=4, num_heads=1, length=6)
    x = torch.zeros(2, 5, 4)

    (table,) = encoding.parameters()
    assert table.shape == (6, 4)
    for embedded in encoding.embed(x):
        assert torch.equal(embedded, table[:5])


@pytest.mark.parametrize("first", [2, 100])
def test_a_table_that_ends_before_the_tokens_is_refused(first: int) -> None:
    with pytest.raises(UsageError, match=rf"{first + 5} tokens; allowed: up to 6"):
        POSITIONS["learned"](model_dim=4, num_heads=1, length=6).embed(torch.zeros(2, 5, 4), first)
