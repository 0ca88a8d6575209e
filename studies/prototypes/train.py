"""Train one neuron per digit, or per label of documents, and append one row per run to ``runs.csv``.

``python -m studies.prototypes.train digits`` makes the missing runs of a setting; with ``--again``, it also repeats
finished runs.
"""

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from studies.prototypes import data as files
from studies.prototypes.data import Data, Split
from synthbench.forms import linear
from synthbench.layers import uniform
from synthbench.mechanisms import MECHANISMS, FeatureAttention, ScoreAttention
from synthbench.runner.environment import hardware, software
from synthbench.tasks import IGNORE
from synthbench.training.seeding import BLOCK_STEPS, init_seed

ROWS = Path(__file__).with_name("runs.csv")
KEY = ["setting", "data", "mechanism", "rate", "seed"]


class Setting(NamedTuple):
    """Settings of runs that are compared with each other."""

    task: str
    """``digits`` or ``labels``."""
    std: float | None
    """Initial standard deviation of the prototypes' entries; None for the initialisation of a linear layer."""
    rates: tuple[float, ...]
    batch_size: int
    mechanisms: tuple[str, ...]


LABELS = ("softmax", "yat", "slay", "performer")
DIGITS = (*LABELS, "yat-spherical")
SETTINGS = {
    "digits": Setting("digits", 0.2, (1e-3, 3e-3, 1e-2), 32, DIGITS),
    "digits-short": Setting("digits", None, (1e-3, 3e-3, 1e-2), 32, DIGITS),
    "labels": Setting("labels", None, (3e-3, 1e-2, 3e-2, 1e-1, 3e-1), 128, LABELS),
    "labels-short": Setting("labels", 0.002, (1e-2, 3e-2, 1e-1, 3e-1), 128, LABELS),
}


class Run(NamedTuple):
    """One training run."""

    setting: str
    mechanism: str
    rate: float
    seed: int


class Prototypes(nn.Module):
    r"""Scores :math:`s \, \kappa(x, w_c)` of classes c; κ is a mechanism's kernel of an input and a learned prototype.

    The scale :math:`s = (n / \log(1 + n))^\alpha` has a learned :math:`\alpha`, initially 1; n is the number of
    classes. A document's vector is the weighted sum of its words' learned vectors.

    Source: Bouhsine (2026), sections 2.3 and 3.3, for the Yat product.
    """

    def __init__(self, mechanism: str, data: Data, std: float | None, generator: torch.Generator) -> None:
        """Draw the frozen features of the kernel, then the prototypes, then the vectors of words."""
        super().__init__()
        width = data.train.inputs.shape[1]
        dim = 64 if data.is_bags else width
        self.kernel = MECHANISMS[mechanism](
            model_dim=dim, num_heads=1, bias=False, max_length=width, generator=generator
        )
        del self.kernel.qkv, self.kernel.out  # projections are no part of a kernel
        bound = dim**-0.5 if std is None else std * 3**0.5
        self.weight = uniform((data.num_classes, dim), bound, generator)
        self.alpha = nn.Parameter(torch.ones(1))
        self.largest = data.num_levels - 1
        self.words: nn.Parameter | None = None
        if data.is_bags:
            self.words = nn.Parameter(torch.empty(data.num_levels, dim).normal_(generator=generator))

    def forward(self, inputs: Int[Tensor, "batch width"]) -> Float[Tensor, "batch classes"]:
        """Score every class."""
        num_classes = len(self.weight)
        scale = (self.alpha * math.log(num_classes / math.log1p(num_classes))).exp()
        q, k = self.vectors(inputs)[None], self.weight[None]  # in one head
        if isinstance(self.kernel, FeatureAttention):
            return scale * linear.kernel(self.kernel.factors(q, "query"), self.kernel.factors(k, "key"))[0]
        return scale * cast("ScoreAttention", self.kernel).scores(q, k)[0]

    def vectors(self, inputs: Int[Tensor, "batch width"]) -> Float[Tensor, "batch dim"]:
        """Compute the vectors that are compared with the prototypes."""
        if self.words is None:
            return inputs / self.largest
        words, weights = inputs.chunk(2, dim=1)
        return nn.functional.embedding_bag(words, self.words, per_sample_weights=weights / self.largest, mode="sum")


def loss_of(logits: Float[Tensor, "batch classes"], targets: Int[Tensor, "batch most"]) -> Float[Tensor, ""]:
    """Compute the cross-entropy with one softmax over all classes, averaged over all target classes.

    Source: Menon et al. (2019), the reduction "pick all labels", whose optimum ranks classes by their probability.
    """
    if targets.shape[1] == 1:
        return nn.functional.cross_entropy(logits, targets[:, 0])
    is_there = targets != IGNORE
    losses = logits.logsumexp(-1, keepdim=True) - logits.gather(-1, targets.clamp(min=0))
    return losses.where(is_there, 0).sum() / is_there.sum()


def batches(data: Data, setting: Setting, seed: int, steps: int) -> Iterator[Split]:
    """Yield batches from passes through the training split, each pass in another random order."""
    stream = json.dumps([setting.task, 1, data.train.inputs.shape[1], {"corpus": data.name}]).encode()
    words = np.frombuffer(hashlib.sha256(stream).digest()[:16], dtype="<u4")
    num_all = len(data.train.inputs)
    for block, first in enumerate(range(0, steps, BLOCK_STEPS)):
        count = min(BLOCK_STEPS, steps - first) * setting.batch_size
        sequence = np.random.SeedSequence(seed, spawn_key=(1, *map(int, words), block))
        rng = np.random.Generator(np.random.Philox(sequence))
        passes = np.concatenate([rng.permutation(num_all) for _ in range(-(-count // num_all))])
        for chosen in passes[:count].reshape(-1, setting.batch_size):
            yield data.train.taken(chosen)


@torch.inference_mode()
def best_classes(model: Prototypes, split: Split) -> Int[np.ndarray, "count ranks"]:
    """Rank the five classes with the highest scores."""
    inputs = torch.from_numpy(split.inputs.astype(np.int64))
    ranked = [model(part).topk(min(5, len(model.weight))).indices for part in inputs.split(1000)]
    return torch.cat(ranked).numpy()


def accuracy(model: Prototypes, split: Split) -> float:
    """Compute the share of inputs whose best class is one of their target classes."""
    return float((best_classes(model, split)[:, :1] == split.targets).any(axis=1).mean())


def train(run: Run, data: Data, steps: int = 1100) -> dict[str, Any]:
    """Train one classifier and return its row."""
    setting, began = SETTINGS[run.setting], time.perf_counter()
    model = Prototypes(run.mechanism, data, setting.std, torch.Generator().manual_seed(init_seed(run.seed)))
    length = model.weight.norm(dim=-1).mean().item()
    optimiser = torch.optim.AdamW(model.parameters(), lr=run.rate, weight_decay=0, fused=True)
    for batch in batches(data, setting, run.seed, steps):
        optimiser.zero_grad()
        inputs, targets = (torch.from_numpy(part.astype(np.int64)) for part in (batch.inputs, batch.targets))
        torch.autograd.backward(loss_of(model(inputs), targets))
        optimiser.step()
    seconds = time.perf_counter() - began
    scores = files.ranking_scores(best_classes(model, data.test), data.test, data.propensities)
    row = {
        **run._asdict(),
        "validation": accuracy(model, data.validation),
        "score": scores.pop("P@1"),
        "growth": model.weight.norm(dim=-1).mean().item() / length - 1,
        "alpha": model.alpha.item(),
        **(scores if data.is_bags else {}),
    }
    with torch.no_grad():
        model.weight.neg_()
    row |= {"inverted": accuracy(model, data.test), "nearest mean": files.nearest_mean(data), "floor": data.floor}
    facts = software() | hardware(torch.device("cpu"))
    return row | {
        "data": data.name, "seconds": round(seconds, 1),
        "device": facts["device_name"], "torch": facts["torch"], "commit": facts["git_sha"],
    }  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Make the requested runs that are missing."""
    parser = argparse.ArgumentParser(description="Train classifiers of digits or documents")
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--mechanisms", nargs="+", choices=DIGITS, help="default: those of the setting")
    parser.add_argument("--seeds", nargs="+", type=int, default=range(1, 11))
    parser.add_argument("--rates", nargs="+", type=float, help="default: those of the setting")
    parser.add_argument("--data", type=Path, help="a folder with the files of MNIST or Eurlex-4K")
    parser.add_argument("--again", action="store_true", help="repeat runs that have a row")
    asked = parser.parse_args(arguments)
    setting = SETTINGS[asked.setting]
    torch.set_num_threads(1)
    data = (files.digits if setting.task == "digits" else files.documents)(asked.data)
    rows = pd.read_csv(ROWS)
    done = set(rows[rows["data"] == data.name][list(Run._fields)].itertuples(index=False, name=None))
    for mechanism, rate, seed in product(
        asked.mechanisms or setting.mechanisms, asked.rates or setting.rates, asked.seeds
    ):
        run = Run(asked.setting, mechanism, rate, seed)
        if asked.again or run not in done:
            row = pd.DataFrame([train(run, data)], columns=rows.columns)
            row.to_csv(ROWS, mode="a", header=False, index=False)
            sys.stdout.write(f"{' '.join(map(str, run))}: {row['score'][0]:.4f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
