"""From a region to a definition of nvFuser: one rule for each primitive, in tables.

Each value of a region is a tensor of the definition with the dtype of its proxy. nvFuser computes on 16-bit
operands in float32, so that they are cast before an operation and its result after it, as eager rounds:

    t1 = prims.exp(t0)      →   T1 = fd.ops.cast(T0, dtype=DataType.Float); T2 = fd.ops.exp(T1)
    with t0 in bfloat16         T3 = fd.ops.cast(T2, dtype=DataType.BFloat16)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import torch

from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import TraceError
from thunder.core.proxies import NumberProxy, TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import Region, SymbolicInt

from .data_types import NUMBERS, compute_dtype, data_type
from .layouts import Layout

__all__ = ["RULES", "Rule", "Translation", "define", "rule"]


#: composites whose kernels round between their parts: `BinaryDivTruncKernel.cu` rounds the quotient
_ROUNDED_WITHIN: Final = frozenset({"torch.div"})


class _Computed(NamedTuple):
    """A value of a definition and its dtype; None for a number."""

    value: Any
    dtype: torch.dtype | None


class Translation:
    """A definition in progress: the values of the region's proxies, and how rules add operations.

    Attributes:
        ops: the operations of the definition.
        lengths: numbers that are computed from symbolic sizes, inputs of the definition after those of the
            region.
    """

    def __init__(self, definition: Any, types: Any) -> None:
        self._definition, self._types = definition, types
        self.ops = definition.ops
        self.lengths: list[SymbolicInt] = []
        self._values: dict[str, _Computed] = {}
        #: (identity of a value, dtype) → the value, which keeps the identity its own, and its cast
        self._casts: dict[tuple[int, torch.dtype], tuple[Any, Any]] = {}
        #: whether results of 16 bits are rounded now
        self._rounds = True
        #: the name of a size → a tensor input and its dimension of this size
        self._dimensions: dict[str, tuple[Any, int]] = {}
        self._lengths: dict[str, Any] = {}

    def type(self, dtype: torch.dtype) -> Any:
        """Return the definition's name of a dtype."""
        return data_type(self._types, dtype)

    def add_input(self, proxy: Any, layout: Layout | None) -> None:
        """Define an input: a tensor of a layout, or a number."""
        if layout is None:
            number = self._definition.define_scalar(None, dtype=self._number_type(proxy))
            self._values[proxy.name] = _Computed(number, None)
            return
        order = {"stride_order": list(layout.stride_order)} if layout.stride_order else {}
        dtype = to_torch_dtype(proxy.dtype)
        tensor = self._definition.define_tensor(
            shape=list(layout.shape), contiguity=list(layout.contiguity), dtype=self.type(dtype), **order
        )
        self._values[proxy.name] = _Computed(tensor, dtype)
        for dimension, size in enumerate(proxy.shape):
            if isinstance(size, SymbolicInt) and size.is_input:
                self._dimensions.setdefault(size.name, (tensor, dimension))

    def size(self, size: Any) -> Any:
        """Return a number, or the value of a symbolic size: that of an input's dimension, or an input."""
        if not isinstance(size, SymbolicInt):
            return size
        if size.name not in self._lengths:
            place = self._dimensions.get(size.name)
            if place is not None:
                self._lengths[size.name] = self.ops.size(*place)
            else:
                self._lengths[size.name] = self._definition.define_scalar(None, dtype=self._number_type(size))
                self.lengths.append(size)
        return self._lengths[size.name]

    def sizes(self, sizes: Iterable[Any]) -> list[Any]:
        """Return the values of sizes."""
        return [self.size(size) for size in sizes]

    def value(self, operand: Any) -> Any:
        """Return the value of a proxy in the proxy's dtype, or a constant of a number."""
        if isinstance(operand, SymbolicInt):
            return self.size(operand)
        if getattr(operand, "name", None) not in self._values:
            number = operand.value if isinstance(operand, NumberProxy) else operand
            return self._definition.define_scalar(number, dtype=self._number_type(number))
        if not isinstance(operand, TensorProxy):
            return self._values[operand.name].value
        return self._cast_of(operand, to_torch_dtype(operand.dtype))

    def number(self, number: Any, dtype: torch.dtype) -> Any:
        """Return a number, a fractional one rounded to a floating-point dtype, as eager's kernels take it."""
        kind = number.python_type if isinstance(number, NumberProxy) else type(number)
        if kind is not float or not dtype.is_floating_point or dtype is torch.float64:
            return self.value(number)
        if getattr(number, "name", None) in self._values:
            return self.ops.cast(self.value(number), dtype=self.type(dtype))
        value = number.value if isinstance(number, NumberProxy) else number
        return self.value(torch.tensor(value, dtype=dtype).item())

    def fill(self, number: Any, dtype: torch.dtype) -> Any:
        """Return a number in the kind of a dtype (bool, int or float), which paddings need."""
        kind = float if dtype.is_floating_point else bool if dtype is torch.bool else int
        if isinstance(number, SymbolicInt) or getattr(number, "name", None) in self._values:
            return self.ops.cast(self.value(number), dtype=self.type(NUMBERS[kind]))
        value: Any = number.value if isinstance(number, NumberProxy) else number
        return self.value(kind(value))

    def wide(self, operand: Any) -> Any:
        """Return the value of an operand in the dtype that nvFuser computes in."""
        if not isinstance(operand, TensorProxy):
            return self.value(operand)
        return self._cast_of(operand, compute_dtype(to_torch_dtype(operand.dtype)))

    def cast(self, value: Any, source: torch.dtype, target: torch.dtype) -> Any:
        """Return a value of dtype `source` in dtype `target`."""
        return value if source is target else self.ops.cast(value, dtype=self.type(target))

    def set(self, proxy: Any, value: Any) -> None:
        """Set the value of a proxy, of its dtype."""
        self._values.setdefault(proxy.name, _Computed(value, to_torch_dtype(proxy.dtype)))

    def set_wide(self, proxy: Any, value: Any) -> None:
        """Set the value of a proxy from the result of an operation, which has the dtype of computing."""
        dtype = to_torch_dtype(proxy.dtype)
        wide = compute_dtype(dtype)
        if self._rounds:
            self.set(proxy, self.cast(value, wide, dtype))
        else:
            self._values.setdefault(proxy.name, _Computed(value, wide))

    def move(self, proxy: Any, operand: Any, operation: Callable[[Any], Any]) -> None:
        """Set the value of a proxy from an operation that moves the elements of an operand."""
        computed = self._values[operand.name]
        self._values.setdefault(proxy.name, _Computed(operation(computed.value), computed.dtype))

    def convert(self, proxy: Any, operand: Any) -> None:
        """Set the value of a proxy to that of an operand, converted to the proxy's dtype."""
        target = to_torch_dtype(proxy.dtype)
        computed = self._values[operand.name]
        if not self._rounds and computed.dtype is compute_dtype(target) is torch.float32:
            self._values.setdefault(proxy.name, computed)
        else:
            self.set(proxy, self.cast(self.value(operand), to_torch_dtype(operand.dtype), target))

    def add_calls(self, calls: Iterable[BoundSymbol]) -> None:
        """Add the operations of calls, by the rules of their operators or of their parts.

        The results of a composite are rounded to 16 bits, and values between its parts are not, as in eager,
        where it is one kernel.
        """
        for call in calls:
            translate = RULES.get(call.sym.id)
            if translate is not None:
                translate(self, call)
            elif call.sym.id in _ROUNDED_WITHIN:
                self.add_calls(call.subsymbols)
            elif call.subsymbols:
                rounds, self._rounds = self._rounds, False
                self.add_calls(call.subsymbols)
                self._rounds = rounds
                if rounds:
                    self._round(call)
            elif not all(p.name in self._values for p in call.flat_proxy_outs):
                raise TraceError(f"nvFuser has no rule for {call.sym.id}", found={"call": call.line})

    def _round(self, call: BoundSymbol) -> None:
        for proxy in call.flat_proxy_outs:
            if isinstance(proxy, TensorProxy):
                dtype = to_torch_dtype(proxy.dtype)
                self._values[proxy.name] = _Computed(self._cast_of(proxy, dtype), dtype)

    def _cast_of(self, proxy: TensorProxy, dtype: torch.dtype) -> Any:
        """Return the value of a tensor in a dtype; a cast is added once."""
        computed = self._values[proxy.name]
        if computed.dtype is dtype:
            return computed.value
        key = (id(computed.value), dtype)
        if key not in self._casts:
            self._casts[key] = (computed.value, self.ops.cast(computed.value, dtype=self.type(dtype)))
        return self._casts[key][1]

    def _number_type(self, number: Any) -> Any:
        kind = number.python_type if isinstance(number, NumberProxy) else type(number)
        return self.type(NUMBERS[kind])


#: adds the operations of a call to a definition
Rule = Callable[[Translation, BoundSymbol], None]

#: operator id → its rule
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for primitives."""

    def register(function: Rule) -> Rule:
        RULES.update({f"prims.{name}": function for name in names})
        return function

    return register


def define(
    definition: Any, types: Any, region: Region, layouts: Sequence[Layout | None]
) -> tuple[SymbolicInt, ...]:
    """Write a region into an open definition, whose inputs have these layouts; None is for a number.

    Symbolic sizes are no inputs. Return the numbers computed from them that the definition takes after its
    other inputs.
    """
    translation = Translation(definition, types)
    for proxy, layout in zip(region.inputs, layouts, strict=True):
        if not isinstance(proxy, SymbolicInt):
            translation.add_input(proxy, layout)
    translation.add_calls(region.bsyms)
    for proxy in region.outputs:
        definition.add_output(translation.value(proxy))
    return tuple(translation.lengths)
