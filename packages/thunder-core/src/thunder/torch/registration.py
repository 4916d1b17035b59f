"""How the torch language gets its rows: one decorator, which fills the language's table from torch's
callables to symbols.

A row's parameters have torch's names, order and defaults, so that ``eager(*args, **kwargs)`` of a normalised
call is the call that the user made. What a signature cannot say (``x.view(2, 3)``, overloads) is said by a
``spelling``: a function with the user's signature that returns the row's arguments.

    @torchsymbol("torch.add", methods=("add", "__add__"), inplace=("add_", "__iadd__"))
    def add(input, other, *, alpha=1):
        a, b = operands(input, other)
        return prims.add(a, b if alpha == 1 else prims.mul(b, alpha))
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype, to_torch_dtype
from thunder.base.errors import (
    InvalidArgument,
    OperatorError,
    RegistrationError,
    ThunderError,
    UnsupportedOperator,
)
from thunder.base.langctx import TORCH
from thunder.base.pytree import tree_iter
from thunder.base.signature import make_normaliser
from thunder.base.tags import OpTags
from thunder.ir.symbol import Symbol
from thunder.ir.trace_context import get_tracectx
from thunder.ops.meta_kernels import ask_torch, described_arguments, is_number
from thunder.ops.operator import Operator, register, row_of
from thunder.torch.inplace import write_back
from thunder.torch.out_argument import decided_by_out, write_to_out

Fn = Callable[..., Any]
#: binds a call's arguments: (args, kwargs) of the row from those of the user
Spelling = Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]

#: name → symbol, for ``thunder.torch.<name>``
SYMBOLS: dict[str, Symbol] = {}


#: other names that torch takes for arguments: numpy's, and those of methods
_RENAMED = {
    "axis": "dim",
    "axes": "dims",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
    "split_size": "split_size_or_sections",
    "self": "input",
}

#: arguments that many of torch's functions have and rows lack, with the value that asks for nothing
_NEUTRAL: dict[str, Any] = {
    "out": None,
    "generator": None,
    "layout": torch.strided,
    "pin_memory": False,
    "requires_grad": False,
    "memory_format": torch.preserve_format,
    "non_blocking": False,
}


#: what a meta function, a spelling or a decomposition raises for arguments that it is not made for
FAILURES = (OperatorError, TypeError, IndexError, ValueError, AttributeError, AssertionError, ArithmeticError)


def is_users_call(error: Exception) -> bool:
    """Whether the error is one about arguments, and the call that failed is the user's own: none that another
    decomposes into.
    """
    if isinstance(error, ThunderError) and not isinstance(error, (OperatorError, InvalidArgument)):
        return False
    trace = get_tracectx()
    return trace is not None and len(trace.scopes) == 1


def refuse_unforeseen(name: str, args: Any, kwargs: Any, error: Exception) -> None:
    """Raises UnsupportedOperator for a call that torch accepts, where ours failed on an argument: on its
    type, or on a tensor where torch takes numbers too, and would look at the data.
    """
    if not isinstance(error, ThunderError) or any(map(is_number, tree_iter((args, kwargs)))):
        raise UnsupportedOperator(
            f"{name} does not take these arguments here: {error}",
            found=described_arguments(args, kwargs),
            hint="Pass tensors where the operator's documentation has tensors, numbers where it has them.",
        ) from error


def find_torch(path: str) -> Any:
    """The object at a dotted path into torch, or None where this torch lacks it."""
    found: Any = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def name_of(fn: Any) -> str:
    """The dotted name of a torch function, as a program would write it."""
    if isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{fn}"
    name = torch.overrides.resolve_name(fn)
    if name is None:
        module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", repr(fn))
        qualname = qualname.replace("_VariableFunctionsClass.", "")
        name = f"{module}.{qualname}" if module else qualname
    return str(name).replace("torch.TensorBase.", "torch.Tensor.").replace("torch.functional.", "torch.")


@dataclass(frozen=True, eq=False)
class TorchSymbol(Symbol):
    """A symbol that takes the spellings of a torch function, and whose errors begin with torch's text."""

    spelling: Spelling | None = None
    eager: Fn | None = None

    @functools.cached_property
    def _normaliser(self) -> Spelling:
        bind = self.spelling or make_normaliser(self.meta, self.name)  # type: ignore[arg-type]

        def normalise(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            try:
                args, kwargs = bind(*args, **kwargs)
            except TypeError:
                accepted = self._accepted(bind, args, kwargs)
                if accepted.keys() == kwargs.keys():
                    raise
                args, kwargs = bind(*args, **accepted)
            return _in_torch_types(args, kwargs)

        return normalise

    def _accepted(self, bind: Spelling, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments under the row's names, without those that ask for nothing; M32 for those that ask
        for something.
        """
        parameters = {**inspect.signature(bind).parameters, **inspect.signature(self.meta).parameters}  # type: ignore[arg-type]
        accepted: dict[str, Any] = {}
        known = ", ".join(p for p in parameters if p != "kwargs")
        for key, value in kwargs.items():
            if key in parameters:
                accepted[key] = value
            elif _RENAMED.get(key) in parameters:
                accepted[_RENAMED[key]] = value
            elif key not in _NEUTRAL or (value is not None and value is not _NEUTRAL[key]):
                raise UnsupportedOperator(
                    f"{self.id} has no argument {key!r} here",
                    found=described_arguments(args, kwargs),
                    hint=f"Leave {key!r} out. Arguments that work: {known}.",
                )
        return accepted

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`Symbol.__call__`; what torch refuses too is an OperatorError that begins with torch's
        text.
        """
        if kwargs.get("out") is not None:
            return self._written_to_out(args, kwargs)
        try:
            return super().__call__(*args, **kwargs)
        except FAILURES as error:
            if is_users_call(error):
                args, kwargs = self._as_torch_takes(args, kwargs)
                ask_torch(self.eager, args, kwargs, error)
                refuse_unforeseen(self.id, args, kwargs, error)
            raise

    def _written_to_out(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        row = row_of(self)
        functions = row.torch if row is not None else ()

        def compute(*args: Any, **inputs: Any) -> Any:
            bound = self._as_torch_takes(args, inputs)
            decided = decided_by_out(self.meta, *bound, kwargs["out"])  # type: ignore[arg-type]
            return self(*args, **{**inputs, **decided})

        return write_to_out(
            self.id, functions, compute, args, kwargs, is_random=OpTags.RANDOM_OP in self.tags
        )

    def _as_torch_takes(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of ``eager``: the row's, where the user's may be those of another spelling."""
        if self.spelling is None:
            return args, kwargs
        try:
            return self._normaliser(*args, **kwargs)
        except FAILURES:  # the spelling refused them, so torch is asked about them as they are
            return args, kwargs

    __hash__ = Symbol.__hash__
    __eq__ = Symbol.__eq__


_TORCH_TYPES: dict[type, Fn] = {dtype: to_torch_dtype, Device: to_torch_device}


def _in_torch_types(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Torch's dtypes and devices for thunder's, since the call is printed and run as one of torch's
    functions.
    """
    if any(type(a) in _TORCH_TYPES for a in args):
        args = tuple(_TORCH_TYPES[type(a)](a) if type(a) in _TORCH_TYPES else a for a in args)
    for key, value in kwargs.items():
        if type(value) in _TORCH_TYPES:
            kwargs = {**kwargs, key: _TORCH_TYPES[type(value)](value)}
    return args, kwargs


def unpacked(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """``((2, 3),)`` and ``(2, 3)`` → ``(2, 3)``."""
    if len(values) == 1 and isinstance(values[0], tuple | list):
        return tuple(values[0])
    return values


def torchsymbol(
    *names: Any,
    id: str | None = None,
    methods: Iterable[str] = (),
    properties: Iterable[str] = (),
    is_method: bool = False,
    inplace: Iterable[str] = (),
    inplace_functions: Iterable[str] = (),
    prim: bool = False,
    eager: Fn | None = None,
    eager_path: str | None = None,
    spelling: Spelling | None = None,
    vjp: Any = None,
    tags: Iterable[Any] = (),
    samples: Callable[..., Iterable[Any]] | None = None,
) -> Callable[[Fn], Symbol]:
    """Makes a row of the decorated function, which is a decomposition (or, if ``prim``, a meta function).

    ``names`` are torch's functions, as dotted paths (``"torch.nn.functional.linear"``) or callables; those
    that this torch lacks are skipped. ``methods`` and ``properties`` are attributes of ``torch.Tensor``. The
    id is the first name. ``inplace`` names the in-place methods that are derived from it: the first is the
    twin's id, the others (``__iadd__``) its aliases; ``inplace_functions`` are the functions among them
    (``torch.relu_``). ``eager`` is found by the id unless given. Raises RegistrationError if an id or a
    callable is taken.
    """
    paths = [name if isinstance(name, str) else torch.overrides.resolve_name(name) for name in names]

    def decorate(fn: Fn) -> Symbol:
        spelt = [*methods, *([fn.__name__] if is_method else ())]
        all_paths = [
            *paths,
            *(f"torch.Tensor.{m}" for m in spelt),
            *(f"torch.Tensor.{p}.__get__" for p in properties),
        ]
        row_id = id or all_paths[0]
        reference = eager or find_torch(row_id)
        callables = [c for c in (find_torch(path) for path in all_paths) if c is not None]
        callables += [c for c, path in zip(names, paths, strict=True) if callable(c) and path is None]
        row = Operator(
            id=row_id,
            torch=tuple(callables),
            eager=reference,
            eager_path=eager_path,
            vjp=vjp,
            samples=samples,
            tags=frozenset(tags),
            module="ltorch",
            **{"meta" if prim else "decomposition": fn},
        )
        symbol = _add(row, spelling)
        if inplace:
            _add_inplace(symbol, tuple(inplace), tuple(inplace_functions), spelling, row)
        return symbol

    return decorate


def _add(row: Operator, spelling: Spelling | None) -> Symbol:
    symbol = register(row, make_symbol=functools.partial(TorchSymbol, spelling=spelling, eager=row.eager))
    for fn in row.torch:
        _speak(fn, symbol)
    if not isinstance(SYMBOLS.get(symbol.name), Symbol):  # a row comes before an alias of the same name
        SYMBOLS[symbol.name] = symbol
    return symbol


def _speak(fn: Any, meaning: Fn) -> None:
    known = TORCH.functions.setdefault(fn, meaning)
    if known is not meaning:
        raise RegistrationError(
            f"{torch.overrides.resolve_name(fn) or fn} is taken",
            found=f"by {known!r}",
            hint="One row per torch function.",
        )


def spelt_as(*names: str, methods: Iterable[str] = (), properties: Iterable[str] = ()) -> Callable[[Fn], Fn]:
    """Lets torch functions (methods, property getters) stand for a symbol, or for a function that calls
    symbols.

    For aliases and for compositions that eager makes in Python too (``2 / x`` is ``x.reciprocal() * 2``).
    Absent names are skipped.
    """
    paths = [
        *names,
        *(f"torch.Tensor.{m}" for m in methods),
        *(f"torch.Tensor.{p}.__get__" for p in properties),
    ]

    def decorate(meaning: Fn) -> Fn:
        spoken: dict[Any, Fn] = {}  # torch has one function under two names
        for path in paths:
            fn = find_torch(path)
            if fn is not None:
                if fn not in spoken:
                    spoken[fn] = meaning if isinstance(meaning, Symbol) else _refusing(path, fn, meaning)
                    _speak(fn, spoken[fn])
                SYMBOLS.setdefault(path.removesuffix(".__get__").rpartition(".")[2], meaning)  # type: ignore[arg-type]
        return meaning

    return decorate


def _refusing(path: str, fn: Fn, meaning: Fn) -> Fn:
    """``meaning``, whose errors begin with torch's text, as a symbol's do."""

    def to_out(*args: Any, out: Any, **kwargs: Any) -> Any:
        def compute(*args: Any, **inputs: Any) -> Any:
            return call(*args, **{**inputs, **decided_by_out(meaning, args, inputs, out)})

        return write_to_out(path, [fn], compute, args, {**kwargs, "out": out}, is_random=False)

    @functools.wraps(meaning)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            return to_out(*args, **kwargs)
        try:
            return meaning(*args, **kwargs)
        except FAILURES as error:
            if is_users_call(error):
                ask_torch(fn, args, kwargs, error)
                refuse_unforeseen(path, args, kwargs, error)
            raise

    return call


def alias(meaning: Fn, *names: str, methods: Iterable[str] = (), properties: Iterable[str] = ()) -> None:
    """``spelt_as`` without a decorator: ``alias(abs, "torch.absolute", methods=("absolute",))``."""
    spelt_as(*names, methods=methods, properties=properties)(meaning)


def _add_inplace(
    symbol: Symbol,
    methods: tuple[str, ...],
    functions: tuple[str, ...],
    spelling: Spelling | None,
    row: Operator,
) -> None:
    """The twin ``x.add_(y)``: the functional operator, a cast, and a write to ``x``, which it returns."""

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        value = symbol(*args, **kwargs)
        if args[0].dtype.is_complex and value.dtype.is_floating_point:  # of all operators abs is the one
            raise OperatorError(f"In-place {symbol.name} is not supported for complex tensors.")
        return write_back(value, args[0])

    decomposition.__signature__ = inspect.signature(symbol.meta)  # type: ignore[attr-defined,arg-type]
    paths = [*(f"torch.Tensor.{m}" for m in methods), *functions]
    found = [fn for fn in map(find_torch, paths) if fn is not None]
    if not found:
        return
    twin = Operator(
        id=paths[0],
        torch=tuple(dict.fromkeys(found)),
        eager=found[0],
        decomposition=decomposition,
        tags=frozenset({*(row.tags - {OpTags.VIEW, OpTags.MAYBE_VIEW}), OpTags.IN_PLACE}),
        module="ltorch",
    )
    _add(twin, spelling)
