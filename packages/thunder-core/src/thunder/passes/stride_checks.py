"""The strides of what a package computes, against those that eager would give, under `check_traces`.

Eager's strides are those of the calls of torch that a kernel, a fusion or an execution transform computes.
These are run on tensors without data that have the strides of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from thunder.base.errors import OperatorError, PluginError, TraceError, UnsupportedProgram
from thunder.base.extension_origin import is_of_core
from thunder.base.structural_ids import DEL
from thunder.base.tags import OpTags
from thunder.executor_base.executor import Executor
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbol import BoundSymbol, Symbol, has_tags, with_parts
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ops.layouts import Layouts, layout_of
from thunder.ops.operator import row_of, symbol_of
from thunder.ops.region_evaluation import evaluate_calls
from thunder.passes.placement import Placement, is_executable

__all__ = ["StrideCheck", "watch_transforms"]

Strides = tuple[int, ...]

#: tags of calls that are not run a second time
_ONCE = frozenset({OpTags.RANDOM_OP, OpTags.IN_PLACE})


class StrideCheck:
    """A comparison of the strides of a call's results with eager's: those of the results of `calls`.

    Without `calls`, the strides that the meta function of the call, or its row, declares are compared.
    Eager's strides are derived once for each combination of strides of the arguments.
    """

    def __init__(self, bsym: BoundSymbol, calls: Sequence[BoundSymbol]) -> None:
        self.inputs = [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
        self.outputs = [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]
        for p in (*self.inputs, *self.outputs):
            tuple(map(int, p.shape))  # layouts are derived for these sizes: symbolic ones are fixed
        self._calls = calls
        self._declared = calls if calls or layout_of(bsym) is None else [bsym]
        self._is_checked = not has_tags(bsym, _ONCE) and not any(map(_is_of_package, with_parts(calls)))
        self._numbers = {p.name: p.stand_in for p in bsym.flat_proxy_args if isinstance(p, NumberProxy)}
        self._eager: dict[tuple[Strides, ...], list[Strides | None]] = {}

    def difference(
        self, arguments: Mapping[str, torch.Tensor], results: Mapping[str, Any]
    ) -> tuple[Strides, Strides] | None:
        """Return eager's strides and a result's, where a result has others; else None.

        `arguments` and `results` are tensors by the names of their proxies. Dimensions of length 1 do not
        count. A result is not compared where eager's strides cannot be derived.
        """
        if not self._is_checked or any(p.name not in arguments for p in self.inputs):
            return None
        for p, eager in zip(self.outputs, self._derived(arguments), strict=True):
            result = results.get(p.name)
            if eager is None or not isinstance(result, torch.Tensor) or not _is_comparable(p, result):
                continue
            if _differ(eager, result) and not self._is_confirmed(arguments, p, result):
                return eager, tuple(result.stride())
        return None

    def _derived(self, arguments: Mapping[str, torch.Tensor]) -> list[Strides | None]:
        """Return eager's strides of each output; None for one of which they are not known."""
        key = tuple(arguments[p.name].stride() for p in self.inputs)
        strides = self._eager.get(key)
        if strides is None:
            inputs = [p.replace(strides=s) for p, s in zip(self.inputs, key, strict=True)]
            layouts = Layouts(inputs, self._declared)
            strides = self._eager[key] = [self._eager_strides(layouts, p) for p in self.outputs]
        return strides

    def _eager_strides(self, layouts: Layouts, p: TensorProxy) -> Strides | None:
        if not self._declared:
            return p.strides
        try:
            return layouts.strides(p)
        except (UnsupportedProgram, OperatorError):
            return None

    def _is_confirmed(
        self, arguments: Mapping[str, torch.Tensor], p: TensorProxy, result: torch.Tensor
    ) -> bool:
        """Return whether torch's functions, run on the arguments, return strides like the result's.

        Some of torch's kernels return others than tensors without data have. True is returned too where torch
        has no function for a call.
        """
        if not self._calls:
            return False
        values: dict[str, Any] = {**self._numbers, **arguments}
        try:
            evaluate_calls(self._calls, values)
        except TraceError:
            return True
        return not _differ(tuple(values[p.name].stride()), result)


def _is_of_package(bsym: BoundSymbol) -> bool:
    return row_of(bsym.sym) is not None and symbol_of(bsym.sym.id).executor is not None


def _is_comparable(p: TensorProxy, result: torch.Tensor) -> bool:
    has_shape = tuple(result.shape) == tuple(p.shape)
    return result.layout is torch.strided and has_shape and result.numel() > 1


def _differ(eager: Strides, result: torch.Tensor) -> bool:
    pairs = zip(result.shape, eager, result.stride(), strict=True)
    return any(a != b for n, a, b in pairs if n > 1)


# -- execution transforms ------------------------------------------------------------------------------------


def watch_transforms(
    trace: TraceCtx, placements: Sequence[Placement], executors: Sequence[Executor]
) -> TraceCtx:
    """Check the strides of what execution transforms of packages compute, when it is computed.

        t1 = torch.mul(x, 2)        →   t1 = torch.mul(x, 2)
        del x                           t0 = torch.sin(t1)
        t0 = torch.sin(t1)              check_strides(t0, x)
                                        del x

    At run time a result with other strides than eager's raises PluginError. Results and arguments that are
    inside of fusions are not compared.
    """
    checks = _checks(trace, placements, executors)
    if not checks:
        return trace
    statements: list[BoundSymbol] = []
    delayed: list[TensorProxy] = []
    for bsym in trace.bound_symbols:
        if bsym.sym.id == DEL:
            read = {p.name for check in checks for p in check.flat_proxy_args}
            delayed += [p for p in bsym.args if p.name in read]
            remaining = tuple(p for p in bsym.args if p.name not in read)
            if remaining:
                statements.append(bsym.from_bsym(args=remaining))
            continue
        statements.append(bsym)
        defined = {p.name for p in bsym.flat_proxy_outs}
        ready = [c for c in checks if c.args[0].name in defined]
        checks = [c for c in checks if c not in ready]
        statements += ready
    return with_bound_symbols(trace, _with_releases(statements, delayed), "Watch")


def _with_releases(statements: list[BoundSymbol], delayed: Sequence[TensorProxy]) -> list[BoundSymbol]:
    """Return the statements with a `del` of each delayed value after the last statement that reads it."""
    names = {p.name: p for p in delayed}
    released: list[BoundSymbol] = []
    for bsym in reversed(statements):
        last = [names.pop(p.name) for p in bsym.flat_proxy_args if p.name in names]
        if last:
            released.append(symbol_of(DEL).bind(*last, output=None))
        released.append(bsym)
    return released[::-1]


def _checks(
    trace: TraceCtx, placements: Sequence[Placement], executors: Sequence[Executor]
) -> list[BoundSymbol]:
    """Return a check for each result of a transform that, with its arguments, is a value of the trace."""
    by_name = {executor.name: executor for executor in executors}
    defined = {p.name for p in proxies_in(trace.args)}
    defined.update(p.name for bsym in trace.bound_symbols for p in bsym.flat_proxy_outs)
    checks = []
    for placement in placements:
        executor = by_name.get(placement.claimed_by or "")
        transform = None if executor is None else _transform_of(executor, placement.bsym)
        if executor is None or transform is None:
            continue
        check = StrideCheck(placement.bsym, (placement.bsym,))
        if any(p.name not in defined for p in check.inputs):
            continue
        origin = executor.origin_of(transform)
        operands = {p.name for p in check.inputs}
        checks += [
            _check_symbol(placement.bsym, check, p.name, executor.name, origin).bind(
                p, *check.inputs, output=None
            )
            for p in check.outputs
            if p.name in defined and p.name not in operands
        ]
    return checks


def _transform_of(executor: Executor, bsym: BoundSymbol) -> Callable[..., Any] | None:
    """Return the function of a package that computes a call with other calls, or None."""
    call = executor.as_registered(bsym)
    info = executor.implmap.get(call.sym.id)
    transform = executor.get_execution_transform(call)
    if transform is None and info is not None and info.symbol is not None and not is_executable(info.symbol):
        return None if is_of_core(executor.defined_in) else info.symbol.meta
    return None if transform is None or is_of_core(transform) else transform


def _check_symbol(bsym: BoundSymbol, check: StrideCheck, name: str, executor: str, origin: str) -> Symbol:
    """Return the statement that compares the result `name`; it takes the result and the call's tensors."""

    def check_strides(result: object, *arguments: Any) -> None:
        tensors = {p.name: t for p, t in zip(check.inputs, arguments, strict=True)}
        differing = check.difference(tensors, {name: result})
        if differing is not None:
            raise PluginError(
                f"the execution transform of executor {executor!r} for {bsym.sym.id} returns other strides "
                "than eager",
                found={"call": bsym.line, "eager": differing[0], "transform": differing[1]},
                where=bsym.locations,
                hint="It records calls whose result has eager's strides, or copies the result to a tensor "
                "that has them.",
            ).blame(origin)

    return Symbol(
        name="check_strides",
        id="thunder.check_strides",
        python_impl=check_strides,
        tags=frozenset({OpTags.DONT_DCE}),
    )
