"""Options that contradict each other, and lengths that no sequence has, are refused in one line."""

import numpy as np
import pytest

from synthbench.errors import UsageError
from synthbench.tasks.base import TASKS, Task


def configured(term: str) -> Task:
    unit, options = TASKS.configured(term)
    return unit(**options)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("mqar:vocabulary=32", r"num_pairs of task 'mqar' is 16; allowed: at most 15, the number of keys"),
        ("mqar:tokens_used=12", r"num_pairs of .* is 16; allowed: at most 12, the number of keys that are used"),
        (
            "mqar:vocabulary=64,tokens_used=32",
            r"tokens_used of .* is 32; allowed: at most 31, the number of keys in the vocabulary",
        ),
        ("overwrite_recall:vocabulary=16", r"num_keys of .* is 8; allowed: at most 7, the number of keys that"),
        (
            "overwrite_recall:num_keys=1,num_rewritten=1,vocabulary=7,num_writes=4",
            r"num_writes of .* is 4; allowed: at most 3, the number of values that are used",
        ),
        ("composite_recall:grid=3", r"is 16; allowed: a product of two numbers from 2 to 3, .* did you mean 9\?"),
        ("composite_recall:num_pairs=17", r"num_pairs of .* is 17; .* the size of .* did you mean 16 or 18\?"),
        ("composite_recall:num_pairs=22", r"num_pairs of .* is 22; .* from 2 to 8, .* did you mean 21\?"),
        ("in_context_recall:keys_used=9", r"keys_used of .* is 9; allowed: at most 8, the number of keys in the voc"),
        ("in_context_recall:values_used=9", r"values_used of .* is 9; allowed: at most 8, the number of values in"),
        ("query_first_recall:num_keys=8,tokens_used=9", r"tokens_used .* is 9; allowed: at most 8, the number of keys"),
        ("query_first_recall:tokens_used=1", r"tokens_used of .* is 1; allowed: 0, or 2 and more"),
        ("fuzzy_recall:vocabulary=4", r"max_motif of .* is 3; allowed: at most 2, the number of tokens"),
        ("fuzzy_recall:vocabulary=6,num_keys=16", r"num_keys of .* is 16; allowed: at most 15, .* different"),
        ("joint_recall:tokens_used=5", "num_keys of task 'joint_recall' is 6; allowed: at most 5"),
        ("joint_recall:tokens_used=9", "tokens_used of task 'joint_recall' is 9; allowed: at most 8"),
        ("alias_recall:tokens_used=33", "tokens_used of task 'alias_recall' is 33; allowed: at most 32"),
        ("induction_latest:num_triggers=2,num_asked=3", "num_asked is 3; allowed: up to num_triggers=2"),
        ("induction_latest:num_triggers=2,trigger_ids=1", "trigger_ids is 1; allowed: 0, or from num_triggers=2 on"),
        ("induction_latest:num_triggers=2,ids_used=1", "ids_used is 1; allowed: 0, or from num_triggers=2 on"),
        ("pointer_chasing:shortest_chain=5", "allowed: from shortest_chain=5 to below num_nodes=32"),
        ("pointer_chasing:longest_chain=32", r"allowed: from shortest_chain=\d to below num_nodes=32"),
        ("pointer_chasing:num_nodes=9,num_starts=10", "num_starts is 10; allowed: up to num_nodes=9"),
        ("permutation_hops:shortest_chain=5", "longest_chain is 4; allowed: from shortest_chain=5 on"),
        ("permutation_hops:symbols_used=13", "symbols_used is 13; allowed: up to num_symbols=12"),
        ("permutation_hops:symbols_used=2", "tokens_per_node is 2; allowed: enough for 5 nodes, not only 4"),
        ("ancestors:num_nodes=65", "node_ids is 64; allowed: from num_nodes=65 to node_ids=64"),
        ("ancestors:ids_used=8", "ids_used is 8; allowed: from num_nodes=16 to node_ids=64"),
        ("in_context_language:num_symbols=2", "most_edges is 3; allowed: up to num_symbols=2"),
        ("dyck:depth=1,nearest=2", "dyck:nearest is 2; allowed: 0, for with depth=1"),
        ("interleaved_stacks:num_stacks=5", "num_stacks is 5; allowed: up to stack_ids=4"),
        ("interleaved_stacks:pops=3,depth=2", "pops is 3; allowed: up to depth=2"),
        ("broken_grammar:branches=15", "branches is 15; allowed: up to 14, for a token of a gap"),
        ("broken_grammar:nearest=9", "nearest is 9; allowed: up to longest_gap=8"),
    ],
)
def test_options_that_contradict_each_other_are_refused(term: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configured(term)


@pytest.mark.parametrize(
    ("term", "length", "message"),
    [
        ("anbncn:smallest=4,largest=3", 30, "smallest of task 'anbncn' is 4; allowed: 2 to the largest, 3"),
        ("anbncn", 41, "length of task 'anbncn' is 41; allowed: 42 to 16777216"),
        ("copy", 10**20, "allowed: 1 to 16777216"),
        ("kv_recall", 23, "even"),
        ("kv_recall", 130, "63 of them"),
        ("listops:depth=1", 9, "up to 8, for expressions of depth=1 and arguments=5 have no more symbols than 7"),
        (
            "periodic_pattern:num_streams=4,longest_period=11",
            200,
            r"is 4; allowed: up to 3, for .* primes from 5 to 11",
        ),
        ("permutation_hops:symbols_used=3", 56, "length of task .* is 56; allowed: 36 to 55"),
        ("planted_counting:min_count=9,max_count=8", 64, "min_count of .* is 9; allowed: up to max_count=8"),
        ("pointer_chasing", 71, "is 71; allowed: 16"),
        ("pointer_chasing", 72, "is 72; allowed: 16"),
        ("prefix_arithmetic", 9, "length of task 'prefix_arithmetic' is 9; allowed: even ones from 4 on"),
        ("tree_copy:num_templates=3,num_names=2", 149, "num_templates of .* is 3; allowed: up to num_names=2"),
        ("tree_mirror:depth=2", 31, "25 to 30, for trees of depth=2 and arity=3 have no more nodes than 4"),
    ],
)
def test_lengths_that_cannot_be_sampled_are_refused(term: str, length: int, message: str) -> None:
    task = configured(term)
    for call in (task.floor, task.ceiling, lambda refused: task.sample(np.random.default_rng(0), 1, refused)):
        with pytest.raises(UsageError, match=message):
            call(length)
