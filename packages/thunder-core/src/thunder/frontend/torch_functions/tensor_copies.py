"""Copies of tensors by ``copy``: of leaves, as eager makes them.

    copy.deepcopy(x)   →   clone(detach(x)), which requires grad if x does

In eager, tensors that share memory share it as well after one ``deepcopy``. Here each copy has memory of its
own, so that tensors which share some are refused.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory
from thunder.frontend.lookasides.grad_requests import request_grad
from thunder.frontend.objects.input_overlap import overlapping_groups
from thunder.frontend.raised_errors import tensor_refusal
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.torch_functions.made_parameters import make_parameter
from thunder.frontend.torch_functions.override_state import TorchFunctions, seen_type
from thunder.frontend.types.same_tensors import original_of
from thunder.frontend.types.written_attributes import WrittenAttributes
from thunder.ir.proxies import TensorProxy
from thunder.ir.unmodelled_proxies import UnmodelledProxy
from thunder.ops import prims
from thunder.ops.layouts import strides_of
from thunder.ops.stand_ins import stand_in_tensor

__all__ = ["deep_copy", "settle_memory", "shallow_copy"]

_NOT_A_LEAF = (
    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
    "moment.  If you were attempting to deepcopy a module, this may be because of a "
    "torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001"
)


class CopiedTensors(SessionState):
    """The tensors that were copied with one memo, by the id of the memo, which is held."""

    def __init__(self, session: TracingSession) -> None:
        self.by_memo: dict[int, tuple[Any, list[TensorProxy]]] = {}


def deep_copy(session: TracingSession, x: TensorProxy, memo: dict[int, Any]) -> TensorProxy:
    """Do ``copy.deepcopy(x, memo)``.

    Raises RuntimeError, as eager does, for a tensor that is not a leaf, and UnsupportedProgram for one with
    attributes or a gradient, or with gaps between its elements.
    """
    if id(x) in memo:
        copied: TensorProxy = memo[id(x)]
        return copied
    if isinstance(x, UnmodelledProxy):
        memo[id(x)] = copied = session.call_unmodelled(copy.deepcopy, (x,), {})
        return copied
    cls = seen_type(session, x)
    if session.state(TorchFunctions).applies or cls not in (torch.Tensor, torch.nn.Parameter):
        raise _refusal(x, "of a subclass, or under a mode")
    if cls is torch.nn.Parameter:
        copied = make_parameter(session, cls, prims.clone(prims.detach(x)), x.requires_grad)
    else:
        if not session.load_attr(x, "is_leaf"):
            raise RuntimeError(_NOT_A_LEAF)
        _refuse_attributes(session, x)
        if x.requires_grad and session.load_attr(x, "grad") is not None:
            raise _refusal(x, "which has a gradient")
        copied = prims.clone(prims.detach(x))
        if x.requires_grad:
            request_grad(session, copied, True)
    if not _is_dense(session, x):
        raise _refusal(x, "which has gaps between its elements")
    memo[id(x)] = copied
    session.state(CopiedTensors).by_memo.setdefault(id(memo), (memo, []))[1].append(x)
    return copied


def shallow_copy(session: TracingSession, x: TensorProxy) -> TensorProxy:
    """Do ``copy.copy(x)``: an alias of the tensor."""
    if isinstance(x, UnmodelledProxy):
        return session.call_unmodelled(copy.copy, (x,), {})  # type: ignore[no-any-return]
    if session.state(TorchFunctions).applies or seen_type(session, x) is not torch.Tensor or x.requires_grad:
        raise UnsupportedProgram(
            "the program calls copy.copy of a tensor that requires grad, or of a subclass",
            found={x.name: f'"{x.type_string()}"'},
            hint="Use x.detach(), or the tensor itself.",
        )
    _refuse_attributes(session, x)
    alias: TensorProxy = prims.shallow_copy(x)
    return alias


def settle_memory(session: TracingSession, memo: dict[int, Any]) -> None:
    """Guard that the inputs which one ``deepcopy`` has copied do not overlap.

    Raises UnsupportedProgram if two of its tensors share memory.
    """
    _, tensors = session.state(CopiedTensors).by_memo.pop(id(memo), (None, []))
    if len(tensors) < 2:
        return
    entries = [entry for x in tensors if (entry := session.entry_of(x)) is not None]
    if len(entries) > 1:
        paths = [entry.path for entry in entries]
        with torch._C.DisableTorchFunction():
            overlaps = overlapping_groups(*(entry.obj for entry in entries))
        session.note(prims.check_overlap, paths[0], overlaps, overlapping_groups, *paths[1:])
        if overlaps:
            raise _refusal(tensors[0], "together with one with which it shares memory")
    calls = session.trace.bound_symbols
    for i in range(1, len(tensors)):
        if not names_of_memory(calls, {tensors[i].name}).isdisjoint(x.name for x in tensors[:i]):
            raise _refusal(tensors[i], "together with one with which it shares memory")


def _refuse_attributes(session: TracingSession, x: TensorProxy) -> None:
    """Refuse to copy a tensor that has attributes of the user's."""
    entry = session.entry_of(x)
    if session.state(WrittenAttributes).of(original_of(session, x)):
        raise _refusal(x, "which has attributes")
    if entry is None:
        return
    if entry.writes or vars(entry.obj):
        raise _refusal(x, "which has attributes")
    session.note(prims.check_empty, entry.path.step("attribute", "__dict__"))


def _is_dense(session: TracingSession, x: TensorProxy) -> bool:
    """Return whether a clone has the strides of the tensor itself, as a copy in eager has."""
    strides = strides_of(x, session.trace)
    with torch._C.DisableTorchFunction():
        stand_in = stand_in_tensor(x, "meta", strides=strides)
        return torch.empty_like(stand_in).stride() == stand_in.stride()


def _refusal(x: TensorProxy, which: str) -> UnsupportedProgram:
    return tensor_refusal(x, f"calls copy.deepcopy of a tensor {which}", "Use x.detach().clone().")
