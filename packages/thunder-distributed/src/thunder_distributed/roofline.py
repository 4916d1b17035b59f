"""The time of statements and collectives by a roofline (Williams, Waterman and Patterson, Roofline, 2009).

A statement takes the larger of two times: that of its matrix products at the part of their dtype's peak that
the machine reaches, and that of reading its arguments and writing its results once at the peak of the memory.
Views take none. A fusion reads its arguments and writes its results only. Collectives take what the machine's
network says (`collective_costs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from thunder import TensorProxy
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument
from thunder.core.proxies import FutureTensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import numbers_of

from .collective_costs import ROUNDS, collective_cost
from .collectives import COLLECTIVES, all_to_all
from .communication import Collective
from .exchanges import EXCHANGES, rotate
from .machines import Machine

__all__ = ["collective_seconds", "computes_memory", "flops_of", "nbytes_of", "statement_seconds"]


def _products(factors: int, inner: Callable[[BoundSymbol], Any]) -> Callable[[BoundSymbol], int]:
    return lambda bsym: factors * math.prod(numbers_of((*bsym.flat_proxy_outs[0].shape, inner(bsym))))


def _convolution(result: Any, argument: Any, weight: Any, transposed: bool) -> int:
    """Return the operations of a convolution: an element of its result sums products with a filter.

    Of a transposed convolution, an element of its argument is multiplied with one.
    """
    elements = argument.shape if transposed else result.shape
    return 2 * math.prod(numbers_of((*elements, *weight.shape[1:])))


#: the last part of an operator's id → the operations of a call: a product and a sum for each of the elements
#: that are summed up for an element of the result
FLOPS: Final[Mapping[str, Callable[[BoundSymbol], int]]] = {
    "linear": _products(2, lambda b: b.args[0].shape[-1]),
    "matmul": _products(2, lambda b: b.args[0].shape[-1]),
    "mm": _products(2, lambda b: b.args[0].shape[-1]),
    "bmm": _products(2, lambda b: b.args[0].shape[-1]),
    "addmm": _products(2, lambda b: b.args[1].shape[-1]),
    "baddbmm": _products(2, lambda b: b.args[1].shape[-1]),
    "convolution": lambda b: _convolution(b.output, b.args[0], b.args[1], b.args[6]),
    # one product for the gradient of the argument, one for that of the weight
    "convolution_backward": lambda b: (
        sum(map(bool, b.args[10][:2])) * _convolution(b.args[0], b.args[1], b.args[2], b.args[7])
    ),
    # q k and the product with v: each element of the result is the sum of L products, L the length of k
    "scaled_dot_product_attention": _products(4, lambda b: b.args[1].shape[-2]),
}


def flops_of(bsym: BoundSymbol) -> int:
    """Return the operations of the matrix products of a statement, those of its parts included."""
    formula = FLOPS.get(str(bsym.sym.id).rpartition(".")[2])
    return formula(bsym) if formula is not None else sum(map(flops_of, bsym.subsymbols))


def nbytes_of(proxies: Iterable[Any]) -> int:
    """Return the bytes of tensors, and of the tensors of futures, each once."""
    tensors = {p.name: p for p in proxies if isinstance(p, TensorProxy | FutureTensorProxy)}
    return sum(math.prod(numbers_of(t.shape)) * to_torch_dtype(t.dtype).itemsize for t in tensors.values())


def statement_seconds(bsym: BoundSymbol, machine: Machine, computes: bool) -> float:
    """Return the time of a statement that is not a collective; 0 for one that computes no new memory."""
    if not computes or bsym.sym.id in COLLECTIVES | EXCHANGES:
        return 0.0
    memory = nbytes_of((*bsym.flat_proxy_args, *bsym.flat_proxy_outs)) / machine.bandwidth
    flops = flops_of(bsym)
    if not flops:
        return memory
    dtype = next(p.dtype.shortname() for p in bsym.flat_proxy_args if isinstance(p, TensorProxy))
    if dtype not in machine.flops:
        raise InvalidArgument(
            f"the machine has no figure for products of {dtype}",
            found={"known": ", ".join(machine.flops)},
            hint="Add it to the table `flops` of a thunder.distributed.Machine.",
        )
    return max(flops / (machine.efficiency * machine.flops[dtype]), memory)


def computes_memory(bsym: BoundSymbol, storages: Mapping[str, str]) -> bool:
    """Return whether a statement has a result with a memory of its own, by the storage of each name."""
    outs = [p.name for p in bsym.flat_proxy_outs]
    return any(storages.get(name) in outs for name in outs)


def collective_seconds(collective: Collective, ranks: tuple[int, ...], machine: Machine) -> float:
    """Return the time of a collective of global ranks; the exchanges of experts are all-to-alls."""
    kind = collective.name if collective.name in (*ROUNDS, rotate.name) else all_to_all.name
    return collective_cost(kind, collective.nbytes, ranks, machine.links).seconds
