"""Transforms and gradients: which hook sees what, and what a transform may change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from comparison.inputs import leaf
from thunder import TensorProxy
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors, set_saved_for_backward_tensors
from thunder.extend import OperatorExecutor
from thunder.ir.proxies import variableify
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceTag, from_trace, tracectx
from thunder.ops import prims


def program(x, w):
    h = torch.sin(x) * w
    return torch.tanh(h).sum(), h


def kind(trace: Any) -> str:
    if TraceTag.AUGMENTED_FORWARD in trace.tags:
        return "forward"
    return "backward" if TraceTag.BACKWARD in trace.tags else "inference"


class Recording(thunder.Transform):
    """Notes every call of a hook."""

    def __init__(self, log: list[tuple[str, str, str]], name: str) -> None:
        self.log, self.name = log, name

    def transform_joint_trace(self, joint_trace: Any, **kwargs: Any) -> Any:
        ids = {b.sym.id for b in joint_trace.bound_symbols}
        assert ids.isdisjoint({prims.get_grad.id, prims.put_grad.id})
        self.log.append(("joint", kind(joint_trace), self.name))
        return joint_trace

    def transform_trace_pre_execution(self, trace: Any, **kwargs: Any) -> Any:
        assert {"executors_list", "options"} <= set(kwargs)
        assert not any(
            b.sym.executor is not None for b in trace.bound_symbols if b.sym.id.startswith("torch.")
        )
        self.log.append(("pre", kind(trace), self.name))
        return trace

    def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
        self.log.append(("post", kind(computation_trace), self.name))
        if kind(computation_trace) == "backward":
            assert any(b.sym.id == prims.python_del.id for b in computation_trace.bound_symbols)
        return computation_trace


def test_hooks_are_called_forward_then_backward_transform_by_transform() -> None:
    log: list[tuple[str, str, str]] = []
    compiled = thunder.jit(program, transforms=[Recording(log, "a"), Recording(log, "b")])
    compiled(leaf(3), leaf(3, seed=1))
    assert log == [
        ("joint", "inference", "a"),
        ("joint", "inference", "b"),
        *[("pre", k, t) for t in "ab" for k in ("forward", "backward")],
        *[("post", k, t) for t in "ab" for k in ("forward", "backward")],
    ]


def test_without_gradients_there_is_one_trace_and_no_joint_one() -> None:
    log: list[tuple[str, str, str]] = []
    compiled = thunder.jit(program, transforms=[Recording(log, "a")])
    with torch.no_grad():
        compiled(leaf(3), leaf(3, seed=1))
    assert log == [("pre", "inference", "a"), ("post", "inference", "a")]


class Rescaling(thunder.Transform):
    """Multiplies every gradient of the joint trace."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def transform_joint_trace(self, joint_trace: Any, **kwargs: Any) -> Any:
        new = from_trace(joint_trace)
        new.bound_symbols = list(joint_trace.bound_symbols[:-1])
        result, gradients = joint_trace.bound_symbols[-1].args
        with tracectx(new):
            scaled = tuple(None if g is None else prims.mul(g, self.factor) for g in gradients)
            prims.python_return(result, scaled)
        return new


def test_a_joint_transform_changes_the_gradients() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    compiled = thunder.jit(program, transforms=[Rescaling(3.0)])
    found = torch.autograd.grad(compiled(x, w)[0], (x, w))
    expected = torch.autograd.grad(program(x, w)[0], (x, w))
    torch.testing.assert_close(found, tuple(3 * g for g in expected))


@pytest.mark.parametrize("index", [0, 1])
def test_a_joint_transform_holds_where_some_results_are_not_used(index: int) -> None:
    x, w = leaf(3), leaf(3, seed=1)
    compiled = thunder.jit(program, transforms=[Rescaling(3.0)])
    found = torch.autograd.grad(compiled(x, w)[index].sum(), (x, w))
    expected = torch.autograd.grad(program(x, w)[index].sum(), (x, w))
    torch.testing.assert_close(found, tuple(3 * g for g in expected))


def test_second_derivatives_of_a_changed_backward_are_refused() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    compiled = thunder.jit(program, transforms=[Rescaling(3.0)])
    with pytest.raises(thunder.UnsupportedProgram, match="a transform changed the backward"):
        torch.autograd.grad(compiled(x, w)[0], (x, w), create_graph=True)


def test_a_transform_that_changes_nothing_leaves_second_derivatives_alone() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    compiled = thunder.jit(program, transforms=[Recording([], "a")])
    (g,) = torch.autograd.grad(compiled(x, w)[0], x, create_graph=True)
    (e,) = torch.autograd.grad(program(x, w)[0], x, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(g.sum(), x), torch.autograd.grad(e.sum(), x))


# -- a transform that keeps other tensors, as offloading does ------------------------------------------------


def offloading_operators(log: list[str]) -> tuple[Any, Any]:
    ex = OperatorExecutor("offload_of_tests")

    def pack(t: torch.Tensor) -> torch.Tensor:
        log.append("pack")
        return t.flatten().clone()

    def unpack(t: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        log.append("unpack")
        return t.reshape(shape).clone()

    packed = ex.register_operator(
        "pack_for_later",
        meta=lambda t: TensorProxy("packed_" + t.name, shape=(t.numel(),), device=t.device, dtype=t.dtype),
        fn=pack,
        replace=True,
    )
    unpacked = ex.register_operator(
        "unpack_again",
        meta=lambda t, shape: TensorProxy(shape=shape, device=t.device, dtype=t.dtype),
        fn=unpack,
        replace=True,
    )
    return packed, unpacked


class Packing(thunder.Transform):
    """Keeps intermediates in another form: packed behind their last use, unpacked before their first."""

    def __init__(self, log: list[str]) -> None:
        self.pack, self.unpack = offloading_operators(log)
        self.packed: dict[Any, TensorProxy] = {}

    def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
        new = from_trace(computation_trace)
        new.bound_symbols = computation_trace.bound_symbols
        if kind(computation_trace) == "forward":
            return self.forward(new)
        return (
            self.backward(new) if self.packed and kind(computation_trace) == "backward" else computation_trace
        )

    def forward(self, trace: Any) -> Any:
        arguments = {p.name for p in trace.bound_symbols[-1].args[0]["flat_args"]}
        saved = get_saved_for_backward_tensors(trace)
        for t in (t for t in saved if t.name not in arguments):
            trace.push_scope([])
            with tracectx(trace):
                packed = self.pack(t)
            (call,) = trace.pop_scope()
            call.header = "Created by Packing"
            trace.bound_symbols.insert(len(trace.bound_symbols) - 1, call)
            self.packed[variableify(t)] = packed
        set_saved_for_backward_tensors(trace, [self.packed.get(variableify(t), t) for t in saved])
        return trace

    def backward(self, trace: Any) -> Any:
        at, unpacking = next(
            (i, b)
            for i, b in enumerate(trace.bound_symbols)
            if b.output and any(variableify(o) in self.packed for o in b.flat_proxy_outs)
        )
        outputs = tuple(self.packed.get(variableify(o), o) for o in unpacking.output)
        trace.bound_symbols[at] = BoundSymbol.from_bsym(unpacking, output=outputs)
        for v, packed in self.packed.items():
            first = next(
                i
                for i, b in enumerate(trace.bound_symbols)
                if i > at and any(variableify(a) == v for a in b.flat_proxy_args)
            )
            with tracectx(trace):
                call = self.unpack.bind(packed, tuple(v.proxy.shape), output=v.proxy)
            trace.bound_symbols.insert(first, call)
        return trace


def test_a_transform_keeps_other_tensors_for_the_backward() -> None:
    log: list[str] = []
    x, w = leaf(2, 3), leaf(2, 3, seed=1)
    compiled = thunder.jit(program, transforms=[Packing(log)], rematerialization="none")
    loss, h = compiled(x, w)
    assert "pack" in log
    assert "unpack" not in log
    found = torch.autograd.grad(loss + h.sum(), (x, w))
    eager_loss, eager_h = program(x, w)
    torch.testing.assert_close(found, torch.autograd.grad(eager_loss + eager_h.sum(), (x, w)))
    assert log.count("unpack") == log.count("pack")
    text = str(thunder.last_traces(compiled)[-1])
    assert "# Created by Packing" in text
    assert "packed_" in text
    torch.testing.assert_close(h, eager_h)


def test_a_transform_that_keeps_other_tensors_is_refused_for_second_derivatives() -> None:
    x, w = leaf(2, 3), leaf(2, 3, seed=1)
    compiled = thunder.jit(program, transforms=[Packing([])], rematerialization="none")
    loss, h = compiled(x, w)
    with pytest.raises(thunder.UnsupportedProgram, match="transform"):
        torch.autograd.grad(loss + h.sum(), (x, w), create_graph=True)


def test_traces_on_record_do_not_change_with_what_a_transform_edits() -> None:
    compiled = thunder.jit(program, transforms=[Packing([])], rematerialization="none")
    compiled(leaf(2, 3), leaf(2, 3, seed=1))
    before = thunder.last_traces(compiled)[-2]
    assert "pack_for_later" not in str(before)
    assert "pack_for_later" in str(thunder.last_traces(compiled)[-1])


def test_add_transform_keeps_gradients() -> None:
    x, w = leaf(3), leaf(3, seed=1)
    compiled = thunder.core.transforms.add_transform(thunder.jit(program), transform=Rescaling(2.0))
    found = torch.autograd.grad(compiled(x, w)[0], (x, w))
    torch.testing.assert_close(found, tuple(2 * g for g in torch.autograd.grad(program(x, w)[0], (x, w))))
