"""One compiled module in many threads: mixed shapes, numbers, gradients and modes; the judge is eager."""

from __future__ import annotations

import random
import sys
import threading
import traceback
from typing import Any

import torch

import thunder


class Model(torch.nn.Module):
    """A model with a branch on a shape, a number that is passed, and a buffer."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8))

    def forward(self, x: torch.Tensor, k: float) -> torch.Tensor:
        """Return ``(*, 2)``."""
        h = torch.nn.functional.gelu(self.a(x)) * self.scale * k
        return self.b(h.cos() if h.shape[0] > 3 else h)


SHAPES = [*((n, 4) for n in (1, 2, 3, 4, 5, 7, 9)), *((2, n, 4) for n in (1, 3))]
NUMBERS = (1.0, 2.0, 3.5)


def shared_by_threads(threads: int, calls: int, seed: int, **settings: Any) -> dict[str, int]:
    """Call one compiled module from threads; fail for a wrong result, an error, or a lost count."""
    torch.manual_seed(seed)
    model = Model()
    compiled = thunder.jit(model, **settings)
    inputs = [torch.randn(shape) for shape in SHAPES]
    cases = [(x, k) for x in inputs for k in NUMBERS]
    values, gradients = [], []
    for x, k in cases:
        x = x.clone().requires_grad_()
        values.append(model(x, k))
        gradients.append(torch.autograd.grad(values[-1].sum(), x)[0])
    faults: list[str] = []

    def one_call(n: int, index: int) -> None:
        x, k = cases[index]
        if n % 5 == 0:
            x = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(compiled(x, k).sum(), x)
            torch.testing.assert_close(gradient, gradients[index], atol=1e-5, rtol=1e-4)
            return
        with torch.set_grad_enabled(n % 7 != 0):
            result = compiled(x, k)
        assert result.requires_grad == (n % 7 != 0), "gradients as eager"
        torch.testing.assert_close(result, values[index], atol=1e-5, rtol=1e-4)

    def work(number: int) -> None:
        draw = random.Random(seed * 1000 + number)
        for n in range(calls):
            try:
                one_call(n, draw.randrange(len(cases)))
            except Exception:
                faults.append(traceback.format_exc())
                return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change places in the middle of a compile
    try:
        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert faults == [], f"{len(faults)} of {threads} threads failed:\n{faults[0]}"
    hits, misses = thunder.cache_hits(compiled), thunder.cache_misses(compiled)
    assert hits + misses == threads * calls, f"{hits} hits and {misses} misses of {threads * calls} calls"
    return {"calls": threads * calls, "compiles": misses}
