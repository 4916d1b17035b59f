"""Torch's backward kernels as rows: ``ltorch.<name>``, run by ``torch.ops.aten.<name>``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.attribute_paths import find_torch
from thunder.ir.symbol import Symbol
from thunder.torch.registration import torchsymbol


def kernel(name: str, *functions: str, **row: Any) -> Callable[[Callable[..., Any]], Symbol]:
    """Register a decomposition (if ``prim=True``, a meta function) as ``ltorch.<name>``.

    Its parameters are those of the kernel, in order. ``functions`` are paths of torch's functions for it,
    ``row`` further arguments of ``torchsymbol``.
    """
    path = f"torch.ops.aten.{name}.default"
    return torchsymbol(
        *functions, id=f"ltorch.{name}", **{"eager": find_torch(path), "eager_path": path, **row}
    )


def computed_by(eager: Callable[..., Any] | None) -> Callable[[Callable[..., Any]], Symbol]:
    """Register a decomposition as ``ltorch.<its name>``, run by ``eager`` or by its parts."""

    def decorate(fn: Callable[..., Any]) -> Symbol:
        return torchsymbol(id=f"ltorch.{fn.__name__}", eager=eager)(fn)

    return decorate
