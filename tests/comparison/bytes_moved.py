"""Bytes that the operators of a call write: new results, and the tensors that they write to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.base.pytree import tree_iter

__all__ = ["BytesWritten", "bytes_of_computation", "bytes_of_eager"]


#: operators that write to a tensor, and to none of its elements
_METADATA = ("aten::detach_", "aten::t_", "aten::transpose_", "aten::squeeze_", "aten::unsqueeze_")


class BytesWritten(TorchDispatchMode):
    """Counts by operator the bytes of new results, and of arguments that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.by_operator: dict[str, int] = {}

    @property
    def total(self) -> int:
        """The bytes that were written."""
        return sum(self.by_operator.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        schema = func._schema
        given = zip(schema.arguments, args, strict=False)
        written = [a for s, a in given if s.alias_info is not None and s.alias_info.is_write]
        written += [kwargs[s.name] for s in schema.arguments if s.name in kwargs and s.alias_info is not None]
        returned = results if isinstance(results, tuple | list) and len(schema.returns) > 1 else [results]
        new = [r for s, r in zip(schema.returns, returned, strict=False) if s.alias_info is None]
        count = sum(t.nbytes for t in tree_iter([written, new]) if isinstance(t, torch.Tensor))
        if "clone" in func.name() or not (func.is_view or func.name() in _METADATA):
            self.by_operator[func.name()] = self.by_operator.get(func.name(), 0) + count
        return results


def bytes_of_eager(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> BytesWritten:
    """Return the bytes that a program writes in eager."""
    with BytesWritten() as count:
        fn(*inputs)
    return count


def bytes_of_computation(entry: Any, inputs: list[torch.Tensor]) -> BytesWritten:
    """Return the bytes that the computation of a cache entry writes."""
    values = entry.prologue_fn(*inputs)[0]
    with BytesWritten() as count:
        entry.computation_fn(*values)
    return count
