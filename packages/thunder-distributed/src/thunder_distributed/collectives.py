"""Collectives as operators of traces, on the functional collectives of torch.

    y = all_gather(x, '0')          the tensors of all processes, one after the other along a dimension
    y = all_reduce(x, '0')          their sum
    y = reduce_scatter(x, '0')      the part of this process of their sum
    y = broadcast(x, '0', 1)        the tensor of rank 1 of the group
    y = all_to_all(x, '0')          part r of this process's tensor goes to process r

The group is given by its name. With `do_async=True` a collective returns a future, and `wait(future)` the
tensor. The gradients are those of the sum of the losses of all processes: each process differentiates its
own loss, and cotangents are summed where a value is used by several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument
from thunder.core.proxies import FutureTensorProxy
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder.extend import OperatorExecutor, numbers_of, register_ledger_facts

from . import works
from .lost_processes import naming_missing, reporting, waiting
from .process_groups import group_size

__all__ = [
    "COLLECTIVES",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "ex",
    "gathered",
    "pack",
    "pack_for_fsdp",
    "reduce_scatter",
    "unpack",
    "unpack_for_fsdp",
    "wait",
]

ex = OperatorExecutor("distributed")

#: the kinds of reductions that every backend has
REDUCTIONS: Final = ("sum", "avg", "max", "min", "product")


def _result(a: Any, shape: Sequence[int], do_async: bool) -> Any:
    """Return the proxy of the result of a collective, or of the future of one."""
    result = TensorProxy(like=a, shape=shape)
    return FutureTensorProxy(like=result) if do_async else result


def _waited(result: torch.Tensor, do_async: bool = False) -> torch.Tensor:
    """Return the result of a collective, after it has arrived unless `do_async`."""
    waited: torch.Tensor = result if do_async else works.wait_tensor(result)
    return waited


def _parts(a: Any, dim: int, group: str, purpose: str) -> int:
    """Return the extent of one process's part of a dimension."""
    size = group_size(group)
    if a.shape[dim] % size:
        raise InvalidArgument(
            f"{purpose} divides dimension {dim} of {tuple(a.shape)} among the {size} processes of {group!r}",
            hint="Pad it to a multiple of their number.",
        )
    each: int = a.shape[dim] // size
    return each


def _checked(dim: int, a: Any) -> int:
    if not a.ndim or not 0 <= dim < a.ndim:
        raise InvalidArgument(
            f"dim={dim} is not a dimension of a tensor of shape {tuple(a.shape)}",
            hint="Reshape a scalar to (1,); dimensions are counted from 0.",
        )
    return dim


# -- all_gather ----------------------------------------------------------------------------------------------


def _all_gather_meta(a: Any, group: str, dim: int = 0, do_async: bool = False) -> Any:
    dim = _checked(dim, a)
    shape = tuple(n * group_size(group) if i == dim else n for i, n in enumerate(a.shape))
    return _result(a, shape, do_async)


def gathered(a: torch.Tensor, group: str, dim: int = 0) -> torch.Tensor:
    """Return the tensors of all processes, one after the other along a dimension, outside of programs."""
    with naming_missing("the gathering of a parameter", group):
        return _all_gather(a, group, dim)


def _all_gather(a: torch.Tensor, group: str, dim: int = 0, do_async: bool = False) -> torch.Tensor:
    size = group_size(group)
    if dim == 0:
        return _waited(works.all_gather_into_tensor(a.contiguous(), size, group), do_async)
    rows = works.all_gather_into_tensor(a.movedim(dim, 0).contiguous(), size, group)
    return _waited(rows).movedim(0, dim).contiguous()


# -- all_reduce and broadcast --------------------------------------------------------------------------------


def _all_reduce_meta(a: Any, group: str, op: str = "sum", do_async: bool = False) -> Any:
    _check_reduction(op)
    group_size(group)
    return _result(a, a.shape, do_async)


def _check_reduction(op: str) -> None:
    if op not in REDUCTIONS:
        raise InvalidArgument(f"op={op!r} is not a reduction", found={"reductions": ", ".join(REDUCTIONS)})


def _all_reduce(a: torch.Tensor, group: str, op: str = "sum", do_async: bool = False) -> torch.Tensor:
    return _waited(works.all_reduce(a.contiguous(), op, group), do_async)


def _broadcast_meta(a: Any, group: str, src: int, do_async: bool = False) -> Any:
    if not 0 <= src < group_size(group):
        raise InvalidArgument(f"src={src} is not a rank of the group {group!r}")
    return _result(a, a.shape, do_async)


def _broadcast(a: torch.Tensor, group: str, src: int, do_async: bool = False) -> torch.Tensor:
    return _waited(works.broadcast(a.contiguous(), src, group), do_async)


# -- reduce_scatter ------------------------------------------------------------------------------------------


def _reduce_scatter_meta(a: Any, group: str, op: str = "sum", dim: int = 0, do_async: bool = False) -> Any:
    _check_reduction(op)
    dim = _checked(dim, a)
    part = _parts(a, dim, group, "reduce_scatter")
    return _result(a, tuple(part if i == dim else n for i, n in enumerate(a.shape)), do_async)


def _reduce_scatter(
    a: torch.Tensor, group: str, op: str = "sum", dim: int = 0, do_async: bool = False
) -> torch.Tensor:
    size = group_size(group)
    if dim == 0:
        return _waited(works.reduce_scatter_tensor(a.contiguous(), op, size, group), do_async)
    rows = works.reduce_scatter_tensor(a.movedim(dim, 0).contiguous(), op, size, group)
    return _waited(rows).movedim(0, dim).contiguous()


# -- all_to_all ----------------------------------------------------------------------------------------------


def _all_to_all_meta(a: Any, group: str, do_async: bool = False) -> Any:
    _parts(a, _checked(0, a), group, "all_to_all")
    return _result(a, a.shape, do_async)


def _all_to_all(a: torch.Tensor, group: str, do_async: bool = False) -> torch.Tensor:
    splits = [a.shape[0] // group_size(group)] * group_size(group)
    return _waited(works.all_to_all_single(a.contiguous(), splits, splits, group), do_async)


# -- futures, and several tensors in one ---------------------------------------------------------------------


def _wait_meta(future: Any) -> Any:
    if not isinstance(future, FutureTensorProxy):
        raise InvalidArgument(f"wait takes the future of a collective, and received {future!r}")
    return TensorProxy(shape=future.shape, device=future.device, dtype=future.dtype, requires_grad=False)


def _wait(future: torch.Tensor) -> torch.Tensor:
    return _waited(future)


def _pack_meta(tensors: Sequence[Any]) -> Any:
    return TensorProxy(like=tensors[0], shape=(sum(math.prod(t.shape) for t in tensors),))


def _pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def _unpack_meta(packed: Any, shapes: Sequence[Sequence[int]]) -> Any:
    return tuple(TensorProxy(like=packed, shape=shape) for shape in shapes)


def _unpack(packed: torch.Tensor, shapes: Sequence[Sequence[int]]) -> tuple[torch.Tensor, ...]:
    parts = packed.split([math.prod(shape) for shape in shapes])
    return tuple(part.clone().view(shape) for part, shape in zip(parts, shapes, strict=True))


def _pack_for_fsdp_meta(tensors: Sequence[Any], parts: int) -> Any:
    for t in tensors:
        if t.shape[0] % parts:
            raise InvalidArgument(f"{tuple(t.shape)} does not consist of {parts} equal parts")
    return _pack_meta(tensors)


def _pack_for_fsdp(tensors: Sequence[torch.Tensor], parts: int) -> torch.Tensor:
    return torch.cat([t.reshape(parts, -1) for t in tensors], dim=1).view(-1)


def _unpack_for_fsdp_meta(packed: Any, shapes: Sequence[Sequence[int]], parts: int) -> Any:
    return tuple(TensorProxy(like=packed, shape=shape) for shape in shapes)


def _unpack_for_fsdp(
    packed: torch.Tensor, shapes: Sequence[Sequence[int]], parts: int
) -> tuple[torch.Tensor, ...]:
    columns = packed.view(parts, -1).split([math.prod(shape) // parts for shape in shapes], dim=1)
    # clones: a reshape of one part alone would be a view, which keeps the memory of all
    return tuple(
        column.clone(memory_format=torch.contiguous_format).view(shape)
        for column, shape in zip(columns, shapes, strict=True)
    )


def _shapes(tensors: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(t.shape) for t in tensors)


def _collective(name: str, meta: Callable[..., Any], fn: Callable[..., Any], **gradient: Any) -> Symbol:
    tags = (OpTags.DONT_RECOMPUTE_IN_BACKWARD,)
    return ex.register_operator(name, meta=meta, fn=reporting(name, fn), tags=tags, vjp=gradient)


def _only(op: str, c: Any, gradient: Callable[[], Any]) -> Any:
    if op not in ("sum", "avg"):
        raise InvalidArgument(f"the gradient of a reduction by {op!r} is not defined", hint="Use a sum.")
    g = gradient()
    return g / group_size(c.group) if op == "avg" else g


all_gather: Symbol = _collective(
    "all_gather", _all_gather_meta, _all_gather, a=lambda c: reduce_scatter(c.g, c.group, "sum", c.dim)
)
all_reduce: Symbol = _collective(
    "all_reduce",
    _all_reduce_meta,
    _all_reduce,
    a=lambda c: _only(c.op, c, lambda: all_reduce(c.g, c.group)),
)
# without a gradient: only rank src would need the sum, and each process has to take part in computing it
broadcast = ex.register_operator("broadcast", meta=_broadcast_meta, fn=reporting("broadcast", _broadcast))
reduce_scatter: Symbol = _collective(
    "reduce_scatter",
    _reduce_scatter_meta,
    _reduce_scatter,
    a=lambda c: _only(c.op, c, lambda: all_gather(c.g, c.group, c.dim)),
)
all_to_all: Symbol = _collective(
    "all_to_all", _all_to_all_meta, _all_to_all, a=lambda c: all_to_all(c.g, c.group)
)
wait = ex.register_operator(
    "wait", meta=_wait_meta, fn=waiting(_wait), tags=(OpTags.VIEW,), replaces=FutureTensorProxy.wait
)

pack: Symbol = ex.register_operator(
    "pack", meta=_pack_meta, fn=_pack, vjp={"tensors": lambda c: unpack(c.g, _shapes(c.tensors))}
)
unpack: Symbol = ex.register_operator(
    "unpack", meta=_unpack_meta, fn=_unpack, vjp={"packed": lambda c: pack(_filled(c))}
)
pack_for_fsdp: Symbol = ex.register_operator(
    "pack_for_fsdp",
    meta=_pack_for_fsdp_meta,
    fn=_pack_for_fsdp,
    vjp={"tensors": lambda c: unpack_for_fsdp(c.g, _shapes(c.tensors), c.parts)},
)
unpack_for_fsdp: Symbol = ex.register_operator(
    "unpack_for_fsdp",
    meta=_unpack_for_fsdp_meta,
    fn=_unpack_for_fsdp,
    vjp={"packed": lambda c: pack_for_fsdp(_filled(c), c.parts)},
)


def _filled(c: Any) -> tuple[Any, ...]:
    """Return the cotangents of several results, zeros for those that are not used."""
    return tuple(ltorch.zeros_like(result) if g is None else g for result, g in zip(c.out, c.g, strict=True))


#: the operators that communicate, by id
COLLECTIVES: Final = {
    symbol.id: symbol for symbol in (all_gather, all_reduce, all_to_all, broadcast, reduce_scatter)
}


def _ledger_facts(bsym: Any) -> dict[str, Any]:
    """Return the group of a collective, and the bytes of its whole tensor."""
    operand, group = bsym.args[:2]
    elements = max(math.prod(numbers_of(p.shape)) for p in (operand, bsym.output))
    return {"group": repr(group), "bytes": elements * to_torch_dtype(operand.dtype).itemsize}


for _symbol in COLLECTIVES.values():
    register_ledger_facts(_symbol, _ledger_facts)
