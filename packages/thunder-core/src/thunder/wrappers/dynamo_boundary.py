"""Functions that TorchDynamo runs as they are: it neither compiles nor inlines them.

    torch.compile(lambda x: compiled(x) + 1)   →   a call of ``compiled``, and a graph of the addition

This is what ``torch.compiler.disable`` does, without its frame around each call and without importing
TorchDynamo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

_F = TypeVar("_F", bound=Callable[..., Any])
_eval_frame: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def opaque_to_dynamo(function: _F) -> _F:
    """Mark a Python function, and what it calls, as not to be compiled by TorchDynamo; return it."""
    attributes = {"_torchdynamo_disable": True, "_torchdynamo_disable_msg": "thunder.jit compiles it"}
    vars(function).update(attributes)  # read where TorchDynamo would inline the function
    if hasattr(_eval_frame, "set_code_exec_strategy"):  # where its frame runs first
        skip = _eval_frame._FrameAction.SKIP
        strategy = _eval_frame._FrameExecStrategy(skip, skip)
        _eval_frame.set_code_exec_strategy(function.__code__, strategy)
    return function
