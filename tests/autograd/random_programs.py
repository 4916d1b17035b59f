"""Random programs of views, writes, regions without gradients, and several results, for eager to judge.

A program is text, so that the compiler finds its source and a failing one can be read. It works on four
inputs, whose elements are float64.
"""

from __future__ import annotations

import linecache
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Shape = tuple[int, ...]

INPUTS: dict[str, Shape] = {"x": (2, 3), "w": (3, 2), "b": (3,), "s": ()}

UNARY = (
    "torch.sin({a})",
    "{a} * 1.5",
    "torch.tanh({a})",
    "torch.relu({a} - 0.5)",
    "torch.nn.functional.gelu({a})",
    "torch.exp(-{a} * {a})",
    "{a}.clone()",
    "{a}.detach()",
    "torch.nn.functional.dropout({a}, 0.5, True)",
    "{a}.masked_fill({a} > 0.7, 0.3)",
    "torch.clamp({a}, 0.1, 0.9)",
)
BINARY = (
    "{a} * {b}",
    "{a} - {b}",
    "torch.maximum({a}, {b})",
    "{a} / ({b} * {b} + 1)",
    "torch.lerp({a}, {b}, 0.3)",
    "torch.where({a} > {b}, {a}, {b})",
)
WRITES = (
    "{a}.mul_(1.5)",
    "{a}.add_({b})",
    "{a}.copy_({b})",
    "{a}.zero_()",
    "{a}.sin_()",
    "{a} *= {b}",
    "{a}.detach().mul_(2)",
    "{a}.masked_fill_({a} > 0.6, 0.2)",
)
WRITES_TO_PARTS = ("{a}[0] = 0.5", "{a}[0] = {a}[-1] * 2", "{a}[0].mul_(2)", "{a}[...] = {b}", "{a}[1:] += 1")
WRITES_TO_MATRICES = (
    "{a}.t().mul_(2)",
    "{a}[:, 0] = 1.5",
    "{a}[:, 0].add_({a}[:, -1])",
    "{a}.diagonal().mul_(3)",
)
REGIONS = ("with torch.no_grad():", "with torch.enable_grad():", "with torch.set_grad_enabled(False):")


@dataclass
class Writer:
    """Writes one program; ``in_place`` says whether it may write to tensors."""

    draw: random.Random
    in_place: bool
    lines: list[str] = field(default_factory=list)
    values: dict[str, Shape] = field(default_factory=lambda: dict(INPUTS))
    depth: int = 1

    def program(self, steps: int) -> str:
        """The text of a function ``program`` of the values that there are at first."""
        inputs = ", ".join(self.values)
        for _ in range(steps):
            self.step()
        names = list(self.values)
        returned = [self.draw.choice(names[-6:]) for _ in range(self.draw.randint(1, 4))]
        self.add(f"return {', '.join(returned)},")
        return "\n".join([f"def program({inputs}):", *self.lines, ""])

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def value(self, text: str, shape: Shape) -> None:
        if len(shape) <= 3:
            name = f"v{len(self.values)}"
            self.add(f"{name} = {text}")
            self.values[name] = shape

    def pick(self, fits: Callable[[Shape], bool] = lambda shape: True) -> tuple[str, Shape] | None:
        """One of the values that fit, later ones more often."""
        found = [(name, shape) for name, shape in self.values.items() if fits(shape)]
        if not found:
            return None
        if self.draw.random() < 0.5:
            return found[-1 - min(int(self.draw.expovariate(0.5)), len(found) - 1)]
        return self.draw.choice(found)

    def step(self) -> None:
        kinds = {
            self.unary: 5,
            self.binary: 5,
            self.view: 5,
            self.parts: 2,
            self.reduction: 3,
            self.joined: 2,
        }
        if self.in_place:
            kinds[self.write] = 4
        if self.depth < 3:
            kinds[self.region] = 1.5
        self.draw.choices(list(kinds), list(kinds.values()))[0]()

    def unary(self) -> None:
        name, shape = self.pick()
        self.value(self.draw.choice(UNARY).format(a=name), shape)

    def binary(self) -> None:
        name, shape = self.pick()
        other, its_shape = self.pick(lambda s: broadcast(s, shape) is not None)
        self.value(self.draw.choice(BINARY).format(a=name, b=other), broadcast(shape, its_shape))

    def view(self) -> None:
        a, shape = self.pick(lambda s: len(s) >= 1)
        n, *rest = shape
        rest = tuple(rest)
        views = [
            (f"{a}.view_as({a})", shape),
            (f"{a}[...]", shape),
            (f"{a}.unsqueeze(0)", (1, *shape)),
            (f"{a}.expand(2, *{a}.shape)", (2, *shape)),
            (f"{a}.reshape(-1)", (math.prod(shape),)),
            (f"{a}.flatten()", (math.prod(shape),)),
            (f"{a}[-1]", rest),
        ]
        if n > 1:
            views += [
                (f"{a}[1:]", (n - 1, *rest)),
                (f"{a}.narrow(0, 0, 1)", (1, *rest)),
                (f"{a}[::2]", ((n + 1) // 2, *rest)),
            ]
        if len(shape) == 2:
            views += [(f"{a}.t()", shape[::-1]), (f"{a}[:, 0]", (n,)), (f"{a}.diagonal()", (min(shape),))]
        self.value(*self.draw.choice(views))

    def parts(self) -> None:
        found = self.pick(lambda s: len(s) >= 1 and s[0] == 2)
        if found is None:
            return
        a, (_, *rest) = found
        text, shape = self.draw.choice(
            [
                (f"{a}.split([1, 1])", (1, *rest)),
                (f"{a}.unbind(0)", tuple(rest)),
                (f"{a}.chunk(2)", (1, *rest)),
            ]
        )
        first, second = f"v{len(self.values)}", f"v{len(self.values) + 1}"
        self.add(f"{first}, {second} = {text}")
        self.values |= {first: shape, second: shape}

    def reduction(self) -> None:
        a, shape = self.pick(lambda s: len(s) >= 1)
        options = [
            (f"{a}.sum()", ()),
            (f"{a}.mean(0)", shape[1:]),
            (f"{a}.amax(0)", shape[1:]),
            (f"torch.softmax({a}, -1)", shape),
            (f"torch.cumsum({a}, 0)", shape),
            (f"torch.nn.functional.layer_norm({a}, {shape[-1:]})", shape),
        ]
        self.value(*self.draw.choice(options))

    def joined(self) -> None:
        a, shape = self.pick(lambda s: len(s) >= 1)
        b, its_shape = self.pick(lambda s: s[1:] == shape[1:] and len(s) == len(shape))
        matrix = self.pick(lambda s: len(s) == 2 and s[0] == shape[-1]) if len(shape) == 2 else None
        if matrix is not None and self.draw.random() < 0.5:
            self.value(f"{a} @ {matrix[0]}", (shape[0], matrix[1][1]))
        else:
            self.value(f"torch.cat([{a}, {b}])", (shape[0] + its_shape[0], *shape[1:]))

    def write(self) -> None:
        a, shape = self.pick()
        b, _ = self.pick(lambda s: broadcast(s, shape) == shape)
        texts = [*WRITES]
        if shape:
            texts += WRITES_TO_PARTS
        if len(shape) == 2:
            texts += WRITES_TO_MATRICES
        self.add(self.draw.choice(texts).format(a=a, b=b if b != a else f"1.5 * {b}"))

    def region(self) -> None:
        self.add(self.draw.choice(REGIONS))
        self.depth += 1
        for _ in range(self.draw.randint(1, 3)):
            self.step()
        self.add("pass")
        self.depth -= 1


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The shape of a broadcast result, None where there is none or it is too large."""
    try:
        shape = tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        return None
    return shape if len(shape) <= 3 else None


def built(text: str, name: str) -> Callable[..., Any]:
    """The function that a text defines; its lines are found under ``<name>``."""
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(text, file, "exec"), namespace)
    return namespace["program"]
