"""The text of a program that runs, with the objects that it names: kept, checked, and run again.

The text is the one that thunder generates. Before it is compiled in another process, each node of its syntax
tree is looked at: statements assign results of calls, calls are of operators that are registered here, of
torch's literals, or of names in the table. What a name is has one of few forms, and none of them is an
arbitrary function.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch

from thunder.core import dtypes
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
        _Checker(program).check()
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
        name = name_of(symbol)
        if name is None:
            if symbol.python_impl is None and symbol.python_printer is None:
                raise NotKept("operator", symbol.name)
            continue
        found[symbol.call_path] = _operator_form(name, symbol)
    return found


def _operator_form(name: OperatorName, symbol: Symbol) -> list[Any]:
    """Return how an operator is found; with the executor that runs it, so that no other one is imported."""
    by = name.by or getattr(symbol.executor, "name", None)
    return [name.callee, name.id, by]


def _name_form(value: Any, operators: Mapping[int, Symbol], refer: Refer) -> list[Any]:
    symbol = operators.get(id(value))
    if symbol is not None:
        name = name_of(symbol)
        if name is not None:
            return ["operator", *_operator_form(name, symbol)]
    for context, manager in _CONTEXTS.items():
        if value is manager:
            return ["context", context]
    if _is_helper(value):
        return ["helper", *name_of_object(value)]
    if isinstance(value, types.ModuleType):
        if value.__name__ not in _MODULES:
            raise NotKept("statement", f"the module {value.__name__}")
        return ["module", value.__name__]
    form = refer(value)
    if _is_function(value) and not _may_be_called(form):
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
    tree = _Checker(program).check()
    namespace: dict[str, Any] = {}
    for name, form in program["names"].items():
        namespace[name] = _object(form, refer)
    targets = {}
    for callee, form in program["paths"].items():
        target = _symbol(form).call_target
        if target is not None:
            targets[callee] = target
    code = compile_text(program["text"], f"thunder.{program['name']}", namespace, tree)
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
        if rest[0] not in _MODULES or rest[0] not in sys.modules:
            raise NotUsed(f"the module {rest[0]} is not one that programs name")
        return sys.modules[rest[0]]
    if kind == "value":
        value = refer(rest[0])
        if _is_function(value) and not _may_be_called(rest[0]):
            raise NotUsed("a function is among the values of a program")
        return value
    raise NotUsed(f"{kind!r} is not a kind of names")


#: what statements run in
_CONTEXTS: Final = {
    "below autograd": torch._C._AutoDispatchBelowADInplaceOrView,
    "enable grad": torch.enable_grad,
    "no grad": torch.no_grad,
}
#: modules of thunder whose literals are arguments of operators, by their names in texts
_OF_LITERALS: Final = {"devices": "thunder.base.devices", "dtypes": "thunder.base.dtypes"}
#: modules that texts name, beside torch's
_MODULES: Final = frozenset({"math", "operator", *_OF_LITERALS.values()})
#: callees that make literals
_LITERALS: Final = frozenset(
    {"torch.device", "torch.Size", "slice", "float", "complex", "set", "frozenset", "range", "bytes"}
)
#: methods that epilogues call of the containers of a program, and of tensors that require grad
_METHODS: Final = frozenset(
    {"extend", "append", "insert", "pop", "clear", "update", "move_to_end", "popleft", "add", "discard"}
    | {
        "appendleft",
        "extendleft",
        "remove",
        "requires_grad_",
        "repeat",
    }
)
#: methods that are called as those of a class of Python, and these classes
_OF_CLASSES: Final[Mapping[str, frozenset[str]]] = {
    "__new__": frozenset({"tuple", "object"}),
    "__setattr__": frozenset({"object", "type"}),
    "__delattr__": frozenset({"object", "type"}),
}
#: names of Python that texts read
_BUILTINS: Final = frozenset(
    {"tuple", "list", "dict", "set", "frozenset", "object", "type", "float", "complex", "slice", "range"}
    | {"bytes", "torch", "Tensor", "no_autocast"}
)
_CALLABLE: Final = frozenset({"operator", "helper", "context", "value"})
_STATEMENTS: Final = (ast.Assign, ast.Expr, ast.Delete, ast.Return, ast.With, ast.Pass)
#: the statements and the expressions that texts have, beside names, constants, calls and attributes → what is
#: in them
_PARTS: Final[Mapping[type, Callable[[Any], Iterable[Any]]]] = {
    ast.Assign: lambda x: (*x.targets, x.value),
    ast.Expr: lambda x: (x.value,),
    ast.Delete: lambda x: x.targets,
    ast.Return: lambda x: (x.value,),
    ast.Pass: lambda x: (),
    ast.Tuple: lambda x: x.elts,
    ast.List: lambda x: x.elts,
    ast.Set: lambda x: x.elts,
    ast.Dict: lambda x: (*x.keys, *x.values),
    ast.UnaryOp: lambda x: (x.operand,),
    ast.BinOp: lambda x: (x.left, x.right),
    ast.Compare: lambda x: (x.left, *x.comparators),
    ast.Subscript: lambda x: (x.value, x.slice),
    ast.Starred: lambda x: (x.value,),
    ast.Slice: lambda x: (x.lower, x.upper, x.step),
}
_DTYPES: Final = vars(dtypes)
_IMPORTS_OF_LITERALS: Final = {f"import thunder.core.{name} as {name}" for name in _OF_LITERALS}
_IMPORTS: Final = {"import torch", "from thunder.executors.torchex import no_autocast"}


class _Checker:
    """Checks that a text is a program of calls of operators."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        self.program, self.names = program, program["names"]
        self.paths = program["paths"]
        #: the names that have a value where the next statement runs
        self.known = set(self.names) | _BUILTINS
        self._stored: list[str] = []

    def check(self) -> ast.Module:
        """Return the syntax tree of the text; raise NotUsed for one that is not a program."""
        try:
            module: ast.Module = ast.parse(self.program["text"])
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise NotUsed(f"a text is not Python: {error}") from error
        *imports, definition = module.body
        for line in imports:
            self._check_import(line)
        if type(definition) is not ast.FunctionDef or definition.name != self.program["name"]:
            raise NotUsed("a text does not define its function")
        for decorator in definition.decorator_list:
            if ast.unparse(decorator) not in ("torch.no_grad()", "no_autocast"):
                raise NotUsed(f"the decorator {ast.unparse(decorator)}")
        arguments = definition.args
        if arguments.defaults or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
            raise NotUsed("parameters with defaults")
        if any(a.annotation for a in arguments.args) or definition.returns is not None:
            raise NotUsed("an annotation")
        for argument in arguments.args:
            self._bind(argument.arg)
        for statement in definition.body:
            self._check_statement(statement)
        return module

    def _check_import(self, line: ast.stmt) -> None:
        text = ast.unparse(line)
        module = text.removeprefix("import ")
        is_of_torch = type(line) is ast.Import and module.startswith("torch.") and module in _TORCH
        is_known = type(line) is ast.Import and (module in _MODULES or text in _IMPORTS_OF_LITERALS)
        if text not in _IMPORTS and not is_of_torch and not is_known and text != "from torch import Tensor":
            raise NotUsed(f"the line {text!r}")

    def _check_statement(self, statement: ast.stmt) -> None:
        if type(statement) not in _STATEMENTS:
            raise NotUsed(f"the statement {ast.unparse(statement)!r}")
        if type(statement) is ast.With:
            for item in statement.items:
                self._check_expression(item.context_expr)
                if item.optional_vars is not None:
                    raise NotUsed("a name of a context")
            for inner in statement.body:
                self._check_statement(inner)
            return
        self._check_all(_PARTS[type(statement)](statement))
        for name in self._stored:
            self._bind(name)
        self._stored.clear()

    def _bind(self, name: str) -> None:
        """Enter a variable; its name is none of those that texts call."""
        if name in self.names or name in _BUILTINS:
            raise NotUsed(f"{name} is assigned")
        self.known.add(name)

    def _check_all(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            if node is not None:  # a bound of a slice, the key of what a dictionary unpacks
                self._check_expression(node)

    def _check_expression(self, node: Any) -> None:
        kind = type(node)
        if kind is ast.Constant:
            return
        if kind is ast.Name:
            if type(node.ctx) is ast.Store:
                self._stored.append(node.id)
            elif node.id not in self.known:
                raise NotUsed(f"the name {node.id}")
        elif kind is ast.Call:
            self._check_callee(node.func)
            self._check_all(node.args)
            self._check_all(keyword.value for keyword in node.keywords)
        elif kind is ast.Attribute:
            self._check_attribute(node)
        elif kind in _PARTS:
            self._check_all(_PARTS[kind](node))
        else:
            raise NotUsed(f"the expression {ast.unparse(node)!r}")

    def _check_callee(self, callee: ast.expr) -> None:
        text = _dotted(callee)
        if text in self.paths or f"torch.{text}" in self.paths or text in _LITERALS:
            return
        if text == "devices.Device" and self._is_of_literals("devices"):
            return
        if type(callee) is ast.Name and self.names.get(callee.id, [""])[0] in _CALLABLE:
            if self.names[callee.id][0] == "value" and not _may_be_called(self.names[callee.id][1]):
                raise NotUsed(f"a call of {callee.id}")
            return
        if type(callee) is ast.Attribute and callee.attr in _OF_CLASSES:
            if type(callee.value) is ast.Name and callee.value.id in _OF_CLASSES[callee.attr]:
                return
        elif type(callee) is ast.Attribute and callee.attr in _METHODS:
            self._check_expression(callee.value)
            return
        raise NotUsed(f"a call of {text}")

    def _is_of_literals(self, name: str) -> bool:
        """Return whether a name is that of a module of thunder with literals."""
        return bool(self.names.get(name) == ["module", _OF_LITERALS[name]])

    def _check_attribute(self, node: ast.Attribute) -> None:
        text = _dotted(node)
        if text.startswith("torch.") and text.count(".") == 1:
            value = vars(torch).get(text.removeprefix("torch."))
            if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
                return
        module, _, name = text.rpartition(".")
        if (
            module == "dtypes"
            and self._is_of_literals(module)
            and isinstance(_DTYPES.get(name), dtypes.dtype)
        ):
            return
        if type(node.ctx) is ast.Store and node.attr.isidentifier() and not node.attr.startswith("__"):
            self._check_expression(node.value)
            return
        if node.attr in ("__dict__", "cell_contents", "_buffers", "_parameters", "__closure__"):
            self._check_expression(node.value)
            return
        raise NotUsed(f"the attribute {text}")


def _dotted(node: ast.expr) -> str:
    """Return the text of a dotted name, or of another expression."""
    parts: list[str] = []
    inner = node
    while type(inner) is ast.Attribute:
        parts.append(inner.attr)
        inner = inner.value
    return ".".join((inner.id, *reversed(parts))) if type(inner) is ast.Name else ast.unparse(node)


def _may_be_called(form: Any) -> bool:
    """Return whether a name of the table is something that a program calls: a region, a forward, a class."""
    return type(form) is list and form[:1] in (["forward"], ["region"], ["class"])


#: the modules of torch that texts import
_TORCH: Final = frozenset(
    f"torch.{name}" for name in ("nn.functional", "nn", "ops", "special", "linalg", "fft", "nested", "_C._nn")
) | {"torch._C", "torch.backends", "torch.autograd"}
