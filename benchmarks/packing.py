"""What it brings to train several small cells at once on one GPU: in streams of one process, or in processes.

A rate counts member-steps a second over all cells, one gradient step of one member at the suite's batch size. All ways
train the same cells in one run, and each is compared with one process that trains them one after the other.

    python -m benchmarks.packing --help
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Annotated, Any

import torch
import typer

from benchmarks.script import make_app, run
from synthbench.bench.suite import SUITE, Program, cells_of
from synthbench.bench.together import side_by_side, wait_for_all
from synthbench.cli.options import AsJson, Device, MechanismTerms, parse_lengths
from synthbench.cli.output import print_facts
from synthbench.errors import UsageError
from synthbench.runner.environment import resolve_device
from synthbench.runner.plan import select_mechanisms
from synthbench.runner.slots import VISIBLE, Slot, enter, gpu_slots
from synthbench.suites import load_suite
from synthbench.training.cell import Cell, Member

app = make_app()


def measure(
    expressions: Sequence[str],
    *,
    device: str,
    at_once: Sequence[int],
    length: int,
    num_members: int,
    num_steps: int,
    num_repeats: int,
) -> Iterator[dict[str, Any]]:
    """The rate of one process, then of streams and of processes, several of each; medians of some repeats.

    Args:
        expressions: Select mechanisms; each makes a cell.
        device: A GPU.
        at_once: Numbers of streams and of processes.
        length: Of the sequences.
        num_members: Of a cell.
        num_steps: Of one timing.
        num_repeats: Timings.

    Raises:
        UnknownName: If an expression names no mechanism.
        UsageError: If the device is no GPU, or a value is not allowed.
    """
    target = resolve_device(device)
    if target.type != "cuda":
        raise UsageError(f"device is {target.type!r}; allowed: cuda or cuda:1, since a GPU is what is shared")
    suite = load_suite(SUITE)
    mechanisms = select_mechanisms(suite, expressions or [",".join(suite.mechanisms)])
    cells = tuple(cells_of(suite, mechanisms, length, target.type))
    first = torch.device("cuda", target.index or 0)
    num_gpus, visible = torch.cuda.device_count(), os.environ.get(VISIBLE)
    slots = {count: gpu_slots(first, count, num_gpus=num_gpus, visible=visible) for count in (1, *at_once)}
    yield from rates(Load(cells, num_members, num_steps), slots, num_repeats)


@dataclass(frozen=True)
class Load:
    """Cells to train, one a mechanism, and for how long."""

    cells: tuple[Cell, ...]
    num_members: int
    num_steps: int

    @property
    def num_member_steps(self) -> int:
        """Steps of all members of all cells."""
        return len(self.cells) * self.num_members * self.num_steps

    def part(self, index: int, count: int) -> "Load":
        """Every ``count``-th cell, from ``index`` on."""
        return replace(self, cells=self.cells[index::count])

    def programs(self, *, is_captured: bool) -> list[Program]:
        """A program for each cell, warm."""
        programs = []
        for cell in self.cells:
            members = [Member(cell, seed, cell.suite.training.learning_rates[0]) for seed in range(self.num_members)]
            device = torch.device(cell.device_type)
            programs.append(Program(members, self.num_steps, device, is_captured=is_captured))
        for program in programs:
            for _ in range(program.num_warm_ups):
                program.run()
        return programs


def rates(load: Load, places: Mapping[int, Sequence[Slot | None]], num_repeats: int) -> Iterator[dict[str, Any]]:
    """A row for one process, then one for as many streams, and one for as many processes, as there are places.

    Args:
        load: What all of them train.
        places: For 1 and for each number of processes, where each of them runs; None for anywhere.
        num_repeats: Timings; the median counts.
    """
    about = {"cells": len(load.cells), "members": load.num_members, "length": load.cells[0].length}

    def row(way: str, count: int, taken: float) -> dict[str, Any]:
        rate = load.num_member_steps / taken
        return {"way": way, "at_once": count, **about, "member_steps_per_s": rate, "ratio": alone / taken}

    alone = median(_seconds(load, places[1], 1, num_repeats))
    yield row("one process", 1, alone)
    for count, slots in places.items():
        if count > 1:
            yield row("streams", count, median(_seconds(load, places[1], count, num_repeats)))
            yield row("processes", count, median(_seconds(load, slots, 1, num_repeats)))


def _seconds(load: Load, places: Sequence[Slot | None], num_streams: int, num_repeats: int) -> list[float]:
    """Seconds of every repeat, from the first process that begins to the last that ends."""
    parts = [(load.part(index, len(places)), place) for index, place in enumerate(places)]
    spans = side_by_side(partial(_spans, num_streams=num_streams, num_repeats=num_repeats), parts)
    return [max(end for _, end in repeat) - min(start for start, _ in repeat) for repeat in zip(*spans, strict=True)]


def _spans(part: tuple[Load, Slot | None], *, num_streams: int, num_repeats: int) -> list[tuple[float, float]]:
    """When each repeat of this process began and ended, by a clock that all processes share."""
    load, slot = part
    if slot is not None:
        enter(slot)
    # Recording a graph forbids other threads of the process to use the device meanwhile.
    programs = load.programs(is_captured=num_streams == 1)
    spans = []
    with ThreadPoolExecutor(num_streams) as threads:
        for _ in range(num_repeats):
            wait_for_all()
            began = time.perf_counter()
            list(threads.map(_run_in_stream, [programs[index::num_streams] for index in range(num_streams)]))
            spans.append((began, time.perf_counter()))
    return spans


def _run_in_stream(programs: Sequence[Program]) -> None:
    """Train some cells one after the other, in a stream of their own where the device has streams."""
    if not programs or programs[0].device.type != "cuda":
        for program in programs:
            program.take_steps()
        return
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for program in programs:
            program.take_steps()
    stream.synchronize()


@app.command()
def main(
    mech: MechanismTerms = None,
    at_once: Annotated[str, typer.Option(help="Numbers of streams and of processes, a comma list.")] = "2,4,8",
    length: Annotated[int, typer.Option(help="Tokens of a sequence.", min=1)] = 32,
    members: Annotated[int, typer.Option(help="Members of a cell.", min=1)] = 5,
    steps: Annotated[int, typer.Option(help="Steps of one timing.", min=1)] = 50,
    repeats: Annotated[int, typer.Option(help="Timings; the median counts.", min=1)] = 5,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train small cells on one GPU: one after the other, in streams, in processes; member-steps a second of each."""
    measured = measure(
        mech or [],
        device=device,
        at_once=parse_lengths(at_once),
        length=length,
        num_members=members,
        num_steps=steps,
        num_repeats=repeats,
    )
    facts = []
    for fact in measured:
        facts.append(fact)
        typer.echo(f"{fact['way']} {fact['at_once']}: {fact['ratio']:.2f}", err=True)
    print_facts(facts, list(facts[0]), as_json=as_json)


if __name__ == "__main__":
    run(app)
