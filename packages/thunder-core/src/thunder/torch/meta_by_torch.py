"""Rows whose metadata torch computes, on meta tensors: for operators that models call rarely and that nobody
takes apart.

    by_torch("torch.nn.functional.fold", "input, output_size, kernel_size, dilation=1, padding=0, stride=1")

The parameters are written out because most of torch's functions are builtins, whose signatures Python cannot
read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from thunder.base.errors import RegistrationError
from thunder.base.signature import make_normaliser
from thunder.ir.symbol import Symbol
from thunder.ops.meta_kernels import torch_meta
from thunder.torch.function_names import find_torch
from thunder.torch.inplace import write_back
from thunder.torch.registration import torch_names, torchsymbol


def signature_of(parameters: str) -> inspect.Signature:
    """The signature of a function with these parameters, written as in a ``def``."""
    return inspect.signature(eval(f"lambda {parameters}: None", {"torch": torch}))


def by_torch(path: str, parameters: str, *also: str, claimed: bool = True, **row: Any) -> Symbol:
    """A primitive that is torch's function at ``path``; ``also`` are other paths to the same function.

    ``claimed`` says whether a program that calls torch's function means this row; ``row`` are further
    arguments of ``torchsymbol``.
    """
    fn = find_torch(path)
    if fn is None:
        raise RegistrationError(f"torch has no {path}")
    meta = torch_meta(fn)
    meta.__signature__ = signature_of(parameters)  # type: ignore[attr-defined]
    meta.__name__ = path.rpartition(".")[2]
    return torchsymbol(*((path, *also) if claimed else ()), id=path, prim=True, **row)(meta)


def checked_by_torch(path: str, *also: str, **row: Any) -> Callable[[Callable[..., Any]], Symbol]:
    """Registers the decorated decomposition as the row of torch's function at ``path``, and lets torch judge
    the arguments: for operators whose conditions are many, and which nobody calls often.
    """

    def decorate(fn: Callable[..., Any]) -> Symbol:
        reference = find_torch(path)
        if reference is None:
            raise RegistrationError(f"torch has no {path}")
        refuse = torch_meta(reference)

        @functools.wraps(fn)
        def decomposition(*args: Any, **kwargs: Any) -> Any:
            refuse(*args, **kwargs)
            return fn(*args, **kwargs)

        return torchsymbol(path, *also, id=path, **row)(decomposition)

    return decorate


def by_torch_or_inplace(
    path: str, parameters: str, *, unchanged: Callable[..., bool] = lambda *args: False, **row: Any
) -> Symbol:
    """As :func:`by_torch`, of a function with a last parameter ``inplace=False``, which ``parameters`` leave
    out.

    ``inplace=True`` is the functional call and a write to the first argument. Where ``unchanged(*args)`` says
    so, torch returns its first argument itself.
    """
    symbol = by_torch(path, parameters, claimed=False, **row)
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
