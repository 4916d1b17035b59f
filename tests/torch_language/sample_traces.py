"""Runs torch's own samples through a trace: proxies in, rows recorded, the recorded rows run by their eager
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from thunder.base.langctx import TORCH
from thunder.base.pytree import tree_flatten, tree_map, tree_unflatten
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.recorder import PLAIN, UNDECIDED, Recorder
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops.operator import row_of
from thunder.ops.prims.decision_checks import answer_to
from thunder.ops.sized_results import described


class Recording(TorchFunctionMode):
    """Hands every torch function that has a meaning in the torch language to it, as a tracer does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        meaning = TORCH.resolve(func)
        if meaning is None:
            return func(*args, **(kwargs or {}))
        return meaning(*args, **(kwargs or {}))


class SizesOfValues(Recorder):
    """Decides sizes by the values of a sample, as the frontend does by those of a call."""

    def __init__(self, trace: TraceCtx, values: dict[str, torch.Tensor]) -> None:
        self._trace, self._values = trace, values

    def decide(self, question: str, operands: tuple[Any, ...]) -> Any:
        """The answer to a question about sizes; there is no check of it."""
        if question not in ("bool", "index", "tolist"):
            return UNDECIDED
        with torch._C.DisableTorchFunction():
            return answer_to(question, self._values_of(operands))

    def record_sized(
        self, call: str, compute: Any, record: Any, args: Any, kwargs: Any, record_with_size: Any = None
    ) -> Any:
        """Record a call with the sizes of its results."""
        if len(self._trace.scopes) > 1:
            return UNDECIDED
        with torch._C.DisableTorchFunction():
            args, kwargs = self._values_of((args, kwargs))
            results = described(compute(*args, **kwargs))
        return record(results=results, decision=0)

    def _values_of(self, tree: Any) -> Any:
        env = dict(self._values)
        _evaluate(self._trace, env, primitives=False)
        return tree_map(lambda x: env[x.name] if isinstance(x, TensorProxy | NumberProxy) else x, tree)


def record(
    fn: Callable[..., Any], args: Any, kwargs: Any, *, decides: bool = False
) -> tuple[TraceCtx, dict[str, torch.Tensor], Any]:
    """Traces ``fn`` on proxies for the tensors among its arguments: the trace, the tensors by proxy name, the
    output. If it ``decides``, sizes that depend on data are those for these tensors.
    """
    trace = TraceCtx()
    values: dict[str, torch.Tensor] = {}
    proxies: dict[int, TensorProxy] = {}

    def stand_in(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in proxies:
            proxy = proxies[id(x)] = TensorProxy(like=x, strides=x.stride())
            values[proxy.name] = x
        return proxies[id(x)]

    recorder = SizesOfValues(trace, values) if decides else PLAIN
    with tracectx(trace, recorder=recorder), torch.no_grad():
        args, kwargs = tree_map(stand_in, (args, kwargs))
        with Recording():
            output = (TORCH.resolve(fn) or fn)(*args, **kwargs)
    return trace, values, output


def run(trace: TraceCtx, values: dict[str, torch.Tensor], output: Any, *, primitives: bool) -> Any:
    """The output's values: each recorded row run as a whole, or down to the primitives."""
    env: dict[str, Any] = dict(values)
    value = _evaluate(trace, env, primitives)
    leaves, spec = tree_flatten(output)
    return tree_unflatten([value(leaf) for leaf in leaves], spec)


def _evaluate(trace: TraceCtx, env: dict[str, Any], primitives: bool) -> Callable[[Any], Any]:
    """Enters the values of a trace by name; returns the function that reads them."""

    def value(x: Any) -> Any:
        return env[x.name] if isinstance(x, TensorProxy | NumberProxy) else x

    with torch.no_grad():
        for bsym in steps(trace.bound_symbols, primitives):
            args, kwargs = tree_map(value, (bsym.args, bsym.kwargs))
            result = row_of(bsym.sym).eager(*args, **kwargs)  # type: ignore[union-attr,misc]
            for proxy, tensor in zip(_proxies(bsym.output), tree_flatten(_plain(result))[0], strict=True):
                if proxy is not None:
                    env[proxy.name] = tensor
    return value


def _plain(result: Any) -> Any:
    return tuple(result) if isinstance(result, tuple) else result


def _proxies(output: Any) -> list[TensorProxy | NumberProxy | None]:
    return [x if isinstance(x, TensorProxy | NumberProxy) else None for x in tree_flatten(_plain(output))[0]]


def steps(bsyms: Any, primitives: bool) -> Iterator[BoundSymbol]:
    """The bound symbols to run: the recorded ones, or what they decompose into; those without eager function
    always decompose.
    """
    for bsym in bsyms:
        row = row_of(bsym.sym)
        if bsym.subsymbols and (primitives or row is None or row.eager is None):
            yield from steps(bsym.subsymbols, primitives)
        elif row is not None and row.eager is not None:
            yield bsym
        elif bsym.subsymbols == ():
            raise AssertionError(f"{bsym.sym.id} has neither an eager function nor a decomposition")


def assert_same_metadata(output: Any, expected: Any) -> None:
    """Asserts that the proxies of an output have the type and shape of eager's tensors, and that other values
    are equal.
    """
    assert isinstance(expected, tuple | list) == isinstance(output, tuple | list), (
        f"{type(output)}, not {type(expected)}"
    )
    ours, theirs = tree_flatten(_listed(output))[0], tree_flatten(_listed(expected))[0]
    assert len(ours) == len(theirs), f"{len(ours)} results, not {len(theirs)}"
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(other, torch.Tensor):
            assert isinstance(mine, TensorProxy), f"{mine!r} is no proxy"
            found = (tuple(mine.shape), mine.dtype.torch_dtype, mine.device.type)
            assert found == (tuple(other.shape), other.dtype, other.device.type), (
                f"{found}, not {other.dtype} {tuple(other.shape)}"
            )
        elif isinstance(mine, NumberProxy):
            assert mine.python_type is type(other), f"{mine.python_type}, not {other!r}"
        else:
            assert mine == other, f"{mine!r}, not {other!r}"


def _listed(x: Any) -> Any:
    return list(x) if isinstance(x, tuple | list) else x


#: a decomposition may add in another order, and rounds after each step
CLOSE = {torch.bfloat16: 6e-2, torch.float16: 1e-2}


def assert_same_values(result: Any, expected: Any, *, exact: bool) -> None:
    """Asserts equal values: bit for bit, or close."""
    dtypes = [x.dtype for x in tree_flatten(_listed(expected))[0] if isinstance(x, torch.Tensor)]
    tolerance = 0 if exact else max((CLOSE.get(d, 1e-4) for d in dtypes), default=0)
    low = not exact and not CLOSE.keys().isdisjoint(dtypes)
    torch.testing.assert_close(
        _listed(result),
        _listed(expected),
        rtol=tolerance,
        atol=tolerance * (_largest(expected) if low else 1),
        equal_nan=True,
        check_stride=False,
    )


def _largest(tree: Any) -> float:
    """The largest finite element, at least 1: what a sum of a low precision loses grows with its terms."""
    floats = [
        x for x in tree_flatten(_listed(tree))[0] if isinstance(x, torch.Tensor) and x.is_floating_point()
    ]
    return max([1.0, *(float(x[x.isfinite()].abs().max()) for x in floats if x.isfinite().any())])
