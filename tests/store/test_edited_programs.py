"""Programs that are edited by hand: random edits are accepted with equal results, or refused by name."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from edited_programs import counts, running_what_is_printed
from store.text_edits import ILLEGAL, LEGAL, MAY_COMPUTE_THE_SAME
from thunder_store import EditedProgramError

Program = tuple[Callable[..., Any], Callable[[], list[Any]]]


def leaves(*shapes: tuple[int, ...], grad: bool = True) -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(shape, requires_grad=grad) for shape in shapes]


def elementwise(x: Any, y: Any) -> Any:
    a = torch.sin(x) * 2
    b = torch.tanh(y) - x
    return a * b + torch.exp(-y), b


def normalised(x: Any, w: Any, b: Any) -> Any:
    h = F.layer_norm(x @ w, (4,), b, b)
    return F.gelu(h) + torch.relu(x) * 2


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.transpose(-1, -2)) / 2.0
    return torch.softmax(scores.masked_fill(scores > 1, -1.0), -1) @ v


def dropping(x: Any, w: Any) -> Any:
    return F.dropout(torch.relu(x @ w), 0.5, True) * 2, F.dropout(x, 0.25, True)


def views(x: Any) -> Any:
    a, b = x.split(2, dim=-1)
    return torch.cat([a.t(), b.t() * 2]), a.reshape(-1)[1:] + 1


def writing(x: Any, y: Any) -> Any:
    y.mul_(2)
    z = x + y
    y.add_(z)
    x[0] = 1.0
    return z * y


def counting(x: Any, n: Any) -> Any:
    return x[n] * n.to(torch.float32).unsqueeze(-1), n.cumsum(0), torch.argmax(x)


def losses(x: Any, w: Any, t: Any) -> Any:
    return F.cross_entropy(x @ w, t) + (w * w).sum() * 1e-3


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.norm, self.one, self.two = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return x + self.two(F.silu(self.one(self.norm(x))))


PROGRAMS: dict[str, Program] = {
    "elementwise": (elementwise, lambda: leaves((3, 4), (3, 4))),
    "without gradients": (elementwise, lambda: leaves((3, 4), (3, 4), grad=False)),
    "normalised": (normalised, lambda: leaves((4, 4), (4, 4), (4,))),
    "attention": (attention, lambda: leaves((2, 4, 4), (2, 4, 4), (2, 4, 4))),
    "dropping": (dropping, lambda: leaves((4, 4), (4, 4))),
    "views": (views, lambda: leaves((3, 4))),
    "writing": (writing, lambda: leaves((3,), (3,), grad=False)),
    "counting": (counting, lambda: [*leaves((5, 3)), torch.tensor([1, 0, 4])]),
    "losses": (losses, lambda: [*leaves((3, 4), (4, 5)), torch.tensor([1, 0, 4])]),
    "block": (Block, lambda: leaves((6, 4))),
}


def outcome(fn: Callable[..., Any], inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return results, gradients, and what inputs hold afterwards."""
    torch.manual_seed(11)
    result = fn(*inputs)
    results = list(result) if isinstance(result, tuple) else [result]
    differentiable = [x for x in results if x.requires_grad]
    wrt = [x for x in inputs if x.requires_grad]
    if isinstance(fn, torch.nn.Module):
        wrt += list(fn.parameters())
    grads = []
    if differentiable and wrt:
        cotangents = [torch.linspace(-1, 2, x.numel()).reshape(x.shape) for x in differentiable]
        grads = list(torch.autograd.grad(differentiable, wrt, cotangents, allow_unused=True))
    return [x.detach().clone() for x in [*results, *grads, *inputs] if x is not None]


def object_of(name: str) -> tuple[Any, Callable[[], list[Any]]]:
    fn, inputs = PROGRAMS[name]
    return (fn() if isinstance(fn, type) else fn), inputs


def texts(compiled: Any) -> dict[str, str]:
    """Return the texts of a program that can be edited."""
    return {"acquired": str(thunder.last_traces(compiled)[0]), "runs": str(thunder.last_traces(compiled)[-1])}


def tried(name: str, text: str, path: Path) -> str:
    """Use a text in the place of a program; return what became of it, and assert that no result is wrong."""
    path.write_text(text)
    fn, inputs = object_of(name)
    compiled = thunder.jit(fn, executors=["torch"])
    compiled(*inputs())
    eager, _ = object_of(name)
    eager(*[x.detach() for x in inputs()]) if isinstance(eager, torch.nn.Module) else None
    expected = outcome(eager, inputs())
    error = None
    try:
        thunder.use(compiled, path)
        found = outcome(compiled, inputs())
    except EditedProgramError as refusal:
        error = str(refusal)
    if error is not None:
        assert str(path) in error, "the error names the file"
        assert re.search(r"line:?  ?\d|does not compute|raises|line \d+, column \d+", error), error
        return "refused"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    return "accepted"


def text_of(name: str, kind: str) -> str:
    fn, inputs = object_of(name)
    compiled = thunder.jit(fn, executors=["torch"])
    compiled(*inputs())
    return texts(compiled)[kind]


#: edits that a default run makes of the acquired program alone
SLOW = (
    "rename",
    "add a dead statement",
    "another type",
    "a missing value",
    "another constant",
    "a dropped result",
)


@pytest.mark.parametrize("kind", ["acquired", "runs"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_legal_edits_are_accepted_and_illegal_ones_are_refused(
    name: str, kind: str, tmp_path: Path, whole_run: bool
) -> None:
    text = text_of(name, kind)
    assert tried(name, text, tmp_path / "same.py") == "accepted"
    for what, edit in {**LEGAL, **ILLEGAL}.items():
        # each default run takes an edit of most kinds of what runs, and of all of what was acquired
        if not whole_run and kind == "runs" and what in SLOW:
            continue
        for seed in range(12 if whole_run else 1):
            edited = edit(text, random.Random(f"{name} {kind} {what} {seed}"))
            if edited is None or edited == text:
                continue
            became = tried(name, edited, tmp_path / "edited.py")
            if what in LEGAL:
                assert became == "accepted", f"{what}\n{edited}"
            elif what not in MAY_COMPUTE_THE_SAME:
                assert became == "refused", f"{what}\n{edited}"


def through_hooks(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    for k in (2, 3, 5):
        y.register_hook(lambda g, k=k: g * k + k)
    return y * y


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: float) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(x)
        ctx.k = k
        return (x * x + 1) * k, x.exp()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return (2 * x * ctx.k * g) + h * x.exp(), None


@torch.library.custom_op("edited_programs::cubed", mutates_args=())
def cubed(x: torch.Tensor) -> torch.Tensor:
    return x**3


SCALE = {"k": 3.0}  # read when the backward runs, which is a call of the text then
cubed.register_fake(torch.empty_like)
cubed.register_autograd(
    lambda ctx, g: g * ctx.x**2 * SCALE["k"],
    setup_context=lambda ctx, inputs, output: setattr(ctx, "x", *inputs),
)


NAMESPACE = __name__.replace(".", "_")  # another test file imports this one
composites = torch.library.Library(NAMESPACE, "FRAGMENT")
composites.define("halved(Tensor x) -> Tensor")
composites.impl("halved", lambda x: x / 2, "CompositeImplicitAutograd")
composites.define("squared(Tensor x) -> Tensor")
composites.impl("squared", lambda x: x * x, "CompositeImplicitAutograd")
HALVED, SQUARED = (getattr(getattr(torch.ops, NAMESPACE), name) for name in ("halved", "squared"))


@pytest.mark.parametrize(
    "program",
    [
        through_hooks,
        lambda x: HALVED(x.detach()) - SQUARED(x.detach()) * x,
        lambda x: Several.apply(x, 2.0)[0] - Several.apply(x, 3.0)[1],
        lambda x: cubed(x * 2) + cubed(x),
    ],
    ids=["hooks", "operators of one overload", "unread results", "a library's operator"],
)
def test_operators_of_a_program_are_told_apart(program: Any) -> None:
    def gradient(fn: Any) -> torch.Tensor:
        x = torch.arange(3.0, requires_grad=True)
        return torch.autograd.grad(fn(x).sum(), x)[0]

    for _ in range(2):  # what was acquired, and what runs
        before = counts["acquired"], counts["runs"]
        with running_what_is_printed():
            assert torch.equal(gradient(thunder.jit(program, executors=["torch"])), gradient(program))
        assert (counts["acquired"], counts["runs"]) != before
