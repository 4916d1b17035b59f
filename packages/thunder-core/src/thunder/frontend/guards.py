"""Guards: the facts of an acquisition as one straight-line function, the only thing between a call and its
cached program.

The function states each fact's failure and returns None at the first that fails; what failed is found out
afterwards, by walking the facts one by one (:func:`first_failure`), so that a call that hits pays for nothing
but the questions.

    def prologue(args, kwargs):          facts
      if len(args) != 1: return None     len of args is 1
      x = args[0]
      d = self.__dict__
      if d['_forward_hooks'] …           no hook on self
      p = d['_parameters']
      w = p['weight']
      if not check_tensors(x, w): …      metadata of x and w, in one batched call
      return (x, w), ()
"""

from __future__ import annotations

import keyword
import math
import re
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.provenance import (
    ABSENT,
    MEMBER_DICTS,
    STEPS,
    Path,
    cell_content,
    comes_with_arguments,
    lookup_item,
    lookup_slot,
    lookup_type,
    own_name,
    pinned,
    proxied,
    referent,
)
from thunder.frontend import ambient_state
from thunder.frontend.epilogue.statements import statement
from thunder.frontend.facts import KINDS, RELATIONS, Fact, TensorFacts, has_keys, same_leaf
from thunder.frontend.objects.class_kinds import is_immutable
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ir.trace import RESERVED_NAMES, TraceCtx, TraceProvenance, from_trace

#: exceptions that fetching a path raises where the way to it is gone; the fact that says so is found by
#: first_failure
_GONE = "(KeyError, AttributeError, IndexError, TypeError, ValueError)"
_HANDLER = (f"except {_GONE}:", "  return None")


_LINE = 90  # characters of conditions on a line


class Writer:
    """Writes the guard function: fetches each path once, inline where it is used once."""

    def __init__(
        self,
        facts: Sequence[Fact],
        inputs: Sequence[tuple[TensorProxy | GeneratorProxy, Path]],
        reached: Sequence[Path],
    ) -> None:
        self.facts, self.inputs, self.reached = facts, [path for _, path in inputs], reached
        self.frozen_values: dict[int, Any] = {}  # what a path is promised to fetch, by id of the path
        self.input_names = {id(path): proxy for proxy, path in inputs}
        self.variables_of_inputs = {proxy.name for proxy, _ in inputs}
        self.objects: dict[str, Any] = {}
        self.lines: list[str] = []
        self.conditions: list[str] = []
        self.variables: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.asked: set[str] = set()
        self.classes: dict[str, type] = {}
        self.ordered: set[type] = set()  # classes whose order of bases is checked already
        self.uses = self._count_uses()

    def _count_uses(self) -> Counter[int]:
        uses: Counter[int] = Counter()
        seen: set[int] = set()
        paths = (
            [f.path for f in self.facts]
            + [p for f in self.facts for p in f.others]
            + [*self.inputs, *self.reached]
        )
        for path in paths:
            uses[id(path)] += 1
            while path.parent is not None and id(path) not in seen:
                seen.add(id(path))
                path = path.parent
                uses[id(path)] += 1
        return uses

    # -- names -----------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        """A name for an object, or its literal."""
        return repr(value) if is_literal(value) else self.identity(value)

    def identity(self, value: Any) -> str:
        """A name for an object that is compared by identity."""
        if value is None or value is True or value is False:
            return repr(value)
        known = self.names.get(id(value))
        if known is None:
            known = base = readable_name(value)
            serial = 0
            while known in self.objects or self._is_taken(known):
                known, serial = f"{base}_{serial}", serial + 1
            self.names[id(value)] = known
            self.objects[known] = value
        return known

    def _is_taken(self, name: str) -> bool:
        """Whether the text of a prologue means something of its own by a name."""
        return name in _CALLED or name in self.variables_of_inputs or _VARIABLE.fullmatch(name) is not None

    def value(self, path: Path) -> str:
        """The expression for the value at a path; what is used again becomes a variable."""
        if path.parent is None:
            return str(path.key) if path.pinned is ABSENT else self.constant(path.pinned)
        if id(path) in self.frozen_values:
            return self.constant(self.frozen_values[id(path)])
        known = self.variables.get(id(path))
        if known is not None:
            return known
        code = self.fetch(path)
        if self.uses[id(path)] <= 1:
            return code
        self.flush()
        proxy = self.input_names.get(id(path))
        if proxy is None:
            name = f"v{len(self.variables)}"
            self.lines.append(f"{name} = {code}")
        else:
            name = f"input_{proxy.name}" if proxy.name in _CALLED else proxy.name
            self.lines.append(f'{name}: "{proxy.type_string()}" = {code}')
        self.variables[id(path)] = name
        return name

    def fetch(self, path: Path) -> str:
        """The code of one step."""
        assert path.parent is not None, "roots are named, not fetched"
        parent = self.dictionary(path.parent) if path.kind == "instance" else self.value(path.parent)
        return STEPS[path.kind].code.format(p=parent, k=self.constant(path.key), name=path.key)

    def dictionary(self, path: Path) -> str:
        """The variable that holds an object's ``__dict__``."""
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
        """Adds conditions under which the entry is a miss, each once: nothing changes between two guards."""
        for condition in conditions:
            if condition not in self.asked:
                self.asked.add(condition)
                self.conditions.append(condition)

    def flush(self) -> None:
        """Writes the conditions gathered so far, as many on a line as it holds."""
        line = ""
        for condition in self.conditions:
            if line and len(line) + len(condition) > _LINE:
                self.lines.append(f"if {line}: return None")
                line = ""
            line += f" or {condition}" if line else condition
        if line:
            self.lines.append(f"if {line}: return None")
        self.conditions = []

    def ask_ambient_state(self) -> None:
        """Guards torch's ambient state as it is now."""
        quick = ambient_state.quick_state()
        self.objects.update(ambient_state.QUESTIONS)
        asked = ", ".join(f"{name}()" for name in ambient_state.QUESTIONS)
        self.fail_if(f"({asked}) != {self.constant(quick)}")
        if ambient_state.needs_detail(quick):
            self.objects["detailed_state"] = ambient_state.detailed_state
            self.fail_if(f"detailed_state() != {self.constant(ambient_state.detailed_state())}")

    def freeze(self, roots: dict[str, Any]) -> None:
        """Takes what does not come with the arguments as it is now, and stops asking for it."""
        self.facts = [f for f in self.facts if comes_with_arguments(f.path)]
        for path in (*self.inputs, *self.reached):
            if not comes_with_arguments(path):
                self.frozen_values[id(path)] = path.fetch(roots)

    def write(self, roots: dict[str, Any]) -> list[str]:
        """The lines of the guard function's body."""
        for fact in self.facts:
            if fact.kind not in ("tensor", "distinct"):  # these two are one batched check
                self.fail_if(*self.condition(fact))
        tensors = [f for f in self.facts if f.kind == "tensor"]
        names = [self._variable(f.path) for f in tensors]
        inputs = [self._variable(p) for p in self.inputs]
        reached = [self.value(p) for p in self.reached]
        self.flush()
        if tensors:
            self.objects["check_tensors"] = tensor_check(
                [f.expected for f in tensors], [f.path.fetch(roots) for f in tensors]
            )
            self.lines += _refuse_nested(tensors, names)
            self.lines.append(f"if not check_tensors({', '.join(names)}): return None")
            self.lines += [f"  # {f.expected.as_check(n)}" for f, n in zip(tensors, names, strict=True)]
        self.lines.append(f"return ({_tuple_text(inputs)}), ({_tuple_text(reached)})")
        return ["try:", *(f"  {line}" for line in self.lines), *_HANDLER]

    def _variable(self, path: Path) -> str:
        """A variable for a tensor, which is both checked and passed on."""
        self.uses[id(path)] += 2
        return self.value(path)

    def condition(self, fact: Fact) -> list[str]:
        """The code of a fact's failure; the fact fails if one of the conditions holds."""
        if fact.path.kind == "typeattr" and fact.kind == "is":
            return self.class_conditions(fact)
        return [self.plain_condition(fact)]

    def plain_condition(self, fact: Fact) -> str:
        """The code of the failure of a fact about values."""
        if fact.kind == "same":
            return f"{self.value(fact.path)} is {'not ' if fact.expected else ''}{self.value(fact.others[0])}"
        if fact.others:
            values = ", ".join(self.value(p) for p in (fact.path, *fact.others))
            return f"{self.constant(RELATIONS[fact.kind])}({values}) != {self.constant(fact.expected)}"
        if fact.kind == "lacks":
            return f"{self.constant(fact.expected)} in {self.dictionary(fact.path)}"
        if fact.kind == "is" and fact.expected is ABSENT:
            return self.absence_condition(fact.path)
        if fact.kind == "is":
            return f"{self.value(fact.path)} is not {self.identity(fact.expected)}"
        if fact.kind == "keys" and has_string_keys(fact.path):
            value = self.value(fact.path)
            return f"(*{value},) != {self.constant(fact.expected)}" if fact.expected else value
        # The text is the same in every process, so it does not spell out the order of a set.
        expected = self.identity(fact.expected) if fact.kind == "order" else self.constant(fact.expected)
        return KINDS[fact.kind].fails.format(x=self.value(fact.path), e=expected)

    def absence_condition(self, path: Path) -> str:
        """That there is nothing at a path."""
        assert path.parent is not None, "a root is always there"
        key = self.constant(path.key)
        if path.kind == "attribute":
            return f"hasattr({self.value(path.parent)}, {path.key!r})"
        if path.kind == "slot":
            return f"{self.fetch(path)} is not ABSENT"
        if path.kind == "cell":
            return f"cell_content({self.value(path.parent)}) is not ABSENT"
        return f"{key} in {self.value(path.parent)}"

    def class_conditions(self, fact: Fact) -> list[str]:
        """An attribute found (or not) along the MRO of a class: the dictionaries that were searched, and
        nothing else.
        """
        assert fact.path.parent is not None, "a class attribute is read from a class"
        cls, name = fact.path.parent.pinned, fact.path.key
        conditions = []
        if cls not in self.ordered:
            self.ordered.add(cls)
            conditions.append(f"{self.constant(cls)}.__mro__ is not {self.identity(cls.__mro__)}")
        for base in cls.__mro__:
            found = name in base.__dict__
            if found:
                if not is_immutable(base):
                    conditions.append(
                        f"{self._namespace(base)}[{name!r}] is not {self.identity(fact.expected)}"
                    )
                break
            if not is_immutable(base):
                conditions.append(f"{name!r} in {self._namespace(base)}")
        return conditions

    def _namespace(self, cls: type) -> str:
        name = f"{cls.__name__}_dict"
        while self.classes.setdefault(name, cls) is not cls:
            name += "_"
        self.objects[name] = cls.__dict__  # a live view
        return name


def is_literal(value: Any) -> bool:
    """Whether ``repr`` of a value is an expression for the same value."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in (tuple, list):
        return all(map(is_literal, value))
    return type(value) in (int, str, bool, bytes, type(None))


def readable_name(value: Any) -> str:
    """A name for an object in the text of a prologue, after what the object is called."""
    if isinstance(value, weakref.ref):
        name = f"ref_of_{readable_name(value())}"
    elif isinstance(value, dict) and isinstance(value.get("__name__"), str):
        name = f"globals_of_{value['__name__']}"
    else:
        name = own_name(value, "__qualname__", "__name__") or f"{type(value).__name__.lower()}_value"
    text = re.sub(r"\W+", "_", name).strip("_")
    return (
        f"{text}_" if not text.isidentifier() or keyword.iskeyword(text) or text in RESERVED_NAMES else text
    )


def has_string_keys(path: Path) -> bool:
    """Whether Python and torch let no other keys than strings into a dict, so that equal keys are the same
    keys.
    """
    return path.parent is None or (path.kind == "instance" and path.key in MEMBER_DICTS)


def _tuple_text(items: Sequence[str]) -> str:
    return "".join(f"{item}, " for item in items)


def _refuse_nested(tensors: Sequence[Fact], names: Sequence[str]) -> list[str]:
    """The condition that no tensor is nested: of one, torch's batched check ends the process."""
    asked = [n for f, n in zip(tensors, names, strict=True) if f.expected.type is not torch.nn.Parameter]
    return [f"if {' or '.join(f'{name}.is_nested' for name in asked)}: return None"] if asked else []


def tensor_check(expected: Sequence[TensorFacts], examples: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """A function of as many tensors that says whether each has its expected metadata.

    Torch's own batched check, which TorchDynamo uses, does it in C: it compares type, dispatch keys, dtype,
    device, sizes, strides and requires_grad, and no tensor may come twice. Sizes and strides are given to it,
    for None would mean "any". Where a torch lacks it, Python asks.
    """
    batched = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if batched is None:
        return lambda *tensors: (
            len({*map(id, tensors)}) == len(tensors)
            and all(f.describe(t) is None for f, t in zip(expected, tensors, strict=True))
        )
    in_c = batched.TensorGuards(
        *examples,
        dynamic_dims_sizes=[list(t.shape) for t in examples],
        dynamic_dims_strides=[list(t.stride()) for t in examples],
    )
    return in_c.check  # type: ignore[no-any-return]


_HELPERS = {
    "ABSENT": ABSENT,
    "lookup_type": lookup_type,
    "lookup_item": lookup_item,
    "lookup_slot": lookup_slot,
    "cell_content": cell_content,
    "same_leaf": same_leaf,
    "has_keys": has_keys,
    "proxied": proxied,
    "referent": referent,
    "ref": weakref.ref,
}


_OWN_NAMES = frozenset({*_HELPERS, "args", "kwargs", "check_tensors", "detailed_state"})
#: names of functions that the text calls, which an argument may have as well
_CALLED = _OWN_NAMES | ambient_state.QUESTIONS.keys() | {"len", "type", "hasattr"}
_VARIABLE = re.compile(r"v\d+")


def prologue_trace(
    facts: Sequence[Fact],
    inputs: Sequence[tuple[TensorProxy | GeneratorProxy, Path]],
    reached: Sequence[Path],
    roots: dict[str, Any],
    pinning: str = "nothing",
) -> TraceCtx:
    """The prologue of a computation with these inputs: ``(args, kwargs) → (computation inputs, epilogue
    inputs)``, or None.

    ``pinning`` is what the user vouches for: ``"nothing"``; ``"structure"``, everything that does not come
    with the arguments; or ``"everything"``. Built while the ambient state is the one to be guarded.
    """
    writer = Writer(facts if pinning != "everything" else (), inputs, reached)
    if pinning != "everything":
        writer.ask_ambient_state()
    if pinning != "nothing":
        writer.freeze(roots)
    lines = writer.write(roots)
    trace = TraceCtx(name="prologue")
    trace.star_args = True
    trace.bound_symbols.append(statement(*lines, **(_HELPERS | writer.objects)))
    trace.set_provenance(TraceProvenance("Guard grouping"))
    return trace


def ambient_fact() -> Fact:
    """The fact about torch's ambient state, for recompile reasons."""
    return Fact(
        "state", pinned("torch's ambient state", ambient_state.whole_state), ambient_state.whole_state()
    )


def prologue_error(prologue: TraceCtx, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Return the exception on which a prologue returned None, or None if a check failed without one.

    The generated text handles it; here the text runs without its handler.
    """
    unhandled = from_trace(prologue)
    for bsym in prologue.bound_symbols:
        lines, *rest = bsym.args
        if isinstance(lines, tuple) and lines[-2:] == _HANDLER:
            bsym = bsym.from_bsym(args=(tuple(line[2:] for line in lines[1:-2]), *rest))
        unhandled.bound_symbols.append(bsym)
    try:
        unhandled.python_callable()(*args, **kwargs)
    except Exception as error:
        return error
    return None


def first_failure(
    facts: Sequence[Fact], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Fact, Any] | None:
    """The first fact that does not hold of a call, and what was found instead; None if all hold."""
    roots = {"args": args, "kwargs": kwargs}
    for fact in facts:
        try:
            found = fact.failure(roots)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError) as error:
            found = (error,)
        if found is not None:
            return fact, found[0]
    return None
