"""What a training run leaves behind: losses and step times, compared and drawn."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

import torch
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """One run: its name, and for each step the loss (nats) and the wall-clock time (s)."""

    name: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, loss: float, seconds: float) -> None:
        """Notes one step."""
        self.losses.append(loss)
        self.seconds.append(seconds)

    @property
    def median_seconds(self) -> float:
        """The median step, without the first one, which may have compiled."""
        return statistics.median(self.seconds[1:] or self.seconds)


def largest_difference(actual: Curve, expected: Curve, steps: int) -> float:
    """The largest difference (nats) of two curves' losses within the first `steps` steps."""
    pairs = zip(actual.losses[:steps], expected.losses[:steps], strict=True)
    return max(abs(a - e) for a, e in pairs)


def assert_equal(actual: Curve, expected: Curve, *, steps: int, tolerance: float) -> None:
    """Raises AssertionError unless the first `steps` losses of both agree to `tolerance` (nats).

    Only the beginning is compared: a last bit that two orders of summation round differently grows from step
    to step, in two runs of eager as in any other two.
    """
    torch.testing.assert_close(
        torch.tensor(actual.losses[:steps], dtype=torch.float64),
        torch.tensor(expected.losses[:steps], dtype=torch.float64),
        rtol=0,
        atol=tolerance,
        msg=lambda text: f"the losses of {actual.name} are not those of {expected.name}\n{text}",
    )


def draw(curves: list[Curve], path: Path) -> None:
    """Draws the losses of all curves and the times of their steps, and writes the picture to `path`."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    losses, times = figure.subplots(1, 2)
    styles = [{"color": "C0", "linewidth": 3, "alpha": 0.5}, {"color": "C3", "linewidth": 1}]
    for curve, style in zip(curves, styles, strict=True):
        steps = range(1, len(curve.losses) + 1)
        losses.plot(steps, curve.losses, label=curve.name, **style)
        label = f"{curve.name}: median {curve.median_seconds * 1e3:.1f} ms"
        times.plot(steps, [seconds * 1e3 for seconds in curve.seconds], label=label, **style)
    losses.set(title="loss", xlabel="step", ylabel="nats per byte")
    times.set(title="time of a step", xlabel="step", ylabel="ms", yscale="log")
    for axes in (losses, times):
        axes.legend(frameon=False)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
