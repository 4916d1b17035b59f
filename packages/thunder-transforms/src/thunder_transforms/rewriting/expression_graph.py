"""The values of a program as expressions over primitives, in which patterns are looked for.

A statement is represented by the primitives that it decomposes into, so that methods and functions, keyword
and positional arguments, and aliases of an operator look alike. Some expressions that are equal in each bit
have one form:

    x.pow(2), x * x       →  mul(x, x)
    x / 2, 0.5 * x        →  mul(x, 0.5)
    2 + x, x + 2          →  add(x, 2)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from thunder.core import dtypes
from thunder.core.analysis import (
    CONTIGUOUS,
    REORDERED,
    STRUCTURAL,
    escaping,
    has_effect,
    is_barrier,
    layout_of,
)
from thunder.core.proxies import TensorProxy, is_proxy
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.extend import row_of

CONVERT = "prims.convert_element_type"
BROADCAST = "prims.broadcast_in_dim"
#: primitives that change how a value is represented, not what it is
TRANSPARENT = frozenset({CONVERT, BROADCAST})
#: primitives some of whose calls have the form of another one, and that one
_NORMALISED, _NORMAL = frozenset({"prims.pow", "prims.div"}), frozenset({"prims.mul"})
FLOATS = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64})


@dataclass(eq=False, slots=True)
class Expression:
    """One value: a primitive applied to expressions and constants, or an input.

    `args` are expressions, constants, and tuples of them; kwargs come last, as pairs. `op` is None for an
    input of the graph, and for a result of a call that cannot be part of a match. `output` counts the results
    of the primitive. `visible` values are those of statements; others are inside of one.
    """

    proxy: Any
    op: str | None = None
    args: tuple[Any, ...] = ()
    output: int = 0
    statement: int = -1
    visible: bool = True

    @property
    def operand(self) -> Expression:
        """The first argument of a cast or a broadcast."""
        return self.args[0]  # type: ignore[no-any-return]


class ExpressionGraph:
    """The expressions of a sequence of statements.

    `labels` has the primitives of each statement, without casts and broadcasts. `regions` has a number for
    each statement: those with equal numbers have no write and no change of a mode between them.
    """

    def __init__(self, bsyms: Sequence[BoundSymbol]) -> None:
        self.bsyms = bsyms
        self.values: dict[str, Expression] = {}
        self.labels: list[tuple[str, ...]] = []
        self.regions: list[int] = []
        #: outermost primitive → the values that it computes
        self.by_op: dict[str, list[Expression]] = defaultdict(list)
        #: value → its casts and broadcasts
        self.forms_of: dict[Expression, list[Expression]] = defaultdict(list)
        #: name → the statements that read the value
        self.readers: dict[str, list[int]] = defaultdict(list)
        #: name → the statement that computes the value; inputs have none
        self.producer: dict[str, int] = {}
        region = 0
        for position, bsym in enumerate(bsyms):
            is_opaque = bsym.sym.id in STRUCTURAL or has_effect(bsym)
            self.labels.append(() if is_opaque else self._add(bsym, position))
            region += is_barrier(bsym)
            self.regions.append(region)
            operands = {p.name for p in bsym.flat_proxy_args}
            for name in operands:
                self.readers[name].append(position)
            for p in bsym.flat_proxy_outs:
                if p.name not in operands:
                    self.producer.setdefault(p.name, position)

    def value(self, proxy: Any) -> Expression:
        """Return the expression of a proxy; an input if no statement computes it."""
        return self.values.setdefault(proxy.name, Expression(proxy))

    @cached_property
    def escaping(self) -> frozenset[str]:
        """The names of values whose memory may be that of a result of the program."""
        return escaping(self.bsyms)

    @cached_property
    def layout_read(self) -> frozenset[str]:
        """The names of values on whose strides a result of the program, or what it has read, may depend."""
        names = {p.name for p in self.bsyms[-1].flat_proxy_args}
        for bsym in reversed(self.bsyms[:-1]):
            outputs = [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]
            names.update(p.name for p in outputs if p.derived_strides is not None)
            if OpTags.READS_LAYOUT in bsym.tags or (
                any(p.name in names and p.ndim for p in outputs)
                and layout_of(bsym) not in (CONTIGUOUS, REORDERED)
            ):
                names.update(p.name for p in bsym.flat_proxy_args)
        return frozenset(names)

    def labels_of(self, statements: Iterable[int]) -> frozenset[tuple[str, ...]]:
        """Return the different labels of statements, without those of casts and broadcasts."""
        return frozenset(label for i in statements if (label := self.labels[i]))

    def _add(self, bsym: BoundSymbol, position: int) -> tuple[str, ...]:
        label = [op for part in _parts(bsym) for op in self._add_part(part, position)]
        for proxy in bsym.flat_proxy_outs:
            self.value(proxy).visible = True
        return tuple(sorted(op for op in label if op not in TRANSPARENT))

    def _add_part(self, part: BoundSymbol, position: int) -> Iterator[str]:
        operands = {p.name for p in part.flat_proxy_args}
        args = tuple(self._argument(a) for a in part.args)
        args += tuple((name, self._argument(value)) for name, value in sorted(part.kwargs.items()))
        results = [p for p in part.flat_proxy_outs if isinstance(p, TensorProxy) and p.name not in operands]
        if not results:
            return
        op, args = _normal_form(part.sym.id, args, results[0])
        for number, proxy in enumerate(results):
            value = Expression(proxy, op, args, number, position, visible=False)
            self.values[proxy.name] = value
            self.by_op[merged(value)].append(value)
            if op in TRANSPARENT:
                self.forms_of[value.operand].append(value)
        yield op

    def _argument(self, value: Any) -> Any:
        if is_proxy(value):
            return self.value(value) if isinstance(value, TensorProxy) else value
        if isinstance(value, tuple | list):
            return tuple(self._argument(v) for v in value)
        if isinstance(value, dict):
            return tuple((k, self._argument(v)) for k, v in value.items())
        return dtypes.to_dtype(value) if isinstance(value, torch.dtype) else value


def primitives_of(bsyms: Iterable[BoundSymbol]) -> frozenset[str]:
    """Return the primitives of which a graph of statements may have values, by `ExpressionGraph.by_op`."""
    found = {part.sym.id for bsym in bsyms for part in _parts(bsym)}
    return frozenset(found | _NORMAL if found & _NORMALISED else found)


def _parts(bsym: BoundSymbol) -> Iterator[BoundSymbol]:
    """Yield the primitives of a call; a call that is not a plain operator is one itself."""
    if (
        bsym.subsymbols
        and bsym.sym.executor is None
        and not bsym.sym.is_fusion
        and row_of(bsym.sym) is not None
    ):
        for sub in bsym.subsymbols:
            yield from _parts(sub)
    else:
        yield bsym


def _normal_form(op: str, args: tuple[Any, ...], result: Any) -> tuple[str, tuple[Any, ...]]:
    """Return one form for calls that compute the same in each bit."""
    is_float = isinstance(result, TensorProxy) and result.dtype in FLOATS
    if op == "prims.pow" and is_float and isinstance(args[0], Expression) and _is_number(args[1], 2):
        return "prims.mul", (args[0], args[0])
    if op == "prims.div" and is_float and isinstance(args[0], Expression) and _has_exact_inverse(args[1]):
        return "prims.mul", (args[0], 1.0 / args[1])
    if is_commutative(op) and len(args) == 2 and not isinstance(args[0], Expression):
        return op, (args[1], args[0])
    return op, args


def is_commutative(op: str | None) -> bool:
    """Return whether the two operands of an operator may be exchanged, by its row."""
    row = None if op is None else row_of(op)
    return row is not None and OpTags.COMMUTATIVE in row.tags


def _is_number(value: Any, number: float) -> bool:
    return type(value) in (int, float) and value == number


def _has_exact_inverse(value: Any) -> bool:
    """Return whether a number is a power of two: dividing by it is multiplying by its inverse."""
    if type(value) not in (int, float) or not 2.0**-60 <= abs(value) <= 2.0**60:
        return False
    return abs(math.frexp(value)[0]) == 0.5


def merged(value: Expression) -> str:
    """Return the primitive of a value, where multiplying and dividing by a number count as one."""
    if value.op == "prims.div" and len(value.args) == 2 and not isinstance(value.args[1], Expression):
        return "prims.mul"
    return value.op or ""


def through(value: Expression) -> Expression:
    """Return the value below casts and broadcasts."""
    while value.op in TRANSPARENT:
        value = value.operand
    return value


def is_float_cast(value: Expression) -> bool:
    """Return whether a value is a cast between two floating-point dtypes."""
    return value.op == CONVERT and value.proxy.dtype in FLOATS and value.operand.proxy.dtype in FLOATS


def equal_constants(a: Any, b: Any) -> bool:
    """Return whether two constants are the same; 2 and 2.0 are, and 0.0 and -0.0 are not."""
    if is_proxy(a) or is_proxy(b):
        return is_proxy(a) and is_proxy(b) and a.name == b.name
    if type(a) in (int, float) and type(b) in (int, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return type(a) is type(b) and bool(a == b)


def reachable(outputs: Sequence[Expression], stop: Callable[[Expression], bool]) -> Mapping[Expression, None]:
    """Return what outputs are computed from, down to values at which `stop` is true."""
    seen: dict[Expression, None] = {}
    pending = list(outputs)
    while pending:
        value = pending.pop()
        if value not in seen and not stop(value):
            seen[value] = None
            pending += operands_of(value.args)
    return seen


def operands_of(args: tuple[Any, ...]) -> Iterator[Expression]:
    """Yield the expressions among arguments."""
    for arg in args:
        if isinstance(arg, Expression):
            yield arg
        elif isinstance(arg, tuple):
            yield from operands_of(arg)
