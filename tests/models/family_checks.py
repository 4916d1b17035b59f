"""What is asked of a model that nobody has looked at: it is compiled unmodified, and eager is the judge.

A question returns if thunder does as eager does, and raises otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

import thunder
from comparison.results import assert_same
from thunder.base.errors import MissingGradient, UnsupportedProgram

from .contract import tensors
from .shrunken import Arguments, Built

Gradients = dict[str, Tensor | None]
#: gradients, and buffers
Trained = tuple[Gradients, dict[str, Tensor]]

REFUSALS = (UnsupportedProgram, MissingGradient)
SEED = 11
#: of gradients; some families compute in float32 by their own word, whatever their parameters are
TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3}


class Recompiled(Exception):
    """The second call did not use the program of the first."""


class AsCompiled(Exception):
    """Not what eager does, but what it does where `torch.compiler.is_compiling()` says so."""


class Wrong(Exception):
    """Not what eager does."""


class NotAJudge(Exception):
    """Eager itself cannot do it, or not twice the same way."""


def first_line(error: BaseException) -> str:
    """The first line of a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def called(call: Callable[..., Any], arguments: Arguments) -> Any:
    """The result of a call from a fixed seed, without gradients."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        return deepcopy(call(**deepcopy(arguments)))


def same(actual: Any, expected: Any, tolerance: float, path: str) -> None:
    """Raises Wrong unless results are the same, within rounding."""
    try:
        assert_same(actual, expected, tolerance=tolerance, path=path)
    except AssertionError as error:
        raise Wrong(" ".join(str(error).split())[:300]) from error


def judge(ours: Callable[[], Any], eagers: Callable[[], Any], compare: Callable[[Any, Any], None]) -> None:
    """Raises Wrong, or what `ours` raises, unless `compare` is content with what the two return.

    Raises AsCompiled if it is content once `torch.compiler.is_compiling()` is true for eager as well, or if
    eager then raises the same.
    """
    try:
        want = eagers()
    except Exception as error:
        raise NotAJudge(f"eager: {first_line(error)}") from error
    try:
        compare(ours(), want)
    except REFUSALS:
        raise
    except Exception as error:
        if _is_as_compiled(ours, eagers, compare, error):
            raise AsCompiled(first_line(error)) from error
        raise


def _is_as_compiled(
    ours: Callable[[], Any], eagers: Callable[[], Any], compare: Callable[[Any, Any], None], error: Exception
) -> bool:
    try:
        with mock.patch("torch.compiler.is_compiling", return_value=True):
            want = eagers()
    except Exception as other:
        return type(other) is type(error) and str(other) == str(error)
    try:
        compare(ours(), want)
    except Exception:
        return False
    return True


def ask_forward(built: Built, added: Arguments | None = None) -> None:
    """Two calls in evaluation."""
    eager, twin = built.model.eval(), deepcopy(built.model).eval()
    compiled = thunder.jit(twin)
    for arguments in (built.arguments, built.others):
        given = {**arguments, **(added or {})}

        def eagers(given: Arguments = given) -> Any:
            want = called(eager, given)
            same(called(eager, given), want, 0.0, "eager")
            return want

        judge(
            lambda given=given: called(compiled, given),  # type: ignore[misc]
            eagers,
            lambda have, want: same(have, want, 1e-4, "result"),
        )
    refuse_recompilation(compiled)


def ask_masked(built: Built) -> None:
    """Two calls in evaluation with a mask."""
    if not built.masks:
        raise NotAJudge("has no mask")
    ask_forward(built, built.masks)


def in_dtype(arguments: Arguments, dtype: torch.dtype) -> Arguments:
    """The arguments, floating-point tensors in `dtype`."""
    return {
        k: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in arguments.items()
    }


def step(call: Callable[..., Any], model: nn.Module, arguments: Arguments) -> Gradients:
    """The gradients of a step from a fixed seed; the loss depends on every element of every result."""
    torch.manual_seed(SEED)
    model.zero_grad()
    found = [t for t in tensors(call(**arguments)) if t.is_floating_point() and t.requires_grad]
    if not found:
        raise NotAJudge("no result requires gradients")
    loss = torch.stack(
        [(t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)).sum().double() for t in found]
    ).sum()
    loss.backward()
    return {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def ask_training(built: Built) -> None:
    """Two steps in training mode from the same parameters, in float64 if eager can."""
    dtype = torch.float64
    try:
        eager_step(built, dtype)
    except Exception:
        dtype = torch.float32
    compiled: list[tuple[Any, nn.Module]] = []

    def ours() -> Trained:
        twin = deepcopy(built.model).to(dtype).train()
        compiled.append((thunder.jit(twin), twin))
        gradients = step(compiled[-1][0], twin, in_dtype(built.arguments, dtype))
        return gradients, {n: b.clone() for n, b in twin.named_buffers()}

    def compare(have: Trained, want: Trained) -> None:
        same_gradients(have[0], want[0], TOLERANCES[dtype])
        same(have[1], want[1], TOLERANCES[dtype], "buffers")

    judge(ours, lambda: eager_step(built, dtype), compare)
    last, twin = compiled[-1]
    step(last, twin, in_dtype(built.others, dtype))
    refuse_recompilation(last)


def same_gradients(have: Gradients, want: Gradients, tolerance: float) -> None:
    """Raises Wrong unless the same parameters have the same gradients, within rounding of the largest."""
    missing = [n for n in want if (want[n] is None) != (have[n] is None)]
    if missing:
        raise Wrong(f"only one has gradients for {missing[:3]}")
    sizes = [g.abs().nan_to_num(0.0).max() for g in want.values() if g is not None and g.numel()]
    scale = max(float(torch.stack(sizes).max()), 1.0)
    for name, expected in want.items():
        if expected is not None:
            same(have[name], expected, tolerance * scale, f"gradient of {name}")


def refuse_recompilation(compiled: Any) -> None:
    """Raises Recompiled if a second call did not use the program of the first."""
    if thunder.cache_misses(compiled) != 1:
        raise Recompiled("; ".join(f"{r.source}" for r in thunder.last_recompile_reasons(compiled)[:2]))


def eager_step(built: Built, dtype: torch.dtype) -> Trained:
    """Gradients and buffers after a step of eager's; raises if a second step is another one."""
    eager, again = (deepcopy(built.model).to(dtype).train() for _ in range(2))
    arguments = in_dtype(built.arguments, dtype)
    gradients = step(eager, eager, arguments)
    same(step(again, again, arguments), gradients, 1e-9 if dtype is torch.float64 else 1e-6, "eager")
    return gradients, dict(eager.named_buffers())


QUESTIONS: dict[str, Callable[[Built], None]] = {
    "forward": ask_forward,
    "masked": ask_masked,
    "training": ask_training,
}
