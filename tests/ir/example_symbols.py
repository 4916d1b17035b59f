"""Operators that only tests have: they take and return anything, and run under their bare names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol


def toy(name: str, meta: Callable[..., Any], fn: Callable[..., Any] | None = None, **fields: Any) -> Symbol:
    """The operator `toys.<name>`."""
    fields.setdefault("module", "toys")
    return Symbol(name=name, id=f"toys.{name}", meta=meta, python_impl=fn, **fields)


def like(x: TensorProxy) -> TensorProxy:
    """A fresh proxy with the metadata of `x`."""
    return TensorProxy(like=x)


#: takes a tensor and any other value, and hands the tensor on under a new name
take = toy("take", lambda x, value: like(x), lambda x, value: x + 0)
#: one result nested in a tuple with three others
split = toy("split", lambda x: (like(x), (like(x), None, like(x))), lambda x: (x + 1, (x + 2, None, x + 3)))
pair = toy("pair", lambda x: (like(x), like(x)), lambda x: (x + 1, x + 2))
