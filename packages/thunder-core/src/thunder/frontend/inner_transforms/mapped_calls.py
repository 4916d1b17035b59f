"""``torch.vmap`` in the traced program.

The function is interpreted once, on proxies that have the shapes of one example; its program is batched
(:mod:`thunder.batching.batch_trace`), and what that records takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch import apis
from torch._functorch import vmap as functorch_vmap
from torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.batching.batch_trace import batch_trace
from thunder.frontend.inner_transforms.inner_programs import InnerProgram, inner_program
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import TorchFunctions
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.batched_call import moved
from thunder.torch.inplace import is_leaf, write_back
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(COMPUTES)
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@TABLE.lookaside(apis.vmap)
def _vmap(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return the mapped function, which torch's own code makes; the call of it is interpreted."""
    function: Any = apis.vmap(*args, **kwargs)
    for part in (function, *(function.__closure__ or ())):
        session.created_by_program[id(part)] = part
    return function


@TABLE.lookaside(functorch_vmap.vmap_impl)
def _call_mapped(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    fn, in_dims, out_dims, randomness, chunk_size, *inputs = args
    functorch_vmap._check_out_dims_is_int_or_int_pytree(out_dims, fn)
    _check_containers(inputs)
    size, dims, leaves, spec = functorch_vmap._process_batched_inputs(in_dims, tuple(inputs), fn)
    name = functorch_vmap._get_name(fn)

    def call(*examples: Any) -> Any:
        return session.call(fn, examples, kwargs)

    mapped = Mapped(session, name, call, out_dims, randomness, dims, spec)
    if chunk_size is None:
        return mapped.call(size, leaves)
    return _in_chunks(mapped, size, leaves, int(chunk_size))


def _check_containers(inputs: Sequence[Any]) -> None:
    """Refuse containers of which torch reads more than their items."""
    pending: list[Any] = list(inputs)
    while pending:
        value = pending.pop()
        if isinstance(value, tuple | list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
        elif type(value) in torch.utils._pytree.SUPPORTED_NODES:
            raise UnsupportedProgram(
                f"torch.vmap over an argument of type {type(value).__qualname__}",
                hint="Pass tensors, or tuples, lists and dicts of them.",
            )


def _in_chunks(mapped: Mapped, size: int, leaves: list[Any], chunk: int) -> Any:
    """Call the function for parts of the batch, and join the results along ``out_dims``."""
    if mapped.randomness == "same" and chunk < size:
        raise UnsupportedProgram(
            'torch.vmap with chunk_size and randomness="same"', hint="Leave chunk_size out."
        )
    parts, dims, spec = [], [], None
    for start in range(0, size, chunk):
        count = min(chunk, size - start)
        values = [
            x if dim is None else ltorch.narrow(x, dim, start, count)
            for x, dim in zip(leaves, mapped.dims, strict=True)
        ]
        flat, spec = tree_flatten(mapped.call(count, values))
        parts.append(flat)
        dims = mapped.result_dims
    assert spec is not None, "a batch that is split is not empty"
    joined = [
        column[0] if dim is None else ltorch.cat(list(column), dim)
        for column, dim in zip(zip(*parts, strict=True), dims, strict=True)
    ]
    return tree_unflatten(joined, spec)


class Mapped:
    """A call of a mapped function; ``dims`` are those of the batch in its arguments' leaves, or None."""

    def __init__(
        self,
        session: TracingSession,
        name: str,
        fn: Callable[..., Any],
        out_dims: Any,
        randomness: str,
        dims: Sequence[int | None],
        spec: Any,
        with_none: bool = False,
    ) -> None:
        self.session, self.name, self.fn = session, name, fn
        self.out_dims, self.randomness, self.dims, self.spec = out_dims, randomness, dims, spec
        self.with_none = with_none
        #: the dimension of the batch in each leaf of the last result
        self.result_dims: list[int | None] = []

    def call(self, size: int, leaves: Sequence[Any]) -> Any:
        """Record the call for ``size`` examples, and return its result."""
        session = self.session
        examples = [x if dim is None else _example(x, dim) for x, dim in zip(leaves, self.dims, strict=True)]
        arguments = [e for e, dim in zip(examples, self.dims, strict=True) if dim is not None]
        args = tree_unflatten(examples, self.spec)
        inner = inner_program(session, "vmap", arguments, lambda: self.fn(*args))
        flat, spec = tree_flatten(inner.result)
        out_dims = self.result_dims = self._out_dims_of(spec, inner.result)
        inputs = [(x, dim) for x, dim in zip(leaves, self.dims, strict=True) if dim is not None]
        recorded: list[Any] = []
        with session.trace.recording_into(recorded), session.state(TorchFunctions).recording():
            results = self._batched(inner, inputs, size, flat, out_dims)
        location = session.locate()
        for bsym in recorded:
            bsym.source = bsym.source or location
            session.trace.record(bsym)
        return tree_unflatten(results, spec)

    def _batched(
        self, inner: InnerProgram, inputs: Sequence[tuple[TensorProxy, int]], size: int, flat: Any, dims: Any
    ) -> list[Any]:
        batches = [moved(x, dim, 0) for x, dim in inputs]
        is_batched = [True] * len(batches) + [False] * len(inner.captured)
        values = [*batches, *inner.captured]
        try:
            (results, written), names = batch_trace(inner.program, values, is_batched, size, self.randomness)
        except OperatorError as error:
            raise error.add_locations(self.session.locations()) from None
        for index, value in zip(inner.written, written, strict=True):
            self._write(value, value.name in names, index, inputs, inner, size)
        parts = dict(enumerate(results))
        for k, (index, part) in inner.views.items():  # a part of a written argument is one of the batch
            batch, place = inputs[index]
            (parts[k],), own = batch_trace(part, [moved(batch, place, 0)], [True], size, self.randomness)
            names |= own
        tensors = iter(parts.values())
        outside = {p.name for p in (*(x for x, _ in inputs), *inner.captured) if isinstance(p, TensorProxy)}
        examples = {a.name: given for a, given in zip(inner.program.args, inputs, strict=False)}
        outputs: list[Any] = []
        for leaf, dim in zip(flat, dims, strict=True):
            value = next(tensors) if isinstance(leaf, TensorProxy) else leaf
            example = examples.get(leaf.name) if isinstance(leaf, TensorProxy) else None
            if example is not None:  # the function returns its argument: in torch that is the batch
                batch, place = example
                if dim in (place, place - batch.ndim):
                    outputs.append(batch)
                    continue
                value = moved(batch, place, 0)
                names |= {value.name}
            outputs.append(self._output(value, dim, getattr(value, "name", None) in names, size, outside))
        return outputs

    def _output(self, value: Any, dim: int | None, is_batched: bool, size: int, outside: set[str]) -> Any:
        name = self.name
        if value is None and self.with_none:
            return None
        if dim is None:
            if is_batched:
                raise ValueError(
                    f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
                )
            return value
        if not isinstance(value, TensorProxy):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(value)}. "
                "Did you mean to set out_dims= to None for output?"
            )
        rank = len(value.shape) + (not is_batched)
        if not -rank <= dim < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
            )
        if not is_batched:
            shape = (size, *value.shape)
            value = prims.broadcast_in_dim(value, shape, tuple(range(1, rank)))
        result = moved(value, 0, dim)
        return prims.shallow_copy(result) if result.name in outside else result

    def _write(
        self,
        value: TensorProxy,
        is_batched: bool,
        index: int,
        inputs: Sequence[tuple[TensorProxy, int]],
        inner: InnerProgram,
        size: int,
    ) -> None:
        """Write what the function wrote to an argument, or to a tensor from outside of it."""
        if index < len(inputs):
            target, dim = inputs[index]
            if not is_batched:
                value = prims.broadcast_in_dim(
                    value, (size, *value.shape), tuple(range(1, len(value.shape) + 1))
                )
            write_back(moved(value, 0, dim), target)
            return
        target = inner.captured[index - len(inputs)]
        if is_batched:
            raise RuntimeError(
                "vmap: an in-place operator is not possible because there exists a Tensor in its arguments "
                "that has more elements than `self`. This happened due to the tensor being vmapped over but "
                "`self` not being vmapped over. Please try to use out-of-place operators instead of it."
            )
        write_back(value, target)

    def _out_dims_of(self, spec: Any, result: Any) -> list[int | None]:
        """Return the dimension of the batch in each leaf of the result. Raises torch's error."""
        dims = self.out_dims
        if isinstance(result, TensorProxy) and isinstance(dims, tuple) and len(dims) == 1:
            return list(dims)
        flat = _broadcast_to_and_flatten(dims, spec)
        if flat is None or (isinstance(result, TensorProxy) and not isinstance(dims, int | None)):
            raise ValueError(
                f"vmap({self.name}, ..., out_dims={dims})(<inputs>): "
                f"out_dims is not compatible with the structure of `outputs`. "
                f"out_dims has structure {tree_flatten(dims)[1]} but inputs has structure {spec}."
            )
        return flat


def _example(x: TensorProxy, dim: int) -> TensorProxy:
    """Return the proxy of one example of a batch."""
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    strides = None if x.strides is None else (*x.strides[:dim], *x.strides[dim + 1 :])
    return TensorProxy(
        shape=shape,
        device=x.device,
        dtype=x.dtype,
        requires_grad=x.requires_grad or None,
        strides=strides,
        declared_leaf=is_leaf(x),
    )
