"""Facts: what a program read that its trace depends on. One set serves guards, recompile reasons and the
mutation suite.

Each kind of fact is a row of :data:`KINDS`: how it is checked, and how the check is written in generated
code, where it states the *failure*. The two say the same; tests compare them.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from thunder.base.provenance import ABSENT, Path, lookup_instance
from thunder.frontend.objects.input_overlap import overlapping_groups


def same_leaf(a: Any, b: Any) -> bool:
    """Equality by type and value: True, 1 and 1.0 differ, so do 0.0 and -0.0; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a != a and b != b) or (a == b and math.copysign(1.0, a) == math.copysign(1.0, b))
    if type(a) is complex:
        return same_leaf(a.real, b.real) and same_leaf(a.imag, b.imag)
    if type(a) in (slice, range):
        return same_leaf(a.start, b.start) and same_leaf(a.stop, b.stop) and same_leaf(a.step, b.step)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_leaf, a, b))
    if type(a) in (frozenset, set):
        return len(a) == len(b) and all(any(same_leaf(x, y) for y in b) for x in a)
    return bool(a == b)


@dataclass(frozen=True, eq=False, slots=True)
class ThisObject:
    """A key that is compared by which object it is."""

    obj: Any


def same_key(a: Any, b: Any) -> bool:
    """Whether a key or element is the expected one."""
    if type(b) is ThisObject:
        return a is b.obj
    if type(a) is type(b) is tuple:
        return len(a) == len(b) and all(map(same_key, a, b))
    return same_leaf(a, b)


def has_keys(container: Any, keys: tuple[Any, ...]) -> bool:
    """Whether the keys of a dict are these, in this order, each of the same type."""
    return len(container) == len(keys) and all(map(same_key, container, keys))


@dataclass(frozen=True)
class TensorFacts:
    """The metadata of a tensor that a trace was made for."""

    type: type
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    dispatch_keys: str

    @classmethod
    def of(cls, t: torch.Tensor, device: torch.device | None = None) -> TensorFacts:
        """The facts of a real tensor, as if it were on ``device``, if one is given."""
        strides = t.stride() if t.layout is torch.strided else None
        keys = str(torch._C._dispatch_keys(t))
        return cls(type(t), tuple(t.shape), strides, t.dtype, device or t.device, t.requires_grad, keys)

    def as_check(self, name: str) -> str:
        """The check in one line, for the text of a prologue."""
        metadata = f"{self.shape}, '{self.device}', {self.dtype}, {self.requires_grad}"
        return f"check_tensor_shape_and_metadata({name}, {metadata})"

    def describe(self, t: Any) -> str | None:
        """The first fact that does not hold of ``t``, in words; None if all hold."""
        found_type: Any = type(t)
        if found_type is not self.type:
            return f"type {found_type.__name__}"
        if t.layout is not torch.strided or t.is_nested:  # it may have no strides, and no sizes
            return "a nested tensor" if t.is_nested else f"layout {t.layout}"
        for name in ("shape", "dtype", "device", "requires_grad"):
            found = tuple(t.shape) if name == "shape" else getattr(t, name)
            if found != getattr(self, name):
                return f"{name} {found}"
        if self.strides is not None and t.stride() != self.strides:
            return f"strides {t.stride()}"
        if str(torch._C._dispatch_keys(t)) != self.dispatch_keys:
            return "dispatch keys (inference tensor, conjugate view, …)"
        return None


class Kind(NamedTuple):
    """How a kind of fact is checked, and the condition in generated code under which it fails."""

    holds: Callable[[Any, Any], bool]
    fails: str


def refers_to(reference: weakref.ref[Any], x: Any) -> bool:
    """Whether ``x`` is the object that ``reference`` was made for, which is still there."""
    return x is not None and reference() is x


#: ``x`` is the value at the path, ``e`` the expected value.
KINDS: dict[str, Kind] = {
    "is": Kind(lambda x, e: x is e, "{x} is not {e}"),
    # "is", without holding it; a reference to what is gone gives None, which is another object
    "refers": Kind(lambda x, e: refers_to(e, x), "{x} is None or {e}() is not {x}"),
    "type": Kind(lambda x, e: type(x) is e, "type({x}) is not {e}"),
    "equal": Kind(same_leaf, "not same_leaf({x}, {e})"),
    "int": Kind(same_leaf, "type({x}) is not int or {x} != {e}"),
    "str": Kind(same_leaf, "type({x}) is not str or {x} != {e}"),
    "len": Kind(lambda x, e: len(x) == e, "len({x}) != {e}"),
    "keys": Kind(has_keys, "not has_keys({x}, {e})"),
    "order": Kind(has_keys, "not has_keys({x}, {e})"),  # of a set: not the same in every process
    "lacks": Kind(lambda x, e: lookup_instance(x, e) is ABSENT, "{e} in {x}.__dict__"),
    "has_key": Kind(lambda x, e: e in x, "{e} not in {x}"),
    "lacks_key": Kind(lambda x, e: e not in x, "{e} in {x}"),
    "empty": Kind(lambda x, e: not x, "{x}"),
    "tensor": Kind(lambda x, e: e.describe(x) is None, "{e}.describe({x}) is not None"),
    "dir": Kind(lambda x, e: dir(x) == e, "dir({x}) != {e}"),
    "offset": Kind(lambda x, e: x.storage_offset() == e, "{x}.storage_offset() != {e}"),
    "seed": Kind(lambda x, e: x.initial_seed() == e, "{x}.initial_seed() != {e}"),
    "state": Kind(lambda x, e: x() == e, "{x}() != {e}"),
}


#: facts about several values → the function whose result is compared with the expected one
RELATIONS: dict[str, Callable[..., Any]] = {
    "same": operator.is_,
    "overlap": overlapping_groups,
    "distinct": lambda *values: len({id(v) for v in values}) == len(values),
    "different": lambda *values: len({id(v) for v in values}) == len(values),
}


@dataclass(frozen=True, eq=False, slots=True)
class Fact:
    """That ``kind`` holds of the value at ``path`` with ``expected``; ``others`` are further paths of facts
    about several values.
    """

    kind: str
    path: Path
    expected: Any
    others: tuple[Path, ...] = ()

    @property
    def source(self) -> str:
        """The path as the user would write it."""
        return self.path.source

    def failure(self, roots: dict[str, Any]) -> tuple[Any] | None:
        """What was found instead, in a tuple of one; None if the fact holds."""
        value = self.path.fetch(roots)
        if self.others:
            found = RELATIONS[self.kind](value, *(path.fetch(roots) for path in self.others))
            return None if found == self.expected else (found,)
        if value is ABSENT:
            return None if self.expected is ABSENT and self.kind == "is" else (ABSENT,)
        if KINDS[self.kind].holds(value, self.expected):
            return None
        return (found_text(self, value),)

    def __str__(self) -> str:
        if self.kind == "same":
            return f"{self.source} is {'' if self.expected else 'not '}{self.others[0].source}"
        if self.kind == "distinct":
            return "all tensors are different objects"
        if self.kind == "different":
            return f"difference of {', '.join(p.source for p in (self.path, *self.others))}"
        if self.kind == "overlap":
            return f"overlap in memory of {', '.join(p.source for p in (self.path, *self.others))}"
        return f"{_WORDS.get(self.kind, self.kind)} of {self.source}"


_WORDS = {
    "is": "identity",
    "refers": "identity",
    "equal": "value",
    "int": "value",
    "str": "value",
    "len": "length",
    "tensor": "metadata",
}


def expected_text(fact: Fact) -> Any:
    """What is expected, for a message: of an object that is held weakly, a description."""
    if fact.kind != "refers":
        return fact.expected
    expected = fact.expected()
    return "an object that is gone" if expected is None else repr(expected).partition("\n")[0]


def found_text(fact: Fact, value: Any) -> Any:
    """What was found where ``fact`` did not hold: short, and without holding the value alive."""
    match fact.kind:
        case "type":
            return type(value)
        case "len":
            return len(value)
        case "keys" | "order":
            return tuple(value)
        case "tensor":
            return fact.expected.describe(value)
        case "seed":
            return value.initial_seed()
        case "state":
            return value()
        case "lacks" | "lacks_key":
            return f"{fact.expected!r} is there"
        case "has_key":
            return f"{fact.expected!r} is not there"
        case "equal" | "int" | "str":
            return (
                value
                if isinstance(value, int | float | complex | str | bytes) or value is None
                else type(value)
            )
        case _:
            return f"another {type(value).__name__}"
