"""Facts: what a program read and its trace depends on, for guards and recompile reasons.

Each kind of fact is a row of :data:`KINDS`: how it is checked, how the condition under which it *fails* is
written in generated code, and how it is described. Adding a kind of guard is adding a row; the check and the
text must agree.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch

from thunder.base.equal_values import COMPARISONS, Comparison, are_distinct, has_keys, same_leaf
from thunder.base.provenance import ABSENT, MEMBER_DICTS, Path, lookup_instance
from thunder.frontend.arrays.array_memory import are_apart
from thunder.frontend.free_sizes import FreeSizes
from thunder.frontend.objects.input_overlap import overlapping_groups


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
    #: the sizes that may differ from call to call
    free: FreeSizes | None = None

    @classmethod
    def of(
        cls, t: torch.Tensor, device: torch.device | None = None, free: FreeSizes | None = None
    ) -> TensorFacts:
        """Return the facts of a real tensor, as if it were on ``device``, if one is given."""
        strides = t.stride() if t.layout is torch.strided else None
        keys = str(torch._C._dispatch_keys(t))
        return cls(type(t), tuple(t.shape), strides, t.dtype, device or t.device, t.requires_grad, keys, free)

    def as_check(self, name: str) -> str:
        """Return the check in one line, for the text of a prologue."""
        shape = self.shape if self.free is None else _text_of(self.free.shape)
        metadata = f"{shape}, '{self.device}', {self.dtype}, {self.requires_grad}"
        return f"check_tensor_shape_and_metadata({name}, {metadata})"

    def strides_for(self, t: torch.Tensor) -> tuple[int, ...] | None:
        """Return the strides (elements) that a tensor must have with its sizes."""
        return self.strides if self.free is None else self.free.strides_for(t.shape, t.stride())

    def describe(self, t: Any) -> str | None:
        """Return the first fact that does not hold of ``t``, in words; None if all hold."""
        found_type: Any = type(t)
        if found_type is not self.type:
            return f"type {found_type.__name__}"
        if t.layout is not torch.strided or t.is_nested:  # it may have no strides, and no sizes
            return "a nested tensor" if t.is_nested else f"layout {t.layout}"
        for name in ("shape", "dtype", "device", "requires_grad"):
            value = tuple(t.shape) if name == "shape" else getattr(t, name)
            if name == "shape" and self.free is not None and self.free.matches(value):
                continue
            if value != getattr(self, name):
                return f"{name} {value}"
        strides = self.strides_for(t)
        if strides is not None and t.stride() != strides:
            return f"strides {t.stride()}"
        if str(torch._C._dispatch_keys(t)) != self.dispatch_keys:
            return "dispatch keys (inference tensor, conjugate view, …)"
        return None


def _text_of(shape: Sequence[Any]) -> str:
    return f"({', '.join(str(getattr(n, 'name', n)) for n in shape)}{',' if len(shape) == 1 else ''})"


# fmt: off
GuardKind = Literal[
    "is", "refers", "type", "instance", "equal", "int", "str", "len", "keys", "order", "lacks", "has_key",
    "lacks_key", "empty", "tensor", "dir", "offset", "seed", "state", "same", "overlap", "distinct",
    "different", "array", "apart", "size", "silent",
] | Comparison
# fmt: on


@dataclass(eq=False, slots=True)  # not frozen, as a path
class Fact:
    """A condition that a trace depends on, never changed: ``kind`` holds of the value at ``path``.

    ``others`` are further paths, of the facts about several values.
    """

    kind: GuardKind
    path: Path
    expected: Any
    others: tuple[Path, ...] = ()

    @property
    def source(self) -> str:
        """The path as the user would write it."""
        return self.path.source

    @property
    def sources(self) -> str:
        """All paths as the user would write them."""
        return ", ".join(path.source for path in (self.path, *self.others))

    def failure(self, roots: dict[str, Any]) -> tuple[Any] | None:
        """Return what there is instead, in a tuple of one; None if the fact holds."""
        row, value = KINDS[self.kind], self.path.fetch(roots)
        if self.kind == "size":
            sizes = (value, *(path.fetch(roots) for path in self.others))
            return None if self.expected.holds(sizes) else (sizes if len(sizes) > 1 else value,)
        if isinstance(row, Relation):
            related = row.compute(value, *(path.fetch(roots) for path in self.others))
            return None if related == self.expected else (related,)
        if value is ABSENT:
            return None if self.expected is ABSENT else (ABSENT,)
        return None if row.holds(value, self.expected) else (row.found(self, value),)

    def __str__(self) -> str:
        return KINDS[self.kind].describe(self)


class ConditionWriter(Protocol):
    """The names that the generated code has for values, paths and constants."""

    def value(self, path: Path) -> str:
        """Return the expression for the value at a path."""

    def dictionary(self, path: Path) -> str:
        """Return the variable of the ``__dict__`` of the value at a path."""

    def constant(self, value: Any) -> str:
        """Return an object's literal, or a name for it."""

    def identity(self, value: Any) -> str:
        """Return a name for an object that is compared by identity."""

    def absence(self, path: Path) -> str:
        """Return the condition that there is something at a path."""


#: writes the conditions in generated code under which a fact fails
Write = Callable[[ConditionWriter, Fact], Sequence[str]]


def _another(value: object) -> str | None:
    """Return what there is, without holding it alive."""
    return None if value is None else f"another {type(value).__name__}"


class FactKind(NamedTuple):
    """A kind of fact about one value.

    ``holds(value, expected)`` checks it. ``write`` is None if the batched check of all tensors includes it.
    ``noun`` describes it, and ``found(fact, value)`` what there is instead, without holding the value alive.
    """

    holds: Callable[[Any, Any], bool]
    write: Write | None
    noun: str
    found: Callable[[Fact, Any], Any] = lambda fact, value: _another(value)

    def describe(self, fact: Fact) -> str:
        """Return the fact in words."""
        return f"{self.noun} of {fact.source}"


class Relation(NamedTuple):
    """A kind of fact about several values: ``compute`` of them must equal the expected result."""

    compute: Callable[..., Any]
    write: Write | None
    describe: Callable[[Fact], str]


# -- conditions ----------------------------------------------------------------------------------------------


def _fails_if(condition: str) -> Write:
    """Return a writer of a condition on ``{x}``, the value, and ``{e}``, the expected one."""
    return lambda writer, fact: (
        condition.format(x=writer.value(fact.path), e=writer.constant(fact.expected)),
    )


def _is_another(writer: ConditionWriter, fact: Fact) -> Sequence[str]:
    if fact.expected is ABSENT:
        return (writer.absence(fact.path),)
    return (f"{writer.value(fact.path)} is not {writer.identity(fact.expected)}",)


def _has_other_keys(writer: ConditionWriter, fact: Fact) -> Sequence[str]:
    value, keys = writer.value(fact.path), writer.constant(fact.expected)
    if not fact.expected:
        return (f"len({value}) != 0",)
    if not _has_string_keys(fact.path):
        return (f"not has_keys({value}, {keys})",)
    return (f"(*{value},) != {keys}",)


def _is_other_value(writer: ConditionWriter, fact: Fact) -> Sequence[str]:
    value, expected = writer.value(fact.path), writer.constant(fact.expected)
    number = type(fact.expected) is float and fact.expected and math.isfinite(fact.expected)
    if number and fact.path.kind in _PLAIN_STEPS and "(" not in value:
        return (f"type({value}) is not float or {value} != {expected}",)
    return (f"not same_leaf({value}, {expected})",)


#: steps of paths whose code is one operation of Python on a dict, a tuple or an object of its own; where the
#: steps before call nothing, a condition may have the code twice
_PLAIN_STEPS = frozenset({"instance", "key", "index", "global", "cell", "closure", "default"})


def _has_string_keys(path: Path) -> bool:
    """Return whether a dict can only have strings as keys, of which equal ones are the same."""
    return path.parent is None or (path.kind == "instance" and path.key in MEMBER_DICTS)


def _has_other_order(writer: ConditionWriter, fact: Fact) -> Sequence[str]:
    # The order of a set differs between processes, and the text must not: it names the keys.
    return (f"not has_keys({writer.value(fact.path)}, {writer.identity(fact.expected)})",)


def _has_attribute(writer: ConditionWriter, fact: Fact) -> Sequence[str]:
    return (f"{writer.constant(fact.expected)} in {writer.dictionary(fact.path)}",)


def _is_other_object(writer: ConditionWriter, fact: Fact) -> Sequence[str]:
    other = writer.value(fact.others[0])
    return (f"{writer.value(fact.path)} is {'not ' if fact.expected else ''}{other}",)


def _has_other_relation(writer: ConditionWriter, fact: Fact) -> Sequence[str]:
    values = ", ".join(writer.value(path) for path in (fact.path, *fact.others))
    row = KINDS[fact.kind]
    assert isinstance(row, Relation), "facts about several values are relations"
    return (f"{writer.constant(row.compute)}({values}) != {writer.constant(fact.expected)}",)


# -- rows ----------------------------------------------------------------------------------------------------


def refers_to(reference: weakref.ref[Any], x: Any) -> bool:
    """Return whether ``x`` is the object of a weak reference, which is still alive."""
    return x is not None and reference() is x


def _number_or_type(fact: Fact, value: Any) -> Any:
    is_plain = isinstance(value, int | float | complex | str | bytes) or value is None
    return value if is_plain else type(value)


def _is_present(fact: Fact, value: Any) -> str:
    return f"{fact.expected!r} is there"


def _comparison(fact: Fact) -> str:
    return f"{fact.source} {fact.kind} {fact.others[0].source}"


KINDS: dict[GuardKind, FactKind | Relation] = {
    "is": FactKind(lambda x, e: x is e, _is_another, "identity"),
    # "is" without holding the object; the reference returns None when it is gone, which is another object
    "refers": FactKind(
        lambda x, e: refers_to(e, x), _fails_if("{x} is None or {e}() is not {x}"), "identity"
    ),
    "type": FactKind(
        lambda x, e: type(x) is e, _fails_if("type({x}) is not {e}"), "type", lambda fact, x: type(x)
    ),
    "instance": FactKind(isinstance, _fails_if("not isinstance({x}, {e})"), "class", lambda fact, x: type(x)),
    "equal": FactKind(same_leaf, _is_other_value, "value", _number_or_type),
    "int": FactKind(same_leaf, _fails_if("type({x}) is not int or {x} != {e}"), "value", _number_or_type),
    "str": FactKind(same_leaf, _fails_if("type({x}) is not str or {x} != {e}"), "value", _number_or_type),
    "len": FactKind(lambda x, e: len(x) == e, _fails_if("len({x}) != {e}"), "length", lambda fact, x: len(x)),
    "keys": FactKind(has_keys, _has_other_keys, "keys", lambda fact, x: tuple(x)),
    "order": FactKind(has_keys, _has_other_order, "order", lambda fact, x: tuple(x)),
    "lacks": FactKind(lambda x, e: lookup_instance(x, e) is ABSENT, _has_attribute, "lacks", _is_present),
    "has_key": FactKind(
        lambda x, e: e in x,
        _fails_if("{e} not in {x}"),
        "has_key",
        lambda fact, x: f"{fact.expected!r} is not there",
    ),
    "lacks_key": FactKind(lambda x, e: e not in x, _fails_if("{e} in {x}"), "lacks_key", _is_present),
    "empty": FactKind(lambda x, e: not x, _fails_if("{x}"), "empty"),
    "tensor": FactKind(
        lambda x, e: e.describe(x) is None,
        None,
        "metadata",
        lambda fact, x: None if x is None else fact.expected.describe(x),
    ),
    "dir": FactKind(lambda x, e: dir(x) == e, _fails_if("dir({x}) != {e}"), "dir"),
    "offset": FactKind(
        lambda x, e: x.storage_offset() == e, _fails_if("{x}.storage_offset() != {e}"), "offset"
    ),
    "seed": FactKind(
        lambda x, e: x.initial_seed() == e,
        _fails_if("{x}.initial_seed() != {e}"),
        "seed",
        lambda fact, x: x.initial_seed(),
    ),
    "state": FactKind(lambda x, e: x() == e, _fails_if("{x}() != {e}"), "state", lambda fact, x: x()),
    "array": FactKind(
        lambda x, e: e.holds(x),
        _fails_if("not {e}.holds({x})"),
        "array",
        lambda fact, x: fact.expected.found(x),
    ),
    "silent": FactKind(
        lambda x, e: e.holds(x),
        _fails_if("not {e}.holds({x})"),
        "what dies",
        lambda fact, x: fact.expected.found(x),
    ),
    "apart": Relation(are_apart, _has_other_relation, lambda fact: f"separate memory of {fact.sources}"),
    "same": Relation(
        operator.is_,
        _is_other_object,
        lambda fact: f"{fact.source} is {'' if fact.expected else 'not '}{fact.others[0].source}",
    ),
    "overlap": Relation(
        overlapping_groups, _has_other_relation, lambda fact: f"overlap in memory of {fact.sources}"
    ),
    "distinct": Relation(are_distinct, None, lambda fact: "all tensors are different objects"),
    "size": Relation(lambda *sizes: sizes, None, lambda fact: str(fact.expected)),
    "different": Relation(are_distinct, _has_other_relation, lambda fact: f"difference of {fact.sources}"),
    **{sign: Relation(compare, _has_other_relation, _comparison) for sign, compare in COMPARISONS.items()},
}


def expected_text(fact: Fact) -> Any:
    """Return what is expected, for a message: of an object that is held weakly, a description.

    Of a fact about sizes, it is the relation, with the line of the program that asked for it.
    """
    if fact.kind == "size":
        origin = fact.expected.fact.origin
        return f"{fact.expected}, asked at {' '.join(origin.split())}" if origin else str(fact.expected)
    if fact.kind != "refers":
        return fact.expected
    expected = fact.expected()
    return "an object that is gone" if expected is None else repr(expected).partition("\n")[0]
