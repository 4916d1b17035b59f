"""Graphs of regions with symbolic sizes, and what their code depends on.

TorchInductor asks about sizes while it compiles, and notes what it decided in torch's environment of symbols.
These conditions become questions about the sizes of the program, which are checks of its prologue.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy import functions

from thunder import TensorProxy
from thunder.core.errors import UnsupportedProgram
from thunder.core.symbol import BoundSymbol
from thunder.extend import Region, SymbolicInt, evaluate_region, stand_in_tensor

from .graphs import recorded_graph
from .symbolic_layouts import is_size

__all__ = ["SymbolicGraph", "forget_answers", "is_true", "symbolic_graph_of"]

_RELATIONS: Mapping[type, Any] = {
    sympy.Eq: lambda a, b: a == b,
    sympy.Ne: lambda a, b: a != b,
    sympy.Lt: lambda a, b: a < b,
    sympy.Le: lambda a, b: a <= b,
    sympy.Gt: lambda a, b: a > b,
    sympy.Ge: lambda a, b: a >= b,
}
_QUOTIENTS = (functions.FloorDiv, functions.CleanDiv)
_REMAINDERS = (sympy.Mod, functions.Mod, functions.PythonMod)
_EXTREMA = (((sympy.Max, functions.Max), max), ((sympy.Min, functions.Min), min))


@dataclass(frozen=True)
class SymbolicGraph:
    """A region as a graph for many sizes.

    Attributes:
        module: the graph; it returns the region's outputs as a tuple.
        inputs: tensors without data, and torch's symbols, in the place of the region's inputs.
        mode: the mode of these tensors.
        symbols: the symbols of the region's sizes, in their order.
    """

    module: GraphModule
    inputs: tuple[Any, ...]
    mode: FakeTensorMode
    symbols: tuple[sympy.Symbol, ...]

    @property
    def conditions(self) -> tuple[Any, ...]:
        """Return the decisions about the symbols so far, as expressions of sympy."""
        assert self.mode.shape_env is not None, "the mode was made with symbols"
        return tuple(guard.expr for guard in self.mode.shape_env.guards)


def symbolic_graph_of(
    region: Region,
    sizes: Sequence[SymbolicInt],
    strides: Sequence[Any],
    output_strides: Sequence[Any] | None,
    *,
    rounds: bool,
) -> SymbolicGraph:
    """Return the graph of a region whose inputs and outputs have these strides (elements).

    Strides are numbers and expressions of `sizes`, which are inputs of the region. None leaves the strides of
    the outputs to TorchInductor.
    """
    _refuse_hidden_ones(region.bsyms)
    symbols = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    mode = FakeTensorMode(shape_env=symbols)
    mode.cache_enabled = False  # it belongs to the process, and would keep symbols that no other region has
    numbers = {size.name: _symbol(symbols, size) for size in sizes}

    def number(size: Any) -> Any:
        if not isinstance(size, SymbolicInt):
            return size
        symbol, known = size.for_values(numbers), size.facts.known(size.polynomial)
        # the comparison is noted by torch, as a condition of the code
        return symbol if known is None or symbol != known else known

    def input_of(p: Any, layout: Any) -> Any:
        if not isinstance(p, TensorProxy):
            return numbers[p.name]
        return stand_in_tensor(p, torch.device(str(p.device)), size=number, strides=layout)

    with mode:
        inputs = tuple(input_of(p, layout) for p, layout in zip(region.inputs, strides, strict=True))

    def run(*values: Any) -> tuple[Any, ...]:
        return tuple(evaluate_region(region, values))

    with enable_python_dispatcher():  # kernels in C++ take no symbols, such as that of `constant_pad_nd`
        module = recorded_graph(run, region, inputs, mode, rounds)
    if output_strides is not None:
        output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
        output.meta["user_visible_output_idxs"] = list(range(len(output_strides)))
        output.meta["original_output_strides"] = [tuple(map(number, layout)) for layout in output_strides]
    # a symbol that was found to equal another one keeps its place, by the expression with which it was made
    return SymbolicGraph(module, inputs, mode, tuple(numbers[size.name].node._expr for size in sizes))


def forget_answers() -> None:
    """Empty torch's caches of answers about symbols, which hold the symbols of each graph for good.

    They belong to the class (`ShapeEnv.get_implications`, `functools.lru_cache(None)` in torch 2.13).
    """
    for method in vars(ShapeEnv).values():
        if hasattr(method, "cache_clear"):
            method.cache_clear()


def _refuse_hidden_ones(calls: Iterable[BoundSymbol]) -> None:
    """Raise UnsupportedProgram for a result one of whose symbolic sizes is 1 by the facts of the program.

    TorchInductor repeats a dimension where its own expression of the size is 1. For one that it does not
    simplify (`x[n:m]`, with the ends bounded by the length of x) its code reads as many elements as the other
    operand has.
    """
    for bsym in calls:
        shapes = (p.shape for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy))
        for size in chain.from_iterable(shapes):
            if isinstance(size, SymbolicInt) and size.facts.known(size.polynomial) == 1:
                raise UnsupportedProgram(f"TorchInductor does not see that the size {size.text} is 1")
        _refuse_hidden_ones(bsym.subsymbols)


def _symbol(symbols: ShapeEnv, size: SymbolicInt) -> Any:
    """Return a new symbol of torch for a size or a number; 0 and 1 are values as any other."""
    source = ConstantSource(size.name)
    symbol = symbols.create_symbol(
        size.hint,
        source,
        dynamic_dim=DimDynamic.DYNAMIC,
        constraint_dim=None,
        positive=True if is_size(size) else None,
        do_not_specialize_zero_one=True,
    )
    return symbols.create_symintnode(symbol, hint=size.hint, source=source)


def is_true(condition: Any, values: Mapping[Any, Any]) -> bool:
    """Return whether a condition holds for these values of its symbols: numbers, or sizes of a program.

    A comparison of sizes is a fact of the program. A condition of another form fixes them.
    """
    try:
        return bool(_value(condition, values))
    except _OtherForm:
        numbers = {symbol: int(values[symbol]) for symbol in condition.free_symbols}
        return bool(condition.subs(numbers))


class _OtherForm(Exception):
    """An expression is not one of integers."""


def _value(expression: Any, values: Mapping[Any, Any]) -> Any:
    """Return the value of an expression; raise _OtherForm for one that is not of integers."""
    if expression.is_Symbol:
        return values[expression]
    if expression.is_Integer:
        return int(expression)
    if expression in (sympy.true, sympy.false):
        return bool(expression)
    if isinstance(expression, sympy.And):
        return all(_value(part, values) for part in expression.args)
    if isinstance(expression, sympy.Or):
        return any(_value(part, values) for part in expression.args)
    if isinstance(expression, sympy.Not):
        return not _value(expression.args[0], values)
    operands = [_value(part, values) for part in expression.args]
    relation = _RELATIONS.get(type(expression))
    if relation is not None:
        return relation(*operands)
    if isinstance(expression, sympy.Add):
        return sum(operands)
    if isinstance(expression, sympy.Mul):
        return math.prod(operands)
    if isinstance(expression, sympy.Pow) and type(operands[1]) is int and operands[1] >= 0:
        return operands[0] ** operands[1]
    if isinstance(expression, _QUOTIENTS):
        return operands[0] // operands[1]
    if isinstance(expression, _REMAINDERS):
        return operands[0] % operands[1]
    extremum = next((choose for kinds, choose in _EXTREMA if isinstance(expression, kinds)), None)
    if extremum is not None:
        return extremum(operands)
    raise _OtherForm(type(expression).__name__)
