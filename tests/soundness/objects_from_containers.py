"""Objects that a program finds in a container, by way of native code, and what changes of them afterwards.

A program is a choice of four: the kind of object, the way to it, what the program does with it, and what
happens between two calls. Eager torch runs it in one world, the compiler in another; results must agree, and
what the object holds after each call.

    python -m soundness.objects_from_containers    all programs; prints those that differ
"""

# ruff: noqa: B009, RUF015  (each way to an object is meant as it is written)
from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import operator
import random
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from comparison.errors import is_a
from soundness.harness import ramp

# -- kinds of object -----------------------------------------------------------------------------------------


def a_class(scale: float, kind: type = object) -> type:
    """A class with an attribute and a method."""

    base = kind if kind is not object else type("Root", (), {})

    class Act(base):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.k = 1.0

        def apply(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale * self.k

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.apply(x) + 1

    Act.scale = scale
    Act.__name__ = Act.__qualname__ = f"Act{int(scale)}"
    return Act


def an_instance(scale: float) -> Any:
    """An object of a class of its own, with an attribute of its own."""
    made = a_class(scale)()
    made.scale = scale
    return made


def a_layer(scale: float) -> nn.Module:
    """A module with a parameter."""
    made = a_class(scale, nn.Module)()
    made.weight = nn.Parameter(ramp(3, start=scale), requires_grad=False)
    return made


def a_function(scale: float) -> Any:
    """A function with an attribute, and a name of its own."""

    def act(x: torch.Tensor, shift: float = scale) -> torch.Tensor:
        return x * 2 - shift

    act.scale = scale  # type: ignore[attr-defined]
    act.__name__ = f"act{int(scale)}"
    return act


def a_module(scale: float) -> types.ModuleType:
    """A module with a variable and a function."""
    module = types.ModuleType(f"act{int(scale)}")
    module.scale = scale  # type: ignore[attr-defined]
    module.apply = a_function(scale)  # type: ignore[attr-defined]
    return module


KINDS: dict[str, Callable[[float], Any]] = {
    "class": a_class,
    "instance": an_instance,
    "layer": a_layer,
    "function": a_function,
    "module": a_module,
    "tensor": lambda scale: ramp(3, start=scale),
    "number": lambda scale: scale,
}

# -- ways to it ----------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """What holds the object (and another, second), how a program gets it, and how another takes its place."""

    hold: Callable[[Any, Any], Any]
    read: Callable[[Any], Any]
    replace: Callable[[Any, Any], object] | None = None


def _pair(a: Any, b: Any) -> dict[str, Any]:
    return {"a": a, "b": b}


def _set_a(holder: Any, new: Any) -> None:
    holder["a"] = new


def _set_0(holder: Any, new: Any) -> None:
    holder[0] = new


def _set_attribute(holder: Any, new: Any) -> None:
    holder.a = new


def _in_dict(read: Callable[[Any], Any]) -> Way:
    return Way(_pair, read, _set_a)


def _in_list(read: Callable[[Any], Any]) -> Way:
    return Way(lambda a, b: [a, b], read, _set_0)


def _on_object(hold: Callable[[Any, Any], Any], read: Callable[[Any], Any]) -> Way:
    return Way(hold, read, _set_attribute)


def _function_with(a: Any, b: Any) -> Any:
    def holder() -> Any:
        return a

    holder.a = a  # type: ignore[attr-defined]
    return holder


def _module_with(a: Any, b: Any) -> types.ModuleType:
    holder = types.ModuleType("holder")
    holder.a = a  # type: ignore[attr-defined]
    return holder


def _function_over(a: Any, b: Any) -> Any:
    return types.FunctionType(_reads_global.__code__, {"a": a, "__builtins__": __builtins__})


def _reads_global() -> Any:
    return globals()["a"]


def _with_default(a: Any, b: Any) -> Any:
    return lambda a=a: a


def _with_keyword(a: Any, b: Any) -> Any:
    return lambda *, a=a: a


def _first(*values: Any) -> Any:
    return values[0]


def _class_with(a: Any, b: Any) -> type:
    return type("Holder", (), {"a": a})


WAYS: dict[str, Way] = {
    "getitem": _in_dict(lambda h: h["a"]),
    "get": _in_dict(lambda h: h.get("a")),
    "setdefault": _in_dict(lambda h: h.setdefault("a", None)),
    "values": _in_dict(lambda h: list(h.values())[0]),
    "items": _in_dict(lambda h: [v for _, v in h.items()][0]),
    "itemgetter": _in_dict(lambda h: operator.itemgetter("a")(h)),
    "union": _in_dict(lambda h: (h | {})["a"]),
    "display": _in_dict(lambda h: {**h}["a"]),
    "copy": _in_dict(lambda h: h.copy().pop("a")),
    "popitem": _in_dict(lambda h: [dict(h).popitem() for _ in range(1)] and next(iter(h.values()))),
    "starred": _in_dict(lambda h: _first(*h.values())),
    "OrderedDict": Way(lambda a, b: collections.OrderedDict(a=a), lambda h: h["a"], _set_a),
    "defaultdict": Way(lambda a, b: collections.defaultdict(list, a=a), lambda h: h["a"], _set_a),
    "ChainMap": Way(lambda a, b: collections.ChainMap({}, {"a": a}), lambda h: h["a"], _set_a),
    "nested": Way(lambda a, b: {"a": [(a,)]}, lambda h: h["a"][0][0]),
    "list": _in_list(lambda h: h[0]),
    "pop": _in_list(lambda h: list(h).pop(0)),
    "next": _in_list(lambda h: next(iter(h))),
    "map": _in_list(lambda h: list(map(lambda c: c, h))[0]),
    "zip": _in_list(lambda h: list(zip(h, h, strict=True))[0][1]),
    "reversed": _in_list(lambda h: list(reversed(h))[1]),
    "enumerate": _in_list(lambda h: dict(enumerate(h))[0]),
    "min": _in_list(lambda h: min([0, 1], key=lambda i: i) == 0 and h[0]),
    "sorted": _in_list(lambda h: [h[i] for i in sorted([1, 0])][0]),
    "reduce": _in_list(lambda h: functools.reduce(lambda a, b: a, h)),
    "slice": _in_list(lambda h: h[:1][0]),
    "chain": _in_list(lambda h: next(itertools.chain(h, h))),
    "deque": Way(lambda a, b: collections.deque([a, b]), lambda h: h.copy().popleft(), _set_0),
    "tuple": Way(lambda a, b: (a, b), lambda h: h[0]),
    "namedtuple": Way(lambda a, b: collections.namedtuple("H", "a b")(a, b), lambda h: h.a),
    "namespace": _on_object(lambda a, b: types.SimpleNamespace(a=a), lambda h: getattr(h, "a")),
    "attrgetter": _on_object(lambda a, b: types.SimpleNamespace(a=a), lambda h: operator.attrgetter("a")(h)),
    "dataclass": _on_object(
        lambda a, b: dataclasses.make_dataclass("H", ["a"])(a),
        lambda h: [getattr(h, f.name) for f in dataclasses.fields(h)][0],
    ),
    "function attribute": _on_object(_function_with, lambda h: h.a),
    "function dict": _on_object(_function_with, lambda h: h.__dict__["a"]),
    "closure": Way(_function_with, lambda h: h()),
    "module attribute": _on_object(_module_with, lambda h: getattr(h, "a")),
    "module dict": _on_object(_module_with, lambda h: vars(h)["a"]),
    "sys.modules": Way(
        lambda a, b: sys.modules.__setitem__("soundness_holder", _module_with(a, b)),
        lambda h: sys.modules["soundness_holder"].a,
        lambda h, new: setattr(sys.modules["soundness_holder"], "a", new),
    ),
    "class attribute": _on_object(_class_with, lambda h: h.a),
    "class dict": _on_object(_class_with, lambda h: h.__dict__["a"]),
    "class vars": _on_object(_class_with, lambda h: vars(h)["a"]),
    "attribute of the class": Way(
        lambda a, b: _class_with(a, b)(), lambda h: type(h).a, lambda h, new: setattr(type(h), "a", new)
    ),
    "dict of the class": Way(
        lambda a, b: _class_with(a, b)(),
        lambda h: type(h).__dict__["a"],
        lambda h, new: setattr(type(h), "a", new),
    ),
    "annotations": Way(
        lambda a, b: type("H", (), {"__annotations__": {"a": a}})(),
        lambda h: type(h).__annotations__["a"],
        lambda h, new: type(h).__annotations__.update(a=new),
    ),
    "enum": Way(lambda a, b: enum.Enum("E", {"a": (a,)}), lambda h: h["a"].value[0]),
    "proxy": Way(lambda a, b: types.MappingProxyType({"a": a}), lambda h: h["a"]),
    "partial": Way(lambda a, b: functools.partial(_first, a), lambda h: h()),
    "partial arguments": Way(lambda a, b: functools.partial(_first, a), lambda h: h.args[0]),
    "default": Way(_with_default, lambda h: h(), lambda h, new: setattr(h, "__defaults__", (new,))),
    "defaults": Way(
        _with_default, lambda h: h.__defaults__[0], lambda h, new: setattr(h, "__defaults__", (new,))
    ),
    "keyword default": Way(
        _with_keyword, lambda h: h.__kwdefaults__["a"], lambda h, new: h.__kwdefaults__.update(a=new)
    ),
    "globals": Way(_function_over, lambda h: h(), lambda h, new: h.__globals__.update(a=new)),
    "globals of": Way(
        _function_over, lambda h: h.__globals__["a"], lambda h, new: h.__globals__.update(a=new)
    ),
    "key": Way(lambda a, b: {a: 1}, lambda h: list(h)[0]),
    "key in a tuple": Way(lambda a, b: {(a, 1): 1}, lambda h: list(h)[0][0]),
    "set": Way(lambda a, b: {a}, lambda h: next(iter(h))),
    "frozenset": Way(lambda a, b: frozenset({a}), lambda h: list(h)[0]),
    "weak reference": Way(lambda a, b: weakref.ref(a), lambda h: h()),
    "type": Way(lambda a, b: a(), lambda h: type(h)),
    "__class__": Way(lambda a, b: a(), lambda h: h.__class__),
    "bases": Way(lambda a, b: type("H", (a,), {}), lambda h: h.__bases__[0]),
    "mro": Way(lambda a, b: type("H", (a,), {})(), lambda h: type(h).__mro__[1]),
    "mro()": Way(lambda a, b: type("H", (a,), {})(), lambda h: type(h).mro()[1]),
    "subclasses": Way(lambda a, b: a, lambda h: [*h.__subclasses__(), h][0]),
    "unbound": Way(lambda a, b: a, lambda h: [*type.__subclasses__(h), h][0]),
    "generic alias": Way(lambda a, b: list[a], lambda h: h.__args__[0]),
}
#: ways that only classes can go
OF_CLASSES = {"type", "__class__", "bases", "mro", "mro()", "subclasses", "unbound", "generic alias"}

# -- what the program does, and what happens then ------------------------------------------------------------

USES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "attribute": lambda v, x: x * v.scale,
    "method": lambda v, x: v.apply(x),
    "method of a new one": lambda v, x: v().apply(x),
    "call": lambda v, x: v(x),
    "arithmetic": lambda v, x: x * v,
    "name": lambda v, x: (v.__name__, x),
    "name of the class": lambda v, x: (type(v).__name__, x),
    "hasattr": lambda v, x: x * 2 if hasattr(v, "scale") else x,
    "weight": lambda v, x: x * v.weight,
    "write": lambda v, x: (setattr(v, "scale", v.scale + 1), x * v.scale)[1],
    "new attribute": lambda v, x: setattr(v, "seen", x + 1),
    "identity": lambda v, x: v,
}
_OF_KIND: dict[str, str] = {
    "class": "attribute|method of a new one|name|hasattr|write|new attribute|identity",
    "instance": "attribute|method|hasattr|write|new attribute|identity|name of the class",
    "layer": "attribute|method|call|hasattr|weight|write|new attribute|name of the class",
    "function": "attribute|call|name|hasattr|write|new attribute|identity",
    "module": "attribute|method|name|hasattr|write|new attribute",
    "tensor": "arithmetic|identity",
    "number": "arithmetic",
}


def _of_class(value: Any) -> type:
    return value if isinstance(value, type) else type(value)


def _rename(value: Any) -> None:
    (value if hasattr(value, "__name__") else type(value)).__name__ = "another"


CHANGES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda v: None,
    "attribute": lambda v: setattr(v, "scale", 7.0),
    "attribute of the class": lambda v: setattr(_of_class(v), "scale", 9.0),
    "method": lambda v: setattr(_of_class(v), "apply", lambda self, x: x + 100),
    "function": lambda v: setattr(v, "apply", lambda x: x + 100),
    "code": lambda v: setattr(v, "__code__", (lambda x: x + 100).__code__),
    "deleted": lambda v: delattr(v, "scale"),
    "renamed": _rename,
    "in place": lambda v: v.add_(1),
    "weight": lambda v: setattr(v, "weight", nn.Parameter(ramp(3, start=9.0), requires_grad=False)),
    "derived": lambda v: type("Derived", (v,), {"scale": 11.0}),
    "based": lambda v: setattr(v, "__bases__", (type("Below", (), {"seen": 5}),)),
    "replaced": lambda v: None,
}
_CHANGES_OF_KIND: dict[str, str] = {
    "class": "nothing|attribute|method|deleted|renamed|derived|based|replaced",
    "instance": "nothing|attribute|attribute of the class|method|deleted|renamed|replaced",
    "layer": "nothing|attribute|attribute of the class|method|weight|renamed|replaced",
    "function": "nothing|attribute|code|deleted|renamed|replaced",
    "module": "nothing|attribute|function|deleted|renamed|replaced",
    "tensor": "nothing|in place|replaced",
    "number": "nothing|replaced",
}

#: kind, way, use, change
Choice = tuple[str, str, str, str]


def play(choice: Choice, jit: Callable[..., Any]) -> list[Any]:
    """Four calls of one program, the change between the second and the third: what each gave and left."""
    kind, way, use, change = choice
    value, other = KINDS[kind](2.0), KINDS[kind](3.0)
    hold, read, replace = WAYS[way]
    holder = hold(value, other)

    def program(x: torch.Tensor, holder: Any = holder, read: Any = read, use: Any = USES[use]) -> Any:
        return use(read(holder), x)

    run, seen = jit(program), []
    for call in range(4):
        if call == 2:
            if change == "replaced" and replace is not None:
                replace(holder, other)
            CHANGES[change](value)
        try:
            with torch.no_grad():
                result = run(ramp(3, start=float(call)))
        except Exception as error:
            seen.append(error)
            continue
        names = {id(value): "the value", id(other): "the other"}
        seen.append(names.get(id(result)) or _text(result))
        seen += [_text(getattr(v, name, None)) for v in (value, other) for name in ("scale", "seen")]
    return seen


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    return str(value.tolist()) if isinstance(value, torch.Tensor) else repr(value)


def judge(compiler: Any, choice: Choice) -> str | None:
    """What differs between eager and the compiler, "refused: …", or None."""
    expected = play(choice, lambda f: f)
    found = play(choice, functools.partial(compiler.jit, recompile_limit=None))
    refused = next((e for e in found if isinstance(e, Exception) and is_a(e, "UnsupportedProgram")), None)
    if refused is not None:
        return f"refused: {refused}"
    a, b = ([type(v).__name__ if isinstance(v, Exception) else v for v in vs] for vs in (expected, found))
    return None if a == b else f"{b}, eager {a}"


@functools.cache
def programs() -> list[Choice]:
    """Every choice that means something, shuffled alike in each process."""
    found = [
        (kind, way, use, change)
        for kind, way in itertools.product(KINDS, WAYS)
        for use in _OF_KIND[kind].split("|")
        for change in _CHANGES_OF_KIND[kind].split("|")
        if way not in OF_CLASSES or kind == "class"
        if not (way == "weak reference" and kind in ("number",))
    ]
    random.Random(0).shuffle(found)
    return found


def main(part: int = 0, parts: int = 1) -> int:
    """Runs one part of all programs, and prints what differs."""
    import thunder

    counts: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    for choice in programs()[part::parts]:
        found = judge(thunder, choice)
        verdict = "right" if found is None else "refused" if found.startswith("refused") else "WRONG"
        counts[verdict] += 1
        if verdict == "WRONG":
            print(choice, found, flush=True)
        if verdict == "refused":
            refusals[f"{choice[0]} {choice[1]}: {str(found).splitlines()[0]}"] += 1
    for text, count in refusals.most_common(60):
        print(count, text)
    print(dict(counts))
    return counts["WRONG"]


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
