"""What torch supports: for which dtypes an operator has a kernel, and of which arguments a derivative.

A row's decomposition computes more than torch's function does: other dtypes, gradients where torch has none.
A program has to raise where eager does, so torch is asked. It publishes no table; it answers by running the
operator's eager function, on zeros for kernels, and without data for derivatives. An answer holds for all
calls of the operator with these dtypes, so each is asked for once in a process.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import NoneType
from typing import Any, Final

import torch

from thunder.base import devices, dtypes
from thunder.base.autocast_state import OFF, autocast_as
from thunder.base.default_generators import default_generators_kept
from thunder.base.pytree import tree_iter, tree_map
from thunder.base.tags import OpTags
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.requires_grad import any_requires_grad, requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_sizes import hint_of, hints_of
from thunder.ops.meta_kernels import is_unchecked
from thunder.ops.operator import row_of
from thunder.ops.stand_ins import SMALL, stand_in_tensor, to_hinted_meta
from thunder.ops.torch_errors import TORCH_REFUSALS

__all__ = ["Underivable", "derivative_error", "is_elementwise", "torch_refusal"]

#: torch's errors for a call of which it would record no derivative
_REFUSES_GRAD: Final = re.compile("is not differentiable with respect to|does not support automatic diff")
#: torch's errors for a backward that reaches a call without a derivative
_NOT_DERIVED: Final = re.compile("derivative for .* is not implemented")


@dataclass(frozen=True)
class Underivable:
    """The error by which torch's autograd refuses a call: at once, or where a backward reaches the call."""

    error: Exception
    in_backward: bool


#: tags of rows that are not asked
_NOT_ASKED: Final = frozenset({OpTags.FALLBACK, OpTags.CHECKS_DECISION})

#: operator, dtypes and constants of a call → the answer
_missing_kernels: dict[Any, Exception | None] = {}
_derivative_errors: dict[Any, Underivable | None] = {}


def torch_refusal(call: BoundSymbol, *, derives: bool) -> Exception | None:
    """Return the error by which torch refuses a call at once, or None.

    It has no kernel for the dtypes; or, with ``derives``, it would record no derivative. Other errors are no
    answer: they are about sizes or values. Nothing is known of calls that are not of functions of torch, and
    of devices that this process does not have. A call on large tensors is asked for with few elements; an
    answer holds for all sizes where the call is elementwise.
    """
    fn = _eager_of(call)
    if fn is None:
        return None
    key = _key(call)
    underivable = (
        _derivative_error(fn, call, key) if derives and any_requires_grad(call.flat_proxy_args) else None
    )
    if underivable is not None and not underivable.in_backward:
        return underivable.error
    return _missing_kernel(fn, call, key)


def _missing_kernel(fn: Callable[..., Any], call: BoundSymbol, kinds: tuple[Any, ...]) -> Exception | None:
    tensors = [x for x in call.flat_proxy_args if isinstance(x, TensorProxy)]
    if not tensors:
        return None
    shapes = [hints_of(x.shape) for x in tensors]
    is_large = sum(map(math.prod, shapes)) > SMALL
    key = kinds if not is_large or is_elementwise(call) else (*kinds, *shapes)
    if key in _missing_kernels:
        return _missing_kernels[key]
    if not all(_is_present(x.device) for x in tensors):
        return None
    error = _error_on_zeros(fn, call, most=2 if is_large else max(chain.from_iterable(shapes), default=1))
    _missing_kernels[key] = error if error is not None and _lacks_kernel(error) else None
    return _missing_kernels[key]


def derivative_error(call: BoundSymbol) -> Underivable | None:
    """Return how torch's autograd refuses a call whose arguments require grad, or None if it does not.

    ``call`` is one of a function of torch. Of others nothing is known.
    """
    fn = _eager_of(call)
    if fn is None or not any_requires_grad(call.flat_proxy_args):
        return None
    return _derivative_error(fn, call, _key(call))


def _derivative_error(fn: Callable[..., Any], call: BoundSymbol, key: tuple[Any, ...]) -> Underivable | None:
    if key not in _derivative_errors:
        _derivative_errors[key] = _underivable(fn, call)
    return _derivative_errors[key]


def _lacks_kernel(error: Exception) -> bool:
    """Return whether torch's error says that there is no kernel for a dtype."""
    return isinstance(error, NotImplementedError) or "not implemented for '" in str(error)


def is_elementwise(call: BoundSymbol) -> bool:
    """Return whether each element of a call's results is computed from the elements at the same place."""
    if call.subsymbols:
        return all(map(is_elementwise, call.subsymbols))
    return OpTags.POINTWISE_OP in call.sym.tags or call.sym.id == "prims.broadcast_in_dim"


def _eager_of(call: BoundSymbol) -> Callable[..., Any] | None:
    """Return the function by which torch is asked; None for a call that is not one of a function of torch.

    Code of the program, which calls of opaque functions run, is never run for an answer, nor is a function
    that checks the sizes of its results, which those of zeros do not have.
    """
    row = row_of(call.sym)
    if row is None or call.sym.is_of_package or not _NOT_ASKED.isdisjoint(row.tags):
        return None
    if not row.torch and not row.id.startswith("torch."):
        return None
    return None if row.eager is None or is_unchecked(row.eager) else row.eager


def _key(call: BoundSymbol) -> tuple[Any, ...]:
    kinds = [_kind_of(x) for x in call.args]
    kinds += [(name, _kind_of(x)) for name, x in call.kwargs.items()]
    return (call.sym.id, torch.get_default_dtype(), *kinds)


def _kind_of(x: Any) -> Any:
    """Return what of an argument decides what torch supports: for tensors and numbers, their types.

    A kernel that has nothing to do is not looked for.
    """
    kind = type(x)
    if kind in _CONSTANTS:
        return x
    if kind is TensorProxy or isinstance(x, TensorProxy):
        device, shape = x.device, hints_of(x.shape)
        return x.dtype.torch_dtype, device.type, device.index, bool(shape), 0 in shape, x.requires_grad
    if isinstance(x, tuple | list):
        return tuple(map(_kind_of, x))
    if isinstance(x, bool | str | dtypes.dtype | torch.dtype | NoneType):
        return x
    return x.python_type if isinstance(x, NumberProxy) else type(x)


#: types of arguments that are part of the key as they are; the rest of them are looked at one by one
_CONSTANTS: Final = frozenset({NoneType, bool, str, torch.dtype})


def _is_present(device: devices.Device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    return device.type in ("cpu", "meta")


@contextmanager
def _unseen() -> Iterator[None]:
    """Within the context, functions of torch run as they are, and leave no trace: no warning, no numbers."""
    was_always = torch.is_warn_always_enabled()
    try:
        torch.set_warn_always(True)  # what is warned of once is not warned of here
        with warnings.catch_warnings(), default_generators_kept(), autocast_as(OFF), _unhooked():
            warnings.simplefilter("ignore")
            with torch._C.DisableTorchFunction():
                yield
    finally:
        torch.set_warn_always(was_always)


def _unhooked() -> AbstractContextManager[Any]:
    """Return a context in which no hooks of the user see what torch's autograd saves."""
    if torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is not None:
        return nullcontext()  # there are none
    return torch.autograd.graph.saved_tensors_hooks(_itself, _itself)


def _itself(x: torch.Tensor) -> torch.Tensor:
    return x


def _error_on_zeros(fn: Callable[..., Any], call: BoundSymbol, most: int) -> Exception | None:
    """Return what torch raises for a call on zeros on the devices of its tensors, or None.

    These have at most ``most`` elements along a dimension.
    """
    with _unseen(), torch.no_grad():
        args, kwargs = tree_map(partial(_to_zeros, most=most), (call.args, call.kwargs))
        try:
            fn(*args, **kwargs)
        except TORCH_REFUSALS as error:
            return error.with_traceback(None)
    return None


def _to_zeros(x: Any, *, most: int, least: int = 0, device: torch.device | None = None) -> Any:
    if not isinstance(x, TensorProxy):
        return to_hinted_meta(x)
    own = devices.to_torch_device(x.device)
    return stand_in_tensor(x, device or own, size=lambda n: max(least, min(hint_of(n), most)), zeros=True)


def _to_identity(to_zeros: Callable[[Any], Any], x: Any) -> Any:
    zeros = to_zeros(x)
    if isinstance(x, TensorProxy) and zeros.ndim >= 2 and x.dtype.is_inexact:
        zeros.diagonal(dim1=-2, dim2=-1).fill_(1)
    return zeros


def _underivable(fn: Callable[..., Any], call: BoundSymbol) -> Underivable | None:
    """Return how torch's autograd refuses a call, or a backward of it; None if it does not.

    A call on a few zeros on the CPU tells it, also of kernels that its backward lacks if the call's own
    tensors are there. Where torch refuses that one for another reason, one on identity matrices does, which
    have inverses, then one on tensors without data: for these, torch imports its functions in Python, which
    takes most of a second. Some backwards read memory that a tensor without elements does not have, and end
    the process; without data they do not run. So lengths of 0 are 1 on the CPU, where only a call whose
    backward runs is an answer about one without elements.
    """
    tensors = [x for x in tree_iter((call.args, call.kwargs)) if isinstance(x, TensorProxy)]
    shapes = [tuple(map(hint_of, x.shape)) for x in tensors]
    on_cpu = all(x.device.type == "cpu" for x in tensors)
    most = 2 if sum(map(math.prod, shapes)) > SMALL else max(chain.from_iterable(shapes), default=1)
    cpu, meta = torch.device("cpu"), torch.device("meta")
    zeros = partial(_to_zeros, least=1, most=most, device=cpu)
    ways = ((cpu, zeros), (cpu, partial(_to_identity, zeros)), (meta, to_hinted_meta))
    for device, stand_in in ways:
        refused = _differentiated(fn, call, stand_in, device)
        if refused is None:
            return None
        if device is cpu and not all(map(math.prod, shapes)):
            continue
        pattern = _NOT_DERIVED if refused.in_backward else _REFUSES_GRAD
        if pattern.search(str(refused.error)) is not None:
            return refused
        if refused.in_backward and on_cpu and device is cpu and _lacks_kernel(refused.error):
            return refused
    return None  # meta kernels may lack what eager's have


def _differentiated(
    fn: Callable[..., Any], call: BoundSymbol, stand_in: Callable[[Any], Any], device: torch.device
) -> Underivable | None:
    """Return what torch raises for a call on stand-ins on a device, or in its backward; None if nothing."""
    leaves: list[torch.Tensor] = []

    def argument(x: Any) -> Any:
        found = stand_in(x)
        if isinstance(found, torch.device):
            return device
        if not requires_grad(x):
            return found
        leaves.append(found.requires_grad_())
        return found.clone()  # may be written in place

    with _unseen(), torch.enable_grad():
        args, kwargs = tree_map(argument, (call.args, call.kwargs))
        try:
            results = fn(*args, **kwargs)
        except TORCH_REFUSALS as error:
            return Underivable(error.with_traceback(None), in_backward=False)
        tracked = [x for x in tree_iter(results) if isinstance(x, torch.Tensor) and x.requires_grad]
        try:
            if tracked:  # without given cotangents, for which torch imports its functions in Python too
                torch.autograd.grad(list(map(_total, tracked)), leaves, allow_unused=True)
        except TORCH_REFUSALS as error:
            return Underivable(error.with_traceback(None), in_backward=True)
    return None


def _total(x: torch.Tensor) -> torch.Tensor:
    """Return a number whose gradient has strides of its own: torch cannot view zeros of them as complex."""
    return (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).to(torch.float32).square().sum()
