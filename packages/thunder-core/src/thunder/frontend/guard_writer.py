"""The text of a guard function: conditions on values at paths, and names of constants."""

from __future__ import annotations

import builtins
import math
import re
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder.base.equal_values import are_distinct, has_keys, same_leaf
from thunder.base.iterator_parts import part_of_iterator
from thunder.base.provenance import (
    ABSENT,
    STEPS,
    Path,
    cell_content,
    comes_with_arguments,
    content_of,
    lookup_slot,
    lookup_type,
    outer_metadata,
    plain_tensor,
    proxied,
    referent,
)
from thunder.frontend import ambient_state
from thunder.frontend.class_guards import conditions_on_classes, is_of_class
from thunder.frontend.facts import Fact
from thunder.frontend.tensor_guards import tensor_check
from thunder.frontend.value_names import is_size
from thunder.ir.object_names import identifier, is_literal, readable_name
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import SymbolicInt, SymbolicNumber, has_symbols
from thunder.ops import prims

#: exceptions that fetching a path raises where a part of it is gone; `first_failure` finds the fact
_GONE = "(KeyError, AttributeError, IndexError, TypeError, ValueError, ZeroDivisionError)"


#: ends the text of a guard function
HANDLER = (f"except {_GONE}:", "  return None")
#: the line of a guard function in whose place :func:`size_checks` are written, after the compile
SIZE_CHECKS = "# sizes"
_LINE = 90  # characters of conditions on a line


class GuardWriter:
    """The text of a guard function; a path is fetched once, inline where it is used once.

    Args:
        facts: what is guarded.
        inputs: the inputs of the computation, with their paths.
        reached: the paths of the objects that the epilogue needs.
    """

    def __init__(
        self,
        facts: Sequence[Fact],
        inputs: Sequence[tuple[TensorProxy | GeneratorProxy | SymbolicNumber, Path]],
        reached: Sequence[Path],
    ) -> None:
        self.facts, self.reached = facts, reached
        self.returned = inputs  # in the order in which the computation takes them
        self.inputs = [path for proxy, path in inputs if not isinstance(proxy, SymbolicNumber)]
        symbols = [path for proxy, path in inputs if isinstance(proxy, SymbolicNumber)]
        self.has_symbols = bool(symbols)
        self.numbers = [path for path in symbols if not is_size(path)]
        self.frozen_values: dict[int, Any] = {}  # values taken as constants, by id of the path
        self.input_names = {id(path): proxy for proxy, path in inputs}
        self.variables_of_inputs = {proxy.name for proxy, _ in inputs}
        self.objects: dict[str, Any] = {}
        self.lines: list[str] = []
        self.conditions: list[str] = []
        self.variables: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.written: set[str] = set()
        self.class_values = {id(f.path): f.expected for f in facts if is_of_class(f)}
        self.uses = self._count_uses()

    def _count_uses(self) -> Counter[int]:
        uses: Counter[int] = Counter()
        seen: set[int] = set()
        values = [a for f in self.facts for a in f.args if type(a) is Path]
        for path in (*values, *self.inputs, *self.reached):
            place = id(path)
            uses[place] += 1
            while path.parent is not None and place not in seen:
                seen.add(place)
                path = path.parent
                place = id(path)
                uses[place] += 1
        return uses

    # -- names -----------------------------------------------------------------------------------------------

    def argument(self, value: Any) -> str:
        """Return the expression for the value at a path, or for any other object."""
        return self.value(value) if type(value) is Path else self.constant(value)

    def constant(self, value: Any) -> str:
        """Return an object's literal, or a name for it."""
        return repr(value) if type(value) is str or is_literal(value) else self.identity(value)

    def identity(self, value: Any) -> str:
        """Return a name for an object that is compared by identity."""
        if value is None or value is True or value is False:
            return repr(value)
        name = self.names.get(id(value))
        if name is None:
            name = self.names[id(value)] = self.named(value, readable_name(value))
        return name

    def named(self, value: Any, base: str) -> str:
        """Return a new name for an object, which begins as ``base``."""
        base = identifier(base)
        name, serial = base, 0
        if vars(builtins).get(name) is value:
            self.objects[name] = value
            return name
        while name in self.objects or self._is_taken(name):
            name, serial = f"{base}_{serial}", serial + 1
        self.objects[name] = value
        return name

    def _is_taken(self, name: str) -> bool:
        """Return whether a name already has a meaning in the text of a prologue."""
        return name in _CALLED or name in self.variables_of_inputs or _VARIABLE.fullmatch(name) is not None

    def value(self, path: Path) -> str:
        """Return the expression for the value at a path, a variable if it is used again."""
        if path.parent is None:
            return str(path.key) if path.root_object is ABSENT else self.constant(path.root_object)
        place = id(path)
        if place in self.variables:
            return self.variables[place]
        if place in self.frozen_values:
            return self.identity(self.frozen_values[place])
        if place in self.class_values and self.class_values[place] is not ABSENT:  # compared already
            return self.identity(self.class_values[place])
        code = self.fetch(path)
        if self.uses[place] <= 1:
            return code
        self.flush()
        proxy = self.input_names.get(place)
        if proxy is None:
            name = f"v{len(self.variables)}"
            self.lines.append(f"{name} = {code}")
        else:
            name = f"input_{proxy.name}" if proxy.name in _CALLED else proxy.name
            self.lines.append(f'{name}: "{proxy.type_string()}" = {code}')
        self.variables[place] = name
        return name

    def fetch(self, path: Path) -> str:
        """Return the code of the last step of a path."""
        assert path.parent is not None, "roots are named, not fetched"
        parent = self.dictionary(path.parent) if path.kind == "instance" else self.value(path.parent)
        return STEPS[path.kind].code.format(p=parent, k=self.constant(path.key), name=path.key)

    def dictionary(self, path: Path) -> str:
        """Return the variable of the ``__dict__`` of the object at a path."""
        name = self.variables.get(-id(path))
        if name is None:
            owner = self.value(path)
            self.flush()
            name = f"v{len(self.variables)}"
            self.lines.append(f"{name} = {owner}.__dict__")
            self.variables[-id(path)] = name
        return name

    # -- conditions ------------------------------------------------------------------------------------------

    def fail_if(self, *conditions: str) -> None:
        """Add conditions under which the entry is a miss, each once: nothing changes between them."""
        for condition in conditions:
            if condition not in self.written:
                self.written.add(condition)
                self.conditions.append(condition)

    def flush(self) -> None:
        """Write the pending conditions as lines of at most ``_LINE`` characters."""
        line = ""
        for condition in self.conditions:
            if line and len(line) + len(condition) > _LINE:
                self.lines.append(f"if {line}: return None")
                line = ""
            line += f" or {condition}" if line else condition
        if line:
            self.lines.append(f"if {line}: return None")
        self.conditions = []

    def guard_ambient_state(self) -> None:
        """Guard torch's ambient state as it is now."""
        key = ambient_state.ambient_key()
        self.objects.update(ambient_state.AMBIENT_QUERIES)
        calls = ", ".join(f"{name}()" for name in ambient_state.AMBIENT_QUERIES)
        self.fail_if(f"({calls}) != {self.constant(key)}")
        if ambient_state.needs_details(key):
            self.objects["ambient_details"] = ambient_state.ambient_details
            self.fail_if(f"ambient_details() != {self.constant(ambient_state.ambient_details())}")

    def keep_for_one_call(self, objects: Mapping[int, Any]) -> None:
        """Let the objects of one call be constants, by id of the path; sizes are read of its tensors."""
        self.facts = [f for f in self.facts if f.sym is prims.check_tensor]
        self.frozen_values = dict(objects)

    def freeze(self, roots: dict[str, Any]) -> None:
        """Drop the facts about values that do not come with the arguments; they become constants."""
        self.facts = [f for f in self.facts if comes_with_arguments(f.path)]
        for path in (*self.inputs, *self.reached):
            if not comes_with_arguments(path):
                self.frozen_values[id(path)] = path.fetch(roots)

    def write(self, roots: dict[str, Any]) -> list[str]:
        """Return the lines of the guard function's body."""
        of_classes = [f for f in self.facts if is_of_class(f)]
        self.fail_if(*conditions_on_classes(of_classes, self))
        written = frozenset(map(id, of_classes))
        for fact in self.facts:
            condition = None if id(fact) in written else fact.sym.condition(self, fact.args)
            if condition is not None:
                self.fail_if(condition)
        tensors = [f for f in self.facts if f.sym is prims.check_tensor]
        names = [self._variable(f.path) for f in tensors]
        for path in (*self.inputs, *self.numbers):
            self._variable(path)
        reached = [self.value(p) for p in self.reached]
        self.flush()
        if tensors:
            self.objects["check_tensors"] = tensor_check(
                [f.expected for f in tensors], [f.path.fetch(roots) for f in tensors]
            )
            self.lines += _refuse_nested(tensors, names)
            self.lines.append(f"if not check_tensors({', '.join(names)}): return None")
            self.lines += [f"  # {f.expected.as_check(n)}" for f, n in zip(tensors, names, strict=True)]
        if self.has_symbols:
            self.lines += [line for f, n in zip(tensors, names, strict=True) for line in _sizes_of(f, n)]
            self.lines.append(SIZE_CHECKS)
        inputs = [
            proxy.name if isinstance(proxy, SymbolicNumber) else self.value(path)
            for proxy, path in self.returned
        ]
        self.lines.append(f"return ({_tuple_text(inputs)}), ({_tuple_text(reached)})")
        return ["try:", *(f"  {line}" for line in self.lines), *HANDLER]

    def _variable(self, path: Path) -> str:
        """Return a variable for a tensor, which is both checked and passed on."""
        self.uses[id(path)] += 2
        return self.value(path)

    def absence(self, path: Path) -> str:
        """Return the condition that there is something at a path, where there was nothing."""
        assert path.parent is not None, "a root is always there"
        key = self.constant(path.key)
        if path.kind == "attribute":
            return f"hasattr({self.value(path.parent)}, {path.key!r})"
        if path.kind == "slot":
            return f"{self.fetch(path)} is not ABSENT"
        if path.kind == "cell":
            return f"cell_content({self.value(path.parent)}) is not ABSENT"
        return f"{key} in {self.value(path.parent)}"


def _tuple_text(items: Sequence[str]) -> str:
    return "".join(f"{item}, " for item in items)


def _sizes_of(fact: Fact, name: str) -> list[str]:
    """Return the lines that read a tensor's symbolic sizes and strides, and check the other strides."""
    free = fact.expected.free
    if free is None:
        return []
    lines = []
    if has_symbols(free.shape):
        sizes = ", ".join(n.name if isinstance(n, SymbolicInt) else "_" for n in free.shape)
        lines.append(f"{sizes}{',' if len(free.shape) == 1 else ''} = {name}.shape")
    lines += [f"{s.name} = {name}.stride({d})" for d, s in free.own_strides(fact.path).items()]
    if has_symbols(free.strides):
        strides = ", ".join(s.name if isinstance(s, SymbolicInt) else str(s) for s in free.strides)
        lines.append(f"if {name}.stride() != ({strides}{',' if len(free.strides) == 1 else ''}): return None")
    return lines


def size_checks(sizes: SizeFacts) -> list[str]:
    """Return the lines that check the facts about sizes."""
    name = sizes.names.__getitem__
    return [f"if not ({fact.text(name)}): return None" for fact in sizes.checked()]


def _refuse_nested(tensors: Sequence[Fact], names: Sequence[str]) -> list[str]:
    """Return the condition that no tensor is nested, of which torch's batched check crashes."""
    checked = [n for f, n in zip(tensors, names, strict=True) if f.expected.type is not torch.nn.Parameter]
    return [f"if {' or '.join(f'{name}.is_nested' for name in checked)}: return None"] if checked else []


#: functions that the text of every prologue may call
HELPERS = {
    "ABSENT": ABSENT,
    "lookup_type": lookup_type,
    "content_of": content_of,
    "lookup_slot": lookup_slot,
    "cell_content": cell_content,
    "are_distinct": are_distinct,
    "same_leaf": same_leaf,
    "has_keys": has_keys,
    "proxied": proxied,
    "referent": referent,
    "ref": weakref.ref,
    "from_numpy": torch.from_numpy,
    "plain_tensor": plain_tensor,
    "outer_metadata": outer_metadata,
    "part_of_iterator": part_of_iterator,
    "math": math,
}


_OWN_NAMES = frozenset({*HELPERS, "args", "kwargs", "check_tensors", "ambient_details"})
#: names of functions that the text may call, which an argument may have as well
_CALLED = _OWN_NAMES | ambient_state.AMBIENT_QUERIES.keys() | vars(builtins).keys()
_VARIABLE = re.compile(r"v\d+")
