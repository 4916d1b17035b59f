"""``torch.autograd.grad`` in the traced program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.inner_gradients.recorded_gradients import arriving_gradients
from thunder.frontend.inner_transforms.mapped_calls import Mapped
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES_GRADIENTS
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(COMPUTES_GRADIENTS)


@TABLE.lookaside(torch.autograd.grad)
def _grad(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _gradients_of(session, *args, **kwargs)


def _gradients_of(
    session: TracingSession,
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Record what ``torch.autograd.grad`` returns, or raise its errors."""
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, "
            "but got: allow_unused=False."
        )
    if is_grads_batched:
        options = (retain_graph, create_graph, only_inputs, allow_unused, False, materialize_grads)
        return _for_each_cotangent(session, outputs, inputs, grad_outputs, options)
    names = list(inputs) if isinstance(inputs, dict) else None
    if names is None and isinstance(inputs, Mapping):
        raise TypeError(
            f"`inputs` argument to `grad()` must be a dict, not {type(inputs).__name__}. "
            "Other Mapping types are not supported."
        )
    ends = tensors_of(outputs)
    starts = tensors_of(tuple(inputs.values()) if names is not None else inputs)
    if not starts:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    cotangents = cotangents_of(ends, optional_tensors(grad_outputs, len(ends)))
    is_unused_allowed = bool(allow_unused or materialize_grads)
    results = differentiated(session, ends, starts, cotangents, create_graph, is_unused_allowed, retain_graph)
    if materialize_grads:
        results = tuple(
            ltorch.zeros_like(i) if g is None else g for i, g in zip(starts, results, strict=True)
        )
    return results if names is None else dict(zip(names, results, strict=True))


def _for_each_cotangent(
    session: TracingSession, outputs: Any, inputs: Any, grad_outputs: Any, options: tuple[Any, ...]
) -> Any:
    """Record the gradients for a batch of cotangents, the first dimension of ``grad_outputs``."""
    leaves, spec = tree_flatten((grad_outputs,))
    dims = [0 if isinstance(x, TensorProxy) else None for x in leaves]
    sizes = {x.shape[0] for x in leaves if isinstance(x, TensorProxy) and x.shape}
    if len(sizes) != 1:
        raise RuntimeError(f"grad_outputs of is_grads_batched=True have the batch sizes {sorted(sizes)}")

    def gradients_of(cotangents: Any) -> Any:
        return _gradients_of(session, outputs, inputs, cotangents, *options)

    mapped = Mapped(session, "grad", gradients_of, 0, "error", dims, spec, with_none=True)
    return mapped.call(sizes.pop(), leaves)


def differentiated(
    session: TracingSession,
    outputs: Sequence[TensorProxy],
    inputs: Sequence[TensorProxy],
    cotangents: Sequence[TensorProxy | None],
    create_graph: bool,
    allow_unused: bool,
    retain_graph: bool | None,
) -> tuple[TensorProxy | None, ...]:
    """Record gradients, as torch's engine computes them; raise its errors."""
    for i, output in enumerate(outputs):
        if not output.requires_grad:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
    if not all(i.requires_grad for i in inputs):
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    present = [c for c in cotangents if c is not None]
    assert len(present) == len(outputs), "an output that requires grad has a cotangent"
    results = arriving_gradients(session, outputs, inputs, present, create_graph, retain_graph)
    for i, gradient in enumerate(results):
        if gradient is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
    return tuple(results)


def tensors_of(value: Any) -> tuple[TensorProxy, ...]:
    """Return a tensor, or a sequence of tensors, as a tuple; refuse edges of torch's graph."""
    tensors = (value,) if isinstance(value, TensorProxy) else tuple(value)
    for t in tensors:
        if not isinstance(t, TensorProxy):
            raise UnsupportedProgram(
                f"torch.autograd.grad of a {type(t).__name__} inside a compiled function",
                hint="Pass tensors.",
            )
    return tensors


def optional_tensors(value: Any, length: int) -> tuple[Any, ...]:
    """Return cotangents as a tuple: a tensor, a sequence, or None for all."""
    if value is None:
        return (None,) * length
    return (value,) if isinstance(value, TensorProxy) else tuple(value)


def cotangents_of(
    outputs: Sequence[TensorProxy], given: Sequence[TensorProxy | None]
) -> list[TensorProxy | None]:
    """Return a cotangent for each output that requires grad: the one that was passed, or one for a scalar.

    Raises torch's errors (``torch.autograd._make_grads``).
    """
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    return [_cotangent(i, o, c) for i, (o, c) in enumerate(zip(outputs, given, strict=True))]


def _cotangent(index: int, output: TensorProxy, cotangent: Any) -> TensorProxy | None:
    dtype = output.dtype.torch_dtype
    if cotangent is None:
        if not output.requires_grad:
            return None
        if output.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if not dtype.is_floating_point:
            raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {dtype}")
        return ltorch.ones_like(output)  # type: ignore[no-any-return]
    if not isinstance(cotangent, TensorProxy):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(cotangent).__name__}")
    if tuple(cotangent.shape) != tuple(output.shape):
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{index}] has a shape of {torch.Size(cotangent.shape)} and "
            f"output[{index}] has a shape of {torch.Size(output.shape)}."
        )
    if cotangent.dtype.is_complex != output.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch "
            f"in dtype: grad_output[{index}] has a dtype of {cotangent.dtype.torch_dtype} and "
            f"output[{index}] has a dtype of {dtype}."
        )
    if cotangent.dtype != output.dtype:
        return prims.convert_element_type(cotangent, output.dtype)  # type: ignore[no-any-return]
    return cotangent
