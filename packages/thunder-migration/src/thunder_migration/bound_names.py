"""The arguments of a call by the names of the operator's parameters."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

from thunder.core.errors import InvalidArgument
from thunder.core.symbol import BoundSymbol

__all__ = ["bind_names"]


def bind_names(bsym: BoundSymbol) -> SimpleNamespace:
    """Return an object with the arguments of a call as attributes, under the operator's parameters.

    The operators of torch have torch's names of parameters (`input`, `other`). Raises InvalidArgument for a
    statement that has no parameters, such as a fusion.
    """
    if bsym.sym.meta is None:
        raise InvalidArgument(
            f"{bsym.sym.name} has no parameters, so its arguments have no names", hint="Read bsym.args."
        )
    bound = inspect.signature(bsym.sym.meta).bind(*bsym.args, **bsym.kwargs)
    bound.apply_defaults()
    return SimpleNamespace(**bound.arguments)
