"""Random programs that ask for data: branches, loops, writes, random numbers, output, checkpoints, errors.

A program has the arguments ``a`` (which may require grad), ``b`` and ``buffer`` (of three elements, and
written), ``log`` (a list) and ``state`` (a dict).
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CONDITIONS = (
    "{v}.sum() > 0",
    "({v} > 0).all()",
    "not ({v} < -1).any()",
    "{v}.max() > {v}.mean() + 1",
    "torch.equal({v}, {w})",
    "torch.allclose({v}, {w}, atol=2.0)",
    "{v}[0] > {v}[1]",
    "{v}.detach().sum().item() > 0.5",
    "int({v}.detach().abs().max()) % 2 == 0",
    "torch.rand(()) > 0.5",
    "({v}.detach() > 0).sum().item() in (1, 2)",
    "{v}.min() < 0 and {w}.max() > 0",
    "bool({v}[2] > 0)",
    "len([q for q in {v} if q > 0]) > 1",
)
VALUES = (
    "{v} + {w}",
    "{v} * {w}",
    "{v}.sin()",
    "{v}.exp().clamp(max=5)",
    "torch.where({v} > 0, {v}, {w})",
    "{v} - {w}.mean()",
    "F.dropout({v}, 0.4)",
    "{v} + torch.randn(3)",
    "{v} * {w}.detach().mean().item()",
    "{v} / ({w}.detach().abs().max().item() + 1)",
    "torch.cumsum({v}, 0)",
    "checkpoint(region, {v} * 1, use_reentrant=False)",
    "Custom.apply({v} * 1)",
)
WRITES = (
    "buffer.add_({v}.detach())",
    "buffer[0] = {v}.detach()[1]",
    "b.mul_(0.5)",
    "b[1:].neg_()",
    "b.view(-1).add_(1)",
    "print('at', len(log))",
    "log.append({v}.detach())",
    "log.append(len(log))",
    "state['n'] = state.get('n', 0) + 1",
    "state['t'] = {v}.detach() * 2",
)


def region(x: Tensor) -> Tensor:
    """A checkpointed region with a decision."""
    y = x.sin()
    return y * x if y.sum() > 0 else y.exp()


class Custom(torch.autograd.Function):
    """A decision in the forward, and one in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2 if x.sum() > 0 else x * 3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 2 if x.max() > 1 else g * 5


class Writer:
    """Writes one program; the same seed writes the same."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.names = ["a", "b"]
        self.count = 0

    def source(self) -> str:
        """Return the text of the program."""
        self.emit(0, "def program(a, b, buffer, log, state):")
        for _ in range(self.random.randint(4, 9)):
            self.statement(1)
        self.emit(1, f"return {self.names[-1]} * 1, {self.value()}, a")
        return "\n".join(self.lines) + "\n"

    def emit(self, depth: int, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * depth + text)

    def value(self) -> str:
        """Return the name of a tensor."""
        return self.random.choice(self.names)

    def new(self) -> str:
        """Return a new name."""
        self.count += 1
        return f"v{self.count}"

    def filled(self, texts: tuple[str, ...]) -> str:
        """Return one of the texts, with values."""
        return self.random.choice(texts).format(v=self.value(), w=self.value())

    def statement(self, depth: int) -> None:
        """Write a statement, with the statements in it."""
        kind = self.random.random()
        if kind < 0.35:
            name, text = self.new(), self.filled(VALUES)
            self.emit(depth, f"{name} = {text}")
            self.names.append(name)
        elif kind < 0.55 or depth > 3:
            self.emit(depth, self.filled(WRITES))
        elif kind < 0.62:
            self.emit(depth, f"if {self.filled(CONDITIONS)}:")
            ends = ("raise ValueError('bad')", f"return {self.value()} * 3, {self.value()}")
            self.emit(depth + 1, self.random.choice(ends))
        elif kind < 0.88:
            self.branch(depth)
        else:
            self.loop(depth)

    def branch(self, depth: int) -> None:
        """Write a branch; both sides define a value."""
        before, name = list(self.names), self.new()
        self.emit(depth, f"if {self.filled(CONDITIONS)}:")
        for i, text in enumerate((f"{name} = {self.value()} * 2", f"{name} = {self.value()}.cos()")):
            if i:
                self.emit(depth, "else:")
            self.emit(depth + 1, text)
            for _ in range(self.random.randint(0, 2)):
                self.statement(depth + 1)
            self.names = list(before)
        self.names = [*before, name]

    def loop(self, depth: int) -> None:
        """Write a loop that ends after a few rounds."""
        before, name, index = list(self.names), self.new(), self.new()
        self.emit(depth, f"{name} = {self.value()} * 1; {index} = 0")
        self.emit(depth, f"while {name}.abs().max() > 0.7 and {index} < 4:")
        self.emit(depth + 1, f"{name} = {name} / 2; {index} += 1")
        if self.random.random() < 0.5:
            self.statement(depth + 1)
        self.names = [*before, name]


def program(seed: int) -> Callable[..., Any]:
    """Return a random program."""
    text, file = Writer(seed).source(), f"<deciding program {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = {"torch": torch, "F": F, "checkpoint": checkpoint, "region": region, "Custom": Custom}
    exec(compile(text, file, "exec"), namespace)
    written: Callable[..., Any] = namespace["program"]  # type: ignore[assignment]
    return written


def arguments(seed: int, call: int) -> tuple[Any, ...]:
    """Return the arguments of a call; their sizes differ from call to call, so that answers do."""
    generator = torch.Generator().manual_seed(100 * seed + call)
    a, b, buffer = torch.randn(3, 3, generator=generator)
    a = (a * (call + 0.5)).requires_grad_(seed % 3 != 0)
    return a, b.clone(), buffer.clone(), [1] if call % 2 else [], {}
