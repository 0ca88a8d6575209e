"""Small files that tests of several rooms write: documents with labels, and a suite of prototypes."""

import gzip
from pathlib import Path

import numpy as np

Document = tuple[list[int], dict[int, float]]
NUM_FEATURES, NUM_LABELS = 12, 6

_SUITE = """
name = "tiny"
version = "1"
description = "A prototype a class, in seconds"
seeds = [1, 2]

[model]
block = "attention_only"
positions = "none"
model_dim = 16
num_heads = 1
num_layers = 1
bias = false

[training]
optimizer = "adamw"
learning_rates = {rates}
betas = [0.9, 0.999]
eps = 1e-8
weight_decay = 0.0
steps = 60
batch_size = 16

[evaluation]
test_sequences = 60
validation_sequences = 30
curve_every = 30
curve_sequences = 30

[tasks]
{task} = {{ length = {length} }}

[mechanisms]
softmax = {{}}
yat = {{}}
"""


def suite_of(task: str, length: int, rates: list[float]) -> str:
    """A suite of one task with prototypes, inner product and Yat, two seeds, in seconds."""
    return _SUITE.format(task=task, length=length, rates=rates)


def text_of(documents: list[Document], num_features: int = NUM_FEATURES, num_labels: int = NUM_LABELS) -> str:
    """A file of documents, each its labels and the values of its features."""
    lines = [
        ",".join(map(str, labels)) + "".join(f" {feature}:{value:g}" for feature, value in features.items())
        for labels, features in documents
    ]
    return "\n".join([f"{len(documents)} {num_features} {num_labels}", *lines, ""])


def drawn(count: int, seed: int = 0) -> list[Document]:
    """Documents whose labels are the numbers of their features, halved; label 0 is on most of them."""
    rng = np.random.default_rng(seed)
    found: list[Document] = []
    for _ in range(count):
        features = np.sort(rng.choice(NUM_FEATURES, size=rng.integers(1, 5), replace=False))
        labels = sorted({int(feature) // 2 for feature in features} | ({0} if rng.random() < 0.7 else set()))
        found.append((labels, {int(feature): float(rng.integers(1, 9)) / 2 for feature in features}))
    return found


def write(folder: Path, train: str, test: str, *, prefix: str = "", is_zipped: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in (("train", train), ("test", test)):
        content = text.encode()
        file = folder / f"{prefix}{name}.txt{'.gz' if is_zipped else ''}"
        file.write_bytes(gzip.compress(content) if is_zipped else content)
    return folder
