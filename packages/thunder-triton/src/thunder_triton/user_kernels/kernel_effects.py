"""Finds in the source of a kernel which arguments it reads and writes: Note [Written arguments].

Note [Written arguments]
A pointer that a kernel writes to is computed from its parameters. For each variable the parameters are
collected from which it may be computed, in any branch and in any order; what `tl.load` returns is computed
from none. A store writes to the parameters of its pointer:

    ptrs = out_ptr + tl.arange(0, 16) * stride        ptrs: out_ptr, stride
    x = tl.load(x_ptr + tl.load(index_ptr))           x: nothing
    tl.store(ptrs, x)                                 writes to out_ptr, or to stride

Of these, the tensors of a launch count. A function of Triton is known by its object, a `triton.jit` function
by its own source; any other call may write to all its arguments. So too many parameters may be found, and too
few only for a pointer that is no argument: that is a store without a tensor, which a launch refuses.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .language import Known, is_jitted, known_function, known_method

__all__ = ["KernelEffects", "effects_of"]

Names = frozenset[str]
_NONE: Names = frozenset()
#: what a value is computed from that is a type of pointers
_POINTER_TYPE = "*"


@dataclass(eq=False)
class KernelEffects:
    """The parameters of a kernel, with what its source does to them.

    Attributes:
        parameters: their names.
        constexprs: the names of those that are constants of the compiled kernel.
        stores: for each store, the names of the parameters from which its pointer is computed.
        pointers: for each number that becomes a pointer, the parameters from which it is computed, and those
            of which one must be a tensor for the number to become one; none if it becomes one anyway.
        passed_on: the parameters that code may write to which is not known.
        returned: the parameters from which its results are computed.
        is_known: whether its source was found and understood; else all tensors are taken to be written.
    """

    parameters: tuple[str, ...]
    constexprs: tuple[str, ...]
    stores: tuple[tuple[str, ...], ...] = ()
    pointers: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    passed_on: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    is_known: bool = True
    #: what was read: namespaces with a name and its value, objects with an attribute and its value
    reads: list[tuple[Any, str, Any]] = field(default_factory=list, repr=False)

    def is_current(self) -> bool:
        """Return whether the source, and the functions that it names, are still those that were read."""
        return all(_value_at(owner, name) is value for owner, name, value in self.reads)


_MISSING = object()
#: by the id of a kernel: the kernel, which is held so that the id stays its own, and its effects
_known: dict[int, tuple[Any, KernelEffects]] = {}


def effects_of(kernel: Any) -> KernelEffects:
    """Return what a `triton.jit` function does to its arguments: one object, until its source changes."""
    entry = _known.get(id(kernel))
    if entry is None or not entry[1].is_current():
        entry = _known[id(kernel)] = kernel, _derived(kernel, ())
    return entry[1]


def _value_at(owner: Any, name: str) -> Any:
    if isinstance(owner, dict):
        return owner.get(name, _MISSING)
    return getattr(owner, name, _MISSING)


class _Unknown(Exception):
    """Raised for a kernel whose source is not there, or that has what kernels do not have."""


def _derived(kernel: Any, callers: tuple[Any, ...]) -> KernelEffects:
    parameters = tuple(inspect.signature(kernel.fn).parameters)
    reads = [(kernel, "fn", kernel.fn), (kernel.fn, "__code__", kernel.fn.__code__)]
    if hasattr(kernel, "_src"):
        reads.append((kernel, "_src", kernel._src))
    effects = KernelEffects(parameters, _constexprs(kernel.fn), reads=reads)
    try:
        if any(kernel is caller for caller in callers):
            raise _Unknown
        _Body(effects, _definition(kernel), _Scope(kernel.fn, reads), (*callers, kernel)).run()
    except _Unknown:
        effects.is_known, effects.passed_on = False, parameters
    return effects


def _constexprs(fn: types.FunctionType) -> tuple[str, ...]:
    """Return the parameters that are annotated as constants: `tl.constexpr`, or its name."""
    return tuple(name for name, kind in fn.__annotations__.items() if "constexpr" in str(kind))


def _definition(kernel: Any) -> ast.FunctionDef:
    """Return the tree of a kernel's source. Raises _Unknown if there is none."""
    source = getattr(kernel, "_src", None)
    try:
        source = source if isinstance(source, str) else "".join(inspect.getsourcelines(kernel.fn)[0])
        tree = ast.parse(textwrap.dedent(source))
    except (OSError, TypeError, SyntaxError) as error:
        raise _Unknown from error
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == kernel.fn.__name__:
            return statement
    raise _Unknown


class _Scope:
    """The variables that the source of a function names and does not assign."""

    def __init__(self, fn: types.FunctionType, reads: list[tuple[Any, str, Any]]) -> None:
        self._reads = reads
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        self._cells = {name: cell for name, cell in cells if cell != types.CellType()}
        builtin: Any = fn.__globals__.get("__builtins__", {})
        self._spaces = (fn.__globals__, builtin if isinstance(builtin, dict) else vars(builtin))

    def value(self, node: ast.expr) -> Any:
        """Return the object that a name, or a path from one through modules and classes, stands for."""
        if isinstance(node, ast.Name):
            if node.id in self._cells:
                cell = self._cells[node.id]
                self._reads.append((cell, "cell_contents", cell.cell_contents))
                return cell.cell_contents
            for space in self._spaces:
                self._reads.append((space, node.id, space.get(node.id, _MISSING)))
                if node.id in space:
                    return space[node.id]
        elif isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if isinstance(owner, types.ModuleType | type):
                value = getattr(owner, node.attr, _MISSING)
                if not getattr(owner, "__name__", "").startswith("triton."):  # its interpreter changes them
                    self._reads.append((owner, node.attr, value))
                return value
        return _MISSING


class _Body:
    """A walk over the body of a function, again until no variable gains a parameter."""

    def __init__(
        self, effects: KernelEffects, definition: ast.FunctionDef, scope: _Scope, callers: tuple[Any, ...]
    ) -> None:
        self.effects, self.definition, self.scope, self.callers = effects, definition, scope, callers
        self.values: dict[str, Names] = {name: frozenset({name}) for name in effects.parameters}
        self.stores: set[Names] = set()
        self.pointers: set[tuple[Names, Names]] = set()
        self.passed_on: Names = _NONE
        self.returned: Names = _NONE
        for node in ast.walk(definition):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.values.setdefault(node.id, _NONE)

    def run(self) -> None:
        """Enter what the body does in the effects. Raises _Unknown."""
        while True:
            before = dict(self.values)
            for statement in self.definition.body:
                self.statement(statement)
            if before == self.values:
                break
        effects = self.effects
        effects.stores = tuple(sorted({tuple(sorted(names)) for names in self.stores}))
        pairs = {(tuple(sorted(names)), tuple(sorted(if_any))) for names, if_any in self.pointers}
        effects.pointers = tuple(sorted(pairs))
        effects.passed_on, effects.returned = tuple(sorted(self.passed_on)), tuple(sorted(self.returned))

    # -- statements ------------------------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        """Enter what a statement does."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.assign(target, value)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.assign(target, value)
            case ast.AugAssign(target=target, value=value):
                self.add(target, self.value(value))
            case ast.For(target=target, iter=iterated, body=body, orelse=orelse):
                self.add(target, self.value(iterated))
                self.statements(body, orelse)
            case ast.If(test=test, body=body, orelse=orelse) | ast.While(test=test, body=body, orelse=orelse):
                self.value(test)
                self.statements(body, orelse)
            case ast.With(items=items, body=body):
                for item in items:
                    held = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.add(item.optional_vars, held)
                self.statements(body)
            case ast.Return(value=value):
                if value is not None:
                    self.returned |= self.value(value)
            case ast.Expr(value=value):
                self.value(value)
            case ast.Assert(test=test):
                self.value(test)
            case ast.Pass() | ast.Break() | ast.Continue():
                pass
            case _:
                raise _Unknown

    def statements(self, *bodies: list[ast.stmt]) -> None:
        """Enter what blocks do."""
        for body in bodies:
            for statement in body:
                self.statement(statement)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Enter an assignment, of each item of a tuple by itself."""
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
            and not any(isinstance(item, ast.Starred) for item in (*target.elts, *value.elts))
        ):
            for part, item in zip(target.elts, value.elts, strict=True):
                self.assign(part, item)
        else:
            self.add(target, self.value(value))

    def add(self, target: ast.expr, names: Names) -> None:
        """Enter that a target may be computed from these parameters too."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.values[node.id] = self.values.get(node.id, _NONE) | names

    # -- expressions -----------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Names:
        """Return the parameters from which an expression is computed, and enter what it does."""
        match node:
            case ast.Constant():
                return _NONE
            case ast.Name(id=name):
                if name in self.values:
                    return self.values[name]
                return self._of_object(self.scope.value(node))
            case ast.Attribute(value=owner, attr=attribute):
                names = self.value(owner)
                if attribute in ("dtype", "type"):
                    return self._of_types(names)
                return _NONE if attribute in _OF_TYPES else names or self._of_object(self.scope.value(node))
            case ast.Call():
                return self.call(node)
            case ast.NamedExpr(target=target, value=value):
                names = self.value(value)
                self.add(target, names)
                return names
            case ast.Lambda() | ast.Await() | ast.Yield() | ast.YieldFrom():
                raise _Unknown
            case ast.ListComp(generators=generators) | ast.GeneratorExp(generators=generators):
                for generator in generators:
                    self.add(generator.target, self.value(generator.iter))
        return _NONE.union(*(self.value(child) for child in _expressions(node)))

    def _of_object(self, obj: Any) -> Names:
        return frozenset({_POINTER_TYPE}) if known_function(obj) is Known.POINTER_TYPE else _NONE

    def _of_types(self, names: Names) -> Names:
        """Return what the type of a value is computed from: that of a pointer is a type of pointers."""
        return frozenset(f"{_POINTER_TYPE}{name}" for name in names if not name.startswith(_POINTER_TYPE))

    def call(self, node: ast.Call) -> Names:
        """Enter what a call does, and return the parameters from which its result is computed."""
        arguments = [self.value(a) for a in (*node.args, *(k.value for k in node.keywords))]
        everything = _NONE.union(*arguments)
        root = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        is_local = not isinstance(root, ast.Name) or root.id in self.values
        if is_local and isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            kind, pointer = known_method(node.func.attr), owner
            everything |= owner
        elif is_local:
            kind, pointer = Known.NOTHING, self.value(node.func)
        else:
            function = self.scope.value(node.func)
            if is_jitted(function):
                return self._call_of_function(function, node)
            kind = known_function(function)
            pointer = self._first(node, arguments)
        return self._result(kind, pointer, everything)

    def _first(self, node: ast.Call, arguments: list[Names]) -> Names:
        """Return the names of the pointer: the first argument, or the one of that name; else of all."""
        if node.args and not isinstance(node.args[0], ast.Starred):
            return arguments[0]
        names = [keyword.arg for keyword in node.keywords]
        for name in ("pointer", "desc"):
            if name in names and not node.args:
                return arguments[names.index(name)]
        return _NONE.union(*arguments)

    def _result(self, kind: Known, pointer: Names, everything: Names) -> Names:
        types = frozenset(name for name in everything if name.startswith(_POINTER_TYPE))
        values = everything - types
        if types and kind is not Known.POINTER_TYPE:  # a cast to a pointer
            explicit = _POINTER_TYPE in types
            self.pointers.add((values, _NONE if explicit else frozenset(name[1:] for name in types)))
        match kind:
            case Known.STORE:
                self.stores.add(pointer - types)
                return _NONE
            case Known.LOAD:
                return _NONE
            case Known.POINTER_TYPE:
                return frozenset({_POINTER_TYPE})
            case Known.NOTHING:
                self.passed_on |= values
        return values

    def _call_of_function(self, function: Any, node: ast.Call) -> Names:
        """Enter what a call of a `triton.jit` function does."""
        callee = _derived(function, self.callers)
        self.effects.reads.extend(callee.reads)
        given: dict[str, Names] = dict.fromkeys(callee.parameters, _NONE)
        for i, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                given = dict.fromkeys(given, _NONE.union(*map(self.value, node.args)))
                break
            if i < len(callee.parameters):
                given[callee.parameters[i]] |= self.value(argument)
        for keyword in node.keywords:
            for name in given if keyword.arg is None else (keyword.arg,):
                given[name] = given.get(name, _NONE) | self.value(keyword.value)

        def names_of(parameters: tuple[str, ...]) -> Names:
            return _NONE.union(*(given[name] for name in parameters))

        self.stores.update(names_of(store) for store in callee.stores)
        for value, if_any in callee.pointers:
            if not if_any or names_of(if_any):
                self.pointers.add((names_of(value), names_of(if_any)))
        self.passed_on |= names_of(callee.passed_on)
        return names_of(callee.parameters if not callee.is_known else callee.returned)


#: attributes of values that are no pointers, whatever the value is
_OF_TYPES = frozenset({"element_ty", "numel", "primitive_bitwidth", "shape"})


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif not isinstance(child, ast.expr_context | ast.operator | ast.unaryop | ast.cmpop | ast.boolop):
            yield from _expressions(child)
