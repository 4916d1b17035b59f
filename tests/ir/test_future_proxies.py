"""Results of asynchronous operators: a future in the trace, of which `wait` returns the tensor."""

from __future__ import annotations

import pytest
import torch

import thunder
from thunder.core.proxies import FutureTensorProxy, TensorProxy
from thunder.core.trace import detached_trace
from thunder.extend import OperatorExecutor


class Future:
    def __init__(self, result):
        self.result = result


def executor(waits: bool):
    ex = OperatorExecutor("asynchronous")
    double = ex.register_operator(
        "double", meta=lambda x: FutureTensorProxy(like=x), fn=lambda x: Future(x * 2)
    )
    if waits:
        ex.register_operator(
            "wait",
            meta=lambda ft: TensorProxy(shape=ft.shape, dtype=ft.dtype, device=ft.device),
            fn=lambda ft: ft.result,
            replaces=FutureTensorProxy.wait,
        )
    return ex, double


def test_wait_of_a_future_is_the_operator_that_replaces_it():
    ex, double = executor(waits=True)

    def program(x):
        future = double(x)
        return torch.cos(x) + future.wait()

    compiled, x = thunder.jit(program, executors=[ex]), torch.ones(3)
    torch.testing.assert_close(compiled(x), torch.cos(x) + 2)
    text = str(thunder.last_traces(compiled)[-1])
    assert 'ft0 = double(x)  # ft0: "FUTURE cpu f32[3]"' in text
    assert "= wait(ft0)" in text


def test_a_future_that_no_operator_waits_for_is_an_error():
    with detached_trace(), pytest.raises(thunder.UnsupportedProgram, match="no operator waits for"):
        FutureTensorProxy(like=TensorProxy(shape=(1,), dtype=torch.float32, device="cpu")).wait()
    ex, double = executor(waits=False)
    with pytest.raises(thunder.UnsupportedProgram, match="no operator waits for"):
        thunder.jit(lambda x: double(x).wait(), executors=[ex])(torch.ones(1))
