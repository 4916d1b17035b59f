"""In-place functions without a row: the functional variant, and a write to its argument.

x.i0_()      →      t1 = torch.i0(x); x.copy_(t1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.attribute_paths import find_torch
from thunder.base.autocast_state import autocast_off
from thunder.base.langctx import current_language, unknown_torch_function
from thunder.ir.proxies import TensorProxy
from thunder.ops.meta_kernels import eager_error
from thunder.ops.torch_errors import operator_error
from thunder.torch.argument_parser import parse
from thunder.torch.function_names import name_of
from thunder.torch.inplace import write_back

Fn = Callable[..., Any]

#: where the functional variant is, if not in the namespace of the in-place function
_ELSEWHERE = ("torch", "torch.nn.functional")


def functional_of(name: str) -> Fn | None:
    """Return the functional variant of the in-place torch function of this name, or None."""
    prefix, _, last = name.rpartition(".")
    if not last.endswith("_") or last.endswith("__"):
        return None
    for place in (prefix, *_ELSEWHERE):
        functional = find_torch(f"{place}.{last[:-1]}")
        if functional is not None:
            return functional
    return None


def inplace_variant_or(fn: Fn, otherwise: Fn) -> Fn:
    """Return the meaning of ``fn``: its functional variant and a write, or else ``otherwise``."""
    functional = functional_of(name_of(fn))
    if functional is None:
        return otherwise

    def call(*args: Any, **kwargs: Any) -> Any:
        if not args or not isinstance(args[0], TensorProxy):
            return otherwise(*args, **kwargs)
        parse(fn, args, kwargs)
        computed = current_language().resolve(functional) or unknown_torch_function(functional)
        with autocast_off():
            value = computed(*args, **kwargs)
        error = eager_error(fn, args, kwargs)
        if error is not None and eager_error(functional, args, kwargs) is None:
            raise operator_error(error, args, kwargs)
        return write_back(value, args[0])

    return call
