"""Probes of torch functions: calls on tensors without data that read operator schemas.

A probe finds the metadata of the results, whether the call draws random numbers, and that it neither writes
to its arguments nor returns their memory. Torch's fake tensors follow the kernels of the real device. Below
autograd, torch passes each operator of the function to a dispatch mode; its schema declares writes, and its
tags whether the result depends on data or on random numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.base import devices, dtypes
from thunder.base.errors import UnsupportedOperator
from thunder.base.optional_modules import optional_module
from thunder.base.pytree import tree_flatten, tree_iter, tree_map, tree_unflatten
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ops.stand_ins import stand_in_tensor, to_torch
from thunder.ops.torch_errors import TORCH_REFUSALS, described_arguments
from thunder.ops.torch_sizes import facts_in, shape_in, to_symint, with_symbolic_sizes

#: operators that write to running statistics, which their schemas do not declare
_UNDECLARED_MUTATION = frozenset(
    {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}
)

#: types of arguments besides tensors, and sequences of all these
_CONSTANTS = (
    bool,
    int,
    float,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    dtypes.dtype,
    devices.Device,
)

_OUTSIDE = "Call it outside the compiled function."


class CannotProbe(Exception):
    """The reason why torch cannot run a call in a compiled program, and what to do about it.

    ``needs_data``: it could where the program has data.
    """

    def __init__(self, reason: str, hint: str, *, needs_data: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.hint, self.needs_data = reason, hint, needs_data


_NOT_STRIDED = CannotProbe("it returns a tensor that is not strided", _OUTSIDE, needs_data=True)
#: operators whose results without data are not quantized
_QUANTIZING = frozenset(f"aten::quantize_per_{name}" for name in ("tensor", "tensor_dynamic", "channel"))
_WRITES = CannotProbe("it writes to its arguments", "Use a form of it that returns what it computes.")


@dataclass(frozen=True)
class ProbeResult:
    """The result of a call, of tensors without data, and whether the call is random.

    The tensors represent ones on ``device``, or if that is None on their own. Where ``has_sizes_of_data``,
    the sizes of the result depend on data, and are unknown.
    """

    result: Any
    is_random: bool
    device: torch.device | None
    has_sizes_of_data: bool = False


class _SizesOfData(Exception):
    """An operator returns a tensor whose sizes depend on data."""


def probe(name: str, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ProbeResult:
    """Run ``fn`` on tensors without data in place of proxies.

    Raises CannotProbe for a call whose program would not mean what eager means, UnsupportedOperator for one
    whose result has a shape that depends on data, and torch's error for a call that torch refuses.
    """
    _check_arguments(args, kwargs)
    try:
        return _probe_sizes(name, fn, args, kwargs)
    except _SizesOfData:
        pass
    outcome = None
    symbolic = optional_module("torch.fx.experimental.symbolic_shapes")  # it imports a compiler's libraries
    if symbolic is not None:
        sizes = symbolic.ShapeEnv()
        with suppress(_SizesOfData, symbolic.GuardOnDataDependentSymNode):
            outcome = _probe_on(_fake_tensors(sizes), None, None, fn, args, kwargs, sizes=sizes)
    if outcome is None or outcome.is_random:
        raise UnsupportedOperator(
            f"the shape or the value of what {name} returns depends on data",
            found=described_arguments(tuple(args), dict(kwargs)),
            hint="Call it outside the compiled function, or keep all elements, with torch.where.",
        )
    return outcome


def _probe_sizes(name: str, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ProbeResult:
    """Probe a call whose sizes do not depend on data; raise _SizesOfData for another."""
    device = None if name.startswith(UNDER_AUTOCAST) else _only_device(args, kwargs)
    if device is not None:
        facts = facts_in((tuple(args), dict(kwargs)))
        if facts is not None:
            # numbers as sizes decide what is refused
            with suppress(*TORCH_REFUSALS, CannotProbe, UnsupportedOperator, _SizesOfData):
                return _probe_on(with_symbolic_sizes(facts), _META, device, fn, args, kwargs, to_symint)
        try:
            return _probe_on(nullcontext(), _META, device, fn, args, kwargs)
        except (CannotProbe, UnsupportedOperator, _SizesOfData):
            raise
        except TORCH_REFUSALS:  # no meta kernel, or one that checks more: fake tensors know more functions
            return _probe_on(_fake_tensors(), None, None, fn, args, kwargs)
    return _probe_on(_fake_tensors(), None, None, fn, args, kwargs)


def _fake_tensors(sizes: Any = None) -> FakeTensorMode:
    return FakeTensorMode(allow_fallback_kernels=False, shape_env=sizes)


_META = torch.device("meta")
#: how the names of functions begin that run under an autocast, which is one of a kind of device
UNDER_AUTOCAST = "autocast."


def _only_device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device | None:
    """Return the device of all tensors; None if there are several, or if an argument names one.

    Then meta tensors are enough. The first ``FakeTensorMode`` of a process imports TorchDynamo, 400 modules.
    """
    leaves = list(tree_iter((tuple(args), dict(kwargs))))
    if any(isinstance(leaf, str | torch.device | devices.Device) for leaf in leaves):
        return None
    kinds = {leaf.device for leaf in leaves if isinstance(leaf, TensorProxy)}
    return devices.to_torch_device(kinds.pop()) if len(kinds) == 1 else None


def _probe_on(
    context: AbstractContextManager[Any],
    stand_in_device: torch.device | None,
    result_device: torch.device | None,
    fn: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    size: Callable[[Any], Any] | None = None,
    sizes: Any = None,
) -> ProbeResult:
    """Run ``fn`` on tensors without data, which are on ``stand_in_device``, or on that of their proxies.

    ``size`` maps the sizes of proxies. ``sizes`` is torch's environment of sizes that depend on data.
    """
    # Neither the proxies' __torch_function__ nor the mode under which programs are traced may handle this.
    with torch._C.DisableTorchFunction(), _silently(), context:
        fakes: dict[str, torch.Tensor] = {}
        fake_args, fake_kwargs = tree_map(
            lambda leaf: _stand_in(leaf, fakes, stand_in_device, size), (tuple(args), dict(kwargs))
        )
        mode = _DispatchProbe(fakes.values(), sizes)
        with mode:
            result = fn(*fake_args, **fake_kwargs)
    if not mode.operators:
        raise CannotProbe("torch has no schema of what it does", _OUTSIDE)
    _check_result(result, fakes.values())
    return ProbeResult(result, mode.is_random, result_device, sizes is not None)


_log = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def _silently() -> Iterator[None]:
    """Disable torch's log of fake tensors: what torch refuses here becomes an error."""
    was_disabled = _log.disabled
    try:
        _log.disabled = True
        yield
    finally:
        _log.disabled = was_disabled


def _check_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if kwargs.get("out") is not None:
        raise CannotProbe("it is called with out=", "Leave out= out, and use what it returns.")
    for leaf in tree_iter((tuple(args), dict(kwargs))):
        if not isinstance(leaf, TensorProxy | GeneratorProxy) and type(leaf) not in _CONSTANTS:
            raise CannotProbe(
                f"an argument is of type {type(leaf).__qualname__}", "Pass tensors, numbers and strings."
            )
    proxies = [leaf for leaf in tree_iter((tuple(args), dict(kwargs))) if isinstance(leaf, TensorProxy)]
    if not proxies:
        raise CannotProbe("it is called without a tensor", _OUTSIDE)


def _stand_in(
    leaf: Any,
    fakes: dict[str, torch.Tensor],
    device: torch.device | None,
    size: Callable[[Any], Any] | None,
) -> Any:
    """Return a tensor without data for a proxy, one for each; torch's value for anything else."""
    if not isinstance(leaf, TensorProxy):
        return to_torch(leaf if size is None else size(leaf))
    if leaf.name not in fakes:
        own = devices.to_torch_device(leaf.device)
        fake = stand_in_tensor(leaf, device or own, size=size, requires_grad=True)
        fakes[leaf.name] = (
            fake.view_as(fake) if fake.requires_grad else fake
        )  # the mode refuses writes to leaves
    return fakes[leaf.name]


class _DispatchProbe(TorchDispatchMode):
    """A mode that reads the schema of each operator of a call."""

    def __init__(self, fakes: Iterable[torch.Tensor], sizes: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: torch's environment of sizes that depend on data, or None where an operator may return none
        self.sizes = sizes
        self.memory = {memory_of(t) for t in fakes}
        self.operators = 0
        self.is_random = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports TorchDynamo at the first operator, to disable it

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.operators += 1
        if torch.Tag.data_dependent_output in func.tags:
            raise _SizesOfData
        if torch.Tag.dynamic_output_shape in func.tags and self.sizes is None:
            raise _SizesOfData
        if func._schema.name in _QUANTIZING:
            raise _NOT_STRIDED
        if func._schema.name in _UNDECLARED_MUTATION:
            raise _WRITES
        arguments = func._schema.arguments
        self.is_random |= torch.Tag.nondeterministic_seeded in func.tags or any(
            "Generator" in str(a.type) for a in arguments
        )
        for i, argument in enumerate(arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._refuse_write(args[i] if i < len(args) else kwargs.get(argument.name))
        try:
            return func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise _SizesOfData from None  # its tags do not declare it

    def _refuse_write(self, target: Any) -> None:
        for t in tree_iter(target):
            if isinstance(t, torch.Tensor) and memory_of(t) in self.memory:
                raise _WRITES


def memory_of(t: torch.Tensor) -> int:
    """Return a key of a tensor's storage, valid as long as the tensor is alive."""
    return t.untyped_storage()._cdata


def results_of(result: Any) -> list[Any]:
    """Return a call's results as a list: a tensor, or a sequence of tensors and None."""
    return list(result) if isinstance(result, tuple | list) else [result]


def _check_result(result: Any, fakes: Iterable[torch.Tensor]) -> None:
    memory = {memory_of(t) for t in fakes}
    tensors = [r for r in results_of(result) if r is not None]
    if not tensors:
        raise CannotProbe("it returns nothing", _OUTSIDE)
    for t in tensors:
        if not isinstance(t, torch.Tensor):
            raise CannotProbe(f"it returns {type(t).__qualname__}, which is not a tensor", _OUTSIDE)
        if t.layout is not torch.strided or t.is_quantized or t.is_nested:
            raise _NOT_STRIDED
        if memory_of(t) in memory:
            raise CannotProbe(
                "it returns memory of its arguments, or of two results", "Use reshape or indexing."
            )
        memory.add(memory_of(t))


def as_proxies(outcome: ProbeResult) -> Any:
    """Return the result of a probed call as proxies."""
    leaves, spec = tree_flatten(outcome.result)
    return tree_unflatten(
        [
            TensorProxy(shape=shape_in(t), dtype=t.dtype, device=outcome.device or t.device)
            if isinstance(t, torch.Tensor)
            else t
            for t in leaves
        ],
        spec,
    )
