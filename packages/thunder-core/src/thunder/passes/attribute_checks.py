"""Attributes of a compiled module's submodules, on which what a transform adds depends."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import InvalidArgument
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops import prims

__all__ = ["check_module_attribute"]


def check_module_attribute(prologue: TraceCtx, submodule: str, attribute: str) -> Any:
    """Return an attribute of a submodule, such as `training`, and let the prologue check that it stays.

    The value is a number, a string or the like, and is in the submodule's own dictionary. The prologue is
    changed. Raises InvalidArgument if the prologue is not that of a module, for an unknown submodule, and for
    an attribute that is not there.
    """
    root = next((b for b in prologue.bound_symbols if _is_root(b)), None)
    if root is None:
        raise InvalidArgument("the prologue is not that of a compiled module")
    module: torch.nn.Module = root.args[0].value
    try:
        value = vars(module.get_submodule(submodule))[attribute]
    except (AttributeError, KeyError) as error:
        name = f"{submodule}.{attribute}".lstrip(".")
        raise InvalidArgument(f"the module has no attribute {name!r}") from error
    end = prologue.bound_symbols.pop()
    with tracectx(prologue):
        owner = prims.unpack_submodule(root.output, submodule) if submodule else root.output
        prims.check_literal_like(prims.unpack_own_attr(owner, attribute), value)
    prologue.bound_symbols.append(end)
    return value


def _is_root(bsym: BoundSymbol) -> bool:
    return bool(bsym.sym is prims.unpack_function_obj and bsym.output.name == "self")
