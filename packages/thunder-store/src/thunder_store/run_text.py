"""The text of a program that runs, with the objects that it names: kept, checked, and run again.

The text is the one that thunder generates. Before it is compiled in another process, it is checked
(:mod:`~thunder_store.text_checks`). What a name is has one of few forms, and none of them is an arbitrary
function.
"""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch

from thunder.core.entries import (
    BoundSymbol,
    CacheQuery,
    OperatorName,
    Symbol,
    bind_paths,
    callee_of,
    compile_text,
)
from thunder.core.entries import (
    operator_name as name_of,
)
from thunder_store.descriptions import name_of as name_of_object
from thunder_store.descriptions import named
from thunder_store.reasons import NotKept, NotUsed
from thunder_store.text_checks import MODULES, check_text, may_be_called

__all__ = ["read_program", "write_program"]

#: writes or reads an object that is not an operator: (object or JSON) → JSON or object
Refer = Callable[[Any], Any]


def write_program(fn: Any, calls: Iterable[BoundSymbol], refer: Refer) -> dict[str, Any]:
    """Return the text of a generated function and its table of names.

    ``calls`` are those of its trace. Raises NotKept for an object or a statement of another form.
    """
    fn = _innermost(fn)
    calls = list(calls)
    file, code = fn.__code__.co_filename, fn.__code__
    text = "".join(linecache.getlines(file))
    if not text or code.co_filename != file:
        raise NotKept("replaced", f"{fn.__name__} has no text")
    operators = _operators(calls)
    names = {
        name: _name_form(value, operators, refer)
        for name, value in fn.__globals__.items()
        if name not in _IMPLICIT
    }
    paths = {callee: form for callee, form in _paths(calls).items() if _printed(callee) in text}
    program = {"name": fn.__name__, "text": text, "names": names, "paths": paths}
    try:
        check_text(program)
    except NotUsed as reason:
        raise NotKept("statement", str(reason)) from reason
    return program


#: names of a namespace that the text imports, or that thunder adds
_IMPLICIT: Final = frozenset({"__builtins__", "__text_lifetime__", "torch", "Tensor", "no_autocast"})


def _printed(callee: str) -> str:
    """Return how a text has the path of an operator."""
    return callee.removeprefix("torch.") if callee.startswith("torch.Tensor.") else callee


def _innermost(fn: Any) -> Any:
    while True:
        inner = getattr(fn, "__wrapped__", None)
        if inner is None:
            break
        fn = inner
    if not isinstance(fn, types.FunctionType) or not fn.__code__.co_filename.startswith("<thunder."):
        raise NotKept("replaced", f"{fn!r} is not a generated function")
    return fn


def _operators(calls: Iterable[BoundSymbol]) -> dict[int, Symbol]:
    return {id(b.sym.python_impl): b.sym for b in calls if b.sym.python_impl is not None}


def _paths(calls: Iterable[BoundSymbol]) -> dict[str, list[Any]]:
    """Return the dotted path of each operator that is called by one, with how it is found."""
    found: dict[str, list[Any]] = {}
    for symbol in {id(b.sym): b.sym for b in calls if b.sym.call_path is not None}.values():
        name = name_of(symbol, whole=True)
        if name is None:
            if symbol.python_impl is None and symbol.python_printer is None:
                raise NotKept("operator", symbol.name)
            continue
        found[symbol.call_path] = [name.callee, name.id, name.by]
    return found


def _name_form(value: Any, operators: Mapping[int, Symbol], refer: Refer) -> list[Any]:
    symbol = operators.get(id(value))
    if symbol is not None:
        name = name_of(symbol, whole=True)
        if name is not None:
            return ["operator", name.callee, name.id, name.by]
    for context, manager in _CONTEXTS.items():
        if value is manager:
            return ["context", context]
    if _is_helper(value):
        return ["helper", *name_of_object(value)]
    if isinstance(value, types.ModuleType):
        if value.__name__ not in MODULES:
            raise NotKept("statement", f"the module {value.__name__}")
        return ["module", value.__name__]
    form = refer(value)
    if _is_function(value) and not may_be_called(form):
        text = getattr(value, "__qualname__", type(value).__qualname__)
        raise NotKept("statement", f"the program has the function {text}")
    return ["value", form]


def _is_function(value: Any) -> bool:
    """Return whether a value may be called by what receives it: no class, no module of torch."""
    return callable(value) and not isinstance(value, type | CacheQuery | torch.nn.Module)


#: functions of thunder, and a class, that texts call beside operators; none of them calls what it is passed
_HELPERS: Final[Mapping[str, frozenset[str]]] = {
    "torch": frozenset({"Size"}),
    "thunder.passes.runtime_checks": frozenset({"_check_result"}),
    "thunder.base.held_output": frozenset({"show"}),
    "thunder.frontend.epilogue.reconstruction": frozenset({"make_instance"}),
    "thunder.frontend.objects.object_entry": frozenset({"discard_attribute"}),
    "thunder.frontend.objects.shadow_copies": frozenset({"put_items"}),
    "thunder.frontend.natives.decimal_context": frozenset({"update_context"}),
    "thunder.frontend.output.output_replay": frozenset(
        {"filters_changed", "flush", "print_text", "print_to", "write_to"}
    ),
}


def _is_helper(value: Any) -> bool:
    """Return whether a value is one of the functions of the table."""
    module, name = name_of_object(value) if callable(value) else ("", "")
    return name in _HELPERS.get(module, ()) and named(module, name) is value


def read_program(program: Mapping[str, Any], refer: Refer) -> Callable[..., Any]:
    """Return the function of a kept text; raise NotUsed for a text that is not one of a program."""
    check_text(program)
    namespace: dict[str, Any] = {}
    for name, form in program["names"].items():
        namespace[name] = _object(form, refer)
    targets = {}
    for callee, form in program["paths"].items():
        target = _symbol(form).call_target
        if target is not None:
            targets[callee] = target
    try:
        code = compile_text(program["text"], f"thunder.{program['name']}", namespace)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise NotUsed(f"a text is not Python: {error}") from error
    bind_paths(namespace, code, targets)
    return namespace.pop(program["name"])  # type: ignore[no-any-return]


def _symbol(form: Any) -> Symbol:
    callee, identifier, by = form
    symbol = OperatorName(callee, identifier, by).symbol
    if symbol is None or callee_of(symbol) not in (callee, symbol.name):
        raise NotUsed(f"{callee} is not an operator here")
    return symbol


def _object(form: Any, refer: Refer) -> Any:
    kind, *rest = form
    if kind == "operator":
        implementation = _symbol(rest).python_impl
        if implementation is None:
            raise NotUsed(f"the operator {rest[0]} does not run here")
        return implementation
    if kind == "context":
        if rest[0] not in _CONTEXTS:
            raise NotUsed(f"{rest[0]!r} is not a context of statements")
        return _CONTEXTS[rest[0]]
    if kind == "helper":
        value = named(*rest)
        if not _is_helper(value):
            raise NotUsed(f"{rest} is not a function of thunder")
        return value
    if kind == "module":
        if rest[0] not in MODULES or rest[0] not in sys.modules:
            raise NotUsed(f"the module {rest[0]} is not one that programs name")
        return sys.modules[rest[0]]
    if kind == "value":
        value = refer(rest[0])
        if _is_function(value) and not may_be_called(rest[0]):
            raise NotUsed("a function is among the values of a program")
        return value
    raise NotUsed(f"{kind!r} is not a kind of names")


#: what statements run in
_CONTEXTS: Final = {
    "below autograd": torch._C._AutoDispatchBelowADInplaceOrView,
    "enable grad": torch.enable_grad,
    "no grad": torch.no_grad,
}
