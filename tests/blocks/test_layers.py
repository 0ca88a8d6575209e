"""The option ``layers`` of every block: how many of it a model has, and what follows from that."""

from pathlib import Path
from typing import ClassVar

import pytest
from torch import Tensor

from synthbench.blocks import BLOCKS, Block, block
from synthbench.blocks.base import Mix
from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.results import Store
from synthbench.runner.estimates import cost_columns
from synthbench.runner.match import matched_as, misses, reference_of
from synthbench.runner.match import size_of as matched_size
from synthbench.runner.request import Request
from synthbench.runner.run import run
from synthbench.training.cell import Cell
from synthbench.training.ensemble import ModelSize
from synthbench.training.train import init_generator
from synthbench.trust import replan
from synthbench.trust.verify import Sampling, verify
from tests.blocks.cells import cell_of


def size_of(cell: Cell) -> ModelSize:
    return cell.model(init_generator(0)).size(cell.length)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("mechanism", ["softmax", "lstm"])
def test_a_model_has_as_many_layers_as_its_block_says(name: str, mechanism: str) -> None:
    one, two, four = (size_of(cell_of(mechanism, f"{name}{option}")) for option in (":layers=1", "", ":layers=4"))

    assert len(cell_of(mechanism, f"{name}:layers=4").model(init_generator(0)).layers) == 4
    # Whatever is not in a layer is in all three.
    assert four.num_parameters - two.num_parameters == 2 * (two.num_parameters - one.num_parameters) > 0
    assert four.num_parameters_mixer == 2 * two.num_parameters_mixer == 4 * one.num_parameters_mixer
    assert one.state_elements == two.state_elements == four.state_elements


def test_another_number_of_layers_has_another_id_and_the_suites_number_has_not() -> None:
    plain, *same = (
        cell_of("softmax", option) for option in (None, "attention_only:layers=0", "attention_only:layers=2")
    )
    four = cell_of("softmax", "attention_only:layers=4")

    assert plain.suite.model.num_layers == 2
    assert [cell.identity for cell in same] == [plain.identity] * 2
    assert plain.identity["block_args"] == {}
    assert four.identity == {**plain.identity, "block_args": {"layers": 4}}
    assert (cost_columns(plain)["n_layers"], cost_columns(four)["n_layers"]) == (2, 4)


def test_sizes_are_matched_to_those_of_a_model_with_as_many_layers() -> None:
    cell = cell_of("lstm", "attention_only:layers=4")
    resized = matched_as(cell, "params")
    target = matched_size(reference_of(cell), "params")

    assert target == size_of(cell_of("softmax", "attention_only:layers=4")).num_parameters
    assert abs(size_of(resized).num_parameters - target) <= 0.05 * target
    assert misses(resized, cell.suite) == ""


def test_a_row_of_a_hybrid_says_how_many_layers_it_had_and_is_made_again_to_the_last_bit(tmp_path: Path) -> None:
    request = Request(
        suite="smoke", tasks=("copy:length=8",), mechanisms=("gla+softmax",), block="attention_only:layers=3",
        seeds=(0,), steps=3, limit=8, device="cpu", results=tmp_path, executor="inline",
    )  # fmt: skip
    run(request)
    store = Store.open(tmp_path, create=False)
    verification = verify(store, Sampling(fraction=1.0, device="cpu", workers=0))
    (row,) = store.table().to_pylist()

    assert (row["mech"], row["block"], row["n_layers"]) == ("gla+softmax", "attention_only:layers=3", 3)
    assert (verification.ok, [rerun.verdict for rerun in verification.reruns]) == (True, ["bitwise"])
    assert replan.check([{**row, "n_layers": 2}]).faults == [(row["run_id"], "n_layers is 2; the plan says 3")]


def test_a_block_cannot_give_an_option_of_all_blocks_another_meaning() -> None:
    with pytest.raises(
        UsageError, match="Deep declares 'layers', an option that every block has; allowed: another name"
    ):

        @block
        class Deep(Block):
            name: ClassVar = "deep"
            source: ClassVar = "unpublished"
            layers: int = option(2, "layers of its MLP", low=1, high=8)

            def around(self, x: Tensor, mix: Mix) -> Tensor:
                return x + mix(x)
