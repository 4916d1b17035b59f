"""Calls under autocast on CPUs, judged by eager: torch's operator samples, and variants of them.

A variant has its floating-point tensors in another dtype, or one of them in another dtype or without
dimensions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import thunder
from thunder.base.errors import UnsupportedProgram
from thunder.base.pytree import tree_flatten, tree_iter, tree_map, tree_unflatten
from thunder.ir.proxies import TensorProxy
from torch_language.samples import SEED, copied

#: dtypes to which one tensor of a call is changed
OTHERS = (
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.bool,
    torch.complex64,
)
#: dtypes to which all floating-point tensors of a call are changed
WHOLE = (torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Outcome:
    """What a call did: its result, or the exception."""

    result: Any = None
    error: Exception | None = None


def variants(args: Any, kwargs: Any) -> Iterator[tuple[str, Any, Any]]:
    """The call, and calls like it: ``(description, args, kwargs)``."""
    yield "as it is", args, kwargs
    leaves, spec = tree_flatten((args, kwargs))
    floating = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    for dtype in WHOLE if floating else ():
        changed = [x.to(dtype) if i in floating else x for i, x in enumerate(leaves)]
        yield f"in {dtype}", *tree_unflatten(changed, spec)
    for i in floating[:3] if len(floating) > 1 else ():
        for dtype in OTHERS:
            changed = [x.to(dtype) if i == j else x for j, x in enumerate(leaves)]
            yield f"tensor {i} in {dtype}", *tree_unflatten(changed, spec)
        if leaves[i].dim() and leaves[i].numel():
            for dtype in (torch.float32, torch.bfloat16, torch.float64):
                scalar = leaves[i].flatten()[0].to(dtype)
                changed = [scalar if i == j else x for j, x in enumerate(leaves)]
                yield f"tensor {i} of no dimensions in {dtype}", *tree_unflatten(changed, spec)


def run(fn: Callable[..., Any], args: Any, kwargs: Any, dtype: torch.dtype, grad: bool = False) -> Outcome:
    """What a call does under autocast to ``dtype``."""
    args, kwargs = copied(args), copied(kwargs)
    torch.manual_seed(SEED)
    mode = contextlib.nullcontext() if grad else torch.no_grad()
    try:
        with torch.autocast("cpu", dtype), mode:
            return Outcome(fn(*args, **kwargs))
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        return Outcome(error=error)
    except UnsupportedProgram as error:
        return Outcome(error=error)


def difference(op: Any, args: Any, kwargs: Any, dtype: torch.dtype, *, values: bool = True) -> str | None:
    """Return how the compiled call differs from eager's, or None; raise the error of a refusal."""
    expected = run(op, args, kwargs, dtype)
    found = run(thunder.jit(lambda *a, **k: op(*a, **k)), args, kwargs, dtype)
    if isinstance(found.error, UnsupportedProgram):
        raise found.error
    if expected.error is not None or found.error is not None:
        if expected.error is None or not isinstance(found.error, _class(expected.error)):
            return f"eager {_told(expected)}, compiled {_told(found)}"
        return None
    ours, theirs = tensors_of(found.result), tensors_of(expected.result)
    if [t.dtype for t in ours] != [t.dtype for t in theirs]:
        return f"eager {[t.dtype for t in theirs]}, compiled {[t.dtype for t in ours]}"
    if values and not all(_same(a, b) for a, b in zip(ours, theirs, strict=True)):
        return f"other values of {[t.dtype for t in theirs]}"
    return None


def _class(error: Exception) -> type[Exception]:
    """The class of torch's error as a caller would catch it."""
    return RuntimeError if isinstance(error, RuntimeError) else type(error)


def _told(outcome: Outcome) -> str:
    if outcome.error is None:
        return f"gives {[t.dtype for t in tensors_of(outcome.result)]}"
    return f"raises {type(outcome.error).__name__}({str(outcome.error)[:150]!r})"


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors in a result."""
    return [x for x in tree_iter(tree) if isinstance(x, torch.Tensor)]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def calls(op: Any, limit: int | None) -> Iterator[tuple[Any, Any]]:
    """The first samples of an entry of torch's database that it has for single precision."""
    if torch.float32 in op.supported_dtypes("cpu"):
        for sample in islice(op.sample_inputs("cpu", torch.float32), limit):
            yield (sample.input, *sample.args), sample.kwargs


# -- CUDA devices, of which torch tells the dtypes without having one ----------------------------------------


@contextlib.contextmanager
def cuda_autocast(dtype: torch.dtype) -> Iterator[None]:
    """Autocast on CUDA devices, set as torch.autocast sets it where there is one."""
    enabled, before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", enabled)
        torch.set_autocast_dtype("cuda", before)


def eager_dtypes_on_cuda(fn: Callable[..., Any], args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
    """The dtypes of what torch returns for CUDA tensors without data, the class of what autocast raises, or
    None where its kernels without data refuse the call.
    """
    with FakeTensorMode(allow_fallback_kernels=False) as mode:

        def stand_in(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return torch.device("cuda") if isinstance(x, torch.device) else x
            meta = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
            return FakeTensor(mode, meta, torch.device("cuda"))

        args, kwargs = tree_map(stand_in, (args, kwargs))
        try:
            with cuda_autocast(dtype), torch.no_grad():
                return [t.dtype for t in tensors_of(fn(*args, **kwargs))]
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
            return _class(error) if "autocast" in str(error) else None


def planned_dtypes_on_cuda(fn: Callable[..., Any], args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
    """Return the dtypes of what a planned program returns on a CUDA device, or the class of its error.

    Raises the error of a program that is refused.
    """
    try:
        with cuda_autocast(dtype), torch.no_grad():
            plan = thunder.plan(lambda a, k: fn(*a, **k), args, kwargs, device="h100")
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        return _class(error)
    returned = next(b for b in plan.traces[0].bound_symbols if b.sym.name == "python_return")
    return [t.dtype.torch_dtype for t in returned.flat_args if isinstance(t, TensorProxy)]


def difference_on_cuda(op: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> str | None:
    """Return how the dtypes on a CUDA device differ from torch's, or None; raise the error of a refusal."""
    expected = eager_dtypes_on_cuda(op, args, kwargs, dtype)
    if expected is None:
        return None
    found = planned_dtypes_on_cuda(op, args, kwargs, dtype)
    if found == expected or (isinstance(found, type) and isinstance(expected, list)):
        return None  # without data torch takes calls that its kernels refuse
    return f"torch {expected}, planned {found}"
