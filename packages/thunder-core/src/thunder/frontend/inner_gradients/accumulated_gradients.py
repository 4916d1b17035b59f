"""``loss.backward()`` in the traced program: gradients are accumulated in the ``grad`` of leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.retained_gradients import RetainedGradients
from thunder.frontend.inner_gradients.autograd_calls import cotangents_of, optional_tensors, tensors_of
from thunder.frontend.inner_gradients.function_levels import Levels
from thunder.frontend.inner_gradients.functional_program import functional_program
from thunder.frontend.inner_gradients.recorded_gradients import arriving_gradients
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES_GRADIENTS
from thunder.frontend.session import TracingSession
from thunder.frontend.types.leaf_gradients import assign_grad, read_grad
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ops import prims
from thunder.torch.inplace import is_leaf, write_back
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(COMPUTES_GRADIENTS)


@TABLE.with_parameters(torch.Tensor.backward)
def _tensor_backward(
    session: TracingSession,
    self: TensorProxy,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    _run(session, (self,), gradient, retain_graph, create_graph, inputs)


@TABLE.with_parameters(torch.autograd.backward)
def _backward(
    session: TracingSession,
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    if grad_variables is not None:
        raise UnsupportedProgram(
            "torch.autograd.backward with grad_variables, which is deprecated", hint="Use grad_tensors."
        )
    _run(session, tensors_of(tensors), grad_tensors, retain_graph, create_graph, inputs)


def _run(
    session: TracingSession,
    outputs: Sequence[TensorProxy],
    given: Any,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Any,
) -> None:
    """Record the gradients of all leaves, or of ``inputs``, and add them to those that the leaves have.

    Intermediates that retain their gradient are treated like leaves.
    """
    if session.state(Levels).open:
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use "
            "functorch.grad or functorch.vjp instead or call backward() outside of functorch transforms."
        )
    cotangents = cotangents_of(outputs, optional_tensors(given, len(outputs)))
    for i, output in enumerate(outputs):
        if not output.requires_grad:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
    leaves = _leaves(session, outputs) if inputs is None else _chosen(inputs)
    retained = session.state(RetainedGradients).intermediates.values() if inputs is None else ()
    leaves += [x for x in retained if not any(x is leaf for leaf in leaves)]
    _note_leaves(session, leaves)
    session.note_write()
    received = [c for c in cotangents if c is not None]
    accumulate = partial(_accumulate, session)
    arriving_gradients(session, outputs, leaves, received, create_graph, retain_graph, accumulate)


def _note_leaves(session: TracingSession, leaves: Sequence[TensorProxy]) -> None:
    """Guard that the inputs among the leaves are leaves: others receive no gradient."""
    for entry in filter(None, map(session.entry_of, leaves)):
        session.note(prims.check_same_object, entry.path.step("attribute", "is_leaf"), True)


def _chosen(inputs: Any) -> list[TensorProxy]:
    values = inputs.values() if isinstance(inputs, Mapping) else inputs
    chosen = list(dict.fromkeys(tensors_of(values)))
    if not chosen:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    for x in chosen:
        if not x.requires_grad or not is_leaf(x):
            raise UnsupportedProgram(
                "backward(inputs=…) with a tensor that is not a leaf that requires grad",
                found={x.name: f'"{x.type_string()}"'},
                hint="Use torch.autograd.grad.",
            )
    return chosen


def _leaves(session: TracingSession, outputs: Sequence[TensorProxy]) -> list[TensorProxy]:
    """Return the leaves on which the outputs depend, in the order in which the program reads them."""
    program = functional_program(session.trace, outputs)
    tensors = [p for p in filter(requires_grad, program.tensors.values()) if p.declared_leaf and is_leaf(p)]
    own = {program.node(p).name: p for p in tensors}
    needed = {value.name: value for value in map(program.value, outputs)}
    for bsym in reversed(program.body):
        outs = (p for p in filter(requires_grad, bsym.flat_proxy_outs) if p.name in needed)
        if any(not p.declared_leaf and p.name not in own for p in outs):
            needed |= {p.name: p for p in bsym.flat_proxy_args if requires_grad(p)}
    computed = {p.name: p for b in program.body for p in filter(requires_grad, b.flat_proxy_outs)}
    leaves = [
        p for name, p in needed.items() if name not in computed or computed[name].declared_leaf or name in own
    ]
    nodes = [program.node(p) for p in leaves]
    for p in nodes:
        if p.name not in own:
            raise UnsupportedProgram(
                "backward() reaches tensors outside of the program",
                found={p.name: f'"{p.type_string()}"'},
                hint="Call backward() outside of the compiled function, or use torch.autograd.grad.",
            )
    return [own[name] for name in dict.fromkeys(p.name for p in reversed(nodes))]


def _accumulate(session: TracingSession, leaf: TensorProxy, gradient: TensorProxy) -> None:
    """Do what torch does at a leaf (``AccumulateGrad``): set its gradient, or add to it.

    The sum is written to the gradient that is there, or, where gradients are on, is a new tensor.
    """
    current = read_grad(session, leaf)
    if current is None:
        assign_grad(session, leaf, _with_layout_of(leaf, gradient))
    elif torch.is_grad_enabled():
        assign_grad(session, leaf, ltorch.add(current, gradient))
    else:
        write_back(ltorch.add(current, gradient), current)


def _with_layout_of(leaf: TensorProxy, gradient: TensorProxy) -> TensorProxy:
    """Return a copy of the gradient with the strides of the leaf."""
    if leaf.is_contiguous():
        return ltorch.clone(gradient, memory_format=torch.contiguous_format)  # type: ignore[no-any-return]
    return write_back(gradient, ltorch.empty_like(leaf))
