"""A user's own transform offloads saved intermediates, with the public tools for traces alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import thunder
from thunder.core import prims
from thunder.core.proxies import TensorProxy, Variable, variableify
from thunder.core.pytree import tree_map
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceTag, from_trace, tracectx
from thunder.core.transform_common import Transform
from thunder.core.transforms import TOPOSORT_ORDER, bsym_list_to_dag, toposort_bsym_dag
from thunder.core.utils import producers_and_consumers
from thunder.core.vjp_utils import get_saved_for_backward_tensors
from thunder.executors.passes import del_last_used
from thunder.extend import OperatorExecutor

HEADER = "Moved by the user"
copies = OperatorExecutor("copies")
to_host = copies.register_operator(
    "to_host",
    meta=lambda t: TensorProxy("host_" + t.name, like=t, device=thunder.core.devices.Device("cpu")),
    fn=lambda t: torch.empty_like(t, device="cpu", pin_memory=t.is_cuda).copy_(t),
)
to_device = copies.register_operator(
    "to_device",
    meta=lambda t, device: TensorProxy(like=t, device=thunder.core.devices.Device(device)),
    fn=lambda t, device: t.to(device, non_blocking=True),
)


def first_users(bsyms: Iterable[BoundSymbol]) -> dict[Variable, BoundSymbol]:
    """Return the first statement that reads or computes each value."""
    users: dict[Variable, BoundSymbol] = {}
    for bsym in bsyms:
        values = (*bsym.flat_variableified_proxy_args, *bsym.flat_variableified_proxy_outs)
        tree_map(lambda value: users.setdefault(value, bsym), values)  # noqa: B023  (called at once)
    return users


def with_late_producers(trace: TraceCtx) -> TraceCtx:
    """Return the trace with each statement as close before its users as it may be."""
    place = {bsym: index for index, bsym in enumerate(trace.bound_symbols)}
    ordered = toposort_bsym_dag(
        bsym_list_to_dag(trace.bound_symbols)[1],
        TOPOSORT_ORDER.BOTTOM_UP,
        selector=lambda nodes: min(range(len(nodes)), key=lambda i: place[nodes[i].bsym]),
    )
    result = from_trace(trace)
    result.bound_symbols = [bsym for bsym in ordered if bsym.sym.id != prims.PrimIDs.DEL]
    return del_last_used(result, clear_mutable_collections=True)


class Offloading(Transform):
    """Keeps saved intermediates of one type of device on the CPU between forward and backward.

    policy: returns those of the tensors, in the forward's trace, that are offloaded.
    """

    def __init__(
        self,
        policy: Callable[[tuple[TensorProxy, ...], TraceCtx], tuple[TensorProxy, ...]] = lambda ts, trace: ts,
        device_type: str = "cuda" if torch.cuda.is_available() else "cpu",
    ) -> None:
        self.policy, self.device_type = policy, device_type
        self.hosted: dict[Variable, TensorProxy] = {}

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        trace = from_trace(computation_trace)
        trace.bound_symbols = computation_trace.bound_symbols
        if TraceTag.AUGMENTED_FORWARD in trace.tags:
            return self.offload(trace)
        return self.load(with_late_producers(trace)) if self.hosted else computation_trace

    def offload(self, trace: TraceCtx) -> TraceCtx:
        """Copy after the last use, delete the original, and return the copy among the saved tensors."""
        result = trace.bound_symbols[-1]
        arguments = {a.name for a in result.args[0]["flat_args"] if isinstance(a, TensorProxy)}
        saved = get_saved_for_backward_tensors(trace)
        tensors = tuple(t for t in saved if t.name not in arguments and t.device.type == self.device_type)
        last_user = first_users(reversed(trace.bound_symbols[:-1]))
        for tensor in self.policy(tensors, trace):
            index = trace.bound_symbols.index(last_user[variableify(tensor)])
            trace.push_scope([])
            with tracectx(trace):
                self.hosted[variableify(tensor)] = to_host(tensor)
                prims.python_del(tensor)
            copy, deletion = trace.pop_scope()
            copy.header = HEADER
            if trace.bound_symbols[index].sym.id == prims.PrimIDs.DEL:  # it deletes this and others
                index, deletion = index - 1, None
            trace.bound_symbols[index + 1 : index + 1] = [copy] if deletion is None else [copy, deletion]
        trace.bound_symbols[-1] = result.from_bsym_swap_proxies(self.hosted)
        return trace

    def load(self, trace: TraceCtx) -> TraceCtx:
        """Unpack the copies in place of the tensors, and copy each back before its first use."""
        producers, _ = producers_and_consumers(trace)
        unpacking = producers[next(iter(self.hosted)).proxy]
        start = trace.bound_symbols.index(unpacking)
        outputs = tuple(self.hosted.get(variableify(out), out) for out in unpacking.output)
        trace.bound_symbols[start] = BoundSymbol.from_bsym(unpacking, output=outputs)
        first_user = first_users(trace.bound_symbols[start + 1 :])
        for variable, hosted in self.hosted.items():
            tensor = variable.proxy
            with tracectx(trace):
                load = to_device.bind(hosted, tensor.device.device_str(), output=tensor)
            load.header = HEADER
            trace.bound_symbols.insert(trace.bound_symbols.index(first_user[variable]), load)
        return trace


class Chain(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.relu(layer(x))
        return x


def trained(transforms: list[Transform], layers: int, device: str) -> tuple[Any, Any, list[torch.Tensor]]:
    """Return a compiled chain, its result, and the gradients of its parameters."""
    torch.manual_seed(0)
    model, x = Chain(layers).to(device), torch.randn(4, 8).to(device)
    compiled = thunder.jit(model, transforms=transforms) if transforms else model
    result = compiled(x)
    saved = [str(t.device) for t in result.grad_fn.saved_tensors] if transforms else []
    assert not transforms or "cpu" in saved
    return compiled, result, list(torch.autograd.grad(result.square().sum(), list(model.parameters())))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("layers", [1, 5, pytest.param(100, marks=pytest.mark.sweep)])
def test_intermediates_leave_after_the_last_use_and_return_before_the_first(layers: int, device: str) -> None:
    compiled, result, gradients = trained([Offloading(device_type=device)], layers, device)
    _, expected, expected_gradients = trained([], layers, device)
    assert_close(result, expected, rtol=0, atol=0)
    assert_close(gradients, expected_gradients)
    forward = str(thunder.last_traces(compiled)[-1])
    backward = str(thunder.last_backward_traces(compiled)[-1])
    moved = re.findall(r"^ +host_(\w+) = to_host\(\1\)", forward, re.MULTILINE)
    assert len(moved) >= layers
    assert forward.count(HEADER) == backward.count(HEADER) == len(moved)
    for name in moved:
        later = forward.split(f"to_host({name})")[1].split("return")[0]
        assert not re.search(rf"[(\s]{name}[,)]", re.sub(r"#.*|del .*", "", later))
        earlier, load, _ = backward.partition(f"{name} = to_device(host_{name}, ")
        assert load
        assert not re.search(rf"[(\s]{name}[,)]", re.sub(r"#.*", "", earlier))


def test_a_policy_chooses_the_tensors() -> None:
    offered: list[tuple[TensorProxy, ...]] = []

    def second(tensors: tuple[TensorProxy, ...], trace: TraceCtx) -> tuple[TensorProxy, ...]:
        offered.append(tensors)
        return tensors[1:2]

    compiled, _, gradients = trained([Offloading(second, "cpu")], 4, "cpu")
    assert_close(gradients, trained([], 4, "cpu")[2])
    assert len(offered[0]) > 2
    assert str(thunder.last_traces(compiled)[-1]).count("to_host(") == 1
