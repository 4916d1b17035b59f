"""Trains a classifier on the handwritten digits 0 to 4, freezes its trunk, and fine-tunes the head on 5 to 9.

    hatch run digits [--epochs N] [--batch N] [--seed N]

Everything is done twice from the same seed, in eager and compiled by thunder, and has to give the same
losses. Freezing changes what a gradient flows into, so thunder compiles once more; unfreezing finds the first
program again. The data are the 1797 images of 8 by 8 pixels that come with scikit-learn (Alpaydin and Kaynak,
"Optical Recognition of Handwritten Digits", 1998).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

import thunder
from curves import Curve, assert_equal, largest_difference

Forward = Callable[[Tensor], Tensor]
TOLERANCE = 1e-4  # nats, over all steps; noise of 1e-7 in every element of every gradient makes about 1e-6


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=int, default=8, help="passes over the images, in each phase (default: %(default)s)")
    add("--batch", type=int, default=32, help="images of one step (default: %(default)s)")
    add("--rate", type=float, default=3e-3, help="learning rate of the first phase (default: %(default)s)")
    add("--seed", type=int, default=0, help="of weights, split and order (default: %(default)s)")
    return parser.parse_args(arguments)


class Classifier(nn.Module):
    """Images `(batch, 1, 8, 8)` to scores `(batch, classes)`: a convolutional trunk and a linear head.

    GELU, because it has no kink: with ReLU one rounding error near zero can lead two runs of eager apart.
    """

    def __init__(self, classes: int = 5, width: int = 16) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.GELU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.GELU(),
            nn.Flatten(),
        )
        self.head = nn.Linear(2 * width * 4 * 4, classes)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.trunk(images))
        return scores


@dataclass(frozen=True)
class Phase:
    """One training: the five digits from `first` on, and whether the trunk is frozen."""

    name: str
    first: int
    frozen: bool


PHASES = (
    Phase("digits 0 to 4, everything", first=0, frozen=False),
    Phase("digits 5 to 9, head alone", first=5, frozen=True),
    Phase("digits 5 to 9, everything", first=5, frozen=False),
)


@dataclass(frozen=True)
class Run:
    """A model, what is called in its place (itself, or what was compiled from it), and the losses so far."""

    model: Classifier
    forward: Forward
    curve: Curve


def digits(first: int, seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Images of five digits with labels 0 to 4: three quarters to train on, the rest to test on."""
    data = load_digits()
    images, labels = torch.tensor(data.images, dtype=torch.float32) / 16, torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[(labels[order] >= first) & (labels[order] < first + 5)]
    images, labels = images[order, None], labels[order] - first
    cut = len(order) * 3 // 4
    return TensorDataset(images[:cut], labels[:cut]), TensorDataset(images[cut:], labels[cut:])


def prepare(model: Classifier, phase: Phase, seed: int) -> None:
    """Freezes or unfreezes the trunk; a frozen trunk gets a new head, since the classes are new ones."""
    model.train()
    model.trunk.requires_grad_(not phase.frozen)
    if phase.frozen:
        model.trunk.eval()  # the running statistics of its batch norms stay as they are, too
        torch.manual_seed(seed)
        model.head.reset_parameters()


def fit(run: Run, data: TensorDataset, chosen: argparse.Namespace) -> None:
    """Trains those parameters that require grad, with an ordinary loop."""
    trainable = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=chosen.rate)
    generator = torch.Generator().manual_seed(chosen.seed)
    # The last, smaller batch of an epoch is left out: another shape would be another program.
    loader = DataLoader(data, chosen.batch, shuffle=True, drop_last=True, generator=generator)
    for _ in tqdm(range(chosen.epochs), desc=f"{run.curve.name:7}", unit="epoch", leave=False):
        for images, labels in loader:
            start = time.perf_counter()
            loss = F.cross_entropy(run.forward(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.curve.add(loss.item(), time.perf_counter() - start)


@torch.no_grad()
def accuracy(run: Run, data: TensorDataset) -> float:
    """The share of images whose highest score is that of their label."""
    images, labels = data.tensors
    run.model.eval()
    return (run.forward(images).argmax(dim=-1) == labels).float().mean().item()


def build(seed: int) -> Classifier:
    """A classifier with the weights of the seed."""
    torch.manual_seed(seed)
    return Classifier()


def main(arguments: Sequence[str] | None = None) -> None:
    """Goes through the phases with both runs, and compares."""
    chosen = options(arguments)
    model, reference = build(chosen.seed), build(chosen.seed)
    compiled = thunder.jit(model)
    runs = [Run(reference, reference, Curve("eager")), Run(model, compiled, Curve("thunder"))]
    print(f"{'':26} {'test accuracy':^17} {'compiled':>9}")
    print(f"{'trained on':26} {'eager':>8} {'thunder':>8} {'to train':>9}  because")
    for phase in PHASES:
        train, test = digits(phase.first, chosen.seed)
        before = thunder.cache_misses(compiled)
        for run in runs:
            prepare(run.model, phase, chosen.seed)
            fit(run, train, chosen)
        misses = thunder.cache_misses(compiled) - before
        # One reason for each program that did not fit, the newest first: the last is about the first program.
        reasons = thunder.last_recompile_reasons(compiled)[-1:] if misses else []
        because = ", ".join(f"{reason.source}: {reason.found}" for reason in reasons)
        scores = [accuracy(run, test) for run in runs]
        print(f"{phase.name:26} {scores[0]:8.3f} {scores[1]:8.3f} {misses:9}  {because}")

    eager, jitted = (run.curve for run in runs)
    steps = len(eager.losses)
    assert_equal(jitted, eager, steps=steps, tolerance=TOLERANCE)
    difference = largest_difference(jitted, eager, steps=steps)
    print(f"\nlosses of all {steps} steps: thunder equals eager", end=" ")
    print(f"(largest difference {difference:.1e}, allowed {TOLERANCE:.0e})")
    times = (f"{curve.name} {curve.median_seconds * 1e3:.2f} ms" for curve in (eager, jitted))
    print(f"median step: {', '.join(times)}")


if __name__ == "__main__":
    main()
