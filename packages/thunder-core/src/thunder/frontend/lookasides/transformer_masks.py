"""Queries of ``torch.nn``'s transformers for the values of masks.

    is the mask causal?               →   no: the mask is used as it is, and the result is the same
    is the padding on the right?      →   yes; if eager would then use nested tensors, the call is refused,
                                          because they leave zeros where the padding is

A trace does not know the values of masks. Torch's own code also calls ``torch.compiler.is_compiling``;
``_EXCEPTIONS`` has the functions of torch in which it does not return True, by their code.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from thunder.base.errors import DataDependentControlFlow
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.session import TracingSession
from thunder.interpreter.frame import Frame

TABLE = LookasideTable()
_ALWAYS_CALLED = "_global_forward_hooks_always_called"


def _has_no_always_called_hooks(frame: Frame) -> bool:
    module = frame.f_locals["self"]
    return not (module._forward_hooks_always_called or vars(torch.nn.modules.module)[_ALWAYS_CALLED])


class _Exception(NamedTuple):
    """A function in which ``is_compiling`` has another result than True."""

    code: types.CodeType
    is_compiling: Callable[[Frame], bool]
    reason: str


_ENCODER = torch.nn.TransformerEncoder.forward.__code__
_EXCEPTIONS = {
    id(row.code): row
    for row in (
        _Exception(_ENCODER, lambda frame: False, "True selects another computation than eager's"),
        _Exception(
            torch.nn.Module._call_impl.__code__,
            _has_no_always_called_hooks,
            "True leaves out the hooks that are called although forward raised",
        ),
    )
}


@TABLE.lookaside(vars(torch.nn.modules.transformer).get("_detect_is_causal_mask"))
def _detect_is_causal_mask(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the caller declares the mask causal.

    Eager compares the mask with a causal one, and if they are equal the kernel masks.
    """

    def detect(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return is_causal is True

    return detect(*args, **kwargs)


@TABLE.lookaside(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True, except in the functions of ``_EXCEPTIONS``."""
    frame = session.machine.frame
    row = _EXCEPTIONS.get(id(frame.code))
    return True if row is None else row.is_compiling(frame)


@TABLE.lookaside(torch._nested_tensor_from_mask_left_aligned)
def _is_left_aligned(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True in torch's encoder, which goes on to :func:`_nested`."""
    if session.machine.frame.code is not _ENCODER:
        raise DataDependentControlFlow(
            "torch._nested_tensor_from_mask_left_aligned reads the values of a mask"
        )
    return True


@TABLE.lookaside(torch._nested_tensor_from_mask)
def _nested(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise DataDependentControlFlow(
        "without gradients, eager packs the batch by the values of its padding mask, and leaves zeros where "
        "the padding is, if that is on the right",
        hint="Set use_nested_tensor = False on the encoder, or make it with enable_nested_tensor=False.",
    )
