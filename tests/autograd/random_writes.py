"""Random programs of views and in-place writes, written statement by statement while eager runs them.

The texts are written as those of :mod:`autograd.random_programs`, on three inputs. Shapes are not tracked:
the writer runs each statement on tensors of its own. It leaves out most that eager refuses, and ends the
program with the others, which the compiled program has to refuse too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from autograd.random_programs import Writer
from comparison.inputs import leaf

Tensor = torch.Tensor
NAMES = ("x", "y", "z")
#: the share of statements refused by eager that become the end of a program
ENDING = 0.04

# -- inputs ------------------------------------------------------------------------------------------------


def leaves() -> list[Tensor]:
    return [leaf(3, 4), leaf(4, 3, seed=1), leaf(4, seed=2)]


def frozen() -> list[Tensor]:
    return [x.detach() for x in leaves()]


def intermediates() -> list[Tensor]:
    return [x * 1 for x in leaves()]


def square() -> list[Tensor]:
    return [leaf(3, 3) * 1, (leaf(3, 3, seed=1) * 1).t(), leaf(3, seed=2)]


def one_with_gradient() -> list[Tensor]:
    x, y, z = leaves()
    return [x.detach(), y * 1, z.detach()]


def one_without_gradient() -> list[Tensor]:
    x, y, z = leaves()
    return [x * 1, y.detach(), z]


def strided() -> list[Tensor]:
    return [(leaf(4, 3) * 1).t(), (leaf(3, 4, seed=1) * 1).t(), (leaf(8, seed=2) * 1)[::2]]


def complex_numbers() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(shape, generator=generator, dtype=torch.complex128) for shape in ((3, 4), (4,)))
    return [x.requires_grad_() * 1, leaf(4, 3) * 1, z.requires_grad_() * 1]


def one_twice() -> list[Tensor]:
    x = leaf(3, 4) * 1
    return [x, x, leaf(4, seed=1)]


def a_leaf_and_its_memory() -> list[Tensor]:
    x = leaf(3, 4)
    return [x, x.detach().t(), leaf(4, seed=1)]


def a_leaf_and_views() -> list[Tensor]:
    x = leaf(3, 4)
    return [x, x.t(), x[0]]


def overlapping() -> list[Tensor]:
    memory = leaf(20) * 1
    return [memory[:12].view(3, 4), memory[8:].view(4, 3), memory[2:10:2]]


def overlapping_and_frozen() -> list[Tensor]:
    memory = leaf(20).detach()
    return [memory[:12].view(3, 4), memory[8:].view(4, 3), memory[2:10:2]]


KINDS: dict[str, Callable[[], list[Tensor]]] = {
    make.__name__.replace("_", " "): make
    for make in (
        *(leaves, frozen, intermediates, square, one_with_gradient, one_without_gradient, strided),
        *(complex_numbers, one_twice, a_leaf_and_its_memory, a_leaf_and_views, overlapping),
        overlapping_and_frozen,
    )
}

# -- texts: {a} is a tensor, {i} and {j} its dimensions, {k} one of its rows, {n} 0 or 1, {m} 1 or 2 -------

VIEWS = (
    *("{a}.view_as({a})", "{a}[...]", "{a}.detach()", "{a}.expand(2, *{a}.shape)", "{a}.squeeze()"),
    *("{a}.reshape(-1)", "{a}.flatten()", "{a}.view(-1)", "{a}.ravel()", "{a}.contiguous()"),
    *("{a}.unsqueeze({n})", "{a}.expand_as({a})", "torch.atleast_2d({a})"),
)
VIEWS_OF_SEVERAL = (
    *(
        "{a}.select({i}, {n})",
        "{a}[{k}]",
        "{a}.narrow({i}, {n}, 1)",
        "{a}[{n}:]",
        "{a}[::{m}]",
        "{a}[:, {n}]",
    ),
    *("{a}.movedim({i}, {j})", "{a}.transpose({i}, {j})", "{a}.swapaxes({i}, {j})", "{a}[..., {n}:]"),
    *("{a}.unbind({i})[{n}]", "{a}.chunk(2, {i})[{n}]", "{a}.split({m}, {i})[-1]", "{a}[None, {k}]"),
    *("{a}.tensor_split(2, {i})[{n}]", "{a}.unfold({i}, {m}, {m})", "{a}.squeeze({i})", "{a}.T"),
    *("{a}.unflatten({i}, (2, -1))", "{a}.unflatten({i}, (-1, 3))", "{a}.reshape(2, -1)", "{a}.view(-1, 2)"),
    *("{a}.as_strided((2, 2), ({m}, 1))", "{a}.as_strided((2,), ({m},))"),
    *("torch.view_as_complex({a})", "{a}.real", "{a}.imag", "torch.view_as_real({a})", "{a}.conj()"),
)
VIEWS_OF_MATRICES = (
    *(
        "{a}.t()",
        "{a}.mT",
        "{a}.diagonal({n})",
        "{a}.diagonal(-1, 0, 1)",
        "{a}.flatten(0, 1)",
        "{a}.t()[{n}]",
    ),
    *("{a}.transpose(0, 1).reshape({a}.shape)", "{a}.view({a}.shape[1], -1)", "{a}.adjoint()"),
)
VALUES = (
    *(
        "{a} * {b}",
        "{a} + {b}",
        "{a}.sin()",
        "{a} * 1.5",
        "{a}.clone()",
        "{a} @ {b}",
        "torch.cat([{a}, {b}])",
    ),
    *(
        "{a}.sum(0)",
        "torch.zeros_like({a})",
        "torch.empty_like({a}).copy_({a})",
        "{a}.new_ones(4)",
        "{a}[[0, 1]]",
    ),
    *(
        "torch.where({a}.abs() > 0.6, {a}, 0.1)",
        "{a}.square()",
        "torch.stack([{a}, {a}])",
        "torch.sigmoid({a})",
    ),
)
WRITES = (
    *("{a}.copy_({b})", "{a}.copy_({b})", "{a}.add_({b})", "{a}.mul_({b})", "{a}.sub_({b}, alpha=2)"),
    *(
        "{a}.mul_(0.5)",
        "{a}.add_(2)",
        "{a}.zero_()",
        "{a}.fill_(0.5)",
        "{a}.sin_()",
        "{a}.exp_()",
        "{a}.pow_(2)",
    ),
    *("{a}[...] = {b}", "{a}[...] = 0.5", "{a}.masked_fill_({a}.abs() > 0.6, 0.5)", "{a}.detach().mul_(0.5)"),
    *("torch.mul({b}, 0.5, out={a})", "torch.add({b}, {a}, out={a})", "torch.nn.functional.relu({a}, True)"),
    *("{a}.masked_fill_({a}.abs() > 0.6, {b}.sum())", "{a}.lerp_({b}, 0.3)", "{a}.addcmul_({b}, {b})"),
)
WRITES_TO_NAMES = ("{a} += {b}", "{a} *= {b}", "{a} -= 0.5")
WRITES_TO_PARTS = (
    *("{a}[{k}] = {b}", "{a}[{k}] = 2.0", "{a}[{k}] = {a}[0] * 2", "{a}[{n}:] += 1", "{a}[{k}] *= 0.5"),
    *("{a}[{k}].add_({b})", "{a}[:, {n}] = 0.5", "{a}[[0, {k}]] = {b}", "{a}[{a}.abs() > 0.6] = 0.5"),
    *("{a}.select({i}, 0).mul_(0.5)", "{a}.index_fill_(0, torch.tensor([0]), 0.5)", "{a}.cumsum_(0)"),
    *("{a}.index_add_(0, torch.tensor([0]), {a}[:1] * 2)", "{a}.masked_scatter_({a}.abs() > 0.5, {a} * 2)"),
    *("{a}.index_put_((torch.tensor([0]),), {b})", "{a}.scatter_(0, torch.zeros({a}.shape).long()[:1], 0.5)"),
)
WRITES_TO_MATRICES = (
    *("{a}.t()[{n}].copy_({b}[0])", "{a}.diagonal().mul_(0.5)", "{a}.fill_diagonal_(0.5)", "{a}.triu_()"),
    *("{a}.transpose(0, 1).reshape({a}.shape).t()[{n}].copy_({b}[0])", "{a}.t().add_({b}.t())"),
)
READ_ONLY = ("{b}", "{b}", "{b} * 1.5", "{b}.sin()", "{b}.detach()", "{b}.sum()")
MODES = (
    *("torch.no_grad()", "torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(False)"),
    "torch.inference_mode()",
)


@dataclass
class WriterOfWrites(Writer):
    """Writes a program of views and writes on inputs that ``make`` returns."""

    make: Callable[[], list[Tensor]] = leaves
    tensors: dict[str, Any] = field(init=False)
    modes: list[str] = field(default_factory=list)
    is_ended: bool = False

    def __post_init__(self) -> None:
        self.tensors = dict(zip(NAMES, self.make(), strict=True))
        self.values = dict.fromkeys(NAMES, ())

    def step(self) -> None:
        if self.is_ended:
            return
        kinds = {self.live_view: 5, self.live_write: 6, self.live_value: 3}
        if self.depth < 3:
            kinds[self.live_region] = 1
        self.draw.choices(list(kinds), list(kinds.values()))[0]()

    def live_view(self) -> None:
        self.bind(self.view_of(self.name()))

    def live_value(self) -> None:
        self.bind(self.fill(self.draw.choice(VALUES), self.name()))

    def live_write(self) -> None:
        a = self.name()
        is_view = self.draw.random() < 0.3
        rank = self.tensors[a].dim()
        texts = [*WRITES, *(WRITES_TO_PARTS if rank else ())]
        texts += [*(WRITES_TO_MATRICES * 2 if rank == 2 else ()), *(() if is_view else WRITES_TO_NAMES)]
        self.run(self.fill(self.draw.choice(texts), self.view_of(a) if is_view else a, rank))

    def live_region(self) -> None:
        inference = "torch.inference_mode()" in self.modes  # gradients that are enabled in it are refused
        mode = self.draw.choice([mode for mode in MODES if not (inference and "enable_grad" in mode)])
        self.add(f"with {mode}:")
        self.modes.append(mode)
        self.depth += 1
        for _ in range(self.draw.randint(1, 3)):
            self.step()
        self.add("pass")
        self.depth -= 1
        self.modes.pop()

    def name(self) -> str:
        """Return the name of a tensor, later ones more often."""
        names = list(self.values)
        if self.draw.random() < 0.5:
            return names[-1 - min(int(self.draw.expovariate(0.5)), len(names) - 1)]
        return self.draw.choice(names)

    def view_of(self, a: str) -> str:
        rank = self.tensors[a].dim()
        texts = [
            *VIEWS,
            *(VIEWS_OF_SEVERAL * 2 if rank else ()),
            *(VIEWS_OF_MATRICES * 4 if rank == 2 else ()),
        ]
        return self.fill(self.draw.choice(texts), a)

    def fill(self, text: str, a: str, rank: int | None = None) -> str:
        """Return the text with a tensor, another one, and numbers that fit the first."""
        rank = self.tensors[a].dim() if rank is None else rank
        i, j = (self.draw.randrange(-rank, rank) if rank else 0 for _ in range(2))
        b = self.draw.choice(READ_ONLY).format(b=self.name())
        n, m, k = self.draw.randint(0, 1), self.draw.randint(1, 2), self.draw.randint(-2, 2)
        return text.format(a=a, b=b if b.isidentifier() else f"({b})", i=i, j=j, n=n, m=m, k=k)

    def bind(self, text: str) -> None:
        name = f"v{len(self.values)}" if self.draw.random() < 0.9 else self.name()
        if self.run(f"{name} = {text}", name):
            self.values.setdefault(name, ())

    def run(self, line: str, name: str | None = None) -> bool:
        """Run a statement, and add it to the program; return whether eager takes it."""
        code = line
        for mode in reversed(self.modes):
            code = f"with {mode}:\n " + code.replace("\n", "\n ")
        namespace = {"torch": torch, **self.tensors}
        try:
            exec(code, namespace)
        except (RuntimeError, IndexError, TypeError, NotImplementedError):
            if self.draw.random() < ENDING:
                self.add(line)
                self.is_ended = True
            return False
        if name is not None and (namespace[name].dim() > 4 or namespace[name].numel() > 200):
            return False
        self.tensors = {n: namespace[n] for n in (*self.tensors, *((name,) if name else ()))}
        self.add(line)
        return True


def program_of_writes(seed: str, make: Callable[[], list[Tensor]]) -> str:
    """Return the text of a random program for inputs of this kind."""
    draw = random.Random(seed)
    return WriterOfWrites(draw, True, make=make).program(draw.randint(2, 9))
