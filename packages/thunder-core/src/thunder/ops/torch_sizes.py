"""Symbolic sizes as torch's ``SymInt``, for functions of torch that compute with tensors without data.

Note [Sizes within torch]
Torch's own functions for metadata compute with the sizes of a tensor, and ask about them. A size of thunder
is the node of a ``torch.SymInt``, so that each question about it is a fact, as one of the program is:

    torch.linalg.det: (b, n, m) → (b,)          facts: i1 == i2

Kernels in C++ take numbers only. Under torch's dispatcher in Python, its functions in Python take their
place. What has none, and what fails, runs with numbers, which fixes the sizes; the questions that it had
asked are dropped.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher

from thunder.base.optional_modules import optional_module
from thunder.base.pytree import tree_iter
from thunder.ir.proxies import TensorProxy
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import SymbolicFloat, SymbolicInt, SymbolicNumber, hint_of

__all__ = ["facts_in", "shape_in", "size_in", "to_symint", "with_symbolic_sizes"]


def facts_in(tree: Any) -> SizeFacts | None:
    """Return the facts of symbolic sizes among the leaves, or in the shapes of tensors; None without any."""
    for leaf in tree_iter(tree):
        for size in _sizes_of(leaf):
            if isinstance(size, SymbolicNumber):
                return size.facts
    return None


def _sizes_of(leaf: Any) -> tuple[Any, ...]:
    if isinstance(leaf, TensorProxy):
        return (*leaf.shape, *(leaf.strides or ()))
    # a slice is a leaf of pytrees
    return (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,)


@contextmanager
def with_symbolic_sizes(facts: SizeFacts, *, fixes: bool = True) -> Iterator[None]:
    """Let torch's functions compute with symbolic sizes; an error drops the questions that were asked.

    With ``fixes=False`` a function that needs the value of a size raises UnsupportedProgram.
    """
    fixing = nullcontext() if fixes else facts.without_fixing()
    with facts.attempt(), fixing, enable_python_dispatcher():
        yield


def to_symint(size: Any) -> Any:
    """Return torch's form of a symbolic size, or of a float of sizes; a number as it is."""
    if isinstance(size, SymbolicFloat):
        return torch.SymFloat(_SizeNode(size))
    return torch.SymInt(_SizeNode(size)) if isinstance(size, SymbolicInt) else size


def size_in(number: Any) -> Any:
    """Return the symbolic size, or the number, that torch has computed."""
    if not isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool):
        return number
    value = number.node.value
    return float(value) if isinstance(value, SymbolicFloat) else value


def shape_in(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the shape of a tensor without data, with symbolic sizes as those of thunder."""
    return tuple(map(size_in, tensor.shape))


class _SizeNode:
    """A number within torch: a size, or what torch computes from sizes.

    The methods are those that torch calls on the node of a ``SymInt``, a ``SymFloat`` or a ``SymBool``
    (``torch.fx.experimental.sym_node``). Booleans are answers: a comparison asks its question at once.
    """

    #: torch's environment of sizes, which these have not
    shape_env = None

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getattr__(self, name: str) -> Any:
        # torch asks for methods of which another version has more
        raise NotImplementedError(f"sizes have no {name}")

    # -- kinds -----------------------------------------------------------------------------------------------

    @property
    def pytype(self) -> type:
        return bool if self.is_bool() else float if self.is_float() else int

    def is_bool(self) -> bool:
        return type(self.value) is bool

    def is_float(self) -> bool:
        return isinstance(self.value, float | SymbolicFloat)

    def is_int(self) -> bool:
        return not self.is_bool() and not self.is_float()

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def has_hint(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return isinstance(self.value, SymbolicInt)

    def is_constant(self) -> bool:
        return not self.is_symbolic() and not self.is_float()

    def maybe_as_int(self) -> int | None:
        return self.value if type(self.value) is int else None

    def maybe_as_float(self) -> float | None:
        return self.value if type(self.value) is float else None

    def maybe_as_bool(self) -> bool | None:
        return self.value if type(self.value) is bool else None

    def wrap(self, value: Any) -> _SizeNode:
        return _SizeNode(value)

    wrap_int = wrap_float = wrap_bool = wrap

    def clone(self) -> _SizeNode:
        return self

    def str(self) -> str:
        # no text of the program, in which a number may not show
        return self.value.text if isinstance(self.value, SymbolicNumber) else repr(self.value)

    __str__ = __repr__ = _graph_repr = str

    @property
    def expr(self) -> Any:
        """The expression that torch asks whether it has variables, and compares."""
        sympy = optional_module("sympy")
        assert sympy is not None, "torch depends on sympy"
        return sympy.Symbol(self.str()) if self.is_symbolic() else sympy.sympify(self.value)

    # -- numbers, which fix sizes ----------------------------------------------------------------------------

    def int_(self, *place: Any) -> int:
        return int(self.value)

    guard_int = int_

    def guard_float(self, *place: Any) -> float:
        return float(self.value)

    def bool_(self, *place: Any) -> bool:
        return bool(self.value)

    guard_bool = expect_true = guard_size_oblivious = bool_
    guard_or_false = guard_or_true = statically_known_true = bool_

    # -- arithmetic ------------------------------------------------------------------------------------------

    def sym_float(self) -> _SizeNode:
        return self if self.is_float() else _SizeNode(self.value * 1.0)

    def sym_int(self) -> _SizeNode:
        return _SizeNode(math.trunc(self.value))

    def sym_not(self) -> _SizeNode:
        return _SizeNode(not self.value)

    def sym_and(self, other: _SizeNode) -> _SizeNode:
        return _SizeNode(bool(self.value) and bool(other.value))

    def sym_or(self, other: _SizeNode) -> _SizeNode:
        return _SizeNode(bool(self.value) or bool(other.value))

    and_, or_ = sym_and, sym_or

    def sym_min(self, other: _SizeNode) -> _SizeNode:
        return self if self.value <= other.value else other

    def sym_max(self, other: _SizeNode) -> _SizeNode:
        return self if self.value >= other.value else other

    def sym_ite(self, then: _SizeNode, otherwise: _SizeNode) -> _SizeNode:
        return then if self.value else otherwise

    def sym_sum(self, terms: Iterable[_SizeNode]) -> _SizeNode:
        return _SizeNode(sum(term.value for term in terms))

    def pos(self) -> _SizeNode:
        return self

    def round(self, digits: int | None = None) -> _SizeNode:
        return _SizeNode(round(self.value, digits))

    def is_integer(self) -> _SizeNode:
        return _SizeNode(self.is_int() or float(self.value).is_integer())

    # -- layouts ---------------------------------------------------------------------------------------------

    def is_contiguous(self, sizes: Sequence[Any], strides: Sequence[Any]) -> _SizeNode:
        return _dense_in_order(sizes, strides, range(len(sizes) - 1, -1, -1))

    def is_channels_last_contiguous_2d(self, sizes: Sequence[Any], strides: Sequence[Any]) -> _SizeNode:
        return _dense_in_order(sizes, strides, _CHANNELS_LAST_2D)

    def is_channels_last_contiguous_3d(self, sizes: Sequence[Any], strides: Sequence[Any]) -> _SizeNode:
        return _dense_in_order(sizes, strides, _CHANNELS_LAST_3D)

    def is_channels_last_strides_2d(self, sizes: Sequence[Any], strides: Sequence[Any]) -> _SizeNode:
        return _ascending(sizes, strides, _CHANNELS_LAST_2D)

    def is_channels_last_strides_3d(self, sizes: Sequence[Any], strides: Sequence[Any]) -> _SizeNode:
        return _ascending(sizes, strides, _CHANNELS_LAST_3D)

    def is_non_overlapping_and_dense(self, sizes: Sequence[Any], strides: Sequence[Any]) -> _SizeNode:
        values = [hint_of(s) for s in _values(strides)]  # only the order, each stride is asked for
        lengths = [hint_of(n) for n in _values(sizes)]
        order = sorted(range(len(values)), key=lambda d: (values[d], lengths[d]))
        return _dense_in_order(sizes, strides, order)


def _elementary(operation: Callable[..., Any]) -> Callable[..., _SizeNode]:
    def compute(*nodes: _SizeNode) -> _SizeNode:
        return _SizeNode(operation(*(node.value for node in nodes)))

    return compute


for _name, _operation in {
    **{
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "mod", "pow", "truediv", "lshift", "rshift")
    },
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs")},
    **{f"bitwise_{name.rstrip('_')}": getattr(operator, name) for name in ("and_", "or_", "xor")},
    "float_truediv": operator.truediv,
    "int_truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "int_floordiv": operator.floordiv,
    "pow_by_natural": operator.pow,
    "float_pow": operator.pow,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}.items():
    setattr(_SizeNode, _name, _elementary(_operation))

_CHANNELS_LAST_2D, _CHANNELS_LAST_3D = (1, 3, 2, 0), (1, 4, 3, 2, 0)


def _values(nodes: Sequence[Any]) -> list[Any]:
    return [n.value if isinstance(n, _SizeNode) else n for n in nodes]


def _dense_in_order(sizes: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> _SizeNode:
    """Return whether each dimension of a length other than 1 begins where the one before it in order ends."""
    if len(order) != len(sizes):
        return _SizeNode(False)
    lengths, steps = _values(sizes), _values(strides)
    expected: Any = 1
    for d in order:
        if not _is_same(steps[d], expected) and lengths[d] != 1 and steps[d] != expected:
            return _SizeNode(any(n == 0 for n in lengths))
        expected = expected * lengths[d]
    return _SizeNode(True)


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two numbers are equal in all calls, without asking."""
    if isinstance(a, SymbolicInt) and isinstance(b, SymbolicInt):
        return a.polynomial == b.polynomial
    return type(a) is type(b) and bool(a == b)


def _ascending(sizes: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> _SizeNode:
    """Return whether strides grow in an order of dimensions, as ``c10::is_channels_last_strides_2d`` does."""
    if len(order) != len(sizes):
        return _SizeNode(False)
    lengths, steps = _values(sizes), _values(strides)
    least: Any = 0
    if steps[1] == 0:
        return _SizeNode(False)
    for d in order:
        if lengths[d] == 0 or steps[d] < least or (d == 0 and least == steps[1]):
            return _SizeNode(False)
        least = steps[d] * lengths[d] if lengths[d] > 1 else steps[d]
    return _SizeNode(True)
