"""Gradient state: tensors of a trace that require grad, and when results do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeGuard

import torch

from thunder.ir.proxies import TensorProxy

#: types that most arguments that are not tensors have
_WITHOUT_GRAD: Final = frozenset({bool, int, float, str, type(None), torch.dtype})


def requires_grad(x: object) -> TypeGuard[TensorProxy]:
    """Return whether ``x`` is the proxy of a tensor that requires grad."""
    return isinstance(x, TensorProxy) and x.requires_grad


def any_requires_grad(values: Iterable[Any]) -> bool:
    """Return whether a value requires grad, or one in the tuples and lists among the values."""
    for x in values:
        kind = type(x)
        if kind is TensorProxy:
            if x.requires_grad:
                return True
        elif kind not in _WITHOUT_GRAD:
            if isinstance(x, TensorProxy):
                if x.requires_grad:
                    return True
            elif isinstance(x, tuple | list) and any_requires_grad(x):
                return True
    return False


def results_require_grad() -> bool:
    """Return whether results of calls may require grad now.

    Grad mode must be on, and inference mode off, which ``torch.enable_grad`` does not end.
    """
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
