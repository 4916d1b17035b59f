"""Cross entropy of a linear layer in chunks of rows, on a CPU, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import thunder
from thunder_transforms.losses.chunks import CHUNK_ROWS

ROWS, FEATURES, CLASSES = 520, 24, 16_384

Program = Callable[..., torch.Tensor]


def rows(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, w), t)


def ignoring(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, w), t.clamp(min=7), ignore_index=7)


def batches(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    logits = F.linear(x.view(2, -1, FEATURES), w)
    return F.cross_entropy(logits.view(-1, logits.size(-1)), t.view(-1))


def reshaped(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    logits = F.linear(x.view(4, -1, FEATURES), w).float()
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), t) * 2


PROGRAMS = {f.__name__: f for f in (rows, ignoring, batches, reshaped)}


def arguments(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, FEATURES, dtype=dtype).requires_grad_()
    weight = (torch.randn(CLASSES, FEATURES, dtype=dtype) / 4).requires_grad_()
    target = torch.randint(0, CLASSES, (ROWS,))
    target[1], target[2] = -100, 7
    return x, weight, target


def derivatives(program: Program, x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> list[Any]:
    loss = program(x, w, t)
    leaves = [leaf for leaf in (x, w) if leaf.requires_grad]
    return [loss, *(torch.autograd.grad(loss * 3, leaves) if leaves else ())]


def claimed(compiled: Any) -> set[str]:
    return {row.symbol for row in thunder.explain(compiled).rows if row.claimed_by == "losses"}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in PROGRAMS), ("rows", torch.float64), ("batches", torch.float64)],
    ids=str,
)
def test_losses_and_gradients_are_eagers(name: str, dtype: torch.dtype) -> None:
    compiled = thunder.jit(PROGRAMS[name], executors=["losses"])
    found = derivatives(compiled, *arguments(dtype))
    wide = [x.double().detach().requires_grad_() if x.is_floating_point() else x for x in arguments(dtype)]
    exact = derivatives(PROGRAMS[name], *wide)
    expected = derivatives(PROGRAMS[name], *arguments(dtype))
    for ours, eagers, right in zip(found, expected, exact, strict=True):
        assert ours.dtype is eagers.dtype
        error = (ours.double() - right).abs().max()
        assert error <= 4 * (eagers.double() - right).abs().max() + 4e-7 * right.abs().max()
    assert any("linear_cross_entropy" in symbol for symbol in claimed(compiled))


@pytest.mark.parametrize(("of_x", "of_weight"), [(True, False), (False, True), (False, False)])
def test_gradients_that_are_not_needed_are_not_computed(of_x: bool, of_weight: bool) -> None:
    def leaves() -> list[torch.Tensor]:
        x, w, t = arguments()
        return [x.detach().requires_grad_(of_x), w.detach().requires_grad_(of_weight), t]

    compiled = thunder.jit(rows, executors=["losses"])
    torch.testing.assert_close(derivatives(compiled, *leaves()), derivatives(rows, *leaves()))
    assert claimed(compiled)


def test_second_derivatives_are_eagers() -> None:
    compiled, found = thunder.jit(rows), []
    for function in (rows, compiled):
        x, w, t = arguments(torch.float64)
        gradients = torch.autograd.grad(function(x, w, t), (x, w), create_graph=True)
        found.append(torch.autograd.grad(sum((g * g).sum() for g in gradients), (x, w)))
    torch.testing.assert_close(*found)
    assert claimed(compiled)


def test_the_logits_are_never_whole() -> None:
    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **kwargs or {})
            for t in result if isinstance(result, tuple) else (result,):
                Largest.elements = max(Largest.elements, t.numel() if isinstance(t, torch.Tensor) else 0)
            return result

    compiled, (x, w, t) = thunder.jit(rows, executors=["losses"]), arguments()
    compiled(x, w, t)
    trace = thunder.last_traces(compiled)[-1].python_callable()
    with Largest(), torch.no_grad():
        trace(x, w, t)
    assert Largest.elements == CHUNK_ROWS * CLASSES


@pytest.mark.parametrize("wrong", [CLASSES, -1, -101])
def test_a_target_that_is_no_class_raises_eagers_error(wrong: int) -> None:
    x, w, t = arguments()
    compiled = thunder.jit(rows)
    compiled(x, w, t)
    t[300] = wrong
    with pytest.raises(IndexError) as expected:
        rows(x, w, t)
    with pytest.raises(IndexError) as found:
        compiled(x, w, t)
    assert str(found.value).splitlines()[0] == str(expected.value)


def test_where_every_row_is_ignored_the_loss_is_nan_and_gradients_are_zero() -> None:
    x, w, t = arguments()
    loss, *gradients = derivatives(thunder.jit(rows), x, w, torch.full_like(t, -100))
    assert loss.isnan()
    assert not any(g.any() for g in gradients)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, w, t: (lambda logits: F.cross_entropy(logits, t) + logits.sum())(F.linear(x, w)),
        lambda x, w, t: F.cross_entropy(F.linear(x, w, w[:, 0]), t),
        lambda x, w, t: F.cross_entropy(F.linear(x, w), t, label_smoothing=0.1),
        lambda x, w, t: F.cross_entropy(F.linear(x, w), t, reduction="sum"),
        lambda x, w, t: F.cross_entropy(F.linear(x[:100], w), t[:100]),
        lambda x, w, t: F.cross_entropy(F.linear(x.bfloat16(), w.bfloat16()), t),
    ],
    ids=["logits are read", "bias", "smoothing", "sum", "few rows", "bfloat16"],
)
def test_other_losses_stay_as_they_are(program: Program) -> None:
    x, w, t = arguments()
    compiled = thunder.jit(program, executors=["losses"])
    torch.testing.assert_close(derivatives(compiled, x, w, t), derivatives(program, x, w, t))
    assert not claimed(compiled)


def test_under_autocast_the_program_is_as_written() -> None:
    compiled, results = thunder.jit(rows, executors=["losses"]), []
    for function in (rows, compiled):
        with torch.autocast("cpu", torch.bfloat16):
            results.append(derivatives(function, *arguments()))
    torch.testing.assert_close(*results)
