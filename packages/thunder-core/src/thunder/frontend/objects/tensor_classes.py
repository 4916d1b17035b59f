"""Classes of tensors: which the frontend follows, and which override torch's functions."""

from __future__ import annotations

import types
from typing import Any, Final

import torch

from thunder.frontend.objects.class_kinds import is_python_class

__all__ = ["TORCH_CLASSES", "computes_by_dispatch", "is_followed", "overrides_torch"]

#: torch's own classes, whose tensors are traced as they are
TORCH_CLASSES: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_METACLASSES: Final = frozenset(map(type, TORCH_CLASSES))
_NO_DISPATCH: Final[Any] = torch.Tensor.__torch_dispatch__


def is_followed(cls: type) -> bool:
    """Return whether a class of tensors is torch's own, or Python without ``__torch_dispatch__``."""
    if cls in TORCH_CLASSES:
        return True
    own = cls.__mro__[: cls.__mro__.index(next(c for c in cls.__mro__ if c in TORCH_CLASSES))]
    dispatch: Any = cls.__torch_dispatch__  # type: ignore[attr-defined]
    return (
        type(cls) in _METACLASSES
        and dispatch == _NO_DISPATCH
        and not any(hasattr(cls, name) for name in ("__tensor_flatten__", "materialize"))
        and all(map(_is_written_in_python, own))
    )


def computes_by_dispatch(tensor: torch.Tensor) -> bool:
    """Return whether a dense tensor is of a class that has its own ``__torch_dispatch__``."""
    dispatch: Any = type(tensor).__torch_dispatch__
    if dispatch == _NO_DISPATCH:
        return False
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested)


def _is_written_in_python(cls: type) -> bool:
    """Return whether a class is one of a class statement, but perhaps for its ``__torch_function__``."""
    return is_python_class(cls) or (
        bool(cls.__flags__ & _HEAPTYPE) and _natives_of(cls) == {"__torch_function__"}
    )


def _natives_of(cls: type) -> set[str]:
    disabled: Any = torch._C._disabled_torch_function_impl  # may have other names beside
    members = {name: v for name, v in vars(cls).items() if isinstance(v, types.BuiltinFunctionType)}
    return {name for name, v in members.items() if name == "__torch_function__" or v is not disabled}


_HEAPTYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def overrides_torch(cls: type) -> bool:
    """Return whether torch calls ``__torch_function__`` of a class of tensors."""
    method: Any = cls.__torch_function__  # type: ignore[attr-defined]
    return cls not in TORCH_CLASSES and method is not torch._C._disabled_torch_function_impl
