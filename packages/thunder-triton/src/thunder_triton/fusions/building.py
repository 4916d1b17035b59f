"""From the calls of a region to nodes: one function for each primitive that a kernel can compute."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from thunder import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import Refusal, Region

from .elementwise import has_operation, kind_of, words
from .nodes import Compute, Count, Drawn, Fill, Gathered, Load, Node, Number, Pieces, Scan, Triangle, View
from .places import PLACES, VIEWS, Builder, broadcast, exact, reshaped
from .reductions import reduced
from .scatters import SCATTERS
from .unsupported import Unsupported

__all__ = ["BUILDERS", "ELEMENTWISE", "NUMBERS", "REDUCTIONS", "SCANS", "check_elementwise", "nodes_of"]

#: the operator of numbers that depend on a seed and their place
NUMBERS: Final = "triton_random.numbers"

Arguments = Sequence[Any]

#: operators of which eager rounds numbers on a CPU
_ROUNDING: Final = frozenset({"torch.add", "torch.sub", "torch.rsub", "torch.pow", "torch.fmod"})
#: exponents for which eager computes roots; they differ from powers at -inf and -0.0
_ROOTS: Final[Mapping[Number, str]] = {0.5: "sqrt", -0.5: "rsqrt"}
_TO_BOOL: Final = frozenset(words("eq ge gt isfinite isinf isnan le logical_not lt ne signbit"))

#: elementwise primitives of the names of operations
ELEMENTWISE: Final = words(
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil "
    "copysign cos cosh div eq erf erfc erfinv exp exp2 expm1 floor fmod ge gt hypot isfinite isinf isnan le "
    "lgamma log log10 log1p log2 logical_not lt maximum minimum mul ne neg pow reciprocal round rsqrt sgn "
    "sigmoid sign signbit sin sinh sqrt sub tan tanh trunc where"
)
REDUCTIONS: Final = ("all", "amax", "amin", "any", "prod", "sum")
SCANS: Final = ("cumprod", "cumsum")
POSITIONS: Final = {"argmax": "amax", "argmin": "amin"}


def nodes_of(region: Region) -> tuple[tuple[Load, ...], tuple[Node, ...]]:
    """Return the inputs and the outputs of a region as nodes.

    Each call of the program rounds its results to their dtype, as the kernel that eager runs for it does; the
    calls within it are computed in float32. Raises Unsupported.
    """
    loads = tuple(Load(shape=tuple(p.shape), dtype=p.dtype.torch_dtype, name=p.name) for p in region.inputs)
    values: dict[str, Node] = {load.name: load for load in loads}
    for call in region.bsyms:
        line = _line(call)
        _evaluate(call, values, line, rounds=_rounds_numbers(call))
        for p in _tensors(call.flat_proxy_outs):
            values[p.name] = _rounded(values[p.name], p.name, line)
    return loads, tuple(values[p.name] for p in region.outputs)


def _rounds_numbers(call: BoundSymbol) -> bool:
    """Return whether eager rounds the numbers of a call to the dtype of its tensors.

    On a CPU it does in some operators, `x + 0.1` and not `x * 0.1`; on CUDA it reads numbers in float32.
    """
    on_cpu = any(p.device.type == "cpu" for p in _tensors(call.flat_proxy_outs))
    return on_cpu and call.sym.id in _ROUNDING


def _evaluate(call: BoundSymbol, values: dict[str, Node], line: str, *, rounds: bool) -> None:
    """Enter the results of a call, or of the calls into which it decomposes."""
    name = call.sym.id.removeprefix("prims.")
    builder = BUILDERS.get(name) if call.sym.id != name else OWN.get(name)
    if builder is None:
        if not call.subsymbols and call.flat_proxy_outs:
            inputs = {p.name for p in call.flat_proxy_args}
            if all(p.name in inputs for p in call.flat_proxy_outs):
                return  # it returns its arguments
            raise Unsupported(Refusal("operator", f"no kernel is generated for {call.sym.id}"))
        for part in call.subsymbols:
            _evaluate(part, values, line, rounds=rounds)
        return
    arguments = [_argument(value, values) for value in call.args]
    if rounds and call.flat_proxy_outs:
        dtype = call.flat_proxy_outs[0].dtype.torch_dtype
        arguments = [exact(value, dtype) if type(value) is float else value for value in arguments]
    keywords = {key: _argument(value, values) for key, value in call.kwargs.items()}
    results = builder(*arguments, **keywords)
    nodes = results if isinstance(results, tuple) else (results,)
    for p, node in zip(_tensors(call.flat_proxy_outs), nodes, strict=True):
        values[p.name] = node if node.name else replace(node, name=p.name, line=line)


def _argument(value: Any, values: Mapping[str, Node]) -> Any:
    """Return an argument with nodes in the place of tensors, and torch's dtypes."""
    if isinstance(value, TensorProxy):
        return values[value.name]
    if isinstance(value, list | tuple):
        return [_argument(item, values) for item in value]
    return getattr(value, "torch_dtype", value)


def _tensors(proxies: Iterable[Any]) -> list[TensorProxy]:
    return [p for p in proxies if isinstance(p, TensorProxy)]


def _line(call: BoundSymbol) -> str:
    """Return the user's line of a call, `model.py:12   y = x + 1`, or ""."""
    return "" if call.source is None else str(call.source.location)


def _rounded(node: Node, name: str, line: str) -> Node:
    """Return a value with elements of its dtype, where it may be held more precisely."""
    if _is_exact(node):
        return node
    return Compute(
        operation="convert", args=(node,), shape=node.shape, dtype=node.dtype, name=name, line=line
    )


def _is_exact(node: Node) -> bool:
    """Return whether the elements of a value are of its dtype, and not only held in a wider one."""
    if node.dtype not in (torch.bfloat16, torch.float16) or isinstance(node, Load | Fill | Count):
        return True
    if isinstance(node, View | Triangle | Gathered):
        return _is_exact(node.arg)
    if isinstance(node, Pieces):
        return all(_is_exact(piece.node) for piece in node.pieces)
    return isinstance(node, Compute) and node.operation == "convert"


# -- elementwise ---------------------------------------------------------------------------------------------


def _elementwise(operation: str) -> Builder:
    def build(*args: Any) -> Node:
        if operation == "where":
            typed = next(arg for arg in args[1:] if isinstance(arg, Node))
        else:
            typed = next(arg for arg in args if isinstance(arg, Node))
        check_elementwise(operation, typed.dtype, [a for a in args if not isinstance(a, Node)])
        dtype = torch.bool if operation in _TO_BOOL else typed.dtype
        root = _ROOTS.get(args[1]) if operation == "pow" and not isinstance(args[1], Node) else None
        if root is not None:
            return Compute(operation=root, args=args[:1], shape=typed.shape, dtype=dtype)
        return Compute(operation=operation, args=args, shape=typed.shape, dtype=dtype)

    return build


def check_elementwise(operation: str, dtype: torch.dtype, numbers: Sequence[Any]) -> None:
    """Raise Unsupported for an operation that no kernel computes in this dtype with these numbers."""
    if not has_operation(operation, dtype):
        raise Unsupported(Refusal("dtype", f"no kernel computes {operation} of this dtype", dtype=dtype))
    allowed = {"float": (bool, int, float), "int": (bool, int), "bool": (bool,)}[kind_of(dtype)]
    if not all(type(number) in allowed for number in numbers):
        raise Unsupported(Refusal("number", f"{operation} has a number of another kind", dtype=dtype))
    if kind_of(dtype) == "int" and not all(_is_in_range(number, dtype) for number in numbers):
        raise Unsupported(
            Refusal("number", f"{operation} has a number out of the dtype's range", dtype=dtype)
        )


def _is_in_range(number: int, dtype: torch.dtype) -> bool:
    limits = torch.iinfo(dtype)
    return bool(limits.min <= number <= limits.max)


def _convert(a: Node, dtype: torch.dtype) -> Node:
    if a.dtype is dtype:
        return a
    return Compute(operation="convert", args=(a,), shape=a.shape, dtype=dtype)


def _full(shape: Sequence[int], value: Number, *, device: Any, dtype: torch.dtype) -> Node:
    if isinstance(value, complex) or not isinstance(value, bool | int | float):
        raise Unsupported(Refusal("number", "tensors are filled with real numbers"))
    return Fill(value=exact(value, dtype), shape=tuple(shape), dtype=dtype)


def _iota(length: int, *, start: float, step: float, device: Any, dtype: torch.dtype) -> Node:
    if type(start) is not int or type(step) is not int:
        raise Unsupported(Refusal("number", "kernels count in integers"))
    return _convert(Count(start=start, step=step, shape=(length,), dtype=torch.int64), dtype)


def _drawn(shape: Sequence[int], seed: Node) -> Node:
    return Drawn(seed=seed, shape=tuple(shape), dtype=torch.float32)


def _lerp(start: Node, end: Node, weight: Node | Number) -> Node:
    """Return torch's formula: from the nearer end, so that weights 0 and 1 are exact."""

    def compute(operation: str, *args: Node | Number) -> Compute:
        dtype = torch.bool if operation == "lt" else start.dtype
        return Compute(operation=operation, args=args, shape=start.shape, dtype=dtype)

    difference = compute("sub", end, start)
    near_start = compute("add", start, compute("mul", difference, weight))
    far = compute("sub", 1.0, weight) if isinstance(weight, Node) else 1.0 - weight
    near_end = compute("sub", end, compute("mul", difference, far))
    if not isinstance(weight, Node):
        return near_start if abs(weight) < 0.5 else near_end
    return compute("where", compute("lt", compute("abs", weight), 0.5), near_start, near_end)


# -- reductions ----------------------------------------------------------------------------------------------


def _reduction(kind: str) -> Builder:
    def build(a: Node, dims: Sequence[int]) -> Node:
        if kind in ("any", "all"):
            truth = (
                a
                if a.dtype is torch.bool
                else Compute(operation="convert", args=(a,), shape=a.shape, dtype=torch.bool)
            )
            return reduced(kind, truth, dims)
        if kind in ("prod", "sum") and a.dtype is torch.bool:
            raise Unsupported(Refusal("dtype", f"a {kind} of bools that is a bool is computed by torch"))
        if a.dtype is torch.bool:
            return reduced({"amax": "any", "amin": "all"}[kind], a, dims)
        return reduced(kind, a, dims)

    return build


def _position(extremum: str) -> Builder:
    """Return the function for the index of an extremum: the least index of the elements that equal it.

    If there is a NaN, it is the extremum, and the index is that of the first.
    """

    def build(a: Node, dim: int | None) -> Node:
        if dim is None:
            a, dim = reshaped(a, (math.prod(a.shape),)), 0
        remaining = [d for d in range(len(a.shape)) if d != dim]
        extreme = _reduction(extremum)(a, (dim,))
        assert isinstance(extreme, Node), f"{extremum} has one result"
        best = broadcast(extreme, a.shape, remaining)
        is_best = Compute(operation="eq", args=(a, best), shape=a.shape, dtype=torch.bool)
        if a.dtype.is_floating_point:
            is_nan = Compute(operation="isnan", args=(a,), shape=a.shape, dtype=torch.bool)
            is_best = Compute(operation="bitwise_or", args=(is_best, is_nan), shape=a.shape, dtype=torch.bool)
        count = Count(start=0, step=1, shape=(a.shape[dim],), dtype=torch.int64)
        index = broadcast(count, a.shape, (dim,))
        places = Compute(
            operation="where", args=(is_best, index, a.shape[dim]), shape=a.shape, dtype=torch.int64
        )
        return reduced("amin", places, (dim,))

    return build


def _scan(kind: str) -> Builder:
    def build(a: Node, dim: int) -> Node:
        if a.shape[dim] <= 1:
            return a
        return Scan(kind=kind, arg=a, dim=dim, shape=a.shape, dtype=a.dtype)

    return build


def _variance_and_mean(a: Node, dims: Sequence[int], *, correction: float) -> tuple[Node, Node]:
    """Return the mean of the squared distances from the mean, and the mean: two passes over the elements."""
    count = 1
    for d in dims:
        count *= a.shape[d]
    total = reduced("sum", a, dims)
    mean = Compute(operation="div", args=(total, float(count)), shape=total.shape, dtype=a.dtype)
    remaining = [d for d in range(len(a.shape)) if d not in dims]
    spread = broadcast(mean, a.shape, remaining)
    centred = Compute(operation="sub", args=(a, spread), shape=a.shape, dtype=a.dtype)
    square = Compute(operation="mul", args=(centred, centred), shape=a.shape, dtype=a.dtype)
    squares = reduced("sum", square, dims)
    degrees = max(float(count) - correction, 0.0)
    variance = Compute(operation="div", args=(squares, degrees), shape=squares.shape, dtype=a.dtype)
    return variance, mean


def _variance(a: Node, dims: Sequence[int], *, correction: float) -> Node:
    return _variance_and_mean(a, dims, correction=correction)[0]


def _deviation(a: Node, dims: Sequence[int], *, correction: float) -> Node:
    variance = _variance(a, dims, correction=correction)
    return Compute(operation="sqrt", args=(variance,), shape=variance.shape, dtype=a.dtype)


#: name of a primitive → function of its arguments, with nodes for tensors, that returns its results
BUILDERS: Final[Mapping[str, Builder]] = {
    **{name: _elementwise(name) for name in ELEMENTWISE},
    **{kind: _reduction(kind) for kind in REDUCTIONS},
    **{name: _position(extremum) for name, extremum in POSITIONS.items()},
    **{kind: _scan(kind) for kind in SCANS},
    **VIEWS,
    **PLACES,
    **SCATTERS,
    "convert_element_type": _convert,
    "full": _full,
    "iota": _iota,
    "lerp": _lerp,
    "std": _deviation,
    "var": _variance,
    "var_mean": _variance_and_mean,
}

#: name of an operator of the package → likewise
OWN: Final[Mapping[str, Builder]] = {NUMBERS: _drawn}
