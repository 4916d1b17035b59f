"""`thunder.trace`: the trace of a function that is called with proxies, without the interpreter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from thunder.base.autocast_state import autocast_now
from thunder.base.langctx import current_language, using_language
from thunder.base.pytree import tree_flatten, tree_iter, tree_unflatten
from thunder.compiler.running_compile import running_compile
from thunder.frontend.active_modes import mode_below
from thunder.frontend.lookasides.mode_regions import FACTORIES, with_defaults
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.recorder import AdaptedCall, Recorder
from thunder.ir.symbol import Symbol
from thunder.ir.trace import TraceCtx, TraceProvenance, get_tracectx, is_tracing, tracectx
from thunder.ops import prims
from thunder.passes.dce import dce
from thunder.torch.autocast import Autocast

__all__ = ["trace"]


def trace(
    *,
    inline_trace: bool = True,
    rename_proxies: bool = True,
    include_return_statement: bool = True,
    use_dce: bool = True,
) -> Callable[..., Any]:
    """Return a function that traces its first argument on the others: `trace()(fn, *args, **kwargs)`.

    `fn` is called with a proxy for each tensor in the arguments; the proxies are the inputs of the trace, and
    other values are constants of it. The interpreter takes no part: functions of torch, `thunder.torch` and
    `thunder.core.prims` are recorded that `fn` calls on proxies, or that create tensors, and nothing is
    guarded. They are recorded as `jit` does under the modes that are on: with autocast's casts, and with the
    default dtype and device. The trace computes values without gradients.

        program = thunder.trace()(lambda x, y: ltorch.add(x, y), a, b)
        program = transform_for_execution(program, thunder.get_always_executors())
        program.python_callable()(a, b)

    Args:
        inline_trace: whether a call under another trace is recorded into that one, and returns `fn`'s result.
        rename_proxies: whether proxies among the arguments get the names of `fn`'s parameters.
        include_return_statement: whether the trace ends by returning `fn`'s result.
        use_dce: whether calls whose results are not read are dropped.
    """

    def traced(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if inline_trace and is_tracing():
            return fn(*args, **kwargs)
        program = TraceCtx(fn)
        # while a program is compiled, autocast's casts are operators of it already
        recorder = _FunctionRecorder() if running_compile() is None else None
        with tracectx(program, recorder=recorder), using_language(None), mode_below(_Factories()):
            names: dict[int, list[str]] = {}
            for key, name in _names_of_arguments(fn, args, kwargs):
                names.setdefault(key, []).append(name)
            leaves, spec = tree_flatten((args, kwargs))
            inputs = [_input(program, leaf, names.get(id(leaf), []), rename_proxies) for leaf in leaves]
            program.args = [x for x in inputs if is_proxy(x)]
            new_args, new_kwargs = tree_unflatten(inputs, spec)
            result = fn(*new_args, **new_kwargs)
            if include_return_statement:
                prims.python_return(result)
        program.set_provenance(TraceProvenance("Tracing"))
        return dce(program, [x for x in tree_iter(result) if is_proxy(x)]) if use_dce else program

    return traced


class _FunctionRecorder(Recorder):
    """Records calls with the casts of the autocast that is on, and changes of the default dtype."""

    def __init__(self) -> None:
        self._autocast, self._state = Autocast(), autocast_now()
        self._dtype = torch.get_default_dtype()

    def adapt_call(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AdaptedCall:
        """Return the call with casts; those of weights are kept while autocast stays as it is."""
        state = autocast_now()
        if state != self._state:
            self._autocast.forget()
            self._state = state
        dtype = torch.get_default_dtype()
        if dtype is not self._dtype:
            self._dtype = dtype
            prims.set_default_dtype(dtype)
        return self._autocast.adapt_call(symbol, args, kwargs)


class _Factories(TorchFunctionMode):
    """Records calls of torch that create tensors, which no proxy sees."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        symbol = current_language().resolve(func) if func in FACTORIES else None
        trace = get_tracectx()
        is_of_function = trace is not None and len(trace.open_scopes) == 1  # and not of an operator's rule
        reads_tensor = any(isinstance(x, torch.Tensor) for x in tree_iter((args, kwargs)))
        if symbol is None or not is_of_function or reads_tensor or kwargs.get("requires_grad"):
            return func(*args, **kwargs)
        return symbol(*args, **with_defaults(func, kwargs, torch.float32))


def _names_of_arguments(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[int, str]]:
    """Yield the id of each leaf of the arguments, and the parameter that it came through."""
    try:
        arguments = inspect.signature(fn).bind(*args, **kwargs).arguments
    except ValueError:  # a function written in C without a signature
        arguments = dict(kwargs)
    for name, value in arguments.items():
        for leaf in tree_iter(value):
            yield id(leaf), name


def _input(trace: TraceCtx, leaf: Any, names: list[str], rename: bool) -> Any:
    """Return the proxy of a tensor or proxy among the arguments; other values unchanged.

    Its name is the first of `names`, which is removed: an object may be several arguments.
    """
    if not is_proxy(leaf) and not isinstance(leaf, torch.Tensor):
        return leaf
    if is_proxy(leaf) and not rename:
        trace.add_name(leaf.name)
        return leaf
    name = trace.make_derived_name(names.pop(0)) if names else trace.make_name()
    if is_proxy(leaf):
        return leaf.replace(name=name)
    strides = leaf.stride() if leaf.layout is torch.strided else None
    with tracectx(None):  # the name is taken already
        return TensorProxy(name, like=leaf, strides=strides, declared_leaf=leaf.is_leaf)
