"""Random programs of whole training steps: forwards, backwards, and updates of parameters between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

__all__ = ["outcome", "random_step"]

WIDTH = 16

OPERATIONS = (
    "F.gelu({0} @ w)",
    "{0} + torch.sigmoid({1})",
    "{0} * torch.tanh({1})",
    "F.layer_norm({0}, (16,), b, b)",
    "F.dropout({0}, 0.3)",
    "F.softmax({0}, -1) @ {1}.t() @ {0}",
    "({0} * b).view(4, 8, 4).transpose(0, 1).reshape(8, 16).sigmoid()",
    "torch.cat([{0}[:3], {1}[3:]])",
    "F.linear({0}, w, b).clamp(max=2)",
    "checkpoint(lambda t: torch.tanh(t @ w) * t, {0}, use_reentrant=False)",
    "{0}.detach() * {1}.sin()",
    "{0} / (1 + {1}.square().sum(-1, keepdim=True))",
)
WRITES = ("{0} = {0} * 1; {0}.mul_(0.5)", "{0} = {0} + 0; {0}[1:3] += 1", "s.add_({0}.detach().mean())")


def random_step(r: random.Random, *, detached: bool = True) -> tuple[Callable[..., Any], str]:
    """Return a program of one or two backwards with updates between, and its text.

    Its results are `detached`, or are those of graphs that its backwards may have freed; then nothing is
    updated, since a checkpointed region would run again with what was written.
    """
    lines: list[str] = []
    for batch in range(r.choice((1, 1, 2))):
        values = ["x"]
        for n in range(r.randrange(3, 9)):
            name = f"v{batch}_{n}"
            lines.append(f"{name} = {r.choice(OPERATIONS).format(r.choice(values), r.choice(values))}")
            if r.random() < 0.2:
                lines.append(r.choice(WRITES).format(name))
            values.append(name)
        shown = r.choice(values)
        lines.append(f"loss = {values[-1]}.square().mean() + {r.choice(values)}.sin().sum() + (w * b).sum()")
        retain = r.choice(("", "retain_graph=True")) if not detached else ""
        end = ".detach()" if detached else ""
        lines.append(f"loss.backward({retain}); results += [loss{end}, {shown}{end} * 2]")
        if detached and r.random() < 0.6:
            lines += ["with torch.no_grad():", "    for p in (w, b): p -= 0.1 * p.grad"]
            lines.append(r.choice(("w.grad = b.grad = None", "w.grad.zero_(); b.grad.zero_()", "pass")))
    body = "".join(f"    {line}\n" for line in ("results = []", *lines, "return results"))
    text = f"def program(x, w, b, s):\n{body}"
    namespace: dict[str, Any] = {"torch": torch, "F": F, "checkpoint": checkpoint}
    exec(text, namespace)
    return namespace["program"], text


def outcome(program: Callable[..., Any]) -> list[Any]:
    """Return what two calls return, and leave in their arguments."""
    generator = torch.Generator().manual_seed(2)
    w = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) / 4)
    b = nn.Parameter(torch.rand(WIDTH, generator=generator, dtype=torch.float64))
    s = torch.zeros((), dtype=torch.float64)
    torch.manual_seed(3)
    results = []
    for _ in range(2):
        x = torch.randn(8, WIDTH, generator=generator, dtype=torch.float64)
        results.append(program(x, w, b, s))
    return [results, w, w.grad, b, b.grad, s, torch.rand(2)]
