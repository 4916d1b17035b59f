"""Layouts: the strides and the storages that eager would give the tensors of a program.

They are derived by running calls on tensors without data. Whether ``x.reshape(…)`` is a view depends on
strides, which no trace records. Only for programs that write in place, or read strides, calls are run, and
only those in question and what they depend on. torch's fake tensors follow the kernels of the real device;
meta tensors do not (convolution in channels-last, attention).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import cached_property
from types import MethodType
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._mode_utils import no_dispatch

from thunder.base.context_variables import assigned
from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype, to_torch_dtype
from thunder.base.errors import OperatorError, ThunderError, UnsupportedProgram
from thunder.base.extension_origin import module_of
from thunder.base.memory_layout import byte_span, contiguous_strides
from thunder.base.pytree import tree_iter, tree_map
from thunder.base.tags import OpTags
from thunder.base.torch_versions import STRIDES_DIFFER_WITHOUT_DATA
from thunder.ir.aliasing import InputAlias
from thunder.ir.proxies import GeneratorProxy, NumberProxy, TensorProxy
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ops.layout_rules import BY_DEVICE, BY_KERNEL, CONTIGUOUS, LIKE, NEW, NEW_LIKE, Layout
from thunder.ops.operator import row_of
from thunder.ops.stand_ins import SMALL, stand_in_tensor, to_torch
from thunder.ops.torch_errors import TORCH_REFUSALS
from thunder.ops.torch_sizes import facts_in, size_in, to_symint, with_symbolic_sizes

#: what fake tensors raise for functions that read data
_DATA_DEPENDENT_ERRORS = (DataDependentOutputException, DynamicOutputShapeException)
#: packages whose functions run on fake tensors
_WITHOUT_DATA = frozenset({"thunder", "torch", "builtins", "_operator"})

#: the kind of device (``cuda``) in whose place fake tensors are on the CPU
_absent_device: ContextVar[str | None] = ContextVar("thunder_absent_device", default=None)


def without_touching_device(kind: str) -> AbstractContextManager[None]:
    """Within the context, layouts of tensors on this kind of device are those of the CPU.

    A fake tensor of a CUDA device makes torch initialise the device, and fails where torch has no CUDA.
    """
    return assigned(_absent_device, kind)


def absent_device() -> str | None:
    """Return the kind of device whose layouts are those of the CPU here, or None."""
    return _absent_device.get()


def _fake_device(device: Any) -> torch.device:
    torch_device = to_torch_device(device)
    return torch.device("cpu") if torch_device.type == _absent_device.get() else torch_device


def reads_memory(kernel: Callable[..., Any]) -> bool:
    """Return whether a kernel may read memory that fake tensors lack, as one that a package writes in C does.

    Functions of torch, and operators of ``torch.library``, run on fake tensors.
    """
    if isinstance(kernel, OpOverload | OpOverloadPacket | CustomOpDef):
        return False
    return isinstance(kernel, MethodType) or module_of(kernel).partition(".")[0] not in _WITHOUT_DATA


class Layouts:
    """A lazy evaluation of a program on fake tensors.

    ``groups`` are the inputs that overlap in memory. Where torch cannot compute with symbolic sizes they are
    fixed; with ``fixes=False`` methods raise UnsupportedProgram.
    """

    def __init__(
        self,
        inputs: Iterable[TensorProxy],
        program: Iterable[BoundSymbol],
        groups: Iterable[Sequence[InputAlias]] = (),
        *,
        fixes: bool = True,
    ) -> None:
        self._fixes = fixes
        self._values: dict[str, Any] = {}
        self._inputs = {p.name: p for p in inputs}
        self._groups = {alias.proxy.name: tuple(group) for group in groups for alias in group}
        self._producers = {p.name: b for b in reversed(list(program)) for p in b.flat_proxy_outs}
        self._mode: FakeTensorMode | None = None

    @cached_property
    def _symbols(self) -> SizeFacts | None:
        """Return the facts of the program's symbolic sizes; None without any, and where inputs overlap."""
        values = (
            p for call in self._producers.values() for p in (*call.flat_proxy_args, *call.flat_proxy_outs)
        )
        return None if self._groups else facts_in([*self._inputs.values(), *values])

    def extend(self, program: Iterable[BoundSymbol]) -> None:
        """Add calls, which compute other values."""
        self._producers.update({p.name: b for b in reversed(list(program)) for p in b.flat_proxy_outs})

    def producer_of(self, proxy: TensorProxy) -> BoundSymbol | None:
        """Return the call that computed a tensor, before the cast that fits it to an ``out=``."""
        call = self._producers.get(proxy.name)
        while call is not None and call.sym.id == "prims.convert_element_type":
            call = self._producers.get(call.args[0].name)
        return call

    def share_memory(self, a: TensorProxy, b: TensorProxy) -> bool:
        """Return whether eager gives the two one storage."""
        x, y = self.both(a, b)
        return _storage(x) == _storage(y)

    def overlap(self, a: TensorProxy, b: TensorProxy) -> bool:
        """Return whether the byte spans of the two in one storage overlap."""
        (start, end), (other_start, other_end) = map(byte_span, self.both(a, b))
        return max(start, other_start) < min(end, other_end)

    def both(self, a: TensorProxy, b: TensorProxy) -> tuple[FakeTensor, FakeTensor]:
        """Return the tensors of two values, which are computed together."""
        self.of(a)
        second = self.of(b)  # which may compute all values again
        return self.of(a), second

    def is_partial_view(self, proxy: TensorProxy) -> bool:
        """Return whether a tensor does not cover its storage: offset, gaps, repeated elements."""
        tensor = self.of(proxy)
        start, end = byte_span(tensor)
        return start != 0 or end != tensor.numel() * tensor.element_size()

    def strides(self, proxy: TensorProxy) -> tuple[int, ...]:
        """Return the strides (elements) that eager would give a tensor.

        Nothing is run for a tensor that is contiguous by its operator: the first fake tensor of a process
        takes a second.
        """
        if proxy.strides is not None:
            return proxy.strides
        if self.is_contiguous(proxy):
            return contiguous_strides(proxy.shape)
        with torch._C.DisableTorchFunction():  # not a call of the program
            return tuple(map(size_in, self.of(proxy).stride()))

    def runs_calls_for(self, proxy: TensorProxy) -> bool:
        """Return whether `strides` runs calls on tensors without data."""
        return proxy.strides is None and proxy.name not in self._inputs and not self.is_contiguous(proxy)

    def is_contiguous(self, proxy: TensorProxy) -> bool:
        """Return whether declared strides or the operator say that a tensor is contiguous."""
        proxy = self._inputs.get(proxy.name, proxy)
        if proxy.strides is not None:
            return proxy.strides == contiguous_strides(proxy.shape)
        call = self._producers.get(proxy.name)
        if proxy.name in self._inputs or call is None:
            return proxy.name in self._inputs
        layout = layout_of(call)
        if layout in (LIKE, NEW_LIKE) and _preserves_format(call):
            return self.is_contiguous(call.args[0])
        return layout is NEW

    def of(self, proxy: TensorProxy) -> FakeTensor:
        """Return a tensor without data that has eager's strides and storage."""
        value = self._values.get(proxy.name)
        if value is None:
            # in inference mode a composite is one call, of which torch's cache keeps no views
            with (
                torch.inference_mode(False),
                self._without_data(),
                torch.no_grad(),
                torch._C.DisableTorchFunction(),
            ):
                self._compute_sizes(proxy)
            value = self._values[proxy.name]
        return value  # type: ignore[no-any-return]

    def _without_data(self) -> AbstractContextManager[Any]:
        """Return a context in which functions of torch return tensors without data."""
        if self._mode is None:  # its first use imports torch's symbolic shapes, which takes a second
            self._mode = FakeTensorMode()
            if self._symbols is not None:
                self._mode.cache_enabled = False  # its keys are sizes, which would be fixed
        return self._mode

    def _compute_sizes(self, proxy: TensorProxy) -> None:
        """Compute ``proxy`` with symbolic sizes as torch's (Note [Sizes within torch]).

        If that fails, all values are computed with numbers, which fixes the sizes, if that is allowed.
        """
        if self._symbols is not None:
            try:
                with with_symbolic_sizes(self._symbols, fixes=self._fixes):
                    self._compute(proxy)
                return
            except (*TORCH_REFUSALS, ThunderError) as error:
                if not self._fixes:
                    raise UnsupportedProgram("the sizes would be fixed") from error
                self._symbols = None  # the mode stays: later values are of the same one
                self._values.clear()
        self._compute(proxy)

    def _empty(self, proxy: TensorProxy) -> torch.Tensor:
        """Return a new tensor without data for a proxy."""
        size = None if self._symbols is None else to_symint
        return stand_in_tensor(proxy, self._device(proxy.device), size=size)

    def _device(self, device: Any) -> torch.device:
        """Return the device of the tensor that represents one on `device`."""
        return _fake_device(device)

    def _is_declared(self, proxy: TensorProxy, call: BoundSymbol | None) -> bool:
        """Return whether a tensor has the strides of its proxy, which no call computes."""
        return call is None or proxy.name in self._inputs or proxy.strides is not None

    def _compute(self, proxy: TensorProxy) -> None:
        """Compute ``proxy`` and what it depends on.

        With an explicit stack, because programs are longer than Python's stack is deep.
        """
        pending = [proxy]
        while pending:
            tensor = pending[-1]
            call = self._producers.get(tensor.name)
            if tensor.name in self._values:
                pending.pop()
            elif tensor.name in self._groups:
                self._values.update(_in_one_storage(self._groups[tensor.name]))
                pending.pop()
            elif self._is_declared(tensor, call):
                declared = self._inputs.get(tensor.name, tensor)
                self._values[tensor.name] = self._empty(declared)
                pending.pop()
            else:
                assert call is not None, "a tensor that no call computes has declared strides"
                missing = [
                    p
                    for p in call.flat_proxy_args
                    if isinstance(p, TensorProxy) and p.name not in self._values
                ]
                pending += missing
                if not missing:
                    self._run(call)
                    if tensor.name not in self._values:
                        raise UnsupportedProgram(f"{call.sym.name} cannot be run without data")
                    pending.pop()

    def _run(self, call: BoundSymbol) -> None:
        result_proxy = next((p for p in call.flat_proxy_outs if isinstance(p, TensorProxy)), None)
        if result_proxy is None:
            return  # a number or a check has no layout
        row = row_of(call.sym)
        kernel = None if row is None or row.eager is None or reads_memory(row.eager) else row.eager
        is_new = kernel is None and layout_of(call) in (NEW, CONTIGUOUS)
        if is_new or self._is_of_numbers(call) or _declares_strides(call):
            for p in call.flat_proxy_outs:
                self._values[p.name] = self._empty(p)
            return
        if row is None or kernel is None:
            if row is not None and row.layout is LIKE:
                dtypes = [to_torch_dtype(p.dtype) for p in call.flat_proxy_outs]
                like = self._values[call.args[0].name]
                self._bind(call.flat_proxy_outs, [torch.empty_like(like, dtype=d) for d in dtypes])
                return
            if row is not None and not call.subsymbols:
                raise _unknown_strides(call)
            for sub in call.subsymbols:
                self._run(sub)
            return
        args, kwargs = tree_map(self._value, (call.args, call.kwargs))
        if kwargs.get("device", ...) is None:  # torch's default has data, and draws random numbers
            kwargs["device"] = self._device(result_proxy.device)
        if isinstance(kwargs.get("alpha"), torch.Tensor):  # a factor in a tensor, which a kernel would read
            kwargs["alpha"] = 1
        try:
            run = _on_zeros if _needs_kernel(call, args, kwargs) else _as_it_is
            result = run(kernel, args, kwargs)
            strides = None if row.layout is None else row.layout.strides(result, args, kwargs)
            if strides is not None:
                result = torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)
        except _DATA_DEPENDENT_ERRORS as error:
            if call.subsymbols and OpTags.MAYBE_VIEW in call.sym.tags:  # a view decomposes into views
                for sub in call.subsymbols:
                    self._run(sub)
                return
            raise UnsupportedProgram(
                f"the layout of the results of {call.sym.name} cannot be known without data",
                found=repr(call),
                hint="Call contiguous() on them, before the program writes to them or asks for strides.",
            ) from error
        except TORCH_REFUSALS as error:
            text = _kernel_error(kernel, args, kwargs) or str(error)
            raise OperatorError(text, found=repr(call)) from error
        self._bind(call.output, result)

    def _is_of_numbers(self, call: BoundSymbol) -> bool:
        """Return whether a call makes tensors without dimensions of numbers: meta kernels take some only."""
        are_results = all(isinstance(p, TensorProxy) and not p.shape for p in call.flat_proxy_outs)
        return are_results and not any(isinstance(p, TensorProxy) for p in call.flat_proxy_args)

    def _value(self, leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return self._values[leaf.name]
        if isinstance(leaf, NumberProxy):
            return leaf.stand_in if self._symbols is None else to_torch(to_symint(leaf))
        if isinstance(leaf, slice):  # a leaf of pytrees, whose bounds may be symbolic sizes
            return slice(*map(self._value, (leaf.start, leaf.stop, leaf.step)))
        if isinstance(leaf, GeneratorProxy):  # without data nothing is drawn
            return None
        if isinstance(leaf, dtype):
            return to_torch_dtype(leaf)
        return self._device(leaf) if isinstance(leaf, Device | torch.device) else leaf

    def _bind(self, output: Any, result: Any) -> None:
        if isinstance(output, TensorProxy):
            self._values.setdefault(output.name, result)
        elif isinstance(output, (tuple, list)):
            for o, r in zip(output, result, strict=True):
                self._bind(o, r)


class MetaLayouts(Layouts):
    """A lazy evaluation of a program on tensors of the device `meta`.

    They are probable, and quickly computed: each call of a fake tensor takes half a millisecond, and the
    first of a process imports TorchDynamo. Compilers of regions check the strides for which their code was
    compiled, so that they need probable strides only. A result of a matrix product is taken to be
    contiguous, and nothing before it is evaluated. Methods raise UnsupportedProgram for a tensor that
    depends on an operator whose strides the device decides.
    """

    def _without_data(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def _device(self, device: Any) -> torch.device:
        return torch.device("meta")

    def _is_declared(self, proxy: TensorProxy, call: BoundSymbol | None) -> bool:
        is_contiguous = call is not None and layout_of(call) is CONTIGUOUS
        return is_contiguous or super()._is_declared(proxy, call)

    def _run(self, call: BoundSymbol) -> None:
        if has_layout_of_kernel(call) or layout_of(call) is BY_DEVICE:
            raise UnsupportedProgram(f"the device decides the strides of the results of {call.sym.id}")
        super()._run(call)


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


def _declares_strides(call: BoundSymbol) -> bool:
    """Return whether the results of a call are tensors whose operator declares their strides."""
    return all(isinstance(p, TensorProxy) and p.strides is not None for p in call.flat_proxy_outs)


def _unknown_strides(call: BoundSymbol) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"the strides of the results of {call.sym.id} are not known before it runs",
        found={"call": call.line},
        where=call.locations,
        hint="The program writes to a view of one, or asks for strides. Declare them in the meta function, "
        "TensorProxy(like=x, strides=…), or by layout=, or define the operator with like=, a function "
        "written with torch.",
    )


def layout_of(call: BoundSymbol) -> Layout | None:
    """Return the layout in the row of a call's operator, or None."""
    row = row_of(call.sym)
    return None if row is None else row.layout


def has_layout_of_kernel(call: BoundSymbol) -> bool:
    """Return whether kernels without data give a call's results other strides than those on a CPU."""
    return layout_of(call) is BY_KERNEL or call.sym.id in STRIDES_DIFFER_WITHOUT_DATA


def _preserves_format(call: BoundSymbol) -> bool:
    return call.kwargs.get("memory_format", torch.preserve_format) is torch.preserve_format


def _needs_kernel(call: BoundSymbol, args: Any, kwargs: Any) -> bool:
    """Return whether the strides of a small call on the cpu are found by running it."""
    if not has_layout_of_kernel(call):
        return False
    tensors = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    return sum(t.numel() for t in tensors) <= SMALL and all(t.device.type == "cpu" for t in tensors)


def _as_it_is(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def _on_zeros(fn: Callable[..., Any], args: Any, kwargs: Any) -> torch.Tensor:
    """Return a tensor without data that has the strides of the result of ``fn`` on zeros."""

    def zeros(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype).zero_()

    with no_dispatch():
        args, kwargs = tree_map(zeros, (args, kwargs))
        result = fn(*args, **kwargs)
    return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype)


def _kernel_error(fn: Callable[..., Any], args: Any, kwargs: Any) -> str | None:
    """Return the error text of torch's meta kernels, or None if they accept the call.

    Fake tensors raise other texts for some calls.
    """

    def meta(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return torch.device("meta") if isinstance(leaf, torch.device) else leaf
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")

    args, kwargs = tree_map(meta, (args, kwargs))
    try:
        with no_dispatch():
            fn(*args, **kwargs)
    except TORCH_REFUSALS as error:
        return str(error)
    return None


def _in_one_storage(group: Sequence[InputAlias]) -> dict[str, torch.Tensor]:
    """Return overlapping inputs by name, with their strides and offsets in one storage.

    :func:`stand_in_tensor` gives each a storage of its own.
    """
    first = group[0].proxy
    if any(a.proxy.dtype is not first.dtype or a.storage != group[0].storage for a in group):
        return {a.proxy.name: stand_in_tensor(a.proxy, _fake_device(a.proxy.device)) for a in group}
    length = max(alias.end for alias in group)
    memory = torch.empty(length, dtype=to_torch_dtype(first.dtype), device=_fake_device(first.device))
    return {a.proxy.name: memory.as_strided(a.size, a.stride, a.offset) for a in group}


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]
