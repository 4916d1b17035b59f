"""Every other world: enumerates the single changes that can be made to a world, by walking it slot by slot.

The list depends on the world's content only, so the changes of two worlds built alike correspond one to one.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import random
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from comparison.errors import describe, is_a
from recorded_refusals import Refusals
from soundness.graph import Slot, is_local, walk
from soundness.harness import Compiler, World, call, compare, observed
from soundness.object_facts import differences


@dataclass(frozen=True)
class Change:
    """One change of one world: where, what, and the act. `slot` is the path of the slot that it touches."""

    slot: str
    what: str
    apply: Callable[[], object]

    @property
    def name(self) -> str:
        return f"{self.slot} {self.what}"


def changes(w: World) -> list[Change]:
    """All single changes of `w`: slots' values, containers' structure, hooks, methods, ambient state."""
    found = []
    tensors: list[tuple[str, Slot]] = []
    for root in w.roots():
        for path, slot in walk(root):
            if isinstance(slot.value, torch.Tensor):
                found += _aliases(path, slot, tensors)
                tensors.append((path, slot))
            for what, apply in _of_slot(slot):
                if not (slot.label == ".__defaults__" and what == "a list"):  # Python takes a tuple only
                    found.append(Change(path, what, apply))
    found += [
        Change("ambient", what, functools.partial(setattr, w, "within", context)) for what, context in AMBIENT
    ]
    assert len({change.name for change in found}) == len(found), "two changes have one name"
    return found


def after_change(build: Callable[[], World], index: int, compiler: Compiler) -> list[str]:
    """What differs from eager in the call after change number `index` of a warm compiled program.

    A refusal is right if the program is refused alike when it is first compiled in the changed world.
    """
    theirs, ours = build(), build()
    compiled = compiler.jit(ours.program, recompile_limit=None)
    for _ in range(2):
        call(theirs.program, theirs)
        call(compiled, ours)
    program = ours.program
    for w in (theirs, ours):
        changes(w)[index].apply()
    # part of an immutable program (a bound method, a partial): that is another one
    if ours.program is not program:
        return []
    if differences(observed(theirs), observed(ours)):
        return ["the worlds differ before the call"]
    expected, found = call(theirs.program, theirs), call(compiled, ours)
    if is_a(found.error, "UnsupportedProgram"):
        afresh = build()
        for _ in range(2):
            call(afresh.program, afresh)
        changes(afresh)[index].apply()
        refused = type(call(compiler.jit(afresh.program), afresh).error) is type(found.error)
        return [] if refused else [f"refused: {describe(found.error)}"]
    # torch raises a class for each operator
    if expected.error is not None and is_a(found.error, "OperatorError"):
        return []
    if expected.error is not None and is_a(found.error, type(expected.error).__name__):
        return []
    return compare(expected, theirs, found, ours)


def along_a_walk(
    build: Callable[[], World], length: int, seed: str, compiler: Compiler, refusals: Refusals
) -> list[str]:
    """What differs from eager in the first wrong call along a walk of changes that pile up in one world.

    Unlike single changes, a walk makes several cache entries compete, and comes back to states it has left.
    """
    theirs, ours, choice = build(), build(), random.Random(seed)
    program, compiled, made = ours.program, compiler.jit(ours.program, recompile_limit=None), []
    for _ in range(length):
        possible = _lasting(changes(theirs))
        index = choice.randrange(len(possible))
        made.append(possible[index].name)
        possible[index].apply()
        _lasting(changes(ours))[index].apply()
        expected, found = call(theirs.program, theirs), call(compiled, ours)
        if ours.program is not program or expected.error is not None:
            return []  # what follows an error is another story: eager keeps the effects before it
        if is_a(found.error, "UnsupportedProgram"):
            refusals.add(seed, found.error)
            return []
        lines = compare(expected, theirs, found, ours)
        if lines:
            return [" → ".join(made), *lines]
    return []


def _lasting(found: list[Change]) -> list[Change]:
    """The changes that a later one does not undo: it would run a finalizer."""
    return [change for change in found if change.what != "a finalizer"]


def _aliases(path: str, slot: Slot, tensors: list[tuple[str, Slot]]) -> Iterator[Change]:
    """This tensor becomes an earlier one, or a view of an earlier one's storage."""
    for earlier, other in tensors:
        same_kind = other.value.shape == slot.value.shape and type(other.value) is type(slot.value)
        if same_kind and other.value is not slot.value:
            yield Change(path, f"becomes {earlier}", lambda other=other: slot.assign(other.value))
            if not isinstance(slot.value, nn.Parameter):
                yield Change(
                    path,
                    f"becomes a view of {earlier}",
                    lambda other=other: slot.assign(other.value.view(other.value.shape)),
                )
            return


def _of_slot(slot: Slot) -> Iterator[tuple[str, Callable[[], object]]]:
    """The changes of what stands in one slot: other values, changes inside it, its removal."""
    for test, rule in RULES:
        if test(slot.value):
            yield from rule(slot.value, slot.assign)
            break
    if slot.remove is not None:
        yield "removed", slot.remove


def _others(*makers: tuple[str, Callable[[Any], Any]]):
    """A rule that puts other values in the slot, each made from the present one."""

    def rule(value, assign):
        for what, make in makers:
            yield what, lambda make=make: assign(make(value))

    return rule


def _tensor(t, assign):
    kind = (
        functools.partial(nn.Parameter, requires_grad=t.requires_grad)
        if isinstance(t, nn.Parameter)
        else (lambda x: x)
    )
    base = t.detach()
    yield "other values in place", lambda: base.copy_(_other_values(base))
    yield "another tensor", lambda: assign(kind(_other_values(base)))
    yield "another dtype", lambda: assign(kind(_other_dtype(base)))
    yield "none", lambda: assign(None)
    yield "a finalizer", lambda: _finalize(t, assign)
    if base.is_floating_point():
        yield "requires_grad flipped", lambda: t.requires_grad_(not t.requires_grad)
    if t.ndim:
        yield "one row longer", lambda: assign(kind(torch.cat([base, base[-1:]])))
        yield "a size of one", lambda: assign(kind(base[:1].clone()))
        yield "one dimension more", lambda: assign(kind(base.unsqueeze(0).clone()))
    if t.ndim > 1:
        yield "other strides", lambda: assign(kind(base.mT.contiguous().mT))
    if type(t) is torch.Tensor:
        yield "a parameter", lambda: assign(nn.Parameter(base.clone(), requires_grad=False))
        yield (
            "an offset",
            lambda: assign(torch.cat([base.flatten()[:1], base.flatten()])[1:].view(base.shape)),
        )


def _other_values(t):
    return (
        ~t
        if t.dtype == torch.bool
        else t.flip(0) * 2 + 1
        if t.ndim and t.is_floating_point()
        else t.flip(0)
        if t.ndim
        else t + 1
    )


def _other_dtype(t):
    return t.to({torch.float32: torch.float64, torch.int64: torch.int32}.get(t.dtype, torch.float32))


def _list(xs, assign):
    yield "a tuple", lambda: assign(tuple(xs))
    if xs:
        yield "one longer", lambda: xs.append(xs[-1])
        yield "emptied", xs.clear
    if len(xs) > 1:
        yield "reversed", xs.reverse


def _tuple(xs, assign):
    yield "a list", lambda: assign(list(xs))
    if xs and not hasattr(xs, "_fields"):
        yield "one longer", lambda: assign((*xs, xs[-1]))
        yield "one shorter", lambda: assign(xs[:-1])


def _dict(d, assign):
    if type(d) is dict:
        yield "an ordered dict", lambda: assign(collections.OrderedDict(d))
    if d:
        first = next(iter(d))
        if isinstance(first, str):
            yield "one key more", lambda: d.__setitem__("another", d[first])
        if len(d) > 1:
            yield "another order", lambda: d.__setitem__(first, d.pop(first))


def _set(s, assign):
    element = next(iter(sorted(s, key=repr)), 1)
    if isinstance(element, type):
        other = type("Another", (element,), {})
    else:
        other = element + type(element)("2" if isinstance(element, str) else 2)
    yield "one element more", lambda: assign(type(s)([*s, other]))
    yield "one element fewer", lambda: assign(type(s)(x for x in s if x != element))


def _module(m, assign):
    """Structure of a module: its hooks, a `forward` of its own, another module in its place."""
    if "training" in vars(m):
        yield "a forward hook", lambda: m.register_forward_hook(lambda module, args, out: _doubled(out))
        yield "a pre-hook", lambda: m.register_forward_pre_hook(lambda module, args: _doubled(args))
        yield (
            "forward shadowed",
            lambda: m.__dict__.update(forward=lambda *a, **k: _doubled(type(m).forward(m, *a, **k))),
        )
    yield "an identity in its place", lambda: assign(nn.Identity())
    for name, tensor in m._buffers.items():
        yield f"{name} an attribute", lambda name=name: vars(m).update({name: m._buffers.pop(name)})
        if tensor is not None:
            yield f"{name} below an attribute", lambda name=name: vars(m).update({name: m._buffers[name] * 2})
    for name in m._parameters:
        yield (
            f"parameter {name} a buffer",
            lambda name=name: m._buffers.update({name: m._parameters.pop(name)}),
        )
    for name, value in vars(m).items():
        if isinstance(value, torch.Tensor):
            yield f"attribute {name} a buffer", lambda name=name: m._buffers.update({name: vars(m).pop(name)})


def _doubled(value):
    """Twice every floating tensor in a result."""
    double = lambda t: t * 2 if t.is_floating_point() else t  # noqa: E731
    return torch.utils._pytree.tree_map_only(torch.Tensor, double, value)


def _class(cls, assign):
    """Another class in its place; its attributes and its name are slots of their own."""
    if is_local(cls):
        yield "a derived class", lambda: assign(type("Derived", (cls,), {}))


def _function(f, assign):
    yield "wrapped", lambda: assign(lambda *a, **k: _doubled_number(f(*a, **k)))
    if is_local(f) and not f.__closure__:
        yield "other code", lambda: setattr(f, "__code__", (lambda *a, **k: 7.0).__code__)


def _doubled_number(value):
    return value * 2 if isinstance(value, (int, float, torch.Tensor)) else value


def _finalize(value, assign):
    """Let the slot have a number when the object in it dies, which a program may have overwritten."""
    weakref.finalize(value, assign, 7.0).atexit = False


def _object(o, assign):
    if hasattr(o, "__dict__") and not isinstance(
        o, (type, types.ModuleType, functools.partial, types.MethodType)
    ):
        yield "an attribute more", lambda: o.__dict__.update(another=3.0)
        yield "a finalizer", lambda: _finalize(o, assign)
        for name, method in vars(type(o)).items():
            if isinstance(method, types.FunctionType) and not name.startswith("__"):
                yield f"{name} shadowed", lambda name=name: o.__dict__.update({name: lambda *a, **k: 7.0})


@contextlib.contextmanager
def default_dtype(dtype):
    """Without autograd, and with `dtype` as torch's default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def autocast():
    """Autocast without autograd."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        yield


AMBIENT: tuple[tuple[str, Callable[[], contextlib.AbstractContextManager[Any]]], ...] = (
    ("inference mode", torch.inference_mode),
    ("autocast", autocast),
    ("default dtype", lambda: default_dtype(torch.float64)),
)


RULES: tuple[tuple[Callable[[Any], bool], Callable], ...] = (
    (lambda v: isinstance(v, torch.Tensor), _tensor),
    (
        lambda v: isinstance(v, bool),
        _others(("flipped", lambda v: not v)),
    ),
    (lambda v: type(v) is int, _others(("one more", lambda v: v + 1), ("a float", float), ("a bool", bool))),
    (
        lambda v: type(v) is float,
        _others(
            ("changed", lambda v: v * 2 + 0.5),
            ("negative", lambda v: -v),
            ("an int", lambda v: int(v) if v == v else 0),
            ("nan", lambda v: float("nan")),
            ("none", lambda v: None),
        ),
    ),
    (
        lambda v: type(v) is str,
        _others(("longer", lambda v: v + "x"), ("upper case", str.upper), ("none", lambda v: None)),
    ),
    (lambda v: v is None, _others(("a number", lambda v: 1.0), ("a tensor", lambda v: torch.full((), 2.0)))),
    (lambda v: isinstance(v, torch.Size), _others(("a tuple", tuple))),
    (
        lambda v: isinstance(v, torch.dtype),
        _others(("another", lambda v: torch.float64 if v is not torch.float64 else torch.int32)),
    ),
    (
        lambda v: isinstance(v, slice),
        _others(("shorter", lambda v: slice(v.start, (v.stop or 2) - 1, v.step))),
    ),
    (lambda v: isinstance(v, range), _others(("longer", lambda v: range(v.start, v.stop + v.step, v.step)))),
    (lambda v: isinstance(v, (set, frozenset)), _set),
    (lambda v: isinstance(v, list), _list),
    (lambda v: isinstance(v, tuple), _tuple),
    (lambda v: isinstance(v, dict), _dict),
    (lambda v: isinstance(v, nn.Module), _module),
    (lambda v: isinstance(v, types.FunctionType), _function),
    (lambda v: isinstance(v, type), _class),
    (lambda v: True, _object),
)
