"""Memory and time of a training step: block Aether against a transformer with the same attention and batch.

python -m benchmarks.aether --help
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Annotated, Any

import torch
import typer

from benchmarks.script import make_app, run
from synthbench.bench.instruments import as_in_a_worker, interleaved, peak_bytes
from synthbench.blocks import BLOCKS
from synthbench.cli.options import AsJson, Device
from synthbench.cli.output import print_facts
from synthbench.mechanisms import MECHANISMS
from synthbench.runner.environment import resolve_device

app = make_app()
PAIR = ("transformer", "aether")


def stepping(
    block: str, mechanism: str, shape: Sequence[int], num_layers: int, device: torch.device
) -> Callable[[], None]:
    """Return a training step of some layers on random vectors [batch, length, width], with AdamW and no head."""
    generator = torch.Generator().manual_seed(0)
    width = shape[-1]
    layers = torch.nn.Sequential()
    for _ in range(num_layers):
        mixer = MECHANISMS[mechanism](model_dim=width, generator=generator)
        layers.append(BLOCKS[block](model_dim=width, mixer=mixer, generator=generator))
    layers.to(device)
    x = torch.randn(*shape, generator=generator).to(device)
    optimiser = torch.optim.AdamW(layers.parameters(), lr=1e-4)

    def step() -> None:
        layers(x).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()

    step()  # which makes the optimiser's state
    return step


def measure(
    mechanisms: Sequence[str], shape: Sequence[int], *, num_layers: int, num_repeats: int, device: torch.device
) -> list[dict[str, Any]]:
    """Measure both blocks with each attention, by turns; ratios are Aether's over the transformer's."""
    facts = []
    with as_in_a_worker():
        for mechanism in mechanisms:
            steps = {block: stepping(block, mechanism, shape, num_layers, device) for block in PAIR}
            times = interleaved(steps, num_repeats, device)
            ms = [1e3 * median(times[block]) for block in PAIR]
            peaks = [peak_bytes(steps[block], device) / 2**20 for block in PAIR]
            facts.append(
                {"attention": mechanism}
                | {
                    f"{block} {unit}": value
                    for unit, pair in (("ms", ms), ("MB", peaks))
                    for block, value in zip(PAIR, pair, strict=True)
                }
                | {"time ratio": ms[1] / ms[0], "memory ratio": peaks[1] / peaks[0]}
            )
    return facts


@app.command()
def main(
    mech: Annotated[str, typer.Option(help="Mechanisms, comma-separated.")] = "softmax,yat",
    batch_size: Annotated[int, typer.Option(help="Sequences.", min=1)] = 8,
    length: Annotated[int, typer.Option(help="Tokens a sequence.", min=1)] = 256,
    width: Annotated[int, typer.Option(help="Channels of a token.", min=4)] = 128,
    layers: Annotated[int, typer.Option(help="Blocks.", min=1)] = 4,
    repeats: Annotated[int, typer.Option(help="Steps; the median counts.", min=1)] = 15,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Measure a training step of Aether and of a transformer with the same attention."""
    shape = batch_size, length, width
    target = resolve_device(device)
    facts = measure(mech.split(","), shape, num_layers=layers, num_repeats=repeats, device=target)
    print_facts(facts, list(facts[0]), as_json=as_json)


if __name__ == "__main__":
    run(app)
