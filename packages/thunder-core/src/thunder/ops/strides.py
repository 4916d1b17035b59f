"""The strides of intermediate tensors, derived when a program reads them."""

from __future__ import annotations

from thunder.base.errors import UnsupportedProgram
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx
from thunder.ops.layouts import Layouts


def strides_of(proxy: TensorProxy, trace: TraceCtx | None) -> tuple[int, ...]:
    """Return the strides (elements) that eager would give a tensor of the trace.

    Raises UnsupportedProgram if they cannot be derived.
    """
    if proxy.strides is not None:
        return proxy.strides
    if proxy.derived_strides is None:
        proxy.derived_strides = _derived(proxy, trace)
    return proxy.derived_strides


def _derived(proxy: TensorProxy, trace: TraceCtx | None) -> tuple[int, ...]:
    program = trace.bound_symbols if trace is not None else []
    if not any(out is proxy for bsym in program for out in bsym.flat_proxy_outs):
        raise UnsupportedProgram(
            f"the strides of {proxy.name} are not known here",
            found={proxy.name: f'"{proxy.type_string()}"'},
            hint="Call contiguous() first, or do not ask for strides.",
        )
    return Layouts((), program).strides(proxy)
