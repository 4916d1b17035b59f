"""Functions of packages that compute with proxies: gradient rules, execution transforms, meta functions.

Such a function runs as it is, and torch's functions record symbols where an argument is a proxy. Two things
do not work then, because they never reach a proxy: torch's factories compute real tensors, and the parser of
arguments of torch's functions refuses the dtypes and devices of proxies, which are not torch's.

    scale = torch.ones(3, dtype=x.dtype, device=x.device)

A function that fails, or records real tensors, is therefore called again by the interpreter, which replaces
its calls of torch's functions by symbols.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from thunder.base.langctx import current_language
from thunder.base.pytree import tree_map
from thunder.interpreter import interpret
from thunder.ir.metadata_methods import torch_metadata
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import get_tracectx

__all__ = ["call_extension"]


def call_extension(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of a package, with torch's functions as symbols if that is needed.

    Calls that the first attempt recorded are removed. Raises what the second attempt raises.
    """
    trace = get_tracectx()
    if trace is None:
        return fn(*args, **kwargs)
    scope = trace.scopes[-1]
    before = len(scope)
    try:
        result = fn(*args, **kwargs)
        is_recorded = not any(_reads_real_tensor(bsym) for bsym in scope[before:])
    except Exception:
        is_recorded = False  # the second attempt raises the error again, or succeeds
    if is_recorded:
        return result
    del scope[before:]

    def replacement(called: Any) -> Callable[..., Any] | None:
        return None if called is fn else _replacement(called)  # fn may be what its operator replaces

    return interpret(fn, lookaside=replacement)(*args, **kwargs)


def _reads_real_tensor(bsym: BoundSymbol) -> bool:
    return any(isinstance(x, torch.Tensor) and not isinstance(x, TensorProxy) for x in bsym.flat_args)


def _replacement(fn: Any) -> Callable[..., Any] | None:
    """Return what is called natively for a function that interpreted code calls; None to interpret it."""
    if isinstance(fn, Symbol):
        return fn
    symbol = current_language().resolve(fn)
    if symbol is not None and _module_of(symbol).partition(".")[0] != "torch":
        return symbol
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, TensorProxy):
        method = current_language().resolve(getattr(torch.Tensor, fn.__name__, None))
        return functools.partial(method, owner) if method is not None else _with_torch_metadata(fn)
    package = _module_of(fn).partition(".")[0]
    if package == "thunder":
        return fn  # type: ignore[no-any-return]
    return _with_torch_metadata(fn) if package == "torch" else None


def _module_of(fn: Any) -> str:
    """Return the module of a callable; functions of torch that are implemented in C have none."""
    owner = getattr(fn, "__self__", None)
    module = getattr(fn, "__module__", None) or getattr(owner, "__module__", None)
    return module if isinstance(module, str) else ""


def _with_torch_metadata(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``fn`` with torch's dtypes and devices in place of thunder's."""

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(torch_metadata, (args, kwargs))
        return fn(*args, **kwargs)

    return call
