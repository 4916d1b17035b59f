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
from collections import Counter, deque
from contextlib import suppress
from contextvars import ContextVar
from types import CellType, MappingProxyType
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path, comes_with_arguments, is_weak, lookup_type
from thunder.frontend.arrays.array_memory import copied, is_array
from thunder.frontend.arrays.numpy_settings import is_settings
from thunder.frontend.arrays.traced_arrays import Arrays, TracedArray
from thunder.frontend.epilogue.reconstruction import (
    description,
    is_method_of_container,
    reconstruction_of,
    text_of_bytes,
)
from thunder.frontend.epilogue.statements import statement
from thunder.frontend.epilogue.value_parts import parts_of
from thunder.frontend.host_draws.created_generators import is_created
from thunder.frontend.lookasides.rebound_tensors import ReboundTensors
from thunder.frontend.lookasides.rng_generators import Generators
from thunder.frontend.natives.libraries import is_numpy_scalar
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES, OfTheTrace, extended_container
from thunder.frontend.objects.object_entry import DELETED, ObjectEntry
from thunder.frontend.objects.shadow_copies import ItemOverlay, Shadow, put_items, replace_items
from thunder.frontend.objects.unknown_values import MadeInCall
from thunder.frontend.output.deferred_texts import DeferredText, template_of
from thunder.frontend.output.output_replay import formatted
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.made_parameters import MadeParameters
from thunder.interpreter.policy import MISSING
from thunder.ir.object_names import identifier, is_attribute_name, readable_name
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


def discard_attribute(obj: Any, name: str) -> None:
    """Delete an attribute of the object itself, if there is one."""
    with suppress(AttributeError):
        (type if isinstance(obj, type) else object).__delattr__(obj, name)


class EpilogueBuilder:
    """Expressions for the program's values, over computed results and reached objects."""

    def __init__(self, session: TracingSession) -> None:
        self.session, self._rebound = session, session.state(ReboundTensors).inputs
        self.tensors: dict[
            str, TensorProxy | NumberProxy | GeneratorProxy | AnyProxy
        ] = {}  # what the computation must return, by name
        #: the names of parameters that the program has made, by those of their values
        self.parameters: dict[str, str] = {}
        self.reached: dict[int, tuple[str, Path, Any]] = {}  # objects of the user's: id → name, path, object
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
        return self._new_name(f"{prefix}{self._count}")

    def _new_name(self, text: str) -> str:
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
            built = self._referred[id(value)] = text if is_builtin else self._new_name(text)
            self.named[built] = value
        return built

    def reach(self, path: Path, obj: Any) -> str:
        """Return the name of an object of the user in the epilogue."""
        entry = self.reached.get(id(obj))
        if entry is None:
            entry = self.reached[id(obj)] = (self._new_name(path.source), path, obj)
        return entry[0]

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
                return self.reach(own.path, own.obj)
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
        tensor = self.session.state(Arrays).proxy_of(value) if is_array(value) else None
        if tensor is not None:
            built = self.built.get(id(value))
            return built[0] if built is not None else self.shared(value, f"{self.expression(tensor)}.numpy()")
        entry = self.session.entry_of(value)
        if entry is not None and (not isinstance(value, IDENTITY_TYPES) or is_weak(entry.path)):
            return self.reach(entry.path, entry.obj)
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
            return self.reach(entry.path, entry.obj)
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
        if reconstruction_of(value) is None:
            return
        self.uses[id(value)] += 1
        if self.uses[id(value)] == 1 and self.session.entry_of(value) is None:
            for child in parts_of(self.session, value):
                self.count(child)

    def cell(self, cell: CellType) -> str:
        """Return code for a closure cell of a function: the user's own, or one of the program, made once."""
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

    # -- writes ----------------------------------------------------------------------------------------------

    def write_shadow(self, shadow: Shadow) -> None:
        """Write the content of a shadow to its container."""
        target = self.reach(shadow.path, shadow.original)
        now, before = shadow.content, shadow.snapshot
        if extended_container(type(shadow.copy)) is not None:
            self._write_extended(target, now, before)
        elif isinstance(now, dict):
            self._write_dict(target, now, before)
        elif isinstance(now, bytes):
            self.emit(f"{target}[:] = {text_of_bytes(self, shadow.copy)}")
        elif isinstance(shadow.copy, set):
            self.emit(f"{target}.clear()", f"{target}.update({self.items('[', now, ']')})")
        elif _begins_with(now, before):
            self.emit(f"{target}.extend({self.items('[', now[len(before) :], ']')})")
        elif isinstance(shadow.copy, deque):
            self.emit(f"{target}.clear()", f"{target}.extend({self.items('[', now, ']')})")
        else:
            self.emit(f"{target}[:] = {self.items('[', now, ']')}")

    def _write_dict(self, target: str, now: dict[Any, Any], before: dict[Any, Any]) -> None:
        if not _begins_with(list(now), list(before)):
            new = self._new_name("new")
            self.emit(f"{new} = {self.pairs(now.items())}", f"{target}.clear()", f"{target}.update({new})")
            return
        for key, value in now.items():
            if key not in before or before[key] is not value:
                self.pack(prims.pack_setitem, target, key, value)

    def _write_extended(self, target: str, now: Any, before: Any) -> None:
        """Write the content of a container of a Python class, whose methods ran while tracing."""
        is_kept = _begins_with(list(now), list(before))
        if isinstance(now, dict):
            changed = {k: v for k, v in now.items() if not (is_kept and k in before and before[k] is v)}
            items = self.pairs(changed.items())
        else:
            items = self.items("[", now[len(before) if is_kept else 0 :], "]")
        self.emit(f"{self.refer(put_items if is_kept else replace_items)}({target}, {items})")

    def write_array(self, traced: TracedArray) -> None:
        """Write the elements of an array to the user's."""
        assert traced.path is not None, "the array is the user's"
        target = self.reach(traced.path, traced.original)
        self.emit(f"{target}[...] = {self.constant('array', copied(traced.array))}")

    def advance(self, count: Any) -> None:
        """Advance an iterator of the user as far as the program has."""
        target = self.reach(count.path, count.original)
        effect, argument = count.effect()
        self.emit(f"{self.refer(effect)}({target}, {argument!r})")

    def write_item(self, overlay: ItemOverlay, key: Any, value: Any) -> None:
        """Replace an item of a dict of the user."""
        if overlay.path.parent is None:  # the overriding tensors
            self.emit(f"{self.reach(overlay.path, overlay.owner)}[{key!r}] = {self.expression(value)}")
            return
        target = self.reach(overlay.path.parent, overlay.owner)
        if overlay.path.key == "_buffers":
            self.pack(prims.pack_buffer, target, key, value)
        else:
            self.emit(f"{target}.{overlay.path.key}[{key!r}] = {self.expression(value)}")

    def write_attribute(self, entry: ObjectEntry, name: str, value: Any) -> None:
        """Write or delete an attribute of an object, without its descriptor, which ran while tracing."""
        target = self.reach(entry.path, entry.obj)
        if value is DELETED or name in entry.moved:
            self.emit(f"{self.refer(discard_attribute)}({target}, {name!r})")
        if value is not DELETED:
            base = "type" if isinstance(entry.obj, type) else "object"
            plain = _has_plain_setattr(entry.obj, name)
            self.pack(prims.pack_attr, target, name, value, by=None if plain else base)

    def write_context_variable(self, variable: ContextVar[Any], value: Any) -> None:
        """Set a context variable."""
        text = self.constant("settings", value) if is_settings(value) else self.expression(value)
        self.emit(f"{self.constant('variable', variable)}.set({text})")

    def write_global(self, namespace: dict[str, Any], name: str, value: Any, *, moves: bool) -> None:
        """Write or delete a global variable, which comes last if it was deleted before."""
        module = self.refer(namespace)
        if moves:
            self.emit(f"{module}.pop({name!r}, None)")
        if value is not MISSING:
            self.emit(f"{module}[{name!r}] = {self.expression(value)}")

    def write_cell(self, path: Path, value: Any) -> None:
        """Write or empty a closure cell."""
        assert path.parent is not None, "a cell's content is reached through the cell"
        cell_path = path.parent
        cell = cell_path.fetch({}) if not comes_with_arguments(cell_path) else None
        name = self._fresh("cell")
        if cell is None:
            self.reached[id(cell_path)] = (name, cell_path, cell_path)
        objects = {} if cell is None else {name: cell}
        if value is MISSING:
            self.emit(f"del {name}.cell_contents", **objects)
        else:
            self.emit(f"{name}.cell_contents = {self.expression(value)}", **objects)


_CONSTANTS = (*IDENTITY_TYPES, enum.Enum)


def _begins_with(items: list[Any], start: list[Any]) -> bool:
    return len(items) >= len(start) and all(a is b for a, b in zip(items, start, strict=False))


def _has_plain_setattr(obj: Any, name: str) -> bool:
    plain = lookup_type(type(obj), "__setattr__") is object.__setattr__
    return plain and is_attribute_name(name) and not hasattr(lookup_type(type(obj), name), "__set__")
