"""The checks of prologues: a row for each kind of fact on which a program may depend.

    @check("len({c}) != {n}", "length of {c}", found=lambda c, n: len(c))
    def check_len(c: Any, n: int) -> bool:
        return len(c) == n

A row is a primitive, whose statement raises ``GuardFailed`` where the function returns False. A *fact* is a
call of it whose values are paths (``thunder.frontend.facts``). In the prologue that runs, the first text is
the condition under which the entry is a miss. The second text names the fact in the reason of a recompile,
and ``found`` returns what there is instead.
"""

from __future__ import annotations

import functools
import inspect
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import torch

from thunder.base.equal_values import COMPARISONS, Comparison, are_distinct, has_keys, same_leaf
from thunder.base.errors import GuardFailed
from thunder.base.provenance import ABSENT, MEMBER_DICTS, Path
from thunder.base.tags import OpTags
from thunder.ir.symbol import Symbol
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import composite, primitive

# fmt: off
__all__ = [
    "CHECKS", "Check", "check_apart", "check_array", "check_compare", "check_contains", "check_different",
    "check_dir", "check_distinct", "check_empty", "check_has_attr", "check_initial_seed", "check_instance",
    "check_keys", "check_len", "check_literal_like", "check_none", "check_number_type_and_value",
    "check_other_object", "check_overlap", "check_referent", "check_same_object", "check_set",
    "check_silent_deaths", "check_sizes", "check_slice_value", "check_state", "check_storage_offset",
    "check_string_value", "check_tensor", "check_tensor_shape_and_metadata", "check_tensors", "check_type",
]
# fmt: on


class ConditionWriter(Protocol):
    """The names that the generated code has for values, paths and constants."""

    def argument(self, value: Any) -> str:
        """Return the expression for the value at a path, or for any other object."""

    def value(self, path: Path) -> str:
        """Return the expression for the value at a path."""

    def dictionary(self, path: Path) -> str:
        """Return the variable of the ``__dict__`` of the value at a path."""

    def identity(self, value: Any) -> str:
        """Return a name for an object that is compared by identity."""

    def absence(self, path: Path) -> str:
        """Return the condition that there is something at a path."""


#: writes the condition under which a check of these arguments fails; of the first one, and of those that
#: guards compare with, some are paths
Write = Callable[..., str]
#: ``about=`` of a check
About = Literal["value", "object"]
_Holds = TypeVar("_Holds", bound=Callable[..., bool])


def _another(value: Any, *expected: Any) -> str | None:
    """Return what there is, without holding it alive."""
    return None if value is None else f"another {type(value).__name__}"


@dataclass(frozen=True, eq=False)
class Check(Symbol):
    """The row of a kind of fact: a primitive that checks it, its condition in generated code, its name.

    ``fails`` is a text with the parameters in braces, or a function of a writer and the arguments; None if
    another check includes this one. ``reason`` names the fact. ``found`` returns what there is instead,
    without holding a value alive. A ``relation`` is True or not, of one or several values. ``about`` is
    "value" if the fact is which value there is, "object" for another property of an object of Python; these a
    program can read again once code has changed them. It is None for relations, memory, tensors, and others.
    """

    holds: Callable[..., bool] = lambda *args: False
    fails: str | Write | None = None
    reason: str | Callable[..., str] = ""
    found: Callable[..., Any] = _another
    relation: bool = False
    about: About | None = None

    def condition(self, writer: ConditionWriter, args: Sequence[Any]) -> str | None:
        """Return the condition under which a call fails; None if another check includes it."""
        fails = self.fails
        if not isinstance(fails, str):
            return None if fails is None else fails(writer, *args)
        texts = [writer.argument(a) for a in args]
        return fails.format(*self._by_parameter(texts))

    def describe(self, args: Sequence[Any]) -> str:
        """Return a call in words, as the reason of a recompile names it."""
        if not isinstance(self.reason, str):
            return self.reason(*args)
        texts = [a.source if type(a) is Path else a for a in args]
        return self.reason.format(*self._by_parameter(texts))

    @functools.cached_property
    def _fixed(self) -> int | None:
        """The number of parameters before ``*others``; None if there are no others."""
        kinds = [p.kind for p in inspect.signature(self.holds).parameters.values()]
        return len(kinds) - 1 if kinds[-1] is inspect.Parameter.VAR_POSITIONAL else None

    def _by_parameter(self, texts: list[Any]) -> list[Any]:
        fixed = self._fixed
        return texts if fixed is None else [*texts[:fixed], ", ".join(texts[fixed:])]


#: all checks, by the ids of their symbols
CHECKS: dict[str, Check] = {}


def _declared(holds: Callable[..., bool], **row: Any) -> Symbol:
    @functools.wraps(holds)
    def meta(*args: Any, **kwargs: Any) -> None:
        return None

    @functools.wraps(holds)
    def run(x: Any, *expected: Any) -> None:
        if not holds(x, *expected):
            raise GuardFailed(holds.__name__, expected, x)

    return primitive(
        holds.__name__, meta, python_impl=run, vjp=NONDIFFERENTIABLE, tags=(OpTags.DONT_DCE,), **row
    )


def check(
    fails: str | Write | None,
    reason: str | Callable[..., str],
    found: Callable[..., Any] = _another,
    *,
    relation: bool = False,
    about: About | None = None,
) -> Callable[[Callable[..., bool]], Check]:
    """Declare a check by a function that returns whether it holds; see :class:`Check`."""

    def declare(holds: Callable[..., bool]) -> Check:
        positions = {name: f"{{{i}}}" for i, name in enumerate(inspect.signature(holds).parameters)}
        texts = (text.format(**positions) if isinstance(text, str) else text for text in (fails, reason))
        row: dict[str, Any] = dict(zip(("fails", "reason"), texts, strict=True))
        row |= {"holds": holds, "found": found, "relation": relation, "about": about}
        symbol = _declared(holds, make_symbol=functools.partial(Check, **row))
        assert isinstance(symbol, Check), "make_symbol makes one"
        return CHECKS.setdefault(symbol.id, symbol)

    return declare


# -- identity ------------------------------------------------------------------------------------------------


def _write_identity(writer: ConditionWriter, a: Path, b: Any) -> str:
    if b is ABSENT:
        return writer.absence(a)
    if type(b) is Path:
        other = writer.value(b)
        return f"{writer.value(a)} is not {other}"
    return f"{writer.value(a)} is not {writer.identity(b)}"


def _name_identity(a: Path, b: Any) -> str:
    return f"{a.source} is {b.source}" if type(b) is Path else f"identity of {a.source}"


@check(_write_identity, _name_identity, about="value")
def check_same_object(a: Any, b: Any) -> bool:
    """Check that ``a is b``."""
    return a is b


@check("{a} is {b}", "{a} is not {b}", relation=True)
def check_other_object(a: Any, b: Any) -> bool:
    """Check that ``a is not b``."""
    return a is not b


@check("{x} is not None", "identity of {x}", about="value")
def check_none(x: Any) -> bool:
    """Check that ``x is None``."""
    return x is None


@check("{x} is None or {reference}() is not {x}", "identity of {x}", about="object")
def check_referent(x: Any, reference: weakref.ref[Any]) -> bool:
    """Check that ``x`` is the object of a weak reference, which is still alive."""
    return x is not None and reference() is x


@check("not are_distinct({first}, {others})", "difference of {first}, {others}", relation=True)
def check_different(first: Any, *others: Any) -> bool:
    """Check that all values are different objects."""
    return are_distinct(first, *others)


@check(None, "all tensors are different objects", relation=True)
def check_distinct(first: Any, *others: Any) -> bool:
    """Check that all tensors are different objects; the batched check of tensors includes it."""
    return are_distinct(first, *others)


# -- classes and values --------------------------------------------------------------------------------------


_type_of = type  # ``check_type`` has a parameter of this name


@check("type({x}) is not {type}", "type of {x}", lambda x, type: _type_of(x), about="object")
def check_type(x: Any, type: type) -> bool:
    """Check that ``type(x) is type``."""
    return _type_of(x) is type


@check("not isinstance({x}, {types})", "class of {x}", lambda x, types: type(x))
def check_instance(x: Any, types: type | tuple[type, ...]) -> bool:
    """Check that ``isinstance(x, types)``."""
    return isinstance(x, types)


#: steps of paths whose code is one operation of Python on a dict, a tuple or an object of its own; where the
#: steps before call nothing, a condition may have the code twice
_PLAIN_STEPS = frozenset({"instance", "key", "index", "global", "cell", "closure", "default"})


def _write_value(writer: ConditionWriter, x: Path, v: Any) -> str:
    value, expected = writer.value(x), writer.argument(v)
    is_number = type(v) is float and v and math.isfinite(v)
    if is_number and x.kind in _PLAIN_STEPS and "(" not in value:
        return f"type({value}) is not float or {value} != {expected}"
    return f"not same_leaf({value}, {expected})"


def _value_or_type(value: Any, *expected: Any) -> Any:
    is_plain = isinstance(value, int | float | complex | str | bytes) or value is None
    return value if is_plain else type(value)


@check(_write_value, "value of {x}", _value_or_type, about="value")
def check_literal_like(x: Any, v: Any) -> bool:
    """Check that ``x`` and ``v`` are equal by type and value."""
    return same_leaf(x, v)


def _write_number(writer: ConditionWriter, n: Path, v: float) -> str:
    if type(v) is not int:
        return _write_value(writer, n, v)
    value = writer.value(n)
    return f"type({value}) is not int or {value} != {writer.argument(v)}"


@check(_write_number, "value of {n}", _value_or_type, about="value")
def check_number_type_and_value(n: Any, v: float) -> bool:
    """Check that ``n`` is this number, of this type."""
    return same_leaf(n, v)


@check("type({s}) is not str or {s} != {v}", "value of {s}", _value_or_type, about="value")
def check_string_value(s: Any, v: str) -> bool:
    """Check that ``s`` is this string."""
    return type(s) is str and s == v


@check("not same_leaf({s}, {v})", "value of {s}", _value_or_type, about="value")
def check_slice_value(s: Any, v: slice) -> bool:
    """Check that ``s`` is a slice with these bounds and this step."""
    return same_leaf(s, v)


def _write_comparison(writer: ConditionWriter, a: Path, op: Comparison, b: Any) -> str:
    assert op in COMPARISONS, "the reader of a prologue has refused others"
    return f"not {writer.value(a)} {op} {writer.argument(b)}"


@check(
    _write_comparison,
    lambda a, op, b: f"{a.source} {op} {b.source if type(b) is Path else repr(b)}",
    relation=True,
)
def check_compare(a: Any, op: Comparison, b: Any) -> bool:
    """Check a comparison of two values; ``op`` is one of ``== != < <= > >=``."""
    return bool(COMPARISONS[op](a, b))


@check("{read}() != {value}", "state of {read}", lambda read, value: read(), about="object")
def check_state(read: Callable[[], Any], value: Any) -> bool:
    """Check that the function ``read`` returns a value equal to ``value``."""
    return bool(read() == value)


# -- containers and objects ----------------------------------------------------------------------------------


@check("len({c}) != {n}", "length of {c}", lambda c, n: len(c), about="object")
def check_len(c: Any, n: int) -> bool:
    """Check that ``len(c) == n``."""
    return len(c) == n


@check("{c}", "empty of {c}", about="object")
def check_empty(c: Any) -> bool:
    """Check that the container ``c`` is empty."""
    return not c


def _write_keys(writer: ConditionWriter, d: Path, keys: tuple[Any, ...]) -> str:
    value, expected = writer.value(d), writer.argument(keys)
    if not keys:
        return f"len({value}) != 0"
    if d.parent is None or (d.kind == "instance" and d.key in MEMBER_DICTS):  # of strings: equal is the same
        return f"(*{value},) != {expected}"
    return f"not has_keys({value}, {expected})"


@check(_write_keys, "keys of {d}", lambda d, keys: tuple(d), about="object")
def check_keys(d: Any, keys: tuple[Any, ...]) -> bool:
    """Check that a dict has these keys, in this order."""
    return has_keys(d, keys)


def _write_elements(writer: ConditionWriter, s: Path, values: tuple[Any, ...]) -> str:
    # The order of a set differs between processes, and the text must not: it names the elements.
    return f"not has_keys({writer.value(s)}, {writer.identity(values)})"


@check(_write_elements, "order of {s}", lambda s, values: tuple(s), about="object")
def check_set(s: Any, values: tuple[Any, ...]) -> bool:
    """Check that a set has these elements, in this order of iteration."""
    return has_keys(s, values)


def _presence(owner: Any, name: Any, present: bool = True) -> str:
    return f"{name!r} is {'not there' if present else 'there'}"


def _write_contents(writer: ConditionWriter, c: Path, key: Any, present: bool = True) -> str:
    container = writer.value(c)
    return f"{writer.argument(key)} {'not in' if present else 'in'} {container}"


@check(
    _write_contents,
    lambda c, key, present=True: f"{'has_key' if present else 'lacks_key'} of {c.source}",
    _presence,
    about="object",
)
def check_contains(c: Any, key: Any, present: bool = True) -> bool:
    """Check that ``key in c``, or with ``present=False`` that it is not."""
    return (key in c) is present


@check(
    lambda writer, x, name, present=True: f"{name!r} {'not in' if present else 'in'} {writer.dictionary(x)}",
    lambda x, name, present=True: f"{'has' if present else 'lacks'} of {x.source}",
    _presence,
    about="object",
)
def check_has_attr(x: Any, name: str, present: bool = True) -> bool:
    """Check that the ``__dict__`` of an object has a name, or with ``present=False`` that it has not."""
    return (name in object.__getattribute__(x, "__dict__")) is present


@check("dir({x}) != {names}", "dir of {x}", about="object")
def check_dir(x: Any, names: list[str]) -> bool:
    """Check that ``dir(x) == names``."""
    return dir(x) == names


@check("not {releases}.holds({owner})", "what dies of {owner}", lambda owner, releases: releases.found(owner))
def check_silent_deaths(owner: Any, releases: Any) -> bool:
    """Check that what a program overwrites of an object dies without running code of the user's."""
    return bool(releases.holds(owner))


# -- memory --------------------------------------------------------------------------------------------------


@check("not {expected}.holds({a})", "array of {a}", lambda a, expected: expected.found(a))
def check_array(a: Any, expected: Any) -> bool:
    """Check the layout or the content of a NumPy array; ``expected`` compares it."""
    return bool(expected.holds(a))


@check("not {are_apart}({a}, {others})", "separate memory of {a}, {others}", relation=True)
def check_apart(a: Any, are_apart: Callable[..., bool], *others: Any) -> bool:
    """Check that an array shares memory with no other value; the function ``are_apart`` compares them."""
    return are_apart(a, *others)


@check(
    "{compute}({first}, {others}) != {expected}",
    "overlap in memory of {first}, {others}",
    lambda first, expected, compute, *others: compute(first, *others),
)
def check_overlap(first: Any, expected: Any, compute: Callable[..., Any], *others: Any) -> bool:
    """Check which of several tensors share memory, as ``compute`` returns it."""
    return bool(compute(first, *others) == expected)


@check("{t}.storage_offset() != {offset}", "offset of {t}")
def check_storage_offset(t: torch.Tensor, offset: int) -> bool:
    """Check the position (elements) of a tensor in its storage."""
    return t.storage_offset() == offset


@check("{g}.initial_seed() != {seed}", "seed of {g}", lambda g, seed: g.initial_seed())
def check_initial_seed(g: torch.Generator, seed: int) -> bool:
    """Check the seed of a generator of random numbers."""
    return g.initial_seed() == seed


# -- tensors and sizes ---------------------------------------------------------------------------------------


@check(None, "metadata of {t}", lambda t, expected: None if t is None else expected.describe(t))
def check_tensor(t: Any, expected: Any) -> bool:
    """Check all metadata of a tensor, which ``expected`` compares; one batched check is for all tensors."""
    return expected.describe(t) is None


@check(None, "{relation}", lambda first, relation, *others: (first, *others) if others else first)
def check_sizes(first: Any, relation: Any, *others: Any) -> bool:
    """Check a relation of sizes; a prologue reads the sizes with their tensors, and checks it at its end."""
    return bool(relation.holds((first, *others)))


def _has_metadata(
    t: Any, shape: tuple[int, ...], device: str, dtype: torch.dtype, requires_grad: bool
) -> bool:
    return (
        isinstance(t, torch.Tensor)
        and tuple(t.shape) == shape
        and str(t.device) == device
        and t.dtype == dtype
        and t.requires_grad == requires_grad
    )


@_declared
def check_tensor_shape_and_metadata(
    t: Any, shape: tuple[int, ...], device: str, dtype: torch.dtype, requires_grad: bool
) -> bool:
    """Check the metadata of a tensor.

    It is how a prologue states ``check_tensor``, which checks the type, the strides and the dispatch keys as
    well.
    """
    return _has_metadata(t, shape, device, dtype, requires_grad)


def _check_tensors(tensors: Sequence[Any], metadata: Sequence[tuple[Any, ...]]) -> None:
    """Check the metadata of several tensors, and that they are different objects."""
    for tensor, expected in zip(tensors, metadata, strict=True):
        check_tensor_shape_and_metadata(tensor, *expected)
    if len(tensors) > 1:
        check_different(*tensors)


def _run_check_tensors(tensors: Sequence[Any], metadata: Sequence[tuple[Any, ...]]) -> None:
    for tensor, expected in zip(tensors, metadata, strict=True):
        if not _has_metadata(tensor, *expected):
            raise GuardFailed("check_tensors", expected, tensor)
    if not are_distinct(*tensors):
        raise GuardFailed("check_tensors", "different objects", tensors)


#: the checks of several tensors at once: ``check_tensors(tensors, metadata)``, where the metadata of a tensor
#: are the further arguments of ``check_tensor_shape_and_metadata``
check_tensors = composite(
    "check_tensors", _check_tensors, python_impl=_run_check_tensors, tags=frozenset({OpTags.DONT_DCE})
)
