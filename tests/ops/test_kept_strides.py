"""Expected strides that a cache on disk keeps: under which key, and which not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.core.trace import TraceCtx
from thunder.extend import ArtefactCache, ExpectedStrides


class Noting(ArtefactCache):
    """A cache that notes the keys that were stored."""

    def __init__(self) -> None:
        super().__init__("kept-strides", {})
        self.stored: list[str] = []

    def put(self, key: str, artefact: bytes) -> None:
        self.stored.append(key)
        super().put(key, artefact)


@torch.library.custom_op("kept_strides::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().clone().t()


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def traced(program: Callable[..., Any], *args: torch.Tensor) -> tuple[TraceCtx, list[Any]]:
    """Return the trace of a program and the values that its calls compute."""
    compiled = thunder.jit(program, executors=[])
    compiled(*args)
    trace = thunder.last_traces(compiled)[0]
    return trace, [p for bsym in trace.bound_symbols[:-1] for p in bsym.flat_proxy_outs]


def kept(program: Callable[..., Any], *args: torch.Tensor) -> tuple[list[tuple[int, ...]], list[str]]:
    """Return the strides of the values of a program by a cache, and the keys that were stored."""
    trace, values = traced(program, *args)
    cache = Noting()
    strides = ExpectedStrides(trace).of_all(values, cache)
    assert strides == [ExpectedStrides(trace).of(p) for p in values]
    return strides, cache.stored


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.exp(torch.t(x) @ y).mean(1, keepdim=True) + torch.sin(torch.t(y))


def test_an_equal_program_has_the_strides_without_running_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    strides, stored = kept(program, x, y)
    assert len(stored) == 1
    trace, values = traced(program, x, y)
    monkeypatch.setattr("thunder.ops.layouts.Layouts.of", lambda self, p: pytest.fail("a call runs"))
    assert ExpectedStrides(trace).of_all(values, Noting()) == strides


@pytest.mark.parametrize(
    "another",
    [
        lambda: kept(program, torch.randn(4, 5).t()[:3], torch.randn(3, 4)),
        lambda: kept(lambda x, y: program(x, y) * 2, torch.randn(3, 5), torch.randn(3, 5)),
        lambda: kept(program, torch.randn(3, 6), torch.randn(3, 6)),
    ],
    ids=["strides", "calls", "shapes"],
)
def test_another_program_has_another_key(another: Callable[[], Any]) -> None:
    x, y = torch.randn(3, 5), torch.randn(3, 5)
    kept(program, x, y)
    _, stored = another()
    assert len(stored) == 1


def test_a_flag_of_torchs_kernels_is_in_the_key() -> None:
    x, y = torch.randn(2, 7), torch.randn(2, 7)
    assert len(kept(program, x, y)[1]) == 1
    with torch.backends.nnpack.flags(enabled=False):
        assert len(kept(program, x, y)[1]) == 1
    assert kept(program, x, y)[1] == []


def test_strides_of_a_packages_operator_are_not_kept() -> None:
    assert kept(lambda x: torch.sin(torch.t(turned(x))), torch.randn(2, 3))[1] == []
