"""Groups of dtypes, and predicates of dtypes and of Python's types of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

from thunder.core.dtypes import (
    all_dtypes,
    bfloat16,
    bool8,
    complex32,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    int64,
    python_type_of,
    to_dtype,
)

__all__ = [
    "DtypeGroup",
    "all_dtypes_and_numbertypes",
    "all_numbertypes",
    "are_same_dtypes",
    "boolean_dtypes",
    "complex_dtypes",
    "corresponding_complex_dtype",
    "corresponding_real_dtype",
    "dtype_to_numbertype",
    "exact_dtypes",
    "float_8bit_dtypes",
    "float_dtypes",
    "float_math_dtypes",
    "inexact_dtypes",
    "integer_dtypes",
    "is_boolean_dtype",
    "is_complex_dtype",
    "is_dtype",
    "is_exact_dtype",
    "is_float_dtype",
    "is_inexact_dtype",
    "is_integer_dtype",
    "is_low_precision_dtype",
    "is_nonboolean_integer_dtype",
    "is_numbertype",
    "is_signedinteger_dtype",
    "is_unsigned_dtype",
    "is_weak_dtype",
    "low_precision_dtypes",
    "numbertype_to_dtype",
    "resolve_dtypes",
    "signed_integer_dtypes",
    "to_strong_dtype",
    "unsigned_integer_dtypes",
]


class DtypeGroup(Set[dtype]):
    """A set of dtypes that does not change; `isinstance(d, group)` is `d in group`."""

    __slots__ = ("_members",)

    def __init__(self, members: Iterable[dtype]) -> None:
        self._members = frozenset(members)

    def __contains__(self, d: object) -> bool:
        return d in self._members

    def __iter__(self) -> Iterator[dtype]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        return hash(self._members)

    def __instancecheck__(self, d: object) -> bool:
        return isinstance(d, dtype) and d in self._members

    def __repr__(self) -> str:
        return f"DtypeGroup({sorted(self._members, key=repr)})"


def _group(belongs: Callable[[dtype], bool]) -> DtypeGroup:
    return DtypeGroup(d for d in all_dtypes if belongs(d))


_NUMBER_TYPES = (bool, int, float, complex)

boolean_dtypes = DtypeGroup({bool8})
integer_dtypes = _group(lambda d: d.is_integer)
signed_integer_dtypes = _group(lambda d: d.is_integer and d.is_signed)
unsigned_integer_dtypes = _group(lambda d: d.is_integer and not d.is_signed)
exact_dtypes = boolean_dtypes | integer_dtypes
float_dtypes = _group(lambda d: d.is_floating_point)
complex_dtypes = _group(lambda d: d.is_complex)
inexact_dtypes = float_dtypes | complex_dtypes
float_8bit_dtypes = _group(lambda d: d.is_floating_point and d.name.startswith("float8"))
float_math_dtypes = DtypeGroup({bfloat16, float16, float32, float64})
low_precision_dtypes = inexact_dtypes - {float32, float64, complex64, complex128}
all_numbertypes = frozenset(_NUMBER_TYPES)
all_dtypes_and_numbertypes = frozenset(all_dtypes) | all_numbertypes

_COMPLEX_OF = {float16: complex32, float32: complex64, float64: complex128}
_REAL_OF = {c: f for f, c in _COMPLEX_OF.items()}


def _predicate(group: Set[dtype], *number_types: type) -> Callable[[Any], bool]:
    def is_in_group(x: Any) -> bool:
        return x in number_types if x in all_numbertypes else to_dtype(x) in group

    return is_in_group


is_boolean_dtype = _predicate(boolean_dtypes, bool)
is_integer_dtype = _predicate(exact_dtypes, bool, int)
is_nonboolean_integer_dtype = _predicate(integer_dtypes, int)
is_signedinteger_dtype = _predicate(signed_integer_dtypes, int)
is_unsigned_dtype = _predicate(unsigned_integer_dtypes | boolean_dtypes, bool)
is_exact_dtype = _predicate(exact_dtypes, bool, int)
is_float_dtype = _predicate(float_dtypes, float)
is_complex_dtype = _predicate(complex_dtypes, complex)
is_inexact_dtype = _predicate(inexact_dtypes, float, complex)
is_low_precision_dtype = _predicate(low_precision_dtypes)


def is_numbertype(x: Any) -> bool:
    """Return whether `x` is one of bool, int, float and complex."""
    return x in _NUMBER_TYPES


def is_dtype(x: Any) -> bool:
    """Return whether `x` is a dtype of thunder or one of Python's types of numbers."""
    return isinstance(x, dtype) or is_numbertype(x)


def is_weak_dtype(x: Any) -> bool:
    """Return whether a dtype gives way in promotion: of thunder's, only those of Python's numbers."""
    return is_numbertype(x)


def to_strong_dtype(x: Any) -> dtype:
    """Return the dtype that `x` has in a tensor."""
    return to_dtype(x)


def dtype_to_numbertype(x: Any) -> type:
    """Return Python's type of the numbers in a tensor of this dtype."""
    return python_type_of(to_dtype(x))


def numbertype_to_dtype(x: type) -> dtype:
    """Return the dtype of a tensor made of numbers of this type under torch's usual defaults."""
    return {bool: bool8, int: int64, float: float32, complex: complex64}[x]


def corresponding_real_dtype(x: Any) -> dtype:
    """Return the dtype of the real part; raises KeyError for a dtype that is not complex."""
    return _REAL_OF[to_dtype(x)]


def corresponding_complex_dtype(x: Any) -> dtype:
    """Return the complex dtype with parts of this dtype; raises KeyError if there is none."""
    return _COMPLEX_OF[to_dtype(x)]


def are_same_dtypes(a: Any, b: Any, *, weak_and_strong_are_equivalent: bool = True) -> bool:
    """Return whether two dtypes, or types of numbers, are the same."""
    if is_numbertype(a) or is_numbertype(b):
        return a is b
    return to_dtype(a) is to_dtype(b)


def resolve_dtypes(groups: Iterable[Any]) -> frozenset[Any]:
    """Return the dtypes in a list of dtypes, types of numbers and groups; the class `dtype` means all."""
    members: set[Any] = set()
    for item in groups:
        if item is dtype:
            members |= set(all_dtypes)
        else:
            members |= {item} if is_dtype(item) else frozenset(item)
    return frozenset(members)
