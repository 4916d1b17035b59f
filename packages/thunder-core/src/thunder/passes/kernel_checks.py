"""Checks of the kernels of packages, while a program runs under `DebugOptions(check_traces=True)`.

A kernel computes results of the structure that its meta function returned, in memory of their own, and
leaves its arguments as they were. Elements are compared bit by bit, since a kernel outside of torch writes
without a new version of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch

from thunder.base.default_generators import default_states
from thunder.base.errors import PluginError
from thunder.base.extension_origin import is_of_core, module_of, origin_of
from thunder.base.plugin_calls import kind_of
from thunder.base.pytree import tree_flatten, tree_iter
from thunder.base.tags import VIEW_TAGS, OpTags
from thunder.executor_base.executor import Executor
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol, has_tags
from thunder.passes.stride_checks import StrideCheck

__all__ = ["checked_call", "checked_kernel", "origin_of_kernel"]

Kernel = Callable[..., Any]


def origin_of_kernel(symbol: Symbol) -> str | None:
    """Return the origin of the function that runs an operator, or None if no executor defines it."""
    executor, kernel = symbol.executor, symbol.python_impl or symbol.call_target
    if not isinstance(executor, Executor):
        return None
    is_added = is_of_core(executor.defined_in) and kernel is not None and _is_foreign(kernel)
    return origin_of(kernel) if is_added else executor.origin


def _is_foreign(kernel: Kernel) -> bool:
    return module_of(kernel).partition(".")[0] not in ("thunder", "torch", "builtins")


def _is_of_package(symbol: Symbol, kernel: Kernel) -> bool:
    executor = symbol.executor
    return isinstance(executor, Executor) and (not is_of_core(executor.defined_in) or _is_foreign(kernel))


def checked_call(bsym: BoundSymbol) -> BoundSymbol:
    """Return a call with checks of its kernel, if that is the kernel of a package."""
    symbol, origin = bsym.sym, origin_of_kernel(bsym.sym)
    kernel = symbol.python_impl or symbol.call_target
    if kernel is None or origin is None or symbol.python_printer is not None:
        return bsym
    if not _is_of_package(symbol, kernel):
        return bsym
    checked = checked_kernel(kernel, bsym, origin)
    return bsym.from_bsym(sym=replace(symbol, python_impl=checked, call_path=None, call_target=None))


def checked_kernel(kernel: Kernel, bsym: BoundSymbol, origin: str) -> Kernel:
    """Return a kernel that raises PluginError where it breaks the contract of the call `bsym`.

    It must not write to its arguments, unless the operator has the tag `IN_PLACE`; not return their memory,
    or one memory twice, unless it has `VIEW` or `MAYBE_VIEW`, and return a view if it has `VIEW`; not draw
    random numbers of torch, unless it has `RANDOM_OP`; and return the structure, numbers and requirement of
    gradients of the call's output, in eager's strides.
    """
    may_draw = has_tags(bsym, {OpTags.RANDOM_OP})
    may_write, is_view = has_tags(bsym, {OpTags.IN_PLACE}), OpTags.VIEW in bsym.sym.tags
    may_share = may_write or not VIEW_TAGS.isdisjoint(bsym.sym.tags) or bool(views_of(bsym))
    names = [p.name for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
    strides = StrideCheck(bsym, bsym.subsymbols)

    def fault(deed: str, hint: str, **found: object) -> PluginError:
        return PluginError(
            f"the kernel of {_owned(bsym.sym)} {deed}",
            found={"call": bsym.line, **found},
            where=bsym.locations,
            hint=hint,
        ).blame(origin)

    @wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        arguments, states = _Arguments.of((args, kwargs), names), default_states()
        result = kernel(*args, **kwargs)
        if not may_draw and not all(map(torch.equal, states, default_states())):
            raise fault("draws random numbers", _DRAWS)
        written = None if may_write else arguments.written()
        if written is not None:
            raise fault(f"writes to {written}", _WRITES)
        difference = _difference(bsym.output, result)
        if difference is not None:
            expected, returned = difference
            raise fault(
                "returns another structure than its meta function", _STRUCTURE, meta=expected, kernel=returned
            )
        results = _new_results(bsym.output, result, names)
        shared = None if may_share else arguments.shared_with(results)
        if shared is not None:
            raise fault(f"returns memory of its argument {shared}", _SHARES)
        if not may_share and _is_shared(results):
            raise fault("returns two results in one memory", _SHARES)
        if is_view and not may_write and not arguments.have_memory_of(results):
            raise fault("returns a copy, and is declared to return a view", _COPIES)
        differing = strides.difference(arguments.by_name(), _by_name(bsym, result))
        if differing is not None:
            raise fault("returns other strides than eager", _STRIDES, eager=differing[0], kernel=differing[1])
        if not arguments.require_grad and any(t.requires_grad for t in _tensors(result)):
            raise fault("returns a result that requires grad, and no argument does", _REQUIRES)
        return result

    return run


def _by_name(bsym: BoundSymbol, result: Any) -> dict[str, Any]:
    """Return the results of a call by the names of their proxies."""
    pairs = zip(tree_iter(bsym.output), tree_iter(result), strict=True)
    return {p.name: value for p, value in pairs if isinstance(p, TensorProxy)}


def _new_results(output: Any, result: Any, names: Sequence[str]) -> list[Any]:
    """Return the results of a call that its meta function does not declare to be arguments."""
    pairs = zip(tree_iter(output), tree_iter(result), strict=True)
    return [value for p, value in pairs if getattr(p, "name", None) not in names]


_WRITES = (
    "It computes on a copy (x.clone()). What a program should see written, the program writes: "
    "x.copy_(result)."
)
_SHARES = "It returns a tensor of its own (x.clone()), or the operator has tags=(OpTags.MAYBE_VIEW,)."
_COPIES = (
    "It returns a view of its first argument, or has no tag OpTags.VIEW: then it runs calls whose result the "
    "program does not return."
)
_STRIDES = (
    "It writes its result to a tensor with eager's strides, such as torch.empty_like(x); a fusion gives its "
    "results those of thunder.extend.EagerStrides(region)."
)
_DRAWS = "The operator has tags=(OpTags.RANDOM_OP,), so that equal calls are not computed once."
_STRUCTURE = "The kernel returns what the meta function returns: the same tuples, numbers and None."
_REQUIRES = "A tensor that the kernel holds gets no gradient: pass it to the operator as an argument."


def _owned(symbol: Symbol) -> str:
    assert symbol.executor is not None, "a checked operator belongs to an executor"
    return f"operator {symbol.id!r} of executor {symbol.executor.name!r}"


# -- arguments -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a call before it: tensors with copies of their bits, and the containers' leaves."""

    tree: Any
    leaves: Sequence[Any]
    tensors: Sequence[tuple[str, torch.Tensor, tuple[Any, ...], torch.Tensor | None]]

    @classmethod
    def of(cls, tree: Any, names: Sequence[str]) -> _Arguments:
        leaves = tree_flatten(tree)[0]
        tensors = list(_tensors(tree))
        named = names if len(names) == len(tensors) else [f"number {i}" for i in range(len(tensors))]
        before = [(n, t, _layout(t), _bits(t, copy=True)) for n, t in zip(named, tensors, strict=True)]
        return cls(tree, leaves, before)

    def by_name(self) -> dict[str, torch.Tensor]:
        """Return the tensors by the names of their proxies, or by number."""
        return {name: tensor for name, tensor, _, _ in self.tensors}

    @property
    def require_grad(self) -> bool:
        return any(t.requires_grad for _, t, _, _ in self.tensors)

    def written(self) -> str | None:
        """Return in words which argument differs from what it was, or None."""
        for name, tensor, layout, bits in self.tensors:
            after = _bits(tensor)
            if _layout(tensor) != layout or (
                bits is not None and after is not None and not torch.equal(bits, after)
            ):
                return f"its argument {name}"
        leaves = tree_flatten(self.tree)[0]
        same = len(leaves) == len(self.leaves) and all(map(lambda a, b: a is b, leaves, self.leaves))
        return None if same else "a list or dict among its arguments"

    def shared_with(self, result: Any) -> str | None:
        """Return the name of an argument in whose memory a result is, or None."""
        memory = {_memory(t): name for name, t, _, _ in self.tensors if _memory(t)}
        return next((memory[_memory(t)] for t in _tensors(result) if _memory(t) in memory), None)

    def have_memory_of(self, results: Any) -> bool:
        """Return whether each result that has memory is in the memory of an argument."""
        memory = {_memory(t) for _, t, _, _ in self.tensors}
        return all(_memory(t) in memory for t in _tensors(results) if _memory(t))


def _is_shared(results: Any) -> bool:
    """Return whether two results are in one memory."""
    memory = [_memory(t) for t in _tensors(results) if _memory(t)]
    return len(set(memory)) < len(memory)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, torch.Tensor))


def _layout(t: torch.Tensor) -> tuple[Any, ...]:
    return tuple(t.shape), t.stride(), t.storage_offset(), t.dtype, t.requires_grad, _memory(t)


def _memory(t: torch.Tensor) -> int:
    return t.untyped_storage().data_ptr() if t.numel() else 0


def _bits(t: torch.Tensor, *, copy: bool = False) -> torch.Tensor | None:
    """Return the elements of a tensor as bytes, or None if it has no data."""
    if t.device.type == "meta":
        return None
    with torch.no_grad():
        dense = t.detach().resolve_conj().resolve_neg().contiguous()
        dense = dense.clone() if copy and _memory(dense) == _memory(t) else dense
        return dense.flatten().view(torch.uint8)


# -- results -------------------------------------------------------------------------------------------------


def _difference(expected: Any, result: Any) -> tuple[str, str] | None:
    """Return how a result differs in structure from the output of a call, as two texts; or None."""
    if isinstance(expected, tuple | list):
        if not isinstance(result, tuple | list) or len(result) != len(expected):
            return f"{kind_of(tuple(expected))}", kind_of(
                tuple(result) if isinstance(result, list) else result
            )
        differences = map(_difference, expected, result)
        return next((d for d in differences if d is not None), None)
    if isinstance(expected, TensorProxy):
        is_tensor = isinstance(result, torch.Tensor)
        return None if is_tensor else (f'"{expected.type_string()}"', kind_of(result))
    if isinstance(expected, Proxy | dict):
        return None
    same = type(expected) is type(result) and (expected == result or expected != expected)
    return None if same else (repr(expected), repr(result) if _is_short(result) else kind_of(result))


def _is_short(result: Any) -> bool:
    return result is None or isinstance(result, bool | int | float | complex | str)
