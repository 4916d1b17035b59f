"""The casts of operators under autocast: as declared, or as those of the function that is replaced.

ex.register_operator("linear", …, replaces=F.linear)              lower, as F.linear
ex.register_operator("linear", …, replaces=F.linear, autocast=None)        nothing
ex.register_operator("mlp", …, replaces=mlp, autocast="lower")             lower
ex.register_operator("mlp", …, replaces=mlp)                      mlp is traced, with the casts within
ex.register_operator("lstm", …, replaces=torch.lstm)              torch casts between the steps of
                                                                  torch.lstm, so torch runs it
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from thunder.base.errors import PluginWarning, RegistrationError
from thunder.base.extension_origin import is_of_core
from thunder.base.langctx import TORCH, unknown_torch_function
from thunder.base.tags import OpTags
from thunder.ir.autocast_declarations import INHERIT
from thunder.ir.symbol import Symbol
from thunder.ir.trace import detached_trace
from thunder.ops.operator import is_of_package
from thunder.torch.autocast_rules import Action, action_of

Fn = Callable[..., Any]


def action_for(symbol: Symbol, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Action | None:
    """Return what autocast on a kind of device does with a call of an operator, or None.

    Raises RegistrationError for an operator that replaces functions with different places in autocast.
    """
    if symbol.autocast != INHERIT:
        return symbol.autocast
    if not is_of_package(symbol):
        return action_of(symbol.id, kind, args, kwargs)
    sources = _sources_of_torch(symbol)
    if not sources:
        return None if symbol.is_prim else _within(symbol, kind, args, kwargs)
    actions = [_inherited(symbol, source, kind, args, kwargs) for source in sources]
    if len(set(actions)) > 1:
        raise RegistrationError(
            f"operator {symbol.id!r} replaces functions that autocast treats differently",
            found={_name(s): a or "no cast" for s, a in zip(sources, actions, strict=True)},
            hint="Say what it does with the operator: autocast='lower', 'fp32', 'promote' or None.",
        )
    return actions[0]


def _sources_of_torch(symbol: Symbol) -> list[Any]:
    """Return the functions of torch that an operator replaces, or the operator that it is like."""
    replaced = [s for s in symbol.autocast_sources if not isinstance(s, Symbol) and _is_of_torch(symbol, s)]
    return replaced or [s for s in symbol.autocast_sources if isinstance(s, Symbol)]


def _is_of_torch(symbol: Symbol, source: Any) -> bool:
    return _operator_of(symbol, source) is not None or torch.overrides.resolve_name(source) is not None


def _operator_of(symbol: Symbol, source: Any) -> Fn | None:
    """Return the operator that a function of torch is without ``symbol``, or None."""
    operator = source if isinstance(source, Symbol) else TORCH.resolve(source)
    return None if operator == symbol else operator


def _inherited(
    symbol: Symbol, source: Any, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Action | None:
    """Return what autocast does with a function of torch, or with a symbol, for these arguments."""
    operator = _operator_of(symbol, source)
    if not isinstance(operator, Symbol):
        return "within"
    try:
        args, kwargs = operator.normalize(*args, **kwargs)
    except TypeError:  # other parameters: a rule that depends on arguments cannot read them
        return "within"
    return action_for(operator, kind, args, kwargs)


def _within(symbol: Symbol, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Action | None:
    """Return ``within`` if autocast casts in the calls of a package's decomposition."""
    assert symbol.meta is not None, f"{symbol.id} has a decomposition"
    with detached_trace() as trace:
        symbol.meta(*args, **kwargs)
    casts = any(action_for(b.sym, kind, b.args, b.kwargs) is not None for b in trace.bound_symbols)
    return "within" if casts else None


def has_no_rule(symbol: Any) -> bool:
    """Return whether an operator replaces a function of a package, and nothing says what autocast does.

    Under autocast the function is traced then, with the casts that eager makes within.
    """
    if not (isinstance(symbol, Symbol) and symbol.autocast == INHERIT and symbol.autocast_sources):
        return False
    computes = symbol.is_prim or OpTags.IN_PLACE in symbol.tags
    sources = symbol.autocast_sources
    own = all(_is_traceable(s) and not is_of_core(s) for s in sources)
    return computes and own and is_of_package(symbol) and not _sources_of_torch(symbol)


@functools.cache
def warn_without_rule(symbol: Symbol) -> None:
    """Warn, once, that the kernel of an operator does not run under autocast."""
    names = ", ".join(map(_name, symbol.autocast_sources))
    warnings.warn(
        f"operator {symbol.id!r} replaces {names} and says nothing about autocast, which is on: {names} is "
        "traced, and the kernel does not run. Say what autocast does with its arguments: autocast='lower', "
        "'fp32', 'promote' or None of register_operator.",
        PluginWarning,
        stacklevel=2,
    )


def _is_traceable(source: Any) -> bool:
    """Return whether a source is in Python, or `apply` of an autograd.Function, which torch 2.15 has in C."""
    owner = getattr(source, "__self__", None)
    is_apply = isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
    return is_apply or isinstance(source, types.FunctionType | types.MethodType)


def replaced_function(symbol: Symbol) -> Fn:
    """Return what a program would call without an operator of a package.

    It is the function of torch that the operator replaces, or else its decomposition.
    """
    sources = _sources_of_torch(symbol)
    if sources:
        return _operator_of(symbol, sources[0]) or unknown_torch_function(sources[0])
    assert symbol.meta is not None, f"{symbol.id} has a decomposition"
    return symbol.meta


def row_for(fn: Fn, symbol: Any) -> str:
    """Return the id of the row whose place in autocast a call of ``fn`` has, or an empty text."""
    if isinstance(symbol, Symbol) and symbol.autocast_sources:
        symbol = TORCH.resolve(fn) if symbol.autocast == INHERIT else None
    return symbol.id if isinstance(symbol, Symbol) else ""


def _name(source: Any) -> str:
    if isinstance(source, Symbol):
        return source.id
    return torch.overrides.resolve_name(source) or getattr(source, "__qualname__", repr(source))
