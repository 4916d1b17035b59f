"""The statement of an opaque call, and its gradient, see Note [Opaque calls]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.tags import OpTags
from thunder.frontend.custom_gradients.eager_backward import differentiate_backward
from thunder.frontend.opaque_calls.opaque_run import OpaqueCall
from thunder.ir.gradient_declarations import JointRule
from thunder.ir.proxies import AnyProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.unmodelled_proxies import UnmodelledProxy
from thunder.ops.prims.declaration import primitive
from thunder.ops.prims.gradient import get_grad, get_grad_or_none, put_grad

__all__ = ["run_opaque"]


def _run_meta(call: OpaqueCall, tensors: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(result.proxy() for result in call.results)


def _run(call: OpaqueCall, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    return tuple(call.checked_run(tensors).values)


def _record_meta(call: OpaqueCall, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], AnyProxy]:
    return _run_meta(call, tensors), AnyProxy()


def _record(call: OpaqueCall, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], Any]:
    run = call.checked_run(tensors)
    return tuple(run.values), call.recorded(run, tensors)


def _rule(call: OpaqueCall, tensors: tuple[Any, ...]) -> Any:
    results, recorded = record_opaque(call, tensors)
    differentiable = [r for r, m in zip(results, call.results, strict=True) if m.requires_grad]
    places = tuple(i for i, t in enumerate(tensors) if requires_grad(t))
    if differentiable and places:
        cotangents = tuple(
            get_grad_or_none(r) if isinstance(r, UnmodelledProxy) else get_grad(r) for r in differentiable
        )
        for i, gradient in zip(
            places, differentiate_backward(recorded, tensors, places, cotangents), strict=True
        ):
            put_grad(tensors[i], gradient)
    return results


_TAGS = (
    OpTags.DONT_DCE,
    OpTags.CHECKS_DECISION,
    OpTags.RANDOM_OP,
    OpTags.CTX_MANAGER_ENTER_EXIT_OP,
    OpTags.DONT_RECOMPUTE_IN_BACKWARD,
)

record_opaque = primitive("record_opaque", _record_meta, eager=_record, tags=_TAGS)
#: runs an opaque callable on tensors of the program, and on those that it reads by itself
run_opaque = primitive("run_opaque", _run_meta, eager=_run, tags=_TAGS, vjp=JointRule(_rule))
