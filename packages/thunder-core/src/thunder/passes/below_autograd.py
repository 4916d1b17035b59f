"""Calls below torch's autograd, in programs of which no value has a gradient.

Note [Below autograd]
Torch dispatches each call first to its autograd, which finds that nothing is to be recorded, and for a view
notes its base. Both cost about a fifth of a small call. A block of the printed program leaves them out:

    t0 = torch.mul(x, w)              with below_autograd():
    …                            →      t0 = torch.mul(x, w)
    t9 = torch.sin(t8)                  …
    return Tensor.view(t9, (-1,))     t9 = torch.sin(t8)
                                      return Tensor.view(t9, (-1,))

It is what torch's own kernels run in (``AutoDispatchBelowADInplaceOrView``). The trace alone decides which
calls are in a block, and each has to be certain to compute there what it computes outside:

- Gradients are off, or no value of the program requires grad. So it is in the forward of thunder's autograd
  function too. A backward may run under any mode of torch, which would see other calls: it has no block.
- A kernel of torch or of core runs the call. Code of the program and of packages, library operators, and
  functions without a row may need autograd, so no block has them.
- It writes to nothing: a write has to count the version of what is written.
- It reads no tensor that requires grad, nor a view of one. With gradients off such a view requires grad too,
  unless it is made in a block, and torch's composites ask that of the views that they make (``at::matmul``
  chooses by it between two kernels).
- Its result is not that of the program, not written, and read by no other code, nor is a view of it: all of
  these see whether a tensor is a view, of what, and its version.

An operator of torch whose own kernel runs below autograd (no composite, no view) does the same anyway.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, Final

import torch

from thunder.base.extension_origin import module_of
from thunder.base.structural_ids import BLOCK, BLOCK_END, COMMENT, RELEASES, RETURN
from thunder.base.tags import OpTags
from thunder.ir.aliasing import views_of
from thunder.ir.effects import COPY, has_effect, written_tensors
from thunder.ir.literals import Names
from thunder.ir.number_proxies import NumberProxy
from thunder.ir.proxies import TensorProxy
from thunder.ir.registered_operators import declared_symbol
from thunder.ir.symbol import BoundSymbol, Symbol, has_tags
from thunder.ir.trace import TraceCtx, TraceTag, with_bound_symbols
from thunder.ops.data_errors import has_opaque
from thunder.ops.operator import row_of
from thunder.passes.functionalisation.view_creation import GradModes
from thunder.passes.placed_writes.program_facts import writes_by_row
from thunder.passes.placed_writes.raising_calls import runs_kernel_of_core

__all__ = ["BelowAutograd", "below_autograd"]

#: entering a block costs as much as three small calls save in it
SHORTEST: Final = 8

_PACKAGES: Final = ("thunder", "torch", "builtins")
#: calls that are not torch's alone, or whose results are compared with what is expected
_NOT_PLAIN: Final = frozenset(
    {OpTags.FALLBACK, OpTags.CHECK_RESULTS, OpTags.HOOKED, OpTags.CTX_MANAGER_ENTER_EXIT_OP}
)


def _print_block(bsym: BoundSymbol, names: Names) -> list[str]:
    return [f"with {names.obj('below_autograd', torch._C._AutoDispatchBelowADInplaceOrView)}():"]


def _print_end(bsym: BoundSymbol, names: Names) -> list[str]:
    return []


_TAGS: Final = frozenset({OpTags.DONT_DCE, OpTags.CTX_MANAGER_ENTER_EXIT_OP})
_BLOCK: Final = declared_symbol(
    Symbol(name="below_autograd", id=BLOCK, python_printer=_print_block, tags=_TAGS)
)
_END: Final = declared_symbol(
    Symbol(name="end_below_autograd", id=BLOCK_END, python_printer=_print_end, tags=_TAGS)
)


@dataclass(frozen=True)
class BelowAutograd:
    """How many calls of a program run below torch's autograd, and why others do not.

    ``others`` has the reasons, each with the number of its calls.
    """

    calls: int
    others: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} not: {reason}" for reason, count in self.others)
        return f"{self.calls} calls{'; ' * bool(reasons)}{reasons}"


def below_autograd(trace: TraceCtx) -> tuple[TraceCtx, BelowAutograd | None]:
    """Put runs of calls that need no autograd into blocks below it; return also what was done.

    See Note [Below autograd]. The calls are claimed. Blocks that the trace has are taken out first. Returns
    the trace itself if it stays, and None if it has too few calls for a block.
    """
    start = time.perf_counter_ns()
    if any(bsym.sym.id == BLOCK for bsym in trace.bound_symbols):
        statements = [bsym for bsym in trace.bound_symbols if bsym.sym.id not in (BLOCK, BLOCK_END)]
        trace = with_bound_symbols(trace, statements, "Below autograd")
    whole = _why_none(trace)
    reasons = [whole] * len(trace.bound_symbols) if whole else list(_reasons(trace))
    calls = [i for i, bsym in enumerate(trace.bound_symbols) if not _is_neutral(bsym)]
    if len(calls) < SHORTEST:
        return trace, None
    blocks = [run for run in _runs(calls, reasons) if len(run) >= SHORTEST]
    inside = {i for block in blocks for i in block}
    others = Counter(reasons[i] or "too few in a row" for i in calls if i not in inside)
    report = BelowAutograd(len(inside), tuple(others.items()))
    if not blocks:
        return trace, report
    begins, ends = {block[0] for block in blocks}, {block[-1] for block in blocks}
    statements = list[BoundSymbol]()
    for i, bsym in enumerate(trace.bound_symbols):
        if i in begins:
            statements.append(_BLOCK.bind(output=None))
        statements.append(bsym)
        if i in ends:
            statements.append(_END.bind(output=None))
    took = time.perf_counter_ns() - start
    return with_bound_symbols(trace, statements, "Below autograd", took), report


def _runs(calls: Sequence[int], reasons: Sequence[str | None]) -> Iterator[list[int]]:
    """Yield the longest runs of calls for which there is no reason."""
    run = list[int]()
    for i in calls:
        if reasons[i] is None:
            run.append(i)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _why_none(trace: TraceCtx) -> str | None:
    """Return why no call of a program may be in a block, or None."""
    if TraceTag.BACKWARD in trace.tags:
        return "the modes under which a backward runs are not known"
    if trace.grad_enabled:
        return "gradients are on"
    changed = sorted(_changed_autograd())
    return f"torch.library has another kernel of {changed[0]}" if changed else None


def _changed_autograd() -> Iterator[str]:
    """Yield the operators of torch to whose autograd a kernel was added from Python."""
    for name in torch.library._impls:  # thousands, as "aten/mul/AutogradCPU"
        if "/A" in name and name.startswith("aten/"):
            _, operator, *_, key = name.split("/")
            if key.startswith(("Autograd", "ADInplaceOrView")):
                yield operator


def _reasons(trace: TraceCtx) -> Iterator[str | None]:
    """Yield for each statement why it is in no block, or None."""
    modes, seen, tracked = GradModes(False, is_tracked=True), _seen(trace), _tracked(trace)
    for bsym in trace.bound_symbols:
        modes.follow(bsym)
        yield "gradients are on" if modes.is_grad_on else _why_not(bsym, seen, tracked)


def _why_not(bsym: BoundSymbol, seen: frozenset[str], tracked: frozenset[str]) -> str | None:
    if has_tags(bsym, {OpTags.IN_PLACE}):
        return "they write"
    if not _is_plain(bsym):
        return "code that is not torch's may need it"
    if _returns_own_tensor(bsym):
        return None
    if any(p.name in seen for p in bsym.flat_proxy_outs):
        return "their results are seen outside"
    if any(p.name in tracked for p in bsym.flat_proxy_args):
        return "they may ask whether what they read requires grad"
    return None


def _is_plain(bsym: BoundSymbol) -> bool:
    """Return whether a call runs a function of torch or of core, and nothing else, on ordinary tensors."""
    kernel = bsym.sym.python_impl or bsym.sym.call_target
    if not runs_kernel_of_core(bsym) or has_tags(bsym, _NOT_PLAIN) or has_opaque(bsym):
        return False
    if kernel is not None and module_of(kernel).partition(".")[0] not in _PACKAGES:
        return False
    values = (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)
    return all(type(p) is TensorProxy or isinstance(p, NumberProxy) for p in values)


def _is_neutral(bsym: BoundSymbol) -> bool:
    """Return whether a statement may be in a block and outside: it reads and computes no tensor."""
    if bsym.sym.id in RELEASES or bsym.sym.id in (COMMENT, RETURN):
        return True
    has_tensors = any(isinstance(p, TensorProxy) for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs))
    return not has_tensors and not has_effect(bsym) and _is_plain(bsym)


def _seen(trace: TraceCtx) -> frozenset[str]:
    """Return the names of the values of which somebody sees how they were created.

    They are results, what is written or read by other code, and the values of which these are views.
    """
    seen = set[str]()
    for bsym in reversed(trace.bound_symbols):
        if bsym.sym.id in RELEASES or bsym.sym.id == COMMENT:
            continue
        if bsym.sym.id == COPY or writes_by_row(bsym):
            seen.update([p.name for p in written_tensors(bsym)])
        elif bsym.sym.id == RETURN or not (_is_plain(bsym) or bsym.sym.is_fusion):
            seen.update([p.name for p in bsym.flat_proxy_args])
        else:
            seen.update([view.source.name for view in views_of(bsym) if view.output.name in seen])
    return frozenset(seen)


def _tracked(trace: TraceCtx) -> frozenset[str]:
    """Return the names of the inputs that require grad, and of their views."""
    tracked = {p.name for p in trace.args if isinstance(p, TensorProxy) and p.requires_grad}
    for bsym in trace.bound_symbols:
        tracked.update([view.output.name for view in views_of(bsym) if view.source.name in tracked])
    return frozenset(tracked)


def _returns_own_tensor(bsym: BoundSymbol) -> bool:
    """Return whether torch runs a call below its autograd in one kernel, whose result is no view."""
    row = row_of(bsym.sym)
    function = row.eager if row is not None and bsym.sym.python_impl is None else None
    if not isinstance(function, BuiltinFunctionType | MethodDescriptorType):
        return False
    has_tensor = any(isinstance(p, TensorProxy) for p in bsym.flat_proxy_args)
    return has_tensor and _has_own_kernels(function.__name__)


@cache
def _has_own_kernels(name: str) -> bool:
    """Return whether each operator of torch with a name has a kernel of autograd, and returns no view."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    functional = [op for op in overloads if not op._schema.is_mutable]
    return bool(functional) and all(map(_has_own_kernel, functional))


def _has_own_kernel(operator: Any) -> bool:
    name, has = operator.name(), torch._C._dispatch_has_kernel_for_dispatch_key
    if not torch._C._dispatch_has_kernel(name):
        return True  # an operator of TorchScript alone
    is_composite = has(name, "CompositeImplicitAutograd")
    returns_view = any(r.alias_info is not None for r in operator._schema.returns)
    return has(name, "Autograd") and not is_composite and not returns_view
