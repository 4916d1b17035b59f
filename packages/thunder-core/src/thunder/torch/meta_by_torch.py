"""Rows whose metadata torch computes on meta tensors.

    meta_by_torch("torch.linalg.eigh", "A, UPLO='L'")

For operators that models rarely call, and that no executor needs to decompose. The parameters are written out
because most torch functions are builtins, whose signatures Python cannot read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.attribute_paths import find_torch
from thunder.base.errors import RegistrationError
from thunder.base.signature import make_normaliser
from thunder.ir.symbol import Symbol
from thunder.ops.meta_kernels import torch_check, torch_meta
from thunder.torch.inplace import write_back
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.usual_calls import ACCEPTED, RESULTS


def signature_of(parameters: str) -> inspect.Signature:
    """Return the signature of a function whose parameters are written as in a ``def``."""
    return inspect.signature(eval(f"lambda {parameters}: None", {"torch": torch}))


def meta_by_torch(
    path: str,
    parameters: str,
    *also: str,
    in_language: bool = True,
    shape: Callable[..., Sequence[Any]] | None = None,
    **row: Any,
) -> Symbol:
    """Register torch's function at ``path`` as a primitive, and return its symbol.

    ``also`` are other paths to the function. Without ``in_language`` a program that calls torch's function
    does not reach this row. ``shape`` has the row's parameters, and computes the shape of the results from
    symbolic sizes (:func:`~thunder.ops.meta_kernels.torch_meta`). ``row`` are further arguments of
    ``torchsymbol``. Raises RegistrationError if torch has no such function.
    """
    fn = find_torch(path)
    if fn is None:
        raise RegistrationError(f"torch has no {path}")
    meta = torch_meta(fn, shape, RESULTS.get(path))
    meta.__signature__ = signature_of(parameters)  # type: ignore[attr-defined]
    meta.__name__ = path.rpartition(".")[2]
    return torchsymbol(*((path, *also) if in_language else ()), id=path, prim=True, **row)(meta)


def checked_by_torch(path: str, *also: str, **row: Any) -> Callable[[Callable[..., Any]], Symbol]:
    """Register the decorated decomposition as the row of torch's function at ``path``.

    Torch checks the arguments on meta tensors first: for operators with many conditions that are rarely
    called.
    """

    def decorate(fn: Callable[..., Any]) -> Symbol:
        reference = find_torch(path)
        if reference is None:
            raise RegistrationError(f"torch has no {path}")
        refuse = torch_check(reference, ACCEPTED.get(path))

        @functools.wraps(fn)
        def decomposition(*args: Any, **kwargs: Any) -> Any:
            refuse(*args, **kwargs)
            return fn(*args, **kwargs)

        return torchsymbol(path, *also, id=path, **row)(decomposition)

    return decorate


def meta_by_torch_or_inplace(
    path: str, parameters: str, *, unchanged: Callable[..., bool] = lambda *args: False, **row: Any
) -> Symbol:
    """Register a function with a last parameter ``inplace=False``, like :func:`meta_by_torch`.

    ``parameters`` leave ``inplace`` out. ``inplace=True`` is the functional call and a write to the first
    argument. Where ``unchanged(*args)``, torch returns its first argument itself.
    """
    symbol = meta_by_torch(path, parameters, in_language=False, **row)
    bind = make_normaliser(symbol.meta, symbol.name)  # type: ignore[arg-type]

    def call(*args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if len(args) > positions:
            *args, inplace = args  # type: ignore[assignment]
        args, kwargs = bind(*args, **kwargs)
        if unchanged(*args):
            return args[0]
        out = symbol(*args, **kwargs)
        return write_back(out, args[0]) if inplace else out

    positions = len(signature_of(parameters).parameters)
    torch_names(path)(call)
    return symbol
