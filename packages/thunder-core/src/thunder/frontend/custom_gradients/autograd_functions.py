"""``torch.autograd.Function`` in the traced program (Note [Custom gradients])."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import FunctionMeta
from torch.autograd.function import once_differentiable as torch_once_differentiable

from thunder.base.errors import UnsupportedProgram
from thunder.base.torch_versions import FUNCTION_APPLY_TAKES_KEYWORDS, function_apply
from thunder.frontend.custom_gradients.backward_errors import once_differentiable
from thunder.frontend.custom_gradients.custom_call import CustomGradient, call_with_custom_gradient
from thunder.frontend.custom_gradients.function_context import context_class
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.types import tensors
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.torch.autocast import is_interpreted

TABLE = LookasideTable(COMPUTES)


class OwnTangents(SessionState):
    """The ids of the calls of functions that have a ``jvp``."""

    def __init__(self, session: TracingSession) -> None:
        self.ids: set[str] = set()


@TABLE.lookaside(function_apply())
def _apply(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    cls, *rest = args
    operator = session.language.functions.get(cls.apply)
    if operator is not None and not is_interpreted(cls.apply, operator):  # an executor replaces it
        return tensors.call_symbol(session, operator, tuple(rest), kwargs)
    forward = _static(session, cls, "forward")
    setup = session.load_attr(cls, "setup_context")
    separate = setup is not Function.setup_context
    inputs = _bound(cls, forward, rest, kwargs, separate) if kwargs or separate else tuple(rest)
    context = context_class(cls.__name__)(tuple(map(requires_grad, inputs)))
    session.created_by_program[id(type(context))] = type(context)  # it never changes: no guards
    identifier = session.unique_id(f"autograd_function.{cls.__module__}.{cls.__qualname__}")
    if session.load_attr(cls, "jvp") is not Function.jvp:
        session.state(OwnTangents).ids.add(identifier)
    single = False

    def run_forward() -> tuple[Any, ...]:
        nonlocal single
        if separate:
            output = session.call(forward, inputs, {})
            session.call(setup, (context, inputs, output), {})
        else:
            output = session.call(forward, (context, *inputs), {})
        session.read_lists(output)
        single = not isinstance(output, tuple)
        return (output,) if single else tuple(output)

    results = call_with_custom_gradient(
        session,
        CustomGradient(
            name=cls.__name__,
            id=identifier,
            key=cls,
            inputs=inputs,
            context=context,
            forward=run_forward,
            backward=lambda cotangents: session.call(_backward(session, cls), (context, *cotangents), {}),
            function=lambda: _backward(session, cls),
        ),
    )
    return results[0] if single else results


def _static(session: TracingSession, cls: type, name: str) -> Any:
    raw = session.type_attr(cls, name)
    if not isinstance(raw, staticmethod | classmethod):
        raise UnsupportedProgram(
            f"{cls.__qualname__}.{name} of an autograd.Function is not a static method",
            hint="Write @staticmethod before it, and take ctx as the first argument.",
        )
    return session.load_attr(cls, name)


def _backward(session: TracingSession, cls: type) -> Any:
    backward, vjp = session.load_attr(cls, "backward"), session.load_attr(cls, "vjp")
    if backward is not Function.backward and vjp is not Function.vjp:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
            "implement one of them."
        )
    return vjp if vjp is not Function.vjp else backward


def _bound(
    cls: type, forward: Any, given: Sequence[Any], kwargs: dict[str, Any], separate: bool
) -> tuple[Any, ...]:
    """Return the arguments in the order of ``forward``'s parameters.

    With ``setup_context``, defaults are filled in.
    """
    signature = inspect.signature(forward)
    context = () if separate else (None,)
    if not (separate or FUNCTION_APPLY_TAKES_KEYWORDS):
        raise TypeError("apply() takes no keyword arguments")
    try:
        bound = signature.bind(*context, *given, **kwargs)
    except TypeError as error:
        raise TypeError(str(error) if separate else f"{forward.__name__}() {error}") from None
    passed = set(bound.arguments)
    if separate:
        bound.apply_defaults()
    if not FUNCTION_APPLY_TAKES_KEYWORDS:
        if kwargs:
            raise TypeError("apply() takes no keyword arguments")
        return bound.args  # torch drops the defaults of keyword-only parameters
    for name in bound.kwargs:
        raise TypeError(f"{forward.__name__}() got an unexpected keyword argument {name!r}")
    for name, value in bound.arguments.items():
        by_default = name not in passed and value not in ((), {})
        if by_default and type(value) not in LEAVES:
            raise UnsupportedProgram(
                f"{cls.__qualname__}.forward has a default of type {type(value).__name__} for {name!r}",
                hint="Pass the argument.",
            )
    return bound.args[len(context) :]


@TABLE.lookaside(FunctionMeta.__init__)
def _init_class(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Do the class statement of a Function inside the program, which numbers the class."""
    FunctionMeta.__init__(*args, **kwargs)


_ONCE = next(
    c for c in torch_once_differentiable.__code__.co_consts if inspect.iscode(c) and c.co_name == "wrapper"
)


@TABLE.closure_lookaside(_ONCE)
def _once_differentiable(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Trace a backward under ``once_differentiable``.

    Its gradients raise torch's error when they are differentiated.
    """
    wrapper, *given = args
    session.function_parts(wrapper)  # registers its closure
    fn = session.load_cell(wrapper.__closure__[_ONCE.co_freevars.index("fn")])
    differentiable = torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        gradients = session.call(fn, tuple(given), kwargs)
    if not differentiable:
        return gradients
    cotangents = [g for g in given if isinstance(g, TensorProxy)]

    def once(g: Any) -> Any:
        return once_differentiable(g, *cotangents) if isinstance(g, TensorProxy) else g

    return tuple(map(once, gradients)) if isinstance(gradients, tuple) else once(gradients)
