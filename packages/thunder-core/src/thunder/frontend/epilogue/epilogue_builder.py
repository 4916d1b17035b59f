"""The epilogue: code that repeats the program's writes and builds its result.

The computation returns tensors. Whatever else a call leaves behind (containers around the tensors, writes to
lists, attributes, globals and cells of the user's) is built by the epilogue:

    self.n = self.n + 1; xs.append(y); return {"y": y}   →   def epilogue(y, xs, self):
                                                               xs[:] = [xs[0], y]
                                                               self.n = 3
                                                               return {'y': y}
"""

from __future__ import annotations

import builtins
import enum
import re
import sys
from collections import Counter
from collections.abc import Iterable
from types import CellType, MappingProxyType
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path, comes_with_arguments, is_weak
from thunder.frontend.epilogue.reconstruction import description, is_method_of_container, reconstruction_of
from thunder.frontend.epilogue.statements import statement
from thunder.frontend.epilogue.value_parts import parts_of
from thunder.frontend.host_draws.created_generators import is_created
from thunder.frontend.lookasides.rebound_tensors import ReboundTensors
from thunder.frontend.lookasides.rng_generators import Generators
from thunder.frontend.natives.libraries import is_numpy_scalar
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES, OfTheTrace
from thunder.frontend.objects.container_keys import refuse_moved_keys
from thunder.frontend.objects.unknown_values import MadeInCall
from thunder.frontend.output.deferred_texts import DeferredText, template_of
from thunder.frontend.output.output_replay import formatted
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.made_parameters import MadeParameters
from thunder.interpreter.policy import MISSING
from thunder.ir.object_names import identifier, readable_name
from thunder.ir.proxies import AnyProxy, GeneratorProxy, NumberProxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import detached_trace
from thunder.ir.unmodelled_proxies import UnmodelledObject
from thunder.ops import prims

_PRINTABLE = frozenset({int, bool, str, bytes, type(None), type(...)})


def is_simple(value: Any, seen: set[int], objects: Any) -> bool:
    """Return whether the computation itself can return ``value``.

    It can return new plain containers of tensors and literals, none of them twice.
    """
    if isinstance(value, TensorProxy | NumberProxy) or type(value) in _PRINTABLE:
        return id(value) not in objects.tensor_classes
    if id(value) in seen or type(value) not in (tuple, list, dict) or objects.entry_of(value) is not None:
        return False
    seen.add(id(value))
    if isinstance(value, dict):
        return all(type(k) in _PRINTABLE for k in value) and all(
            is_simple(v, seen, objects) for v in value.values()
        )
    return all(is_simple(v, seen, objects) for v in value)


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


class EpilogueBuilder:
    """Expressions for the program's values, over computed results and objects of the user."""

    def __init__(self, session: TracingSession) -> None:
        self.session, self._rebound = session, session.state(ReboundTensors).inputs
        self.tensors: dict[
            str, TensorProxy | NumberProxy | GeneratorProxy | AnyProxy
        ] = {}  # what the computation must return, by name
        #: the names of parameters that the program has made, by those of their values
        self.parameters: dict[str, str] = {}
        self.objects_fetched: dict[
            int, tuple[str, Path, Any]
        ] = {}  # objects of the user's: id → name, path, object
        self.statements: list[BoundSymbol] = []
        self.built: dict[int, tuple[str, Any]] = {}
        self.uses: Counter[int] = Counter()  # how often a container is referred to, by id
        self.named: dict[str, Any] = {}  # classes and functions that expressions refer to, by name
        self._unfinished: set[int] = set()  # what is being built, by id
        self._referred: dict[int, str] = {}  # the names of classes and functions, by id
        self._taken: set[str] = set()
        self._count = 0

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return self.new_name(f"{prefix}{self._count}")

    def new_name(self, text: str) -> str:
        """Return a name that begins as a text, and that means nothing else in the epilogue."""
        name = base = identifier(text)
        while name in self._taken or name in vars(builtins) or not self.session.trace.is_free(name):
            self._count += 1
            name = f"{base}_{self._count}"
        self._taken.add(name)
        return name

    def emit(self, *lines: str, **objects: Any) -> None:
        """Append a statement."""
        self.statements.append(statement(*lines, **self.named, **objects))

    def pack(self, symbol: Symbol, target: str, key: Any, value: Any, **settings: Any) -> None:
        """Append the statement that writes a value of the program to an object of the user."""
        written = self._argument(value, self.expression(value))
        if symbol is prims.pack_setitem:
            key = self._argument(key, self.expression(key))
        with detached_trace():  # the name is one of the epilogue
            owner = AnyProxy(target)
        self.statements.append(symbol.bind(owner, key, written, output=None, **settings))

    def end(self, result: Any, text: str) -> None:
        """Append the return of the program's result, whose expression is ``text``."""
        self.statements.append(prims.python_return.bind(self._argument(result, text), output=None))

    def _argument(self, value: Any, text: str) -> Any:
        """Return a value as an argument of a statement: itself, or the expression that builds it."""
        is_simple_text = not isinstance(value, TensorProxy) or text == value.name
        if (isinstance(value, TensorProxy | NumberProxy) and is_simple_text) or type(value) in _PRINTABLE:
            return value
        used = set(re.findall(r"\w+", text))
        values = tuple(proxy for name, proxy in self.tensors.items() if name in used)
        return prims.Expression(text, values, MappingProxyType(dict(self.named)))

    def refer(self, value: Any) -> str:
        """Return a name for a class or function that no value of the computation has."""
        built = self._referred.get(id(value))
        if built is None:
            text = readable_name(value)
            is_free = text not in self._taken and self.session.trace.is_free(text)
            is_builtin = is_free and vars(builtins).get(text) is value
            built = self._referred[id(value)] = text if is_builtin else self.new_name(text)
            self.named[built] = value
        return built

    def fetched(self, path: Path, obj: Any) -> str:
        """Return the name of an object of the user in the epilogue."""
        entry = self.objects_fetched.get(id(obj))
        if entry is None:
            entry = self.objects_fetched[id(obj)] = (self.new_name(path.source), path, obj)
        return entry[0]

    def fetched_cell(self, path: Path) -> str:
        """Return the name of a closure cell of the user, at a path, in the epilogue."""
        name = self._fresh("cell")
        if comes_with_arguments(path):
            self.objects_fetched[id(path)] = (name, path, path)
        else:
            self.named[name] = path.fetch({})
        return name

    # -- expressions -----------------------------------------------------------------------------------------

    def expression(self, value: Any) -> str:
        """Return code that evaluates to the value as eager has it."""
        if isinstance(value, SymbolicNumber):
            self.named |= {name: sys.modules[name] for name in value.modules}
            self.tensors |= {size.name: size for size in value.roots}
            return value.name
        if isinstance(value, TensorProxy | NumberProxy):
            if id(value) in self.session.objects.tensor_classes:
                return self._of_subclass(value)
            if id(value) in self._rebound and (own := self.session.entry_of(value)) is not None:
                return self.fetched(own.path, own.obj)
            self.tensors[value.name] = value
            return value.name
        if type(value) in _PRINTABLE:
            return repr(value)
        if type(value) is DeferredText:
            template, values, specs = template_of(self.session, value)
            return f"{self.refer(formatted)}({template!r}, {self.items('[', values, ']')}, {specs!r})"
        made = value.proxy if type(value) is MadeInCall else value
        if type(made) is AnyProxy or isinstance(made, UnmodelledObject):
            self.tensors[made.name] = made
            return made.name
        generator = self.session.state(Generators).created_proxy(value)
        if generator is not None:
            self.tensors[generator.name] = generator
            return generator.name
        made_by = self.session.made_by(value)
        if made_by is not None:
            built = self.built.get(id(value))
            return built[0] if built is not None else self.shared(value, self.call(*made_by))
        entry = self.session.entry_of(value)
        if entry is not None and (not isinstance(value, IDENTITY_TYPES) or is_weak(entry.path)):
            return self.fetched(entry.path, entry.obj)
        built = self.built.get(id(value))
        if built is not None:
            return built[0]
        if (
            (type(value) in LEAVES and type(value) is not slice)
            or is_numpy_scalar(value)
            or (type(value) in (tuple, frozenset) and self.session.is_code_constant(value))
            or (
                isinstance(value, _CONSTANTS)
                and not is_method_of_container(value)
                and id(value) not in self.session.created_by_program
                and not (isinstance(value, torch.nn.Module) and entry is None)  # one that the program made
                and not is_created(self.session, value)
            )
        ):
            return self._constant(value)
        return self._construct(value)

    def _of_subclass(self, value: Any) -> str:
        """Return the name of a tensor of a subclass, with the attributes that the program has set."""
        entry = self.session.entry_of(value)
        if entry is not None:
            return self.fetched(entry.path, entry.obj)
        built = self.built.get(id(value))
        if built is not None:
            return built[0]
        name, cls = self._fresh("tensor"), self.session.objects.tensor_classes[id(value)][1]
        self.built[id(value)] = name, value
        if cls in (torch.nn.Parameter, torch.nn.Buffer):
            self.tensors[value.name] = value
            shared = self.session.state(MadeParameters).shared.get(id(value))
            data = value.name if shared is None else self.expression(shared)
            rest = f", {value.requires_grad}" if cls is torch.nn.Parameter else ""
            self.emit(f"{name} = {self.refer(cls)}({data}{rest})")
            self.parameters[value.name] = name
        else:
            self.tensors[value.name] = value
            self.emit(
                f"{name} = as_subclass({value.name}, {self.refer(cls)})", as_subclass=torch.Tensor.as_subclass
            )
        for key, attribute in self.session.objects.tensor_attributes.get(id(value), {}).items():
            self.emit(f"{name}.__dict__[{key!r}] = {self.expression(attribute)}")
        return name

    def _constant(self, value: Any) -> str:
        if type(value) is float and value == value and abs(value) != float("inf"):
            return repr(value)
        name = self._fresh("const")
        self.built[id(value)] = (name, value)
        self.emit(
            f"# {name} is {' '.join(repr(value).split())[:60]}",
            **{name: value},
        )
        return name

    def _construct(self, value: Any) -> str:
        rule = reconstruction_of(value) if id(type(value)) not in self.session.created_by_program else None
        if rule is None or id(value) in self._unfinished:
            cyclic = ", which contains itself and" if id(value) in self._unfinished else ", which"
            raise UnsupportedProgram(
                f"the program returns or stores {description(value)}{cyclic} "
                "thunder cannot build again at each call",
                found=None if isinstance(value, OfTheTrace) else {"class": _class_name(value)},
                hint="Use containers, namedtuples, dataclasses or objects of a class written in Python."
                if not hasattr(type(value), "__next__")
                else "Return a list of its elements.",
            )
        self._unfinished.add(id(value))
        text = rule(self, value)
        self._unfinished.discard(id(value))
        return text

    def count(self, value: Any) -> None:
        """Count the references to each container or object among the values to be built."""
        made_by = self.session.made_by(value)
        if reconstruction_of(value) is None and made_by is None:
            return
        self.uses[id(value)] += 1
        if id(value) in self.session.objects.python_keyed and not isinstance(value, frozenset):
            refuse_moved_keys(value, "a dict or set of the program")
        if self.uses[id(value)] == 1 and (made_by is not None or self.session.entry_of(value) is None):
            for child in parts_of(self.session, value):
                self.count(child)

    def cell(self, cell: CellType) -> str:
        """Return code for a closure cell: the user's own, or the program's. Raises UnsupportedProgram."""
        variables = self.session.variables
        tracked = variables.cell_paths.get(id(cell))
        if tracked is not None and tracked[1].parent is not None and not comes_with_arguments(tracked[1]):
            return self.constant("cell", cell)
        content = variables.load_cell(cell)
        if content is MISSING or tracked is not None:
            raise UnsupportedProgram(
                "the program returns or stores a function that it has made, whose variables are not set, or "
                "are those of a function among the arguments",
                hint="Return what the function computes.",
            )
        built = self.built.get(id(cell))
        if built is None:
            name = self._fresh("cell")
            self.emit(f"{name} = {self.refer(CellType)}({self.expression(content)})")
            built = self.built[id(cell)] = (name, cell)
        return built[0]

    def constant(self, prefix: str, value: Any) -> str:
        """Return a name for an object that is the same in all calls."""
        built = self.built.get(id(value))
        if built is None:
            built = self.built[id(value)] = (self._fresh(prefix), value)
            self.named[built[0]] = value
        return built[0]

    def assigned(self, prefix: str, value: Any, text: str) -> str:
        """Return the name of a value that the epilogue computes once, by ``text``."""
        built = self.built.get(id(value))
        if built is None:
            built = self.built[id(value)] = (self._fresh(prefix), value)
            self.emit(f"{built[0]} = {text}")
        return built[0]

    def call(self, fn: Any, args: Iterable[Any]) -> str:
        """Return a call of a function with values of the program."""
        return f"{self.refer(fn)}{self.items('(', args, ')')}"

    def items(self, left: str, values: Any, right: str) -> str:
        """Return the expressions of several values, between brackets."""
        return left + ", ".join(self.expression(v) for v in values) + right

    def pairs(self, values: Any) -> str:
        """Return a display of a dict with these pairs."""
        return "{" + ", ".join(f"{self.expression(k)}: {self.expression(v)}" for k, v in values) + "}"

    def parts(self, state: dict[Any, Any]) -> str:
        """Return a display of an object's state by name."""
        return self.pairs(state.items())

    def shared(self, value: Any, text: str) -> str:
        """Return code for a new container, a variable if it is referred to more than once."""
        if self.uses[id(value)] <= 1:
            return text
        name = self._fresh("c")
        self.emit(f"{name} = {text}")
        self.built[id(value)] = (name, value)
        return name


_CONSTANTS = (*IDENTITY_TYPES, enum.Enum)
