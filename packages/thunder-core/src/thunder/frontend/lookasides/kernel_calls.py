"""Calls of ``run_kernel``: launches of kernels that write to their arguments, Note [Kernel calls]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from thunder.base.devices import to_torch_device
from thunder.base.errors import UnsupportedOperator, UnsupportedProgram
from thunder.base.memory_layout import contiguous_strides
from thunder.base.tags import OpTags
from thunder.frontend.inner_gradients.recorded_gradients import grad_mode
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives.written_state import reached_write
from thunder.frontend.places import COMPUTES, LAUNCHES_KERNEL
from thunder.frontend.session import TracingSession
from thunder.frontend.source_locations import source_of
from thunder.frontend.traced_replacements import ReplacedCalls
from thunder.ir.aliasing import shared_memory
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ir.symbolic_sizes import SymbolicInt
from thunder.ir.trace import Source
from thunder.ops.kernel_operators import (
    KernelCall,
    KernelTensor,
    Size,
    SizeArgument,
    kernel_symbol,
    run_kernel,
)
from thunder.ops.layouts import strides_of
from thunder.torch.inplace import assign

__all__ = ["TABLE"]

TABLE = LookasideTable(COMPUTES)

_VALUES = (TensorProxy, NumberProxy, SymbolicInt, int, float, type(None))


@TABLE.lookaside(run_kernel)
def _run_kernel(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record a launch, and the writes of its results.

    Raises UnsupportedOperator where the program would not mean what eager means.
    """
    _record(session, *args, **kwargs)


def _record(
    session: TracingSession,
    name: str,
    kernel: Any,
    arguments: Sequence[Any],
    written: Sequence[int],
) -> None:
    _check_values(session, name, kernel, arguments)
    targets = list({id(arguments[i]): arguments[i] for i in written}.values())
    targets = [t for t in targets if isinstance(t, TensorProxy)]
    _check_writes(session, name, arguments, targets)
    sizes: list[SymbolicInt] = []
    tensors = list(_tensors(session, arguments, targets, sizes))
    new = {t.position for t in tensors if t.new is not None}
    given = [None if i in new else value for i, value in enumerate(arguments)]
    first = [t for t in tensors if t.written and t.same_as == t.position]
    results = [_with_strides(session, arguments[t.position]) for t in first]
    call = KernelCall(name, kernel, len(arguments), tensors)
    symbol = kernel_symbol(call, session.unique_id(f"kernel.{name}"), results)
    with grad_mode(False):
        values = symbol(*given, *sizes)
        session.trace.peek_scope()[-1].source = _line_of_launch(session)
        for value, tensor in zip(values, first, strict=True):
            assign(value, arguments[tensor.position])


def _line_of_launch(session: TracingSession) -> Source | None:
    """Return the user's line: the innermost that is not of the package that records the launch.

    Nor is it of the library whose function the package replaces.
    """
    frames = session.machine.frames
    replaced = [r.function for r, _ in session.state(ReplacedCalls).calls.values()]
    packages = {_package(fn.__module__) for fn in replaced} | {_package_of(frames[-1])}
    end = next((n for n in range(len(frames), 0, -1) if _package_of(frames[n - 1]) not in packages), 0)
    shown = frames[:end] or frames
    return source_of(shown, session.modules.running(shown))


def _package_of(frame: Any) -> str:
    return _package(str(frame.globals.get("__name__", "")))


def _package(module: str) -> str:
    return module.partition(".")[0]


# -- what can be recorded ------------------------------------------------------------------------------------


def _check_values(session: TracingSession, name: str, kernel: Any, arguments: Sequence[Any]) -> None:
    session.place.check(LAUNCHES_KERNEL, f"the kernel {name} is launched", UnsupportedOperator)
    for value in arguments:
        if not isinstance(value, _VALUES):
            raise UnsupportedOperator(
                f"the kernel {name} is launched with an argument of type {type(value).__qualname__}",
                hint="Pass tensors and numbers.",
            )
    read = reached_write(session, kernel, (), tensors=False)
    if read is not None:
        raise UnsupportedOperator(
            f"the kernel {name} may read {read}, which the program has written before: its writes are made "
            "when it has run",
            hint="Pass the value as an argument of the kernel.",
        )


def _check_writes(
    session: TracingSession, name: str, arguments: Sequence[Any], targets: Sequence[TensorProxy]
) -> None:
    tensors = list({id(a): a for a in arguments if isinstance(a, TensorProxy)}.values())
    calls = _recorded(session)
    memory = shared_memory(calls)
    for target in targets:
        shown = {target.name: f'"{target.type_string()}"'}
        if torch.is_grad_enabled() and target.requires_grad:
            raise UnsupportedOperator(
                f"the kernel {name} writes to a tensor that requires grad, unseen by torch's autograd",
                found=shown,
                hint="Launch it under torch.no_grad(), or in an autograd.Function.",
            )
        # a symbolic stride is a product of sizes: it is 0 for tensors without elements alone
        if any(
            type(stride) is int and stride == 0 and size > 1
            for size, stride in zip(target.shape, _strides(session, target), strict=True)
        ):
            raise UnsupportedOperator(
                f"the kernel {name} writes to a tensor of which several elements share memory",
                found=shown,
                hint="Pass a clone of it.",
            )
        family = memory.find(target.name)
        if any(memory.find(t.name) == family for t in tensors if t is not target):
            raise UnsupportedOperator(
                f"the kernel {name} writes to memory that another argument may share",
                found=shown,
                hint="Pass a clone of the other argument.",
            )
        for call in calls:
            if _may_save(call) and any(memory.find(p.name) == family for p in call.flat_proxy_args):
                raise UnsupportedOperator(
                    f"the kernel {name} writes to a tensor, unseen by torch's autograd, whose value before "
                    f"the backward of {call.sym.name} may need",
                    found=shown,
                    where=call.locations,
                    hint="Pass a clone of it.",
                )


def _may_save(call: BoundSymbol) -> bool:
    """Return whether a backward may need an argument of a call."""
    return OpTags.IN_PLACE not in call.tags and any(map(requires_grad, call.flat_proxy_outs))


def _recorded(session: TracingSession) -> list[BoundSymbol]:
    return [bsym for scope in session.trace.scopes for bsym in scope]


# -- the tensors ---------------------------------------------------------------------------------------------


def _tensors(
    session: TracingSession,
    arguments: Sequence[Any],
    targets: Sequence[TensorProxy],
    sizes: list[SymbolicInt],
) -> Iterator[KernelTensor]:
    """Yield what the operator has to know of each tensor argument; enter symbolic sizes into `sizes`."""

    def passed(size: Any) -> Size:
        if not isinstance(size, SymbolicInt):
            return int(size)
        sizes.append(size)
        return SizeArgument(len(arguments) + len(sizes) - 1)

    first: dict[int, int] = {}
    for position, value in enumerate(arguments):
        if not isinstance(value, TensorProxy):
            continue
        written = any(value is target for target in targets)
        same_as = first.setdefault(id(value), position)
        new = None
        if written and _holds_nothing(session, value):
            shape = tuple(map(passed, value.shape))
            new = shape, value.dtype.torch_dtype, to_torch_device(value.device)
        strides = tuple(map(passed, _strides(session, value)))
        yield KernelTensor(position, strides, written, new, same_as)


def _with_strides(session: TracingSession, tensor: TensorProxy) -> TensorProxy:
    return tensor.replace(strides=_strides(session, tensor))


def _strides(session: TracingSession, tensor: TensorProxy) -> tuple[Any, ...]:
    """Return eager's strides of a tensor; of one whose strides a program cannot know, contiguous ones."""
    try:
        return strides_of(tensor, session.trace)
    except UnsupportedProgram:
        return contiguous_strides(tensor.shape)


def _holds_nothing(session: TracingSession, tensor: TensorProxy) -> bool:
    """Return whether a tensor is memory that no call has read or written yet."""
    if not all(type(size) is int or isinstance(size, SymbolicInt) for size in tensor.shape):
        return False
    creators = []
    for call in _recorded(session):
        if any(p is tensor for p in call.flat_proxy_args):
            return False
        if any(p is tensor for p in call.flat_proxy_outs):
            creators.append(call)
    return len(creators) == 1 and any(
        OpTags.UNINITIALIZED in part.tags and any(p is tensor for p in part.flat_proxy_outs)
        for part in with_parts(creators)
    )
