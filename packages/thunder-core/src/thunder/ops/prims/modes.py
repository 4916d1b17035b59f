"""Primitives that change torch's ambient state while a program runs."""

from __future__ import annotations

import threading
from typing import Any

import torch

from thunder.base.tags import OpTags
from thunder.ops.prims.declaration import primitive

__all__ = [
    "enter_inference_mode",
    "leave_inference_mode",
    "set_default_dtype",
    "set_grad_enabled",
    "set_print_options",
]


def _no_result(*mode: Any, **options: Any) -> None:
    """The meta function of a statement without result."""


#: the begin or the end of a region under ``torch.no_grad`` or ``torch.enable_grad``
set_grad_enabled = primitive(
    "set_grad_enabled",
    _no_result,
    python_impl=torch._C._set_grad_enabled,
    tags=(OpTags.DONT_DCE, OpTags.CTX_MANAGER_ENTER_EXIT_OP, OpTags.SETS_MODE, OpTags.NEVER_RAISES),
)


class _Regions(threading.local):
    """The regions of inference mode that this thread's programs are in, innermost last."""

    def __init__(self) -> None:
        self.entered: list[torch.inference_mode] = []


_regions = _Regions()


def _enter_inference_mode(mode: bool) -> None:
    region = torch.inference_mode(mode)
    region.__enter__()
    _regions.entered.append(region)


def _leave_inference_mode() -> None:
    _regions.entered.pop().__exit__(None, None, None)


def inference_depth() -> int:
    """Return how many regions of inference mode compiled programs of this thread are in."""
    return len(_regions.entered)


def leave_inference_modes(depth: int) -> None:
    """Leave regions of inference mode until ``depth`` remain, after an error in them."""
    while len(_regions.entered) > depth:
        _leave_inference_mode()


#: the begin and the end of a region under ``torch.inference_mode``
enter_inference_mode = primitive(
    "enter_inference_mode",
    _no_result,
    python_impl=_enter_inference_mode,
    tags=(OpTags.DONT_DCE, OpTags.CTX_MANAGER_ENTER_EXIT_OP, OpTags.SETS_MODE),
)
leave_inference_mode = primitive(
    "leave_inference_mode",
    _no_result,
    python_impl=_leave_inference_mode,
    tags=(OpTags.DONT_DCE, OpTags.CTX_MANAGER_ENTER_EXIT_OP, OpTags.SETS_MODE),
)


#: sets the dtype of factories, a ``torch.dtype``, for the rest of the program
set_default_dtype = primitive(
    "set_default_dtype",
    _no_result,
    python_impl=torch.set_default_dtype,
    tags=(OpTags.DONT_DCE, OpTags.CTX_MANAGER_ENTER_EXIT_OP, OpTags.SETS_MODE),
)

#: sets how tensors print, with the arguments of ``torch.set_printoptions``, for the rest of the program
set_print_options = primitive(
    "set_print_options", _no_result, python_impl=torch.set_printoptions, tags=(OpTags.DONT_DCE,)
)
