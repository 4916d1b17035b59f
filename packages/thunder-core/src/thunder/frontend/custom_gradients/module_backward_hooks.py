"""Backward hooks of modules in the traced program: ``register_full_backward_hook`` and its ``_pre_hook``.

Note [Backward hooks of modules]
Torch lets the inputs and the outputs of such a module pass an identity each, whose nodes call the hooks. The
node of the outputs gets the gradients of the outputs, and keeps them for the node of the inputs. In a trace
they go from one to the other as gradients of tensors of the outputs' shapes, whose values are not read:

    y = module(x)     →     x, link = module_inputs(x)          # gradients: hooks(module, (g_x,), (g_link,))
                            y = module.forward(x)
                            y = module_outputs(y, link)         # gradients: g_y for y, and g_y for link

The hooks are called as they are when the backward runs, as other backwards that read state are; where the
program runs the backward, they are interpreted.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.hooks import BackwardHook

from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.frontend.custom_gradients.custom_call import CustomGradient, call_with_custom_gradient
from thunder.frontend.custom_gradients.function_context import context_class
from thunder.frontend.custom_gradients.recorded_memory import written_names
from thunder.frontend.epilogue.subtrace import recorded, uses_and_definitions
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import HOOKS_TENSOR, OTHER
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.substitution import substitute
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(HOOKS_TENSOR)


class HookedModules(SessionState):
    """The identities of a program.

    ``places`` has the statements that hold the places of those of inputs, by the id of torch's BackwardHook.
    ``results`` are the results of all.
    """

    def __init__(self, session: TracingSession) -> None:
        self.places: dict[int, tuple[Any, list[BoundSymbol]]] = {}
        self.results: list[TensorProxy] = []

    def check(self, ending: Ending) -> None:
        """Raise torch's error for a write in place to what a module with such hooks is passed or returns."""
        results = {p.name for p in self.results}
        for bsym in self._session.trace.bound_symbols if results else ():
            if not results.isdisjoint(written_names(bsym)):
                raise OperatorError(
                    "Output 0 of BackwardHookFunction is a view and is being modified inplace",
                    where=bsym.locations,
                    hint="Use the out-of-place form (such as ReLU(inplace=False)).",
                )
            results |= {view.output.name for view in views_of(bsym) if view.source.name in results}


@TABLE.lookaside(BackwardHook.setup_input_hook)
def _setup_input_hook(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    hook, inputs = args
    hook.n_inputs = len(inputs)
    hook.input_tensors_index = _tracked(inputs)
    if hook.input_tensors_index is None:
        return inputs
    start = len(session.trace.peek_scope())
    passed = _replaced(inputs, {i: prims.shallow_copy(inputs[i]) for i in hook.input_tensors_index})
    hooked = session.state(HookedModules)
    hooked.places[id(hook)] = hook, session.trace.peek_scope()[start:]
    hooked.results += (passed[i] for i in hook.input_tensors_index)
    return passed


@TABLE.lookaside(BackwardHook.setup_output_hook)
def _setup_output_hook(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    hook, returned = args
    outputs = returned if isinstance(returned, tuple) else (returned,)
    hook.n_outputs = len(outputs)
    hook.output_tensors_index = _tracked(outputs)
    if hook.output_tensors_index is None:
        return returned
    tensors = [outputs[i] for i in hook.output_tensors_index]
    links = _link_inputs(session, hook, tensors)
    results = _identity(
        session,
        f"{type(hook.module).__name__}_outputs",
        (*tensors, *links),
        lambda: tuple(tensors),
        functools.partial(
            _output_gradients,
            hook.module,
            tuple(hook.user_hooks),
            tuple(hook.user_pre_hooks),
            hook.n_inputs,
            tuple(hook.output_tensors_index),
            hook.n_outputs,
            bool(links),
        ),
        traced=not hook.user_pre_hooks and bool(links),
    )
    session.state(HookedModules).results += results
    passed = _replaced(outputs, dict(zip(hook.output_tensors_index, results, strict=True)))
    return passed if isinstance(returned, tuple) else passed[0]


def _tracked(values: Sequence[Any]) -> list[int] | None:
    """Return the places of the tensors that require grad; None if there are none."""
    places = [i for i, v in enumerate(values) if isinstance(v, TensorProxy) and requires_grad(v)]
    return places if places and torch.is_grad_enabled() else None


def _replaced(values: tuple[Any, ...], by: dict[int, Any]) -> tuple[Any, ...]:
    """Return a tuple with other values at some places."""
    items = [by.get(i, value) for i, value in enumerate(values)]
    return tuple(items) if type(values) is tuple else type(values)(*items)


def _link_inputs(session: TracingSession, hook: Any, outputs: Sequence[TensorProxy]) -> tuple[Any, ...]:
    """Record the identity of a module's inputs at its place, and return the tensors that link it."""
    _, places = session.state(HookedModules).places.pop(id(hook), (None, []))
    if not places:
        return ()
    inputs, passed = [b.args[0] for b in places], [b.output for b in places]
    with recorded(session.trace) as calls:
        results = _identity(
            session,
            f"{type(hook.module).__name__}_inputs",
            tuple(inputs),
            lambda: (*inputs, *map(link, outputs)),
            functools.partial(
                _input_gradients,
                hook.module,
                tuple(hook.user_hooks),
                tuple(hook.input_tensors_index),
                hook.n_inputs,
                tuple(hook.output_tensors_index),
                hook.n_outputs,
            ),
            traced=False,
        )
    scope = session.trace.peek_scope()
    start = next((i for i, b in enumerate(scope) if b is places[0]), None)
    read = uses_and_definitions(calls)[0].keys()
    if start is None or any(not read.isdisjoint(p.name for p in b.flat_proxy_outs) for b in scope[start:]):
        raise UnsupportedProgram(
            f"a backward hook of {type(hook.module).__name__} reads what is computed after its inputs",
            hint="Register the hook outside of the compiled function.",
        )
    names = {new.name: old for new, old in zip(results, passed, strict=False)}
    scope[start : start + len(places)] = [substitute(b, names) for b in calls]
    return results[len(inputs) :]


def link(output: TensorProxy) -> Any:
    """Return a tensor of the shape of a result, whose gradient will be that of the result."""
    zero = ltorch.zeros((), dtype=output.dtype.torch_dtype, device=output.device)
    return ltorch.expand(zero, output.shape)


def _identity(
    session: TracingSession,
    name: str,
    inputs: tuple[Any, ...],
    forward: Callable[[], tuple[Any, ...]],
    gradients: functools.partial[Any],
    *,
    traced: bool,
) -> tuple[Any, ...]:
    """Record a call of the inputs or outputs of a module, with its gradients."""
    context = context_class(name)(tuple(map(requires_grad, inputs)))
    context.materialize_grads = False

    def backward(cotangents: Sequence[Any]) -> Any:
        if not traced:  # the program itself runs it
            session.place.check(OTHER, f"{name} calls the hooks of a module")
            return gradients(*cotangents, call=lambda hook, *values: session.call(hook, values, {}))
        return (*cotangents, *cotangents)

    return call_with_custom_gradient(
        session,
        CustomGradient(
            name=name,
            id=session.unique_id(f"module_hooks.{name}"),
            key=(HookedModules, name),
            inputs=inputs,
            context=context,
            forward=forward,
            backward=backward,
            function=lambda: gradients,
            adapt=lambda function: lambda ctx, *cotangents: function(*cotangents),
        ),
    )


# -- when the backward runs ----------------------------------------------------------------------------------


_FIRES_FOR_OUTPUTS = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
    "require gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
    "#torch.nn.Module.register_full_backward_hook for more details."
)


def _packed(places: Sequence[int], gradients: Sequence[Any], size: int) -> tuple[Any, ...]:
    """Return gradients at their places among ``size`` values, None at the others."""
    packed: list[Any] = [None] * size
    for place, gradient in zip(places, gradients, strict=True):
        packed[place] = gradient
    return tuple(packed)


def _called(hook: Callable[..., Any], *values: Any) -> Any:
    return hook(*values)


def _output_gradients(
    module: Any,
    hooks: Sequence[Any],
    pre_hooks: Sequence[Any],
    n_inputs: int,
    places: Sequence[int],
    n_outputs: int,
    is_linked: bool,
    *cotangents: Any,
    call: Callable[..., Any] = _called,
) -> tuple[Any, ...]:
    """Return the gradients of a module's outputs, and of its links, as torch's BackwardHook does."""
    if any(g is None for g in cotangents):
        raise UnsupportedProgram(
            f"a backward hook of {type(module).__name__}, of which an output has no gradient",
            hint="Use all outputs of the module that require grad, or hooks on tensors.",
        )
    gradients = _packed(places, cotangents, n_outputs)
    for hook in pre_hooks:
        returned = call(hook, module, gradients)
        if returned is not None and len(returned) != n_outputs:
            raise RuntimeError(
                "Backward pre hook returned an invalid number of grad_output, "
                f"got {len(returned)}, but expected {n_outputs}"
            )
        gradients = gradients if returned is None else returned
    own = tuple(gradients[i] for i in places)
    if is_linked:
        return (*own, *own)
    warnings.warn(_FIRES_FOR_OUTPUTS, stacklevel=2)
    for hook in hooks:
        returned = call(hook, module, (None,) * n_inputs, gradients)
        if returned is not None and not (isinstance(returned, tuple) and all(g is None for g in returned)):
            raise RuntimeError(
                "Backward hook for Modules where no input requires gradient should always return None or "
                "None for all gradients."
            )
    return own


def _input_gradients(
    module: Any,
    hooks: Sequence[Any],
    places: Sequence[int],
    n_inputs: int,
    output_places: Sequence[int],
    n_outputs: int,
    *cotangents: Any,
    call: Callable[..., Any] = _called,
) -> tuple[Any, ...]:
    """Return the gradients of a module's inputs, as torch's BackwardHook does, and None for the links."""
    gradients = _packed(places, cotangents[: len(places)], n_inputs)
    links = cotangents[len(places) :]
    if any(g is not None for g in links):  # else the gradient is that of a value inside of the module
        outputs = _packed(output_places, links, n_outputs)
        for hook in hooks:
            returned = call(hook, module, gradients, outputs)
            if returned is not None and len(returned) != n_inputs:
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, "
                    f"got {len(returned)}, but expected {n_inputs}"
                )
            gradients = gradients if returned is None else returned
    return (*(gradients[i] for i in places), *(None for _ in links))
