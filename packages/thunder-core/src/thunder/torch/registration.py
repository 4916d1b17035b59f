"""Registration of the torch language: rows, and the torch functions that they implement.

A row's parameters have torch's names, order and defaults, so that ``eager(*args, **kwargs)`` of a normalised
call is the user's call. Where a signature cannot express this (``x.view(2, 3)``, overloads), the row has a
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
from typing import Any

import torch

from thunder.base.attribute_paths import find_torch
from thunder.base.errors import OperatorError, RegistrationError
from thunder.base.extension_origin import is_of_core
from thunder.base.langctx import TORCH
from thunder.base.tags import VIEW_TAGS, OpTags
from thunder.ir.symbol import Symbol
from thunder.ops.in_place import InPlaceForm, whole
from thunder.ops.operator import Operator, register
from thunder.ops.same_operators import declare_spelling
from thunder.torch.argument_binding import Spelling
from thunder.torch.inplace import write_back
from thunder.torch.torch_symbol import TorchSymbol, with_torch_errors

Fn = Callable[..., Any]

#: name → symbol, for ``thunder.torch.<name>``
SYMBOLS: dict[str, Symbol] = {}


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
    other_forms: Fn | None = None,
    tags: Iterable[Any] = (),
    **facts: Any,
) -> Callable[[Fn], Symbol]:
    """Register the decorated decomposition or (``prim``) meta function; return its symbol.

    ``names`` are torch's functions, as dotted paths (``"torch.nn.functional.linear"``) or callables; those
    that this torch lacks are skipped. ``methods`` and ``properties`` are attributes of ``torch.Tensor``. The
    id is the first name. ``eager`` is the function with the row's id unless it is passed.
    ``other_forms`` returns the result of a call that means other operators, or NotImplemented. ``facts`` are
    further fields of :class:`~thunder.ops.operator.Operator`, such as ``vjp``.

    ``inplace`` names in-place methods whose row is derived from this one: the first is its id, the others
    (``__iadd__``) are aliases; ``inplace_functions`` are functions among them (``torch.relu_``).

    Raises RegistrationError if an id or a callable has a row already.
    """
    paths = [name if isinstance(name, str) else torch.overrides.resolve_name(name) for name in names]

    def decorate(fn: Fn) -> Symbol:
        method_names = [*methods, *([fn.__name__] if is_method else ())]
        all_paths = [*filter(None, paths), *_tensor_paths(method_names, properties)]
        row_id = id or (all_paths[0] if all_paths else f"{fn.__module__}.{fn.__qualname__}")
        functions = [c for c in (find_torch(path) for path in all_paths) if c is not None]
        functions += [c for c, path in zip(names, paths, strict=True) if callable(c) and path is None]
        row = Operator(
            id=row_id,
            torch=tuple(functions),
            eager=eager or find_torch(row_id),
            eager_path=eager_path,
            tags=frozenset(tags),
            module="ltorch",
            meta=fn if prim else None,
            decomposition=None if prim else fn,
            **facts,
        )
        symbol = _add(row, spelling, other_forms)
        if inplace:
            _add_inplace(symbol, tuple(inplace), tuple(inplace_functions), spelling, row)
        return symbol

    return decorate


def method_and_inplace(name: str, form: Callable[[Fn], InPlaceForm] = whole) -> dict[str, Any]:
    """Return the facts of a function with a method, and an in-place method whose form this is."""
    in_place = form(getattr(torch.Tensor, f"{name}_"))
    return {"methods": (name,), "inplace": (f"{name}_",), "in_place": in_place}


def torch_names(
    *names: str, methods: Iterable[str] = (), properties: Iterable[str] = ()
) -> Callable[[Fn], Fn]:
    """Let torch functions (methods, property getters) mean a symbol, or a function of symbols.

    For aliases, and for functions that eager too composes in Python (``2 / x`` is ``x.reciprocal() * 2``).
    Names that this torch lacks are skipped.
    """
    paths = [*names, *_tensor_paths(methods, properties)]

    def decorate(meaning: Fn) -> Fn:
        torch_functions: dict[Any, Fn] = {}  # torch has one function under two names
        for path in paths:
            fn = find_torch(path)
            if fn is not None:
                if fn not in torch_functions:
                    is_symbol = isinstance(meaning, Symbol)
                    torch_functions[fn] = meaning if is_symbol else with_torch_errors(path, fn, meaning)
                    _register_in_language(fn, torch_functions[fn])
                SYMBOLS.setdefault(path.removesuffix(".__get__").rpartition(".")[2], meaning)  # type: ignore[arg-type]
        return meaning

    return decorate


def spelling_of(symbol: Symbol, *names: str) -> Callable[[Fn], Fn]:
    """Let torch functions with other arguments than the row's call an operator.

    The decorated function has their signature, and returns the row's ``(args, kwargs)``.
    """

    def decorate(to_row: Fn) -> Fn:
        @functools.wraps(to_row)
        def call(*args: Any, **kwargs: Any) -> Any:
            row_args, row_kwargs = to_row(*args, **kwargs)
            return symbol(*row_args, **row_kwargs)

        for function in filter(None, map(find_torch, names)):
            declare_spelling(function, symbol, to_row)
        torch_names(*names)(call)
        return to_row

    return decorate


def alias(meaning: Fn, *names: str, methods: Iterable[str] = (), properties: Iterable[str] = ()) -> None:
    """Apply :func:`torch_names`: ``alias(abs, "torch.absolute", methods=("absolute",))``."""
    torch_names(*names, methods=methods, properties=properties)(meaning)


def _tensor_paths(methods: Iterable[str], properties: Iterable[str]) -> list[str]:
    return [*(f"torch.Tensor.{m}" for m in methods), *(f"torch.Tensor.{p}.__get__" for p in properties)]


def _add(row: Operator, spelling: Spelling | None, other_forms: Fn | None = None) -> Symbol:
    # core's rows are in the table of autocast rules by their ids
    sources = () if is_of_core(row.meta or row.decomposition) else row.torch
    symbol = register(
        row,
        make_symbol=TorchSymbol,
        spelling=spelling,
        eager=row.eager,
        other_forms=other_forms,
        autocast_sources=sources,
    )
    for fn in row.torch:
        _register_in_language(fn, symbol)
    if not isinstance(SYMBOLS.get(symbol.name), Symbol):  # a row comes before an alias of the same name
        SYMBOLS[symbol.name] = symbol
    return symbol


def _register_in_language(fn: Any, meaning: Fn) -> None:
    registered = TORCH.functions.setdefault(fn, meaning)
    if registered is not meaning:
        raise RegistrationError(
            f"{torch.overrides.resolve_name(fn) or fn} is taken",
            found={"row": repr(registered)},
            hint="One row per torch function.",
        )


def _add_inplace(
    symbol: Symbol,
    methods: tuple[str, ...],
    functions: tuple[str, ...],
    spelling: Spelling | None,
    row: Operator,
) -> None:
    """Add the in-place variant ``x.add_(y)``: the functional operator, a cast, and a write."""

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        value = symbol(*args, **kwargs)
        if args[0].dtype.is_complex and value.dtype.is_floating_point:  # only abs
            raise OperatorError(f"In-place {symbol.name} is not supported for complex tensors.")
        return write_back(value, args[0])

    assert symbol.meta is not None, f"{symbol.id} has a meta function or a decomposition"
    decomposition.__signature__ = inspect.signature(symbol.meta)  # type: ignore[attr-defined]
    decomposition.__module__ = symbol.meta.__module__
    paths = [*(f"torch.Tensor.{m}" for m in methods), *functions]
    torch_functions = [fn for fn in map(find_torch, paths) if fn is not None]
    if not torch_functions:
        return
    inplace_row = Operator(
        id=paths[0],
        torch=tuple(dict.fromkeys(torch_functions)),
        eager=torch_functions[0],
        decomposition=decomposition,
        tags=frozenset({*(row.tags - VIEW_TAGS), OpTags.IN_PLACE}),
        module="ltorch",
    )
    _add(inplace_row, spelling)
