"""Composites that act on each element: they are called again with batched arguments.

    ltorch.add(x, y), x: (3,), y: (2, 3)   →   ltorch.add(reshape(x, (B, 1, 3)), y)

so that the trace has the operators of the program, which executors know, and not their decompositions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thunder.base.pytree import tree_iter
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import get_tracectx
from thunder.ops.batched_call import BatchedCall


def call_again(c: BatchedCall, bsym: BoundSymbol) -> Any:
    """Call an elementwise composite with its arguments aligned, or return NotImplemented.

    The dtypes of scalars promote otherwise than those of their batch, so the caller compares the result's.
    A call is elementwise if its primitives are, and broadcasts align dimensions from the right. With other
    shapes a decomposition may choose other operators, so both must consist of the same ones.
    """
    before = _elementwise_operators(bsym)
    if before is None or not all(_is_plain(x) for x in (*c.args, *c.kwargs.values())):
        return NotImplemented
    tensors = [x for x in (*c.args, *c.kwargs.values()) if isinstance(x, TensorProxy)]
    if not {x.name for x in bsym.flat_proxy_args} <= {
        p.name for b in _primitives(bsym) for p in b.flat_proxy_args
    }:
        return NotImplemented  # torch's function reads the shape of an argument that is not computed with
    rank = max(map(c.rank, tensors))
    shapes = [tuple(p.shape) for p in bsym.flat_proxy_outs]  # sizes in a set would be fixed

    def aligned(x: Any) -> Any:
        if not isinstance(x, TensorProxy):
            return x
        # losses and activations broadcast their arguments only to the first one
        is_first = c.sym.id.startswith("torch.nn.functional.") and c.shape(x) in shapes
        return c.with_rank(c.full(x) if is_first else x, rank)

    args = [aligned(x) for x in c.args]
    kwargs = {k: aligned(x) for k, x in c.kwargs.items()}
    trace = get_tracectx()
    assert trace is not None, "batching records into a trace"
    start = len(trace.peek_scope())
    result = c.sym(*args, **kwargs)
    recorded = [b for b in trace.peek_scope()[start:] if b.sym.id == c.sym.id]
    if len(recorded) != 1 or _elementwise_operators(recorded[0]) != before:
        return NotImplemented
    return result


def _is_plain(x: Any) -> bool:
    return isinstance(x, TensorProxy) or not any(isinstance(leaf, TensorProxy) for leaf in tree_iter(x))


def _elementwise_operators(bsym: BoundSymbol) -> list[Any] | None:
    """Return the primitives of a call with their constants, or None if one is not elementwise."""
    operators: list[Any] = []
    for b in _primitives(bsym):
        if OpTags.POINTWISE_OP not in b.sym.tags or OpTags.RANDOM_OP in b.sym.tags:
            return None
        if b.sym.id == "prims.broadcast_in_dim":
            a, shape, dims = b.args
            if tuple(dims) != tuple(range(len(shape) - len(a.shape), len(shape))):
                return None
        elif b.sym.id == "prims.full":
            operators.append((b.sym.id, repr(b.args[1]), repr(b.kwargs)))
        elif b.sym.id in ("prims.iota", "prims.linspace"):
            return None
        else:
            constants = [x for x in tree_iter((b.args, b.kwargs)) if not is_proxy(x)]
            operators.append((b.sym.id, repr(constants)))
    return operators


def _primitives(bsym: BoundSymbol) -> Iterator[BoundSymbol]:
    if not bsym.subsymbols:
        yield bsym
    for sub in bsym.subsymbols:
        yield from _primitives(sub)
