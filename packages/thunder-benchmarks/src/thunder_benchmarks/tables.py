"""The tables: what each compares, and how it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["MODES", "STEP", "TABLES", "Table"]

MODES: Final = ("inference", "training")
STEP: Final = ("step",)
COMPARED: Final = ("eager", "compile", "thunder-torch", "thunder-inductor", "lightning-inductor")


@dataclass(frozen=True)
class Table:
    """A comparison of ways over workloads, dtypes and modes.

    `measured` is what a cell has: the time of a call, the CPU time to the first result in a new process with
    empty caches and with filled ones, or bytes. The fields `quick…` replace others with `--quick`.
    """

    title: str
    measured: Literal["time", "first call", "memory"]
    workloads: tuple[str, ...]
    ways: tuple[str, ...] = COMPARED
    dtypes: tuple[str, ...] = ("float32",)
    modes: tuple[str, ...] = MODES
    rounds: int = 9
    budget_us: float = 100_000
    quick_workloads: tuple[str, ...] | None = None
    quick_dtypes: tuple[str, ...] = ("float32",)
    quick_modes: tuple[str, ...] = MODES
    quick_rounds: int = 3


TABLES: Final[dict[str, Table]] = {
    "speed": Table(
        "Steady state: one call, or one call and its backward",
        "time",
        ("LLaMAMLP", "litgpt", "nanoGPT", "BERT", "ViT", "ResNet", "DLRM", "U-Net"),
        dtypes=("float32", "bfloat16"),
        quick_workloads=("LLaMAMLP", "DLRM"),
    ),
    "steps": Table(
        "A whole training step as one function: forward, loss, backward, clipping and AdamW",
        "time",
        ("LLaMAMLP", "litgpt", "nanoGPT", "BERT", "ViT", "ResNet"),
        ways=COMPARED[:-1],
        modes=STEP,
        quick_workloads=("nanoGPT",),
        quick_modes=STEP,
    ),
    "calls": Table(
        "Warm calls with little arithmetic",
        "time",
        ("litgpt-4x16", "linear-1", "linear-10", "linear-100"),
        ways=(*COMPARED, "thunder-frozen", "thunder-same-input", "thunder-bare"),
        rounds=21,
        budget_us=20_000,
        quick_workloads=("linear-1", "linear-10"),
        quick_rounds=5,
    ),
    "compile": Table(
        "First result: CPU time of imports, compilation and the call, with child processes",
        "first call",
        ("layers-1", "layers-8", "layers-32"),
        ways=COMPARED[1:],
        rounds=1,
        quick_workloads=("layers-1", "layers-8"),
        quick_modes=("inference",),
        quick_rounds=1,
    ),
    "memory": Table(
        "Memory of a training step",
        "memory",
        ("LLaMAMLP-4096", "litgpt-4x512"),
        modes=("training", "step"),
        quick_workloads=("LLaMAMLP-4096",),
        quick_modes=("training",),
    ),
}
"""Name → the table."""
