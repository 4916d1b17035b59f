"""Tensors that thunder does not model: subclasses that compute, layouts other than strided, named ones.

Note [Unmodelled tensors]
They are values of the program whose data only torch and their class know. Each use is an opaque call, at its
place, and so are the reads and writes of their attributes:

    F.linear(x, self.weight)   →   (t1,) = run_opaque(F.linear, (x, weight))      # weight: quantized
    self.weight.scale          →   (t2,) = run_opaque(getattr, (weight,))
    self.weight.t() @ x        →   (t3,) = run_opaque(Tensor.t, (weight,)); …     # t3: of such a class again
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from thunder.base import dtypes
from thunder.base.errors import InvalidArgument, NotInitialized, UnsupportedProgram
from thunder.base.provenance import Path
from thunder.base.torch_versions import has_dimension_names
from thunder.frontend.objects.tensor_classes import is_followed
from thunder.ir.proxies import TensorProxy

__all__ = ["is_modelled", "parts_of", "refuse_without_data", "scalar_metadata"]


def is_modelled(tensor: torch.Tensor) -> bool:
    """Return whether a proxy represents a tensor: its class is followed, its layout strided."""
    with torch._C.DisableTorchFunctionSubclass():
        is_dense = tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested)
        return is_dense and is_followed(type(tensor)) and not has_dimension_names(tensor)


def refuse_without_data(tensor: torch.Tensor, path: Path) -> None:
    """Raise for a tensor of a tracer, UnsupportedProgram, and for a lazy module's, NotInitialized."""
    if isinstance(tensor, TensorProxy | FakeTensor | FunctionalTensor):
        raise UnsupportedProgram(
            f"{path.source} is a {type(tensor).__name__}, which has no data",
            hint="Compile the program for tensors with data, and let the tracer run the compiled function.",
        )
    if torch.nn.parameter.is_lazy(tensor):
        raise NotInitialized(
            f"{path.source} has no shape yet: it belongs to a lazy module that was never called",
            hint="Call the module once before it is compiled.",
        )


def scalar_metadata(tensor: torch.Tensor) -> dict[str, Any]:
    """Return shape, dtype and device of a proxy of a tensor, as far as a proxy can have them."""
    with torch._C.DisableTorchFunctionSubclass():
        is_strange = tensor.is_nested or any(type(n) is not int for n in tensor.shape)
        try:
            dtype = dtypes.to_dtype(tensor.dtype)
        except InvalidArgument:
            dtype = dtypes.uint8
        return {"shape": () if is_strange else tuple(tensor.shape), "dtype": dtype, "device": tensor.device}


def parts_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the modelled tensors with elements that such a tensor holds as attributes, or in its layout."""
    pending, seen = [tensor], set[int]()
    while pending:
        t = pending.pop()
        if id(t) in seen:
            continue
        seen.add(id(t))
        if is_modelled(t):
            if t.numel():
                yield t
            continue
        pending += [v for v in vars(t).values() if isinstance(v, torch.Tensor)]
        with torch._C.DisableTorchFunctionSubclass():
            pending += [getattr(t, name)() for name in _PARTS.get(t.layout, ())]


#: methods that return the parts of a layout
_PARTS: Final = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
