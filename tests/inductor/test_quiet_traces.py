"""`make_fx`, by which TorchInductor traces, replaces no method of modules that other threads call."""

from __future__ import annotations

import threading

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import thunder
import thunder_inductor.quiet_traces  # noqa: F401  (torch.fx uses it once it is imported)

CALL = torch.nn.Module.__call__


def test_a_module_that_is_compiled_while_another_thread_traces_is_compiled_as_it_is() -> None:
    begun, end = threading.Event(), threading.Event()
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.GELU()), torch.randn(3, 4)

    def traced(y: torch.Tensor) -> torch.Tensor:
        begun.set()
        assert end.wait(60)
        return y.sin()

    thread = threading.Thread(target=lambda: make_fx(traced)(torch.ones(2)))
    thread.start()
    assert begun.wait(60)
    try:
        assert torch.nn.Module.__call__ is CALL
        compiled = thunder.jit(model, executors=["torch"])
        torch.testing.assert_close(compiled(x), model(x))
    finally:
        end.set()
        thread.join()
    torch.testing.assert_close(compiled(x), model(x))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)


def test_a_trace_through_modules_is_what_it_was() -> None:
    model, x = torch.nn.Linear(4, 2), torch.randn(3, 4)
    graph = make_fx(lambda y: model(y).sin())(x)
    torch.testing.assert_close(graph(x), model(x).sin())
    assert [node.op for node in graph.graph.nodes].count("call_function") >= 2


def test_other_tracers_see_calls_of_modules() -> None:
    seen = []

    class Leaves(torch.fx.Tracer):
        def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
            seen.append(name)
            return True

    Leaves().trace(torch.nn.Sequential(torch.nn.Linear(4, 2)))
    assert seen == ["0"]
    assert torch.nn.Module.__call__ is CALL
