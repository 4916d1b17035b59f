"""Primitives that change torch's ambient state while a program runs."""

from __future__ import annotations

import torch

from thunder.core.literals import Names
from thunder.core.prims.declaration import primitive
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags


def _no_result(mode: bool) -> None:
    """The meta function of a statement without result."""


def _print_mode(bsym: BoundSymbol, names: Names) -> list[str]:
    return [f"{names.obj('set_grad_enabled', torch._C._set_grad_enabled)}({bsym.args[0]})"]


#: the border of a region under ``torch.no_grad`` or ``torch.enable_grad``
set_grad_enabled = primitive(
    "set_grad_enabled",
    _no_result,
    python_impl=torch._C._set_grad_enabled,
    python_printer=_print_mode,
    tags=(OpTags.DONT_DCE, OpTags.CTX_MANAGER_ENTER_EXIT_OP),
)
