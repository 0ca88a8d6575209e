"""How fast the tasks are drawn: tokens per second on one core.

python -m benchmarks.generators --help
"""

import time
from collections.abc import Sequence
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.script import make_app, run
from synthbench.cli.options import AsJson, TaskTerms
from synthbench.cli.output import print_facts
from synthbench.tasks import TASKS
from synthbench.terms import select

app = make_app()


def measure(expressions: Sequence[str], *, batch_size: int, num_repeats: int) -> list[dict[str, Any]]:
    """Median seconds of a draw of every selected task at its published length, and the rate in tokens a second.

    Raises:
        UnknownName: If an expression names no task.
    """
    names = select("task", expressions, list(TASKS), lambda name: TASKS[name].category())
    facts = []
    for name in names:
        task = TASKS[name]()
        rng = np.random.Generator(np.random.Philox(0))
        task.sample(rng, batch_size, task.length)
        seconds = []
        for _ in range(num_repeats):
            began = time.perf_counter()
            task.sample(rng, batch_size, task.length)
            seconds.append(time.perf_counter() - began)
        rate = batch_size * task.length / median(seconds)
        facts.append(
            {
                "task": name,
                "length": task.length,
                "batch_size": batch_size,
                "draw_ms": median(seconds) * 1e3,
                "million_tokens_per_s": rate / 1e6,
            }
        )
    return facts


@app.command()
def main(
    task: TaskTerms = None,
    batch_size: Annotated[int, typer.Option(help="Sequences a draw.", min=1)] = 4096,
    repeats: Annotated[int, typer.Option(help="Draws; the median counts.", min=1)] = 7,
    as_json: AsJson = False,
) -> None:
    """Time every task's generator on one core: tokens per second."""
    facts = measure(task or ["all"], batch_size=batch_size, num_repeats=repeats)
    print_facts(facts, list(facts[0]), as_json=as_json)


if __name__ == "__main__":
    run(app)
