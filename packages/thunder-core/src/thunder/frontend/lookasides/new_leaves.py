"""Leaves that a program makes, and on which results depend that the caller may differentiate.

    w = torch.randn(3, requires_grad=True)             t0 = torch.randn(3)
    return w, x * w                            →       w.copy_(t0)                # w: an input
                                                       return w, x * w

A backward by the caller gives such a leaf its gradient. So it is an input of the computation: a new tensor in
each call, which the prologue makes and to which the program writes the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.devices import to_torch_device
from thunder.base.dtypes import to_torch_dtype
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory
from thunder.frontend.epilogue.subtrace import recorded
from thunder.frontend.lookasides.grad_requests import GradRequests, reached
from thunder.frontend.lookasides.rebound_tensors import ReboundTensors
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.made_parameters import MadeParameters
from thunder.frontend.types.written_attributes import WrittenAttributes
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.substitution import substitute
from thunder.ops import prims
from thunder.ops.layouts import Layouts

__all__ = ["NewLeaf", "make_leaves_inputs"]


@dataclass(frozen=True)
class NewLeaf:
    """A leaf of torch's graph that each call has anew, without values; ``strides`` are in elements."""

    cls: type
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __call__(self) -> torch.Tensor:
        """Return the leaf of one call."""
        data = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
        if self.cls is torch.nn.Parameter:
            return torch.nn.Parameter(data)
        return data.requires_grad_()


def make_leaves_inputs(session: TracingSession, leaving: Iterable[Any]) -> None:
    """Make inputs of the leaves on which other tensors depend that leave the program: ``leaving``."""
    state, leaving = session.state(GradRequests), list(leaving)
    tracked = {id(p) for p in leaving if requires_grad(p)}
    requested = {id(x) for x, _ in state.requests}
    leaves = [
        x for x, _ in state.requests if not tracked.isdisjoint(reached(session, [x], requested) - {id(x)})
    ]
    if leaves:
        session.state(MadeParameters).refuse_observed(leaving)
    for x in leaves:
        _make_input(session, x, {p.name for p in leaving})


def _make_input(session: TracingSession, x: TensorProxy, leaving: set[str]) -> None:
    """Make a leaf an input, unless others use its memory, or it is another kind of tensor: it is refused."""
    state, calls, made = (
        session.state(GradRequests),
        session.trace.bound_symbols,
        session.state(MadeParameters),
    )
    last = state.positions.get(id(x))
    position = next((i for i, b in enumerate(calls) if b is last), None)
    cls = session.objects.tensor_classes.get(id(x), (x, torch.Tensor))[1]
    if position is None or id(x) in made.shared or cls not in (torch.Tensor, torch.nn.Parameter):
        return
    before = calls[: position + 1]
    is_made = any(p is x for b in before for p in b.flat_proxy_outs)
    memory = names_of_memory(before, {x.name}) - {x.name}
    used = leaving | {p.name for b in calls[position + 1 :] for p in b.flat_proxy_args}
    if not is_made or not memory.isdisjoint(used | {p.name for p, _ in session.objects.inputs}):
        return
    inputs = [p for p, _ in session.objects.inputs if isinstance(p, TensorProxy)]
    strides = Layouts(inputs, calls).strides(x)
    leaf = NewLeaf(
        cls,
        tuple(map(int, x.shape)),
        tuple(map(int, strides)),
        to_torch_dtype(x.dtype),
        to_torch_device(x.device),
    )
    values = x.replace(name=session.trace.make_name(prefix="t"), requires_grad=False, declared_leaf=None)
    x.strides, x.input_offset = leaf.strides, 0
    with recorded(session.trace) as written:
        prims.copy_(values, x, grad_enabled=False)
    calls[: position + 1] = [*(substitute(b, {x.name: values}) for b in before), *written]
    path = session.objects.object_root(leaf, "leaf").step("cached", "new")
    session.objects.inputs.append((x, path))
    entry = session.objects.track(leaf(), path, x)
    for name, value in session.state(WrittenAttributes).taken(x).items():
        entry.write(name, value)
    session.trace.grad_enabled |= session.modes.grad and session.tracks_grad
    session.state(ReboundTensors).inputs[id(x)] = x  # the epilogue returns the input itself
    state.requests[:] = [request for request in state.requests if request[0] is not x]
    made.made[:] = [entry for entry in made.made if entry[0] is not x]
