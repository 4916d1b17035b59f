"""Torch's own parser of arguments, which judges a call before a row binds it.

A row has its parameters in one form. Which calls torch accepts is defined by torch's parser: overloads,
types, keyword names, which arguments may be positional. So torch's function is called under a mode: torch
parses the arguments, calls the mode in place of a kernel, and computes nothing.

    x.sum(0, foo=1)   →   torch.Tensor.sum(x, 0, foo=1) under the mode   →   torch's TypeError

A call costs about a microsecond.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.nn.functional as F

from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype
from thunder.base.errors import ThunderError
from thunder.base.pytree import tree_flatten, tree_map, tree_unflatten
from thunder.ir.proxies import FloatProxy, GeneratorProxy, IntegerProxy, NumberProxy, TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple, SymbolicInt, has_symbols, hint_of
from thunder.ops.meta_kernels import eager_error
from thunder.ops.stand_ins import stand_in_tensor
from thunder.ops.torch_errors import operator_error
from thunder.torch.usual_calls import is_usual

Fn = Callable[..., Any]

#: torch's functions that run, or read their arguments, without calling the mode
SILENT: frozenset[Any] = frozenset(
    {torch.range, torch.is_tensor, torch.Tensor.set_, torch.nn.init.trunc_normal_}
)


class _Overridden:
    """The type of :data:`OVERRIDDEN`."""


#: what :func:`parse` returns for a call that torch offers to ``__torch_function__`` of an argument
OVERRIDDEN: Final = _Overridden()


class _Judge:
    """A mode that returns None, or OVERRIDDEN if an argument has another class than tensors and proxies."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return None if _TENSORS.issuperset(types) else OVERRIDDEN


_TENSORS: Final = frozenset({TensorProxy, torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


@dataclass(frozen=True)
class _Parser:
    """The function that parses a call, and how its answer is read.

    ``declines`` marks a method of an operator, which returns NotImplemented for operands that it does not
    take. ``kinds`` are the types in the annotations of parameters: a function written in Python checks other
    types only where it uses the argument.
    """

    fn: Fn
    declines: bool = False
    kinds: Mapping[str, frozenset[type]] = field(default_factory=dict)

    def is_strange(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return whether an argument has a type that the annotations do not name."""
        for x, kinds in zip(args, self.kinds.values(), strict=False):
            if kinds and type(x) not in kinds:
                return True
        for key, x in kwargs.items():
            kinds = self.kinds.get(key, _UNCHECKED)
            if kinds and type(x) not in kinds:
                return True
        return False


_UNCHECKED: frozenset[type] = frozenset()
_KINDS: dict[Any, frozenset[type]] = {
    torch.Tensor: frozenset({TensorProxy}),
    float: frozenset({float, int, FloatProxy, IntegerProxy}),
    int: frozenset({int, IntegerProxy}),
    bool: frozenset({bool}),
    str: frozenset({str}),
    type(None): frozenset({type(None)}),
}


def _kinds_of(annotation: Any) -> frozenset[type]:
    """Return the types that an annotation names, or none if it cannot be read."""
    is_union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    members = [_KINDS.get(a) for a in (typing.get_args(annotation) if is_union else (annotation,))]
    return _UNCHECKED.union(*members) if all(members) else _UNCHECKED  # type: ignore[arg-type]


_JUDGE = _Judge()
_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
_parsers: dict[Any, _Parser | None] = {
    # eager computes with the result of a first call
    torch.Tensor.__rdiv__: _Parser(torch.Tensor.mul, declines=True),
}


def _is_native_of_torch(fn: Any) -> bool:
    """Return whether ``fn`` is in C and torch's own, such as ``torch.add``.

    ``apply`` of a program's ``autograd.Function`` may be in C, and so may a function of a package.
    """
    if isinstance(fn, types.MethodDescriptorType):
        return fn.__objclass__ is torch._C.TensorBase
    if not isinstance(fn, types.BuiltinFunctionType):
        return False
    owner = fn.__self__
    return owner is None or (isinstance(owner, types.ModuleType) and owner.__name__.startswith("torch."))


def _parser_of(fn: Any) -> _Parser | None:
    if fn in SILENT:
        return None
    if _is_native_of_torch(fn):
        return _Parser(fn)
    if not isinstance(fn, types.FunctionType) or str(fn.__module__).partition(".")[0] != "torch":
        return None
    if fn.__module__ == F.__name__:
        parameters = inspect.signature(fn).parameters.values()
        return _Parser(fn, kinds={p.name: _kinds_of(p.annotation) for p in parameters})
    # operators' methods that are written in Python call the mode before they parse
    inner = getattr(fn, "__wrapped__", None) if fn.__module__ == torch._tensor.__name__ else None
    return _Parser(fn) if inner is None else _Parser(inner, declines=True)


def parse(fn: Fn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let torch parse a call of ``fn``; return NotImplemented where an operator declines, or OVERRIDDEN.

    A function that torch does not parse under a mode is not judged. Raises OperatorError with torch's text,
    and of its class, for arguments that torch does not accept.
    """
    try:
        parser = _parsers[fn]
    except KeyError:
        parser = _parsers[fn] = _parser_of(fn)
    return None if parser is None else _parsed(parser, args, kwargs)


def _parsed(parser: _Parser, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if any(map(_is_tracked_number, args)) or (kwargs and any(map(_is_tracked_number, kwargs.values()))):
        args = tuple(map(_with_gradient, args))
        kwargs = {key: _with_gradient(value) for key, value in kwargs.items()}
    given = args, kwargs
    if any(map(_has_size, args)) or (kwargs and any(map(_has_size, kwargs.values()))):
        args, kwargs = tree_map(_hint, (args, kwargs))
    result = None
    _push(_JUDGE)
    try:
        result = parser.fn(*args, **kwargs)
    except ThunderError:
        raise
    except Exception as error:
        problem: Exception | None = error
    else:
        problem = None
    finally:
        _pop()
    if result is OVERRIDDEN:
        return OVERRIDDEN
    if problem is None and result is not NotImplemented:
        if parser.kinds and parser.is_strange(args, kwargs) and not _has_unknown_integer(*given):
            ask_torch(parser.fn, args, kwargs)
        return None
    leaves, spec = tree_flatten((args, kwargs))
    stand_ins = [stand_in(leaf) for leaf in leaves]
    if any(a is not b for a, b in zip(leaves, stand_ins, strict=True)):
        args, kwargs = tree_unflatten(stand_ins, spec)
        return _parsed(parser, args, kwargs)
    if problem is None:  # an operator declines: ``x *= number`` is asked again with the type of the number
        return NotImplemented
    if parser.declines and isinstance(problem, TypeError):
        return NotImplemented
    problem.args = tuple(str(part).replace("TensorProxy", "Tensor") for part in problem.args)
    raise operator_error(problem, args, kwargs)


def ask_torch(fn: Fn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the error of ``fn`` if it fails when it runs."""
    if is_usual(fn, args, kwargs):
        return
    error = eager_error(fn, args, kwargs)
    if error is not None:
        raise operator_error(error, args, kwargs)


def _has_unknown_integer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether torch would read the value of an integer of the trace."""
    leaves, _ = tree_flatten((args, kwargs))
    return any(
        x.dtype.is_integer and not x.shape if isinstance(x, TensorProxy) else type(x) is IntegerProxy
        for x in leaves
    )


def _is_tracked_number(x: Any) -> bool:
    """Return whether ``x`` is a tensor without dimensions that requires grad.

    Torch's parser does not take one for a number, and cannot read requires_grad from a proxy.
    """
    return type(x) is TensorProxy and not x.shape and x.requires_grad


def _has_size(x: Any) -> bool:
    """Return whether a number is an integer of the trace or a symbolic size, or one is in a list of sizes."""
    kind = type(x)
    if kind is IntegerProxy or ((kind is list or kind is tuple) and any(type(n) is IntegerProxy for n in x)):
        return True
    return kind is SymbolicInt or ((kind is tuple or kind is list or kind is SizeTuple) and has_symbols(x))


def _hint(x: Any) -> Any:
    if type(x) is SizeTuple:
        return torch.Size(map(hint_of, x))
    if type(x) is IntegerProxy:
        return x.stand_in
    return x.hint if isinstance(x, SymbolicInt) else x  # the parser looks at types alone


def _with_gradient(x: Any) -> Any:
    if not _is_tracked_number(x):
        return x
    return stand_in_tensor(x, "cpu", zeros=True, requires_grad=True)


def stand_in(x: Any) -> Any:
    """Return the value that torch's parser gets for a value of a trace.

    Tensors stay proxies, by which the parser calls back; it reads no state of a generator, so that one of any
    device is a new one on the CPU (``to_torch`` in ``ops/stand_ins`` makes one that a kernel may draw from).
    """
    if isinstance(x, NumberProxy):
        return x.stand_in
    if isinstance(x, GeneratorProxy):
        return torch.Generator()
    if isinstance(x, dtype):
        return x.torch_dtype
    return to_torch_device(x) if isinstance(x, Device) else x
