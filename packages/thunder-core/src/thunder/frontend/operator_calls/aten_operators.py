"""``torch.ops.aten.<name>``: the function or method of torch that is generated from the same operator.

    torch.ops.aten.select.int(x, 0, 1)       →      torch.select(x, 0, 1)
    torch.ops.aten.add_.Tensor(x, y)         →      x.add_(y)
    torch.ops.aten.slice.Tensor(x, 1, 0, 2)  →      x[:, 0:2]

An operator of which torch has neither runs as it is, where that is sound (:mod:`thunder.torch.fallback`).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ops.torch_errors import OperatorIndexError
from thunder.torch.broadcasting import canonical_dim

__all__ = ["aten_call"]

Overload = torch._ops.OpOverload
Packet = torch._ops.OpOverloadPacket
Call = Callable[..., Any]

_SPACES = [getattr(torch._C, name) for name in ("_VariableFunctions", "_nn", "_linalg", "_special")]


def aten_call(session: TracingSession, fn: Any, kwargs: dict[str, Any]) -> Call | None:
    """Return a function that calls torch's function of an operator; None for one that torch lacks."""
    name = _name_of(fn)
    if name is None or "out" in kwargs:
        return None
    special = _WRITTEN.get(name)
    if special is not None:
        return lambda *args, **named: special(session, *args, **named)
    target = _function(session, name)
    if target is None:
        return None

    def call(*args: Any, **named: Any) -> Any:
        if "self" in named:
            args = (named.pop("self"), *args)
        return _as_returned(fn, session.call(target, args, named))

    return call


def _name_of(fn: Any) -> str | None:
    """Return the name of an operator of aten without its overload; None for any other callable."""
    if isinstance(fn, Packet):
        qualified = fn._qualified_op_name
    elif isinstance(fn, Overload):
        qualified = fn._schema.name
    else:
        return None
    namespace, _, name = qualified.partition("::")
    return name if namespace == "aten" else None


def _function(session: TracingSession, name: str) -> Any:
    """Return the function with a row, or the in-place method, that is generated from an operator."""
    if name.endswith("_") and not name.startswith("_"):
        method = getattr(torch.Tensor, name, None)
        return method if isinstance(method, types.MethodDescriptorType) else None
    for space, kind in (
        *((space, types.BuiltinFunctionType) for space in _SPACES),
        (torch.Tensor, types.MethodDescriptorType),
    ):
        fn = getattr(space, name, None)
        if isinstance(fn, kind) and session.language.functions.get(fn) is not None:
            return fn
    return None


def _as_returned(fn: Any, result: Any) -> Any:
    """Return a result in the type that an operator returns: a list of tensors, or a plain tuple."""
    if not isinstance(result, tuple | list):
        return result
    overloads = [fn] if isinstance(fn, Overload) else [getattr(fn, name) for name in fn.overloads()]
    is_list = all(len(o._schema.returns) == 1 for o in overloads)
    return list(result) if is_list else tuple(result)


# -- operators of which torch has no function ----------------------------------------------------------------


def _slice(
    session: TracingSession,
    self: TensorProxy,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    whole = slice(None)
    if not self.shape:
        raise OperatorIndexError("slice() cannot be applied to a 0-dim tensor.")
    key = (*[whole] * canonical_dim(dim, len(self.shape)), slice(start, end, step))
    return session.call(torch.Tensor.__getitem__, (self, key), {})


def _alias(session: TracingSession, self: TensorProxy) -> Any:
    return session.call(torch.Tensor.view_as, (self, self), {})


def _split(session: TracingSession, self: TensorProxy, split_size: Any, dim: int = 0) -> list[Any]:
    return list(session.call(torch.split, (self, split_size, dim), {}))


def _unsafe_view(session: TracingSession, self: TensorProxy, size: Any) -> Any:
    """Return a view: torch does not track this one, since neither tensor may be written afterwards."""
    return session.call(torch.Tensor.view, (self, size), {})


#: name of an operator → what it means, written here
_WRITTEN: dict[str, Call] = {"slice": _slice, "alias": _alias, "split": _split, "_unsafe_view": _unsafe_view}
