"""What a call of a torch function does, found by running it on tensors without data: the metadata of what
it returns, whether it draws random numbers, and that it neither writes to its arguments nor returns their
memory.

torch's fake tensors follow the kernels of the real device. Below its autograd, torch shows each operator
that a function consists of to a mode, with its schema: what it writes, and what its tags say of data and of
chance.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from thunder.base.pytree import tree_flatten, tree_iter, tree_map, tree_unflatten
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ops.stand_ins import empty_tensor, to_torch
from thunder.ops.torch_errors import described_arguments

#: of operators whose results have a shape, or are Python values, that depend on data
_OF_DATA = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})

#: that write to running statistics, and whose schemas do not say so
_WRITES_UNSAID = frozenset({"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"})

#: what an argument may be beside tensors, and sequences of all these
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


class Unfit(Exception):
    """Why a call cannot be left to torch, and what to do about it."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


_WRITES = Unfit("it writes to its arguments", "Use a form of it that returns what it computes.")


@dataclass(frozen=True)
class Observed:
    """What a call does: its result, of tensors without data, and whether it is random."""

    result: Any
    is_random: bool


def observe(name: str, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Observed:
    """Runs ``fn`` on tensors without data in place of proxies.

    Raises Unfit for a call whose program would not mean what eager means; UnsupportedOperator for one whose
    result has a shape that depends on data; and what torch raises for a call that it refuses.
    """
    _check_arguments(args, kwargs)
    # The proxies' own __torch_function__, and the mode under which programs are traced, must not see this.
    with torch._C.DisableTorchFunction(), _silently(), FakeTensorMode(allow_fallback_kernels=False):
        given: dict[str, torch.Tensor] = {}
        fake_args, fake_kwargs = tree_map(lambda leaf: _stand_in(leaf, given), (tuple(args), dict(kwargs)))
        observer = _Observer(name, given.values(), described_arguments(tuple(args), dict(kwargs)))
        with observer:
            result = fn(*fake_args, **fake_kwargs)
    if not observer.operators:
        raise Unfit("torch has no schema of what it does", "Compute it outside the compiled function.")
    _check_result(result, given.values())
    return Observed(result, observer.is_random)


_log = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def _silently() -> Iterator[None]:
    """What torch refuses here is said in an error, and not in its log."""
    known, _log.disabled = _log.disabled, True
    try:
        yield
    finally:
        _log.disabled = known


def _check_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if kwargs.get("out") is not None:
        raise Unfit("it is called with out=", "Leave out= out, and use what it returns.")
    for leaf in tree_iter((tuple(args), dict(kwargs))):
        if not isinstance(leaf, TensorProxy | GeneratorProxy) and type(leaf) not in _CONSTANTS:
            raise Unfit(
                f"an argument is of type {type(leaf).__qualname__}", "Pass tensors, numbers and strings."
            )
    proxies = [leaf for leaf in tree_iter((tuple(args), dict(kwargs))) if isinstance(leaf, TensorProxy)]
    if not proxies:
        raise Unfit("it is called without a tensor", "Compute it outside the compiled function.")


def _stand_in(leaf: Any, given: dict[str, torch.Tensor]) -> Any:
    """Return a tensor without data for a proxy, one for each; torch's value for anything else."""
    if not isinstance(leaf, TensorProxy):
        return to_torch(leaf)
    if leaf.name not in given:
        fake = empty_tensor(leaf, devices.to_torch_device(leaf.device))
        if leaf.requires_grad:
            fake = fake.requires_grad_().view_as(fake)  # no leaf: a write is for the observer to refuse
        given[leaf.name] = fake
    return given[leaf.name]


class _Observer(TorchDispatchMode):
    """Looks at each operator that a call consists of."""

    def __init__(self, name: str, given: Iterable[torch.Tensor], found: dict[str, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.found = name, found
        self.memory = {memory_of(t) for t in given}
        self.operators = 0
        self.is_random = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.operators += 1
        if not _OF_DATA.isdisjoint(func.tags):
            raise self._of_data()
        if func._schema.name in _WRITES_UNSAID:
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
            raise self._of_data() from None  # its tags do not say so

    def _of_data(self) -> UnsupportedOperator:
        return UnsupportedOperator(
            f"the shape or the value of what {self.name} returns depends on data",
            found=self.found,
            hint="Call it outside the compiled function, or keep all elements, with torch.where.",
        )

    def _refuse_write(self, target: Any) -> None:
        for t in tree_iter(target):
            if isinstance(t, torch.Tensor) and memory_of(t) in self.memory:
                raise _WRITES


def memory_of(t: torch.Tensor) -> int:
    """What tells the memory of a tensor from that of others, as long as it lives."""
    return t.untyped_storage()._cdata


def results_of(result: Any) -> list[Any]:
    """The results of a call that returns a tensor, or a sequence of tensors and None."""
    return list(result) if isinstance(result, tuple | list) else [result]


def _check_result(result: Any, given: Iterable[torch.Tensor]) -> None:
    memory = {memory_of(t) for t in given}
    tensors = [r for r in results_of(result) if r is not None]
    if not tensors:
        raise Unfit("it returns nothing", "Call it outside the compiled function.")
    for t in tensors:
        if not isinstance(t, torch.Tensor):
            raise Unfit(f"it returns {type(t).__qualname__}, and no tensor", "Call it outside.")
        if t.layout is not torch.strided or t.is_quantized or t.is_nested:
            raise Unfit("it returns a tensor that is not strided", "Call it outside the compiled function.")
        if memory_of(t) in memory:
            raise Unfit("it returns memory of its arguments, or of two results", "Use reshape or indexing.")
        memory.add(memory_of(t))


def as_proxies(result: Any) -> Any:
    """The result of an observed call, as proxies."""
    leaves, spec = tree_flatten(result)
    return tree_unflatten(
        [
            TensorProxy(shape=tuple(t.shape), dtype=t.dtype, device=t.device)
            if isinstance(t, torch.Tensor)
            else t
            for t in leaves
        ],
        spec,
    )
