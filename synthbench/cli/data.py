"""``synthbench data``: write the sequences of a task to a file, without training a model."""

from pathlib import Path
from typing import Annotated

import typer

from synthbench.cli.options import Plugins
from synthbench.cli.output import say


def data(
    task: Annotated[str, typer.Argument(help="A task: mqar, mqar:level=3 or mqar:num_pairs=8.")],
    out: Annotated[Path, typer.Option(help="The file to write, NAME.npz.")],
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    seed: Annotated[int, typer.Option(help="Root seed of the run that reads them.")] = 0,
    count: Annotated[
        int | None, typer.Option(help="Number of sequences. Default: all that a run of --suite reads.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Without --suite: sequences per batch. Default: all in one, as in a test.")
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="The suite whose runs read them; also gives the task's size.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    plugin: Plugins = None,
) -> None:
    """Save the sequences that a run of a task would read, as a NumPy archive of inputs, targets and facts about them.

    synthbench data mqar:level=3 --count 10000 --seed 0 --split test --out mqar.npz
    """
    from synthbench import plugins
    from synthbench.training.sequences import draw, write

    plugins.load(plugins.named(plugin))
    drawn = draw(task, split=split, seed=seed, count=count, batch_size=batch_size, suite=suite)
    write(drawn, out, is_forced=force)
    say(f"{out}: {len(drawn.inputs)} sequences of {drawn.length} tokens")
