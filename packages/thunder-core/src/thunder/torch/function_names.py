"""The dotted path of a torch function."""

from __future__ import annotations

from typing import Any

import torch


def name_of(fn: Any) -> str:
    """Return the dotted name of a torch function, as a program would write it."""
    if isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{fn}"
    name = torch.overrides.resolve_name(fn)
    if name is None:
        module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", repr(fn))
        qualname = qualname.replace("_VariableFunctionsClass.", "")
        name = f"{module}.{qualname}" if module else qualname
    return str(name).replace("torch.TensorBase.", "torch.Tensor.").replace("torch.functional.", "torch.")
