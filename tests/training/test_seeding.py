import numpy as np
import pytest

from synthbench.tasks import TASKS, Batch, Split
from synthbench.training.seeding import BLOCK_STEPS, data_blocks, data_seed, init_seed


def first_inputs(
    task: str = "reverse", length: int = 8, split: Split = "train", seed: int = 1, **options: int
) -> np.ndarray:
    blocks = data_blocks(TASKS[task](**options), length, split, seed, num_batches=2, batch_size=3)
    return next(blocks).inputs


@pytest.mark.parametrize(
    "change", [{"split": "test"}, {"split": "validation"}, {"seed": 2}, {"vocabulary": 31}, {"task": "copy"}]
)
def test_another_split_seed_option_or_task_is_another_stream(change: dict[str, object]) -> None:
    assert (first_inputs() != first_inputs(**change)).any()  # type: ignore[arg-type]


def test_a_stream_is_keyed_by_length() -> None:
    assert (first_inputs(length=8) != first_inputs(length=9)[..., :8]).any()


def test_blocks_hold_every_batch_once_and_differ() -> None:
    blocks = list(data_blocks(TASKS["copy"](), 4, "train", 0, num_batches=2 * BLOCK_STEPS + 3, batch_size=2))

    assert [len(block.inputs) for block in blocks] == [BLOCK_STEPS, BLOCK_STEPS, 3]
    assert all(block.inputs.shape[1:] == (2, 4) for block in blocks)
    assert (blocks[0].inputs[:3] != blocks[2].inputs).any()


def test_the_first_block_does_not_depend_on_how_many_follow() -> None:
    def first(num_batches: int) -> Batch:
        return next(data_blocks(TASKS["sort"](), 4, "train", 0, num_batches=num_batches, batch_size=2))

    np.testing.assert_array_equal(first(BLOCK_STEPS).inputs, first(5 * BLOCK_STEPS).inputs)


def test_seeds_of_init_and_data_are_fixed_numbers() -> None:
    # A change here changes every result of the store.
    assert init_seed(42) == init_seed(42) < 2**63
    assert len({init_seed(seed) for seed in range(100)}) == 100
    assert data_seed(TASKS["copy"](), 32, 42) not in {init_seed(42), data_seed(TASKS["copy"](), 32, 43)}
