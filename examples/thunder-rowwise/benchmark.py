"""How long the kernels take, and torch's own: `python benchmark.py`. Milliseconds, the best of 20 runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from thunder_rowwise import kernels


def milliseconds(fn: Callable[[], object]) -> float:
    """The time of the fastest of 20 runs."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def main() -> None:
    """Prints a table: shape, operator, eager, this package, the ratio."""
    print(f"{'shape':>14}  {'operator':9}  eager   rowwise  ratio")
    for shape in ((64, 1024), (512, 4096), (512, 11008)):
        x, y, w = torch.randn(shape), torch.randn(shape), torch.randn(shape[-1])
        rows: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "rms_norm": (
                partial(torch.nn.functional.rms_norm, x, w.shape, w, 1e-6),
                partial(kernels.rms_norm_forward, x, w, 1e-6),
            ),
            "swiglu": (partial(kernels.swiglu, x, y), partial(kernels.swiglu_forward, x, y)),
        }
        for name, (eager, ours) in rows.items():
            a, b = milliseconds(eager), milliseconds(ours)
            print(f"{shape!s:>14}  {name:9}  {a:6.2f}  {b:7.2f}  {a / b:5.2f}")


if __name__ == "__main__":
    main()
