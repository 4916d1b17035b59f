"""Checks of computed tensors against their proxies, while the program runs."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base import devices, dtypes
from thunder.base.errors import Location, PluginError
from thunder.base.plugin_calls import kind_of
from thunder.base.structural_ids import STRUCTURAL
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.registered_operators import declared_symbol
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_sizes import SymbolicInt, has_symbols
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ir.unmodelled_proxies import UnmodelledProxy
from thunder.passes.kernel_checks import checked_call, origin_of_kernel


def watch(trace: TraceCtx, only: frozenset[OpTags] | None = None) -> TraceCtx:
    """Check each tensor when it is computed, or only outputs of calls with one of some tags.

    ``only`` are these tags. The checks are for debugging, and for operators without a declared meta function.

        t0 = torch.sin(x)   →   t0 = torch.sin(x)
                                check_result(t0, 'torch.sin', 'cpu f32[4]')

    At run time a tensor whose shape, dtype or device differs from its proxy raises PluginError with the
    operator. Without ``only``, kernels of packages are checked further (:mod:`thunder.passes.kernel_checks`).
    """
    if only is not None and all(map(only.isdisjoint, [bsym.tags for bsym in trace.bound_symbols])):
        return trace
    watched: list[BoundSymbol] = []
    for bsym in trace.bound_symbols:
        watched.append(checked_call(bsym) if only is None else bsym)
        if bsym.sym.id in STRUCTURAL or (only is not None and only.isdisjoint(bsym.tags)):
            continue
        notes: tuple[Any, ...] = (bsym.source.file, bsym.source.line) if bsym.source is not None else ()
        origin = origin_of_kernel(bsym.sym)
        if origin is not None:
            notes = (*(notes or (None, None)), origin)
        for p in bsym.flat_proxy_outs:
            if isinstance(p, TensorProxy) and not isinstance(p, UnmodelledProxy):
                watched.append(_check.bind(p, bsym.sym.id, _expected(p), *notes, output=None))
    return with_bound_symbols(trace, watched, "Watch")


def _check_result(
    value: object,
    operator: str,
    expected: str,
    file: str | None = None,
    line: int | None = None,
    by: str | None = None,
) -> None:
    actual = type_of(value) if isinstance(value, torch.Tensor) else kind_of(value)
    if actual != expected and not _fits(actual, expected):
        error = PluginError(
            f"{operator} computes a result that differs from its meta function's",
            found={"meta": expected, "result": actual},
            where=[Location.of(file, line)] if file is not None and line is not None else None,
            hint=_UNDER_AUTOCAST if operator.startswith("autocast.") else _WRONG,
        )
        raise error if by is None else error.blame(by)


def _expected(p: TensorProxy) -> str:
    """Return the type of a result, with ``?`` for symbolic sizes."""
    if not has_symbols(p.shape):
        return p.type_string()
    sizes = ", ".join("?" if isinstance(n, SymbolicInt) else str(n) for n in p.shape)
    return f"{p.device.device_str()} {p.dtype.shortname()}[{sizes}]"


def _fits(actual: str, expected: str) -> bool:
    """Return whether a type is the expected one, in which ``?`` is any size."""
    if "?" not in expected:
        return False
    found, wanted = actual.rstrip("]").split(", "), expected.rstrip("]").split(", ")
    first, sizes = wanted[0].split("["), found[0].split("[")
    pairs = zip([sizes[-1], *found[1:]], [first[-1], *wanted[1:]], strict=False)
    return first[0] == sizes[0] and len(found) == len(wanted) and all(w in ("?", f) for f, w in pairs)


_WRONG = "The implementation of the executor that runs it, or the meta function, is wrong."
_UNDER_AUTOCAST = (
    "In eager its kernel runs under autocast, and so it does here. Declare the casts with register_autocast, "
    "or call it under torch.autocast(…, enabled=False)."
)

_check = declared_symbol(
    Symbol(
        name="check_result",
        id="thunder.check_result",
        python_impl=_check_result,
        tags=frozenset({OpTags.DONT_DCE}),
    )
)


def type_of(t: torch.Tensor) -> str:
    """Return the type string of a tensor, as its proxy prints it: `"cpu f32[2, 4]"`."""
    dims = ", ".join(map(str, t.shape))
    return f"{devices.to_device(t.device).device_str()} {dtypes.to_dtype(t.dtype).shortname()}[{dims}]"
