"""``module.to(…)``, ``module.float()`` and the like inside a program, where they change nothing.

    self.encoder.to(x.device)   →   a conversion of each parameter and buffer, which returns the tensor itself

``Module._apply`` writes the ``data`` of parameters, and of their gradients; where a conversion returns the
parameter itself, that changes nothing. Buffers are replaced as in eager.
"""

from __future__ import annotations

import operator
import types
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.wrappers.forwarding import FORWARDED_CODE

TABLE = LookasideTable(COMPUTES)

_METHODS = ("to", "cpu", "cuda", "xpu", "mtia", "float", "double", "half", "bfloat16", "type")


def _functions_of(method: types.FunctionType) -> list[types.CodeType]:
    return [constant for constant in method.__code__.co_consts if isinstance(constant, types.CodeType)]


#: the code of the functions that the methods pass to ``_apply``: each converts a tensor, without effects
_CONVERSIONS = frozenset(
    code
    for name in _METHODS
    if isinstance(method := vars(torch.nn.Module).get(name), types.FunctionType)
    for code in _functions_of(method)
)


@TABLE.lookaside(torch.nn.Module._apply)
def _apply(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def apply(module: torch.nn.Module, fn: Any, recurse: bool = True) -> Any:
        if not (isinstance(fn, types.FunctionType) and fn.__code__ in _CONVERSIONS):
            return session.machine.generic_call(torch.nn.Module._apply, args, kwargs)
        for child in session.call(session.load_attr(module, "children"), (), {}) if recurse else ():
            session.call(session.load_attr(child, "_apply"), (fn,), {})
        for parameter in session.load_attr(module, "_parameters").values():
            if parameter is not None and _converted(session, fn, parameter) is not parameter:
                raise UnsupportedProgram(
                    "the program converts a parameter of a module to another dtype or device",
                    found={parameter.name: f'"{parameter.type_string()}"'},
                    hint="Convert the module before the call, or the weights where they are used.",
                )
        buffers = session.load_attr(module, "_buffers")
        for name, buffer in list(buffers.items()):
            converted = buffer if buffer is None else _converted(session, fn, buffer)
            if converted is not buffer:
                session.call(operator.setitem, (buffers, name, converted), {})
        return module

    return apply(*args, **kwargs)


def _converted(session: TracingSession, fn: Any, tensor: TensorProxy) -> Any:
    with torch.no_grad():
        return session.call(fn, (tensor,), {})


@TABLE.closure_lookaside(FORWARDED_CODE)
def call_forwarded(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method that was read from a compiled module, with the module itself."""
    method, *rest = args
    return session.call(method.__wrapped__, tuple(rest), kwargs)
