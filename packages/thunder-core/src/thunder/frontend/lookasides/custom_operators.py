"""Operators that user code registered with torch (``torch.library``).

Each becomes a primitive ``<namespace>_<name>``, with the gradient of ``register_autograd``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._subclasses.functional_tensor import FunctionalTensorMode

from thunder.base.autocast_state import AUTOCAST_DEVICES, autocast_kinds, autocast_now
from thunder.base.errors import UnsupportedOperator
from thunder.base.langctx import unknown_torch_function
from thunder.base.pytree import tree_flatten, tree_iter, tree_map, tree_unflatten
from thunder.base.tags import OpTags
from thunder.base.torch_versions import autocast_dtypes
from thunder.frontend.custom_gradients.custom_call import CustomGradient, call_with_custom_gradient
from thunder.frontend.custom_gradients.function_context import context_class
from thunder.frontend.inner_gradients.recorded_gradients import grad_mode
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.operator_calls.writing_operators import call_writing
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import Symbol
from thunder.ops.library_operators import operator_symbol
from thunder.ops.operator import row_of, symbol_of
from thunder.torch.autocast import is_eligible
from thunder.torch.fallback.unknown_functions import may_fall_back
from thunder.torch.namespace import ltorch
from thunder.torch.sized_calls import record_sized, register_sized

TABLE = LookasideTable(COMPUTES)

Overload = torch._ops.OpOverload


@TABLE.lookaside(CustomOpDef.__call__)
def _call_definition(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    definition, *given = args
    return session.call(session.load_attr(definition, "_opoverload"), tuple(given), kwargs)


def call_custom(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of a custom operator.

    Raises UnsupportedOperator, with its name, for one that cannot be traced.
    """
    op = _overload(fn)
    args, kwargs = _by_schema(op, args, kwargs)
    definition = _definition(session, op)
    _check(op, definition, (args, kwargs))
    body = _traced_body(session, op, definition)
    if body is not None:
        return _call_body(session, op, definition, body, args, kwargs)
    if op._schema.is_mutable:
        if definition is None and any(map(requires_grad, tree_iter((args, kwargs)))):
            _refuse_own_gradient(op)
        return call_writing(session, op, args, kwargs)
    if definition is None and _runs_as_it_is(session, op, args):
        return unknown_torch_function(op)(*args, **kwargs)
    args, symbol = _under_autocast(op, definition, args, kwargs)
    backward = session.instance_attr(definition, "_backward_fn") if definition is not None else None
    if backward is None or not any(map(requires_grad, tree_iter(args))):
        return _record(symbol, args, kwargs)
    setup = session.instance_attr(definition, "_setup_context_fn")
    return _OperatorCall(session, symbol.name, symbol.id, symbol, args, kwargs, setup, backward).run()


def _traced_body(session: TracingSession, op: Overload, definition: CustomOpDef | None) -> Any:
    """Return the function of an operator that torch's tracers take apart, as it launches kernels; else None.

    Such an operator has a rule for functionalisation, and its fake implementation is its function.
    """
    entry = torch._library.simple_registry.singleton.find(op._schema.name)
    if definition is None or entry.torch_dispatch_rules.find(FunctionalTensorMode) is None:
        return None
    return session.instance_attr(definition, "_abstract_fn")


def _call_body(
    session: TracingSession,
    op: Overload,
    definition: CustomOpDef | None,
    body: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Trace the function of an operator in its place, with the gradient of the operator."""
    if definition is not None and autocast_kinds() and autocast_dtypes(definition):
        raise UnsupportedOperator(
            f"the operator {op._schema.name} launches kernels and has a rule for autocast, which is on",
            hint="Cast its arguments, and call it under torch.autocast(…, enabled=False).",
        )

    def compute(*args: Any, **kwargs: Any) -> Any:
        with grad_mode(False):
            return session.call(body, args, kwargs)

    backward = session.instance_attr(definition, "_backward_fn")
    if backward is None or not any(map(requires_grad, tree_iter(args))):
        return compute(*args, **kwargs)
    setup = session.instance_attr(definition, "_setup_context_fn")
    name = op._schema.name.replace("::", "_")
    return _OperatorCall(session, name, op._schema.name, compute, args, kwargs, setup, backward).run()


def _record(symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call; sizes that depend on data are a decision."""
    try:
        return symbol(*args, **kwargs)
    except UnsupportedOperator as error:
        if "sizes" not in error.facts:
            raise
    row = row_of(symbol)
    kernel: Any = None if row is None else row.eager
    assert kernel is not None, "the row of a custom operator has its kernel"
    row_id = f"sized.{symbol.id}"
    sized = row_of(row_id)
    if sized is None or getattr(sized.eager, "__wrapped__", None) is not kernel:
        random = (OpTags.RANDOM_OP,) if OpTags.RANDOM_OP in symbol.tags else ()
        register_sized(row_id, kernel, replace=sized is not None, tags=random)
    return record_sized(symbol_of(row_id), kernel, args, kwargs)


def _overload(fn: Any) -> Overload:
    if isinstance(fn, Overload):
        return fn
    overloads = fn.overloads()
    if len(overloads) > 1:
        raise UnsupportedOperator(
            f"{fn} has several overloads",
            found={"overloads": ", ".join(overloads)},
            hint=f"Call one of them: {fn}.{overloads[0]}(…).",
        )
    return getattr(fn, overloads[0])  # type: ignore[no-any-return]


def _by_schema(
    op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with defaults: keyword-only ones by name, the others by position."""
    positional, keywords = list(args), {}
    left = dict(kwargs)
    for i, argument in enumerate(op._schema.arguments):
        name = argument.name
        if not argument.kwarg_only and i < len(args):
            continue
        if name not in left and not argument.has_default_value():
            raise TypeError(f"{op._schema.name}() is missing value for argument '{name}'")
        value = left.pop(name) if name in left else argument.default_value
        if argument.kwarg_only:
            keywords[name] = value
        else:
            positional.append(value)
    if left or len(positional) > sum(not a.kwarg_only for a in op._schema.arguments):
        lacking = ", ".join(left) or "positional ones"
        raise TypeError(f"{op._schema.name}() got arguments that its schema lacks ({lacking}): {op._schema}")
    return tuple(positional), keywords


def _definition(session: TracingSession, op: Overload) -> CustomOpDef | None:
    """Return the operator's definition by ``custom_op``, whose reads are guarded, or None."""
    definition = OPDEFS.get(op._schema.name)
    if definition is None:
        return None
    objects = session.objects
    path = objects.path_of(definition) or objects.object_root(definition, op._schema.name)
    tracked: CustomOpDef = objects.adopt(definition, path)
    return tracked


# -- what can be traced --------------------------------------------------------------------------------------


def _check(op: Overload, definition: CustomOpDef | None, arguments: Any) -> None:
    schema, name = op._schema, op._schema.name
    views = [a.alias_info for a in (*schema.arguments, *schema.returns) if a.alias_info is not None]
    if not all(alias.is_write for alias in views):
        raise UnsupportedOperator(
            f"the operator {name} returns memory of its arguments",
            found={"schema": schema},
            hint="Register a form of it that returns a new tensor.",
        )
    if not any(isinstance(a, TensorProxy) for a in tree_iter(arguments)):
        raise UnsupportedOperator(
            f"the operator {name} is called without a tensor argument",
            hint="Call it outside the compiled function, and pass the result.",
        )
    if not _has_fake(op, definition):
        raise UnsupportedOperator(
            f"the operator {name} has no fake implementation, so the metadata of its results are unknown",
            hint=f'Register one: torch.library.register_fake("{name}").',
        )


def _has_fake(op: Overload, definition: CustomOpDef | None) -> bool:
    if all(r.alias_info is not None for r in op._schema.returns):
        return True  # it returns nothing, or its arguments
    if definition is not None:
        return definition._abstract_fn is not None
    keys = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in keys)


#: keys of kernels whose gradient torch's autograd has, first that of composites
_AUTOGRAD_KEYS = ("CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradCUDA")


def _runs_as_it_is(session: TracingSession, op: Overload, args: tuple[Any, ...]) -> bool:
    """Return whether torch runs a call of a library's operator as it is, with its own gradient.

    These are composites, which may draw random numbers, and kernels for autograd whose gradient is needed.
    """
    needs_grad = torch.is_grad_enabled() and any(map(requires_grad, tree_iter(args)))
    keys = _AUTOGRAD_KEYS if needs_grad else _AUTOGRAD_KEYS[:1]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return may_fall_back(session.language) and any(has_kernel(op.name(), key) for key in keys)


def _refuse_own_gradient(op: Overload) -> None:
    """Refuse an operator that writes, where torch's autograd has its gradient."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    if torch.is_grad_enabled() and any(has_kernel(op.name(), key) for key in _AUTOGRAD_KEYS):
        raise UnsupportedOperator(
            f"the operator {op._schema.name} writes to its arguments, has a gradient of its own, and an "
            "argument requires grad",
            found={"schema": op._schema},
            hint="Call it under torch.no_grad(), or register a functional form.",
        )


# -- under autocast ------------------------------------------------------------------------------------------


def _under_autocast(
    op: Overload, definition: CustomOpDef | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Symbol]:
    """Return the positional arguments, cast as by ``register_autocast``, and the primitive of a call.

    In eager, the kernel of an operator without a rule runs under autocast, and so it does here: its results
    are checked against its fake implementation. Raises UnsupportedOperator for a rule written by hand.
    """
    kinds = {
        t.device.type for t in tree_iter((args, kwargs)) if isinstance(t, TensorProxy)
    } & autocast_kinds()
    if not kinds:
        return args, operator_symbol(op)
    dtypes = autocast_dtypes(definition) if definition is not None else {}
    for kind in (kind for kind in AUTOCAST_DEVICES if kind in kinds):
        if kind in dtypes:
            return tree_map(lambda x: _cast(x, kind, dtypes[kind]), args), operator_symbol(op)  # noqa: B023
        if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), f"Autocast{kind.upper()}"):
            raise UnsupportedOperator(
                f"the operator {op._schema.name} has a rule for autocast, which is on",
                hint="Cast its arguments, and call it under torch.autocast(…, enabled=False).",
            )
    return args, operator_symbol(op, autocast_now())


def _cast(x: Any, kind: str, dtype: torch.dtype) -> Any:
    is_cast = isinstance(x, TensorProxy) and x.device.type == kind and is_eligible(x)
    return ltorch.to(x, dtype) if is_cast else x


# -- its gradient --------------------------------------------------------------------------------------------


class _OperatorCall:
    """A call of an operator with ``register_autograd`` (Note [Custom gradients]).

    Where an argument or a result is a list of tensors, ``setup_context`` and ``backward`` see lists;
    ``needs_input_grad`` is flat in the one and has lists in the other, as in eager.
    """

    def __init__(
        self,
        session: TracingSession,
        name: str,
        key: str,
        compute: Callable[..., Any],
        args: Any,
        kwargs: Any,
        setup: Any,
        backward: Any,
    ) -> None:
        self.session, self.name, self.key, self.compute = session, name, key, compute
        self.args, self.kwargs, self.setup, self.backward = args, kwargs, setup, backward
        self.inputs = [i for a in args for i in (a if _is_list(a) else (a,))]
        self.context = context_class(name)(tuple(map(requires_grad, self.inputs)))
        session.created_by_program[id(type(self.context))] = type(self.context)  # it never changes: no guards
        self.single, self.spec = False, tree_flatten(())[1]

    def run(self) -> Any:
        """Trace the call, and return what the operator returns."""
        results = call_with_custom_gradient(
            self.session,
            CustomGradient(
                name=f"{self.name}_autograd",  # a text names the operator alone too
                id=self.session.unique_id(f"custom_operator.{self.name}"),
                key=self.key,
                inputs=self.inputs,
                context=self.context,
                forward=self._forward,
                backward=self._backward,
                function=lambda: self.backward,
                adapt=self._adapted,
            ),
        )
        output = tree_unflatten(results, self.spec)
        return output[0] if self.single else output

    def _forward(self) -> tuple[Any, ...]:
        output = self.compute(*self.args, **self.kwargs)
        self.session.read_lists(output)
        if self.setup is not None:
            keywords = {"keyword_only_inputs": self.kwargs} if self.kwargs else {}
            arguments = {"ctx": self.context, "inputs": self.args, **keywords, "output": output}
            self.session.call(self.setup, (), arguments)
        self.single = not isinstance(output, tuple)
        leaves, self.spec = tree_flatten((output,) if self.single else output)
        return tuple(leaves)

    def _backward(self, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        arguments = tree_unflatten(cotangents, self.spec)
        outside, self.context.needs_input_grad = self.context.needs_input_grad, self._needs()
        gradients = self.session.call(self.backward, (self.context, *arguments), {})
        self.context.needs_input_grad = outside
        return _flat_gradients(gradients, self._lengths())

    def _needs(self) -> tuple[Any, ...]:
        return tuple([*map(requires_grad, a)] if _is_list(a) else requires_grad(a) for a in self.args)

    def _lengths(self) -> tuple[int | None, ...]:
        """Return how many tensors each argument has; None if it is not a list of tensors."""
        return tuple(len(a) if _is_list(a) else None for a in self.args)

    def _adapted(self, backward: Any) -> Any:
        needs, spec, lengths = self._needs(), self.spec, self._lengths()

        def adapted(context: Any, *cotangents: Any) -> tuple[Any, ...]:
            context.needs_input_grad = needs
            return _flat_gradients(backward(context, *tree_unflatten(cotangents, spec)), lengths)

        return adapted


def _flat_gradients(gradients: Any, lengths: Sequence[int | None]) -> tuple[Any, ...]:
    """Return the gradients that a backward returned, with those of lists in one sequence."""
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    flat: list[Any] = []
    for i, gradient in enumerate(gradients):
        length = lengths[i] if i < len(lengths) else None
        if length is None:
            flat.append(gradient)
        elif gradient is None or len(gradient) == length:
            flat.extend(gradient or [None] * length)
        else:
            raise RuntimeError(
                f"Expected the return from backward to be of the same structure as the inputs. Got: "
                f"{len(gradient)} gradients of the list at position {i}, {length} tensors (inputs)"
            )
    return tuple(flat)


def _is_list(x: Any) -> bool:
    return isinstance(x, list | tuple) and bool(x) and all(isinstance(i, TensorProxy) for i in x)
