"""What the transformers of ``torch.nn`` ask about the values of masks, which are not known while a program is
traced.

    is the mask causal?               →   not answered: the mask is used as it stands, which gives the same
    is the padding on the right?      →   yes, and where eager would then go on with nested tensors, refused:
                                          they leave zeros where the padding is
"""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import DataDependentControlFlow
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.session import TracingSession

TABLE = LookasideTable()

_OF_TRANSFORMERS = vars(torch.nn.modules.transformer)
_OF_MODULES = vars(torch.nn.modules.module)
_ALWAYS_CALLED = "_global_forward_hooks_always_called"


@TABLE.lookaside(_OF_TRANSFORMERS.get("_detect_is_causal_mask"))
def _detect_is_causal_mask(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Eager compares the mask with a causal one, and if they are equal leaves it to the kernel to mask."""

    def detect(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return is_causal is True

    return detect(*args, **kwargs)


@TABLE.lookaside(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Yes, but where it is asked in order to compute something else than eager, or to leave out the hooks of
    a module that are called although its forward raised.
    """
    frame = session.machine.frame
    if frame.globals is _OF_MODULES:
        module = frame.f_locals["self"]
        return not (module._forward_hooks_always_called or _OF_MODULES[_ALWAYS_CALLED])
    return frame.globals is not _OF_TRANSFORMERS


@TABLE.lookaside(torch._nested_tensor_from_mask_left_aligned)
def _is_left_aligned(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if session.machine.frame.globals is not _OF_TRANSFORMERS:
        raise DataDependentControlFlow(
            "torch._nested_tensor_from_mask_left_aligned asks for the values of a mask"
        )
    return True  # whatever it is, if something else speaks against nested tensors


@TABLE.lookaside(torch._nested_tensor_from_mask)
def _nested(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise DataDependentControlFlow(
        "without gradients, eager packs the batch by the values of its padding mask, and leaves zeros where "
        "the padding is, if that is on the right",
        hint="Set use_nested_tensor = False on the encoder, or make it with enable_nested_tensor=False.",
    )
