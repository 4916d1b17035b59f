"""Tensors that no proxy represents: subclasses, layouts other than strided, names of dimensions."""

from __future__ import annotations

import torch

from thunder.base.errors import NotInitialized, UnsupportedProgram
from thunder.base.provenance import Path
from thunder.base.torch_versions import has_dimension_names
from thunder.frontend.objects.tensor_classes import is_followed

__all__ = ["refuse_unmodelled"]


def refuse_unmodelled(tensor: torch.Tensor, path: Path) -> None:
    """Raise UnsupportedProgram for a tensor, read at a path, that a proxy cannot represent.

    For a parameter of a lazy module it is NotInitialized.
    """
    if torch.nn.parameter.is_lazy(tensor):
        raise NotInitialized(
            f"{path.source} has no shape yet: it belongs to a lazy module that was never called",
            hint="Call the module once before it is compiled.",
        )
    if not is_followed(type(tensor)):
        raise UnsupportedProgram(
            f"the tensor subclass {type(tensor).__module__}.{type(tensor).__qualname__} "
            "is not one that thunder models",
            found={path.source: type(tensor).__name__},
            hint="Pass a plain tensor, tensor.as_subclass(torch.Tensor) or what the class wraps, or let the "
            "function that reads it run as it is, such as the forward of its module: thunder.opaque, "
            'thunder.jit(…, opaque=["torch.nn.modules.linear.Linear.forward"]). A class that is written in '
            "Python, without __torch_dispatch__, is followed.",
        )
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else f"{tensor.layout}"
        raise UnsupportedProgram(
            f"{path.source} is a tensor of layout {kind}",
            hint="Pass a dense tensor, or mark the function that reads it by thunder.opaque.",
        )
    if has_dimension_names(tensor):
        raise UnsupportedProgram(
            f"{path.source} is a tensor with names of dimensions", hint="Pass tensor.rename(None)."
        )
