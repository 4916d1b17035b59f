"""Launches of users' kernels in traced programs: Note [Launches].

Note [Launches]
These functions are traced in the place of those of Triton, so what they read of a kernel, of the objects that
`triton.autotune` and `triton.heuristics` return, and of the user's functions for grids and heuristics, is
guarded as what the program itself reads. They are called with proxies, and end in one `run_kernel`:

    add_kernel[lambda meta: (cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=16)
    →   (t1,) = add_kernel(x, y, None, 40, 3); prims.copy_(t1, out)

The grid, and the values of heuristics, are computed once for each configuration of an autotuner. When the
program runs, the user's autotuner chooses one of them, as in eager and with the choices of eager.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics

from thunder.core.errors import UnsupportedOperator
from thunder.core.interpreter import make_opaque
from thunder.extend import run_kernel

from .kernel_effects import KernelEffects, effects_of

__all__ = ["constant", "launch"]


@make_opaque
def _effects(kernel: Any) -> KernelEffects:
    """Return what a kernel does; each call of a compiled program asks again."""
    return effects_of(kernel)


def launch(kernel: Any, /, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """Record a launch, `kernel.run(*args, grid=…, warmup=False, …)`, which `kernel[grid](*args, …)` calls.

    Raises UnsupportedOperator for what is no operator on the tensors that it is passed.
    """
    layers = _layers(kernel)
    base = layers[-1]
    name = base.fn.__name__
    if warmup:
        _refuse(name, "is compiled by warmup()", "Call warmup outside of the compiled function.")
    effects = _effects(base)
    bound = _bound(name, effects.parameters, args, kwargs)
    options = {key: value for key, value in kwargs.items() if key not in effects.parameters}
    tuner, variants = _variants(name, layers, bound, options, grid)
    dynamic = [key for key in bound if _is_dynamic(bound[key]) and key not in effects.constexprs]
    constants = {key: _constant(name, key, bound[key]) for key in bound if key not in dynamic}
    tensors = [key for key in bound if isinstance(bound[key], torch.Tensor)]
    written = _written(name, effects, tensors, layers)
    sizes = [size for variant in variants for size in variant.grid]
    run_kernel(
        name,
        Launch(base, tuner, variants, list(bound)[: len(args)], dynamic, constants, options),
        [*[bound[key] for key in dynamic], *sizes],
        [dynamic.index(key) for key in written],
    )


def constant(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a `triton.constexpr_function` such as `triton.cdiv` outside of a kernel."""
    values = [arg.value if isinstance(arg, tl.constexpr) else arg for arg in args]
    named = {key: arg.value if isinstance(arg, tl.constexpr) else arg for key, arg in kwargs.items()}
    return function.fn(*values, **named)


def _refuse(name: str, what: str, hint: str) -> None:
    raise UnsupportedOperator(f"the kernel {name} {what}", hint=hint)


def _layers(kernel: Any) -> list[Any]:
    """Return a kernel with the autotuners and heuristics around it, outermost first."""
    layers = [kernel]
    while isinstance(layers[-1], Autotuner | Heuristics):
        layers.append(layers[-1].fn)
    return layers


def _bound(name: str, parameters: tuple[str, ...], args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, as they were passed."""
    if len(args) > len(parameters):
        raise TypeError(f"{name} takes {len(parameters)} arguments, and got {len(args)}")
    bound = dict(zip(parameters, args, strict=False))
    for key, value in kwargs.items():
        if key in bound:
            raise TypeError(f"{name} got two values for its argument {key}")
        if key in parameters:
            bound[key] = value
    return bound


def _is_dynamic(value: Any) -> bool:
    """Return whether a value is an argument of the operator, and no part of it."""
    return isinstance(value, torch.Tensor) or (isinstance(value, int | float) and not isinstance(value, bool))


def _constant(name: str, key: str, value: Any) -> Any:
    """Return a value that is part of the operator."""
    if type(value) is tuple:
        return tuple([_constant(name, key, item) for item in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return value.__index__()  # a symbolic number becomes its value; `operator.index` would leave it
    if isinstance(value, float):
        return value.__float__()  # as well
    if isinstance(value, torch.Tensor) or _holds_tensors(value):
        _refuse(
            name,
            f"is launched with {key}={type(value).__name__}, which is no tensor and no number",
            "Pass the tensors themselves as arguments of the kernel.",
        )
    return value


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, list | dict) or hasattr(value, "base") or hasattr(value, "data_ptr")


# -- what a launch writes ------------------------------------------------------------------------------------


def _written(name: str, effects: KernelEffects, tensors: list[str], layers: list[Any]) -> list[str]:
    """Return the names of the tensors that a launch may write to."""
    written = [key for key in effects.passed_on if key in tensors]
    for store in effects.stores:
        found = [key for key in store if key in tensors]
        if not found:
            _refuse(name, "writes to memory that is no argument of it", "Pass the tensor.")
        written.extend(found)
    for pointer, if_any in effects.pointers:
        becomes_one = not if_any or any([key in tensors for key in if_any])
        if becomes_one and not any([key in tensors for key in pointer]):
            _refuse(name, "makes a pointer of a number", "Pass the tensor.")
    for layer in layers[:-1]:
        if isinstance(layer, Autotuner):
            written.extend(layer.reset_to_zero)
            hooks = layer.user_defined_pre_hook or layer.user_defined_post_hook
            if hooks or any([config.pre_hook is not None for config in layer.configs]):
                written.extend(tensors)
    if layers[-1].pre_run_hooks:
        written.extend(tensors)
    return [key for key in tensors if key in written]


# -- configurations ------------------------------------------------------------------------------------------


class Variant:
    """A configuration: the keywords of an autotuner's, the values of heuristics, and the grid."""

    def __init__(self, config: Any, values: dict[str, Any], grid: tuple[Any, ...]) -> None:
        self.config, self.values, self.grid = config, values, grid


def _variants(
    name: str, layers: list[Any], bound: dict[str, Any], options: dict[str, Any], grid: Any
) -> tuple[Any, list[Variant]]:
    """Return the autotuner among the layers, or None, and a variant for each of its configurations."""
    tuners = [layer for layer in layers if isinstance(layer, Autotuner)]
    if len(tuners) > 1:
        _refuse(name, "has two autotuners", "Use one triton.autotune.")
    configs: list[Any] = list(tuners[0].configs) if tuners else [None]
    variants = []
    for config in configs:
        values: dict[str, Any] = {}
        keywords: dict[str, Any] = {}
        for layer in layers[:-1]:
            if isinstance(layer, Autotuner):
                keywords = config.all_kwargs()
            else:
                for key, heuristic in layer.values.items():
                    arguments = {**bound, **options, **keywords, **values}
                    values[key] = _constant(name, key, heuristic(arguments))
        meta = {**_defaults(layers[-1]), **bound, **keywords, **values}
        variants.append(Variant(config, values, _sizes(grid(meta) if callable(grid) else grid)))
    return (tuners[0] if tuners else None), variants


def _defaults(kernel: Any) -> dict[str, Any]:
    values = kernel.fn.__defaults__ or ()
    names = kernel.fn.__code__.co_varnames[: kernel.fn.__code__.co_argcount]
    return dict(zip(names[len(names) - len(values) :], values, strict=True))


def _sizes(grid: Any) -> tuple[Any, ...]:
    return tuple(grid)


# -- when the program runs -----------------------------------------------------------------------------------


class Launch:
    """Launches a kernel: a function of the tensors and numbers of a launch, and of the grids.

    Args:
        kernel: the `triton.jit` function.
        tuner: the `triton.autotune` around it, or None.
        variants: for each configuration of it, with grids of proxies, which are arguments too.
        positional: the parameters whose arguments are passed by position.
        dynamic: the parameters of the arguments.
        constants: the other arguments, by name.
        options: the keywords that are no parameters, such as `num_warps`.
    """

    def __init__(
        self,
        kernel: Any,
        tuner: Any,
        variants: list[Variant],
        positional: list[str],
        dynamic: list[str],
        constants: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        self.kernel, self.tuner = kernel, tuner
        self.configs = [variant.config for variant in variants]
        self.values = [variant.values for variant in variants]
        self.dimensions = [len(variant.grid) for variant in variants]
        self.positional, self.dynamic = positional, dynamic
        self.constants, self.options = constants, options

    def __call__(self, *arguments: Any) -> None:
        """Launch the kernel on tensors, on the device of the first."""
        named = {**self.constants, **dict(zip(self.dynamic, arguments, strict=False))}
        grids, rest = [], arguments[len(self.dynamic) :]
        for dimensions in self.dimensions:
            grids.append(tuple(rest[:dimensions]))
            rest = rest[dimensions:]
        target = _Choices(self.kernel, self.configs, self.values, grids)
        args = [named.pop(name) for name in self.positional]
        run: Callable[..., Any] = target.run
        if self.tuner is not None:
            tuner = copy.copy(self.tuner)  # it has the choices of the user's, and adds to them
            tuner.fn = target
            run = tuner.run
        device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), torch.device("cpu"))
        with torch.cuda.device(device) if device.type == "cuda" else torch.no_grad():
            run(*args, grid=None, warmup=False, **named, **self.options)


class _Choices:
    """A kernel in the place of that of an autotuner: it adds the values and the grid of a configuration."""

    def __init__(
        self, kernel: Any, configs: list[Any], values: list[dict[str, Any]], grids: list[tuple[int, ...]]
    ) -> None:
        self.fn, self.configs, self.values, self.grids = kernel, configs, values, grids

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Run the kernel with the configuration whose keywords these are."""
        for config, values, sizes in zip(self.configs, self.values, self.grids, strict=True):
            chosen = {} if config is None else config.all_kwargs()
            if all(key in kwargs and kwargs[key] == value for key, value in chosen.items()):
                return self.fn.run(*args, grid=sizes, warmup=False, **{**kwargs, **values})
        raise RuntimeError(f"{self.fn.fn.__name__} was tuned for a configuration that it did not have")
