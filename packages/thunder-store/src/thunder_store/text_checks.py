"""Checks that a text is a program of calls of operators, before it is compiled.

Each node of its syntax is looked at: statements assign results of calls, calls are of operators that are
registered here, of torch's literals, or of names in the table.

A program of many layers has few different lines. Each line of such a text is a statement, or the head of a
``with``; lines that differ in the names of variables alone are looked at once:

    t7 = torch.add(t6, t2)    →    _0_ = torch.add(_1_, _2_), which stores the first name and reads the others
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from thunder.core import dtypes
from thunder_store.reasons import NotUsed

__all__ = ["MODULES", "OF_LITERALS", "check_text", "may_be_called"]


def check_text(program: Mapping[str, Any]) -> None:
    """Raise NotUsed, with the place, for a text that is not a program of calls of operators.

    ``program`` has the ``name`` of the function, the ``text`` that defines it, the table of ``names`` that
    are objects, and the ``paths`` of operators. A text that passes may still be none that Python compiles.
    """
    _Checker(program).check()


#: modules of thunder whose literals are arguments of operators, by their names in texts
OF_LITERALS: Final = {"devices": "thunder.base.devices", "dtypes": "thunder.base.dtypes"}
#: modules that texts name, beside torch's
MODULES: Final = frozenset({"math", "operator", *OF_LITERALS.values()})
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
_IMPORTS_OF_LITERALS: Final = {f"import thunder.core.{name} as {name}" for name in OF_LITERALS}
_IMPORTS: Final = {"import torch", "from thunder.executors.torchex import no_autocast"}
_DECORATORS: Final = frozenset({"@torch.no_grad()", "@no_autocast"})

#: variables by whose names alone lines may differ: none is called, a part of a dotted name or of an escape
_VARIABLE: Final = re.compile(r"""(?<![\w.\\])[A-Za-z_]\w*\d\w*(?![\w'".(])""")
_PLACEHOLDER: Final = re.compile(r"(?<!\w)_\d+_(?!\w)")
#: what Python takes for the end of a line, or for no column at all, beside the line feed; and a comment that
#: would hide the next line, if lines were joined at their backslashes
_OTHER_ENDS: Final = re.compile(r"[\r\f\v\0]|#.*\\\n")


class _Line(NamedTuple):
    """The variables that a line reads and assigns: names, or positions among its variables."""

    reads: tuple[str | int, ...]
    stores: tuple[str | int, ...]


class _Checker:
    def __init__(self, program: Mapping[str, Any]) -> None:
        self.program, self.names = program, program["names"]
        self.paths = program["paths"]
        #: the names that have a value where the next statement runs
        self.known = set(self.names) | _BUILTINS
        self._lines: dict[str, _Line] = {}
        self._read: list[str] = []
        self._stored: list[str] = []

    def check(self) -> None:
        """Check the lines in their order: imports, decorators, the head of the function, statements."""
        text: str = self.program["text"]
        if _OTHER_ENDS.search(text) or any(map(_PLACEHOLDER.search, (text, *self.names, *self.paths))):
            raise NotUsed("a text has lines of another form")
        lines = text.replace("\\\n", " ").split("\n")
        lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        defined = next((i for i, line in enumerate(lines) if line.startswith("def ")), None)
        if defined is None:
            raise NotUsed("a text does not define its function")
        for line in lines[:defined]:
            if not line.startswith("@"):
                self._check_import(_parsed(line))
            elif line not in _DECORATORS:
                raise NotUsed(f"the decorator {line}")
        self._check_head(_parsed(f"{lines[defined]} pass"))
        for line in lines[defined + 1 :]:
            if not line.startswith(" "):
                raise NotUsed(f"the line {line!r}")
            self._check_line(line.strip())

    def _check_import(self, line: ast.stmt) -> None:
        text = ast.unparse(line)
        module = text.removeprefix("import ")
        is_of_torch = type(line) is ast.Import and module.startswith("torch.") and module in _TORCH
        is_known = type(line) is ast.Import and (module in MODULES or text in _IMPORTS_OF_LITERALS)
        if text not in _IMPORTS and not is_of_torch and not is_known and text != "from torch import Tensor":
            raise NotUsed(f"the line {text!r}")

    def _check_head(self, definition: ast.stmt) -> None:
        if type(definition) is not ast.FunctionDef or definition.name != self.program["name"]:
            raise NotUsed("a text does not define its function")
        arguments = definition.args
        if arguments.defaults or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
            raise NotUsed("parameters with defaults")
        if any(a.annotation for a in arguments.args) or definition.returns is not None:
            raise NotUsed("an annotation")
        for argument in (*arguments.posonlyargs, *arguments.args):
            self._bind(argument.arg)

    def _check_line(self, line: str) -> None:
        """Check a statement, and enter the variables that it assigns."""
        variables: list[str] = []

        def placeholder(match: re.Match[str]) -> str:
            variables.append(match[0])
            return f"_{len(variables) - 1}_"

        form = _VARIABLE.sub(placeholder, line)
        found = self._lines.get(form)
        if found is None:
            found = self._lines[form] = self._looked_at(form, variables)
        for place in found.reads:
            name = variables[place] if isinstance(place, int) else place
            if name not in self.known:
                raise NotUsed(f"the name {name}")
        for place in found.stores:
            self._bind(variables[place] if isinstance(place, int) else place)

    def _looked_at(self, form: str, variables: Sequence[str]) -> _Line:
        """Return what a line of a form reads and assigns; raise NotUsed for one that programs do not have."""
        self._read, self._stored = [], []
        try:
            self._check_statement(_parsed(f"{form} pass" if form.startswith("with ") else form))
        except NotUsed as reason:
            shown = _PLACEHOLDER.sub(lambda m: variables[int(m[0].strip("_"))], str(reason))
            raise NotUsed(shown) from reason

        def place(name: str) -> str | int:
            return int(name.strip("_")) if _PLACEHOLDER.fullmatch(name) else name

        return _Line(tuple(map(place, self._read)), tuple(map(place, self._stored)))

    def _check_statement(self, statement: ast.stmt) -> None:
        if type(statement) not in _STATEMENTS:
            raise NotUsed(f"the statement {ast.unparse(statement)!r}")
        if type(statement) is ast.With:
            for item in statement.items:
                self._check_expression(item.context_expr)
                if item.optional_vars is not None:
                    raise NotUsed("a name of a context")
            if [type(inner) for inner in statement.body] != [ast.Pass]:
                raise NotUsed("a statement in the line of its context")
            return
        self._check_all(_PARTS[type(statement)](statement))

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
            (self._stored if type(node.ctx) is ast.Store else self._read).append(node.id)
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
            if self.names[callee.id][0] == "value" and not may_be_called(self.names[callee.id][1]):
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
        return bool(self.names.get(name) == ["module", OF_LITERALS[name]])

    def _is_shared(self, node: ast.expr) -> bool:
        """Return whether a name is that of a builtin, a module or an operator, which nothing changes."""
        if type(node) is not ast.Name:
            return False
        return node.id in _BUILTINS or self.names.get(node.id, ["value"])[0] != "value"

    def _check_attribute(self, node: ast.Attribute) -> None:
        text = _dotted(node)
        if _PLACEHOLDER.search(node.attr):
            raise NotUsed(f"the attribute {text}")
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
        if type(node.ctx) is ast.Store and not node.attr.startswith("__") and not self._is_shared(node.value):
            self._check_expression(node.value)
            return
        if node.attr in ("__dict__", "cell_contents", "_buffers", "_parameters", "__closure__"):
            self._check_expression(node.value)
            return
        raise NotUsed(f"the attribute {text}")


def _parsed(line: str) -> ast.stmt:
    """Return the one statement of a line; raise NotUsed for another text."""
    try:
        statements = ast.parse(line).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotUsed(f"the line {line!r} is not Python: {error}") from error
    if len(statements) != 1:
        raise NotUsed(f"the line {line!r}")
    return statements[0]


def _dotted(node: ast.expr) -> str:
    """Return the text of a dotted name, or of another expression."""
    parts: list[str] = []
    inner = node
    while type(inner) is ast.Attribute:
        parts.append(inner.attr)
        inner = inner.value
    return ".".join((inner.id, *reversed(parts))) if type(inner) is ast.Name else ast.unparse(node)


def may_be_called(form: Any) -> bool:
    """Return whether a name of the table is something that a program calls: a region, a forward, a class."""
    return type(form) is list and form[:1] in (["forward"], ["region"], ["class"])


#: the modules of torch that texts import
_TORCH: Final = frozenset(
    f"torch.{name}" for name in ("nn.functional", "nn", "ops", "special", "linalg", "fft", "nested", "_C._nn")
) | {"torch._C", "torch.backends", "torch.autograd"}
