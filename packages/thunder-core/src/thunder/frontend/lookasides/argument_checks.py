"""Functions of torch in C that check or parse arguments, or return a tensor as it is."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.pytree import tree_map
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ops.stand_ins import stand_in_tensor, to_torch

TABLE = LookasideTable(COMPUTES, only_reads=True)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@TABLE.with_parameters(torch._assert_async)
def _assert_async(
    session: TracingSession,
    input: Any,
    assert_msg: str = "Expected Tensor with single nonzero value, but got zero",
) -> None:
    """Decide whether a tensor is true, and raise what the kernel raises where it is not."""
    if not session.call(bool, (input,), {}):
        raise RuntimeError(assert_msg)


@TABLE.lookaside(torch._C._nn._parse_to)
def _parse_to(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return device, dtype and options of the arguments of ``Module.to``."""

    def without_data(value: Any) -> Any:
        if isinstance(value, TensorProxy):
            return stand_in_tensor(value, to_torch(value.device), size=lambda n: 0)
        return to_torch(value)

    with torch._C.DisableTorchFunction():
        args, kwargs = tree_map(without_data, (args, kwargs))
        return torch._C._nn._parse_to(*args, **kwargs)


@TABLE.with_parameters(torch.Tensor.to_dense)
def _to_dense(session: TracingSession, input: Any, dtype: Any = None, *, masked_grad: Any = None) -> Any:
    """Return the tensor itself, which is dense, or its cast."""
    return input if dtype is None else session.call(torch.Tensor.to, (input, dtype), {})
