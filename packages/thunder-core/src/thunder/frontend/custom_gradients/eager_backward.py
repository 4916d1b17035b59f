"""Backwards of the program that are called as they are, each time that they run.

:mod:`~thunder.frontend.custom_gradients.backward_policy` says which.

    y = Cube.apply(x)     →     forward:    call = begin_backward(Cube); y = x**3
                                backward:   (g_x,) = run_backward(call, (x,), (g_y,))

``call`` corresponds to eager's node: it holds the ``ctx`` of one forward for any number of backwards. Objects
and variables of the program that its backwards read and write are rebuilt once for all of them, in what
``begin_objects`` returns. The
user's function is called once per backward. If the backward is differentiated again (``create_graph``), torch
records a graph of it, which is kept for the second derivative.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.custom_gradients.function_context import FunctionContext, context_class
from thunder.frontend.custom_gradients.gradient_checks import Argument, checked, fitted_to
from thunder.frontend.custom_gradients.rebuilding import Maker
from thunder.ir.gradient_declarations import JointRule
from thunder.ir.proxies import AnyProxy, TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ops.prims.declaration import primitive
from thunder.ops.prims.gradient import get_grad, put_grad

Tensors = Sequence[Any]


class EagerBackward:
    """A backward that a trace calls.

    From the tensors of a call ``function`` rebuilds the user's function, ``attributes`` the dictionary of its
    ``ctx``, and ``saved`` the saved tensors; ``requires_grad`` has one bool per tensor. ``arguments`` are
    those of the forward; ``held`` refers to objects among them, which the call keeps alive.
    """

    def __init__(
        self,
        name: str,
        *,
        function: Maker,
        attributes: Maker,
        saved: Sequence[Maker],
        requires_grad: Sequence[bool],
        arguments: Sequence[Argument | None],
        adapt: Callable[[Callable[..., Any]], Callable[..., Any]],
        held: Sequence[weakref.ref[Any]],
    ) -> None:
        self.name, self.adapt, self.held = name, adapt, held
        self.function, self.attributes, self.saved = function, attributes, saved
        self.requires_grad, self.arguments = requires_grad, arguments
        self.wanted = [a for a in arguments if a is not None and a.requires_grad]

    def __repr__(self) -> str:
        return f"<backward of {self.name}>"


@dataclass(eq=False)
class BackwardCall:
    """The backward of one call of the forward; it may run several times.

    ``shapes`` are those of the forward's arguments in this call, None for arguments that are not tensors.
    ``objects`` are those that it shares with other backwards of the program, by number.
    """

    of: EagerBackward
    shapes: Sequence[tuple[int, ...] | None]
    objects: dict[int, Any] | None = None
    function: Callable[..., Any] | None = None
    context: FunctionContext | None = None

    def __post_init__(self) -> None:
        self.held = [reference() for reference in self.of.held]

    def run(self, tensors: Tensors, cotangents: Tensors) -> tuple[torch.Tensor, ...]:
        """Return the gradients of the arguments that require grad."""
        of, rebuilt = self.of, {} if self.objects is None else self.objects
        pairs = zip(of.arguments, self.shapes, strict=True)
        given = [a if a is None or shape is None else replace(a, shape=shape) for a, shape in pairs]
        wanted = [a for a in given if a is not None and a.requires_grad]
        arguments = [t for t in (*tensors, *cotangents) if t is not None]
        tensors = [_marked(t, needed) for t, needed in zip(tensors, of.requires_grad, strict=True)]
        if self.context is None or self.function is None:
            self.function = of.adapt(of.function(tensors, rebuilt))
            self.context = context_class(of.name)(())
            self.context.__dict__.update(of.attributes(tensors, rebuilt))
        self.context.to_save = tuple(s(tensors, rebuilt) for s in of.saved)
        versions = [t._version for t in arguments if not t.is_inference()]
        try:
            gradients = checked(of.name, given, self.function(self.context, *cotangents))
        finally:
            self.context.to_save = ()
        if versions != [t._version for t in arguments if not t.is_inference()]:
            raise UnsupportedProgram(
                f"the backward of {of.name} wrote in place to a tensor that it did not make",
                hint="Use the out-of-place operator, or write to a clone.",
            )
        return tuple(map(fitted_to, wanted, gradients))


def _marked(t: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """Return a tensor that requires grad, or does not, as the program sees it."""
    if t.requires_grad == requires_grad or not (t.is_floating_point() or t.is_complex()):
        return t
    return t.detach().requires_grad_(requires_grad)


@dataclass(eq=False)
class RecordedBackward:
    """Torch's graph of a backward, or of a derivative of one: ``gradients`` of ``inputs``."""

    name: str
    inputs: list[torch.Tensor | None]
    gradients: tuple[torch.Tensor, ...]

    def differentiate(
        self, wanted: Sequence[int], cotangents: Tensors, create_graph: bool = False
    ) -> tuple[torch.Tensor, ...]:
        """Return the gradients of the inputs at the places ``wanted``."""
        inputs = [t for i in wanted if (t := self.inputs[i]) is not None]
        self._refuse_others()
        pairs = [(r, g) for r, g in zip(self.gradients, cotangents, strict=True) if r.requires_grad]
        if not pairs:
            return tuple(torch.zeros_like(i) for i in inputs)
        return torch.autograd.grad(
            [r for r, _ in pairs],
            inputs,
            [g for _, g in pairs],
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )

    def differentiated(self, wanted: Sequence[int], cotangents: Tensors) -> RecordedBackward:
        """Return torch's graph of that derivative."""
        leaves = [c.detach().requires_grad_() for c in cotangents]
        gradients = self.differentiate(wanted, leaves, create_graph=True)
        return RecordedBackward(self.name, [*self.inputs, *leaves], gradients)

    def _refuse_others(self) -> None:
        """Raise UnsupportedProgram if a gradient flows to a tensor that is not an argument."""
        own = {id(t) for t in self.inputs if t is not None}
        nodes = [g.grad_fn for g in self.gradients if g.grad_fn is not None]
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            if hasattr(node, "variable") and id(node.variable) not in own:
                raise UnsupportedProgram(
                    f"a second derivative through the backward of {self.name}, which reads a tensor that "
                    "requires grad and is not an argument of the function",
                    hint="Pass the tensor to the function, and save it for the backward.",
                )
            new = {n for n, _ in node.next_functions if n is not None} - seen
            seen |= new
            nodes += new


# -- the operators -------------------------------------------------------------------------------------------


def _objects_meta() -> AnyProxy:
    return AnyProxy()


def _begin_meta(backward: EagerBackward, shapes: Any, objects: Any = None) -> AnyProxy:
    return AnyProxy()


def _gradients_meta(of: EagerBackward) -> tuple[TensorProxy, ...]:
    return tuple(TensorProxy(shape=a.shape, dtype=a.dtype, device=a.device) for a in of.wanted)


def _run_meta(call: Any, of: EagerBackward, tensors: Any, cotangents: Any) -> tuple[TensorProxy, ...]:
    return _gradients_meta(of)


def _run(call: BackwardCall, of: EagerBackward, tensors: Any, cotangents: Any) -> tuple[torch.Tensor, ...]:
    return call.run(tensors, cotangents)


def _record_meta(call: Any, of: EagerBackward, tensors: Any, cotangents: Any, wanted: Any) -> Any:
    return _gradients_meta(of), AnyProxy()


def _record(call: BackwardCall, of: EagerBackward, tensors: Any, cotangents: Any, wanted: Any) -> Any:
    places = set(wanted)
    with torch.enable_grad():
        inputs = [
            t.detach().requires_grad_() if i in places else t for i, t in enumerate((*tensors, *cotangents))
        ]
        count = len(tensors)
        gradients = call.run(inputs[:count], inputs[count:])
    recorded = RecordedBackward(of.name, inputs, gradients)
    return tuple(g.detach() for g in gradients), recorded


def _differentiate_meta(recorded: Any, inputs: Any, wanted: Any, cotangents: Any) -> tuple[TensorProxy, ...]:
    return tuple(TensorProxy(like=inputs[i]) for i in wanted)


def _differentiate(
    recorded: RecordedBackward, inputs: Any, wanted: Any, cotangents: Any
) -> tuple[torch.Tensor, ...]:
    return recorded.differentiate(wanted, cotangents)


def _record_again_meta(recorded: Any, inputs: Any, wanted: Any, cotangents: Any) -> Any:
    return _differentiate_meta(recorded, inputs, wanted, cotangents), AnyProxy()


def _record_again(recorded: RecordedBackward, inputs: Any, wanted: Any, cotangents: Any) -> Any:
    with torch.enable_grad():
        again = recorded.differentiated(wanted, cotangents)
    return tuple(g.detach() for g in again.gradients), again


def _put_derivatives(recorded: Any, inputs: tuple[Any, ...], gradients: Any) -> Any:
    """Record the gradients of ``inputs`` through a graph of ``gradients``, and return these."""
    places = _tracked(inputs)
    derivatives = differentiate_backward(recorded, inputs, places, tuple(map(get_grad, gradients)))
    for i, gradient in zip(places, derivatives, strict=True):
        put_grad(inputs[i], gradient)
    return gradients


def _tracked(inputs: Sequence[Any]) -> tuple[int, ...]:
    return tuple(i for i, t in enumerate(inputs) if requires_grad(t))


def _rule(call: Any, of: EagerBackward, tensors: Any, cotangents: Any) -> Any:
    inputs = (*tensors, *cotangents)
    gradients, recorded = record_backward(call, of, tensors, cotangents, _tracked(inputs))
    return _put_derivatives(recorded, inputs, gradients)


def _rule_again(recorded: Any, inputs: Any, wanted: Any, cotangents: Any) -> Any:
    gradients, again = record_derivative(recorded, inputs, wanted, cotangents)
    return _put_derivatives(again, (*inputs, *cotangents), gradients)


_TAGS = (OpTags.DONT_DCE, OpTags.DONT_RECOMPUTE_IN_BACKWARD)
_ONCE = (OpTags.DONT_RECOMPUTE_IN_BACKWARD,)

#: the objects that the backwards of one call of the program share
begin_objects = primitive("begin_objects", _objects_meta, eager=dict, tags=_ONCE)
#: the state that the backwards of one forward share; it has no effect
begin_backward = primitive(
    "begin_backward", _begin_meta, eager=BackwardCall, tags=(*_ONCE, OpTags.SKIPPED_EARLY)
)
#: a backward of it, of which torch records a graph for another derivative
record_backward = primitive("record_backward", _record_meta, eager=_record, tags=_TAGS)
#: the derivative of such a graph, in the tensors at the places ``wanted``; below, with a graph again
differentiate_backward = primitive(
    "differentiate_backward",
    _differentiate_meta,
    eager=_differentiate,
    tags=_ONCE,
    vjp=JointRule(_rule_again),
)
record_derivative = primitive("record_derivative", _record_again_meta, eager=_record_again, tags=_ONCE)
#: a backward of it: the gradients of the arguments that require grad
run_backward = primitive("run_backward", _run_meta, eager=_run, tags=_TAGS, vjp=JointRule(_rule))
