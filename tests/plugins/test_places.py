"""A message names the file and line of a plugin, never those of synthbench."""

import pytest
from torch import Tensor, nn

from synthbench.mechanisms import MECHANISMS
from synthbench.plugins import described, place_of, raised_at


class Fussy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.refuse()
        return x

    def refuse(self) -> None:
        raise ValueError("not this one")


def test_a_class_is_found_by_file_and_line() -> None:
    assert place_of(Fussy) == "test_places.py:10"
    assert place_of(MECHANISMS["softmax"]) == ""
    assert place_of(type("Typed", (Fussy,), {})) == ""


def test_the_innermost_line_of_the_file_is_named() -> None:
    with pytest.raises(ValueError, match="not this one") as problem:
        Fussy()(None)

    assert described(problem.value, Fussy) == "ValueError: not this one (test_places.py:16)"
    assert raised_at(problem.value, MECHANISMS["softmax"]) == ""


def test_the_class_is_named_where_no_line_of_its_file_raised() -> None:
    problem = ValueError("from a helper")

    assert described(problem, Fussy) == "ValueError: from a helper (test_places.py:10)"
    assert described(problem, MECHANISMS["softmax"]) == "ValueError: from a helper"
