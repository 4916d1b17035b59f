"""``thunder.jit``: returns an object that compiles at its first call."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.errors import (
    InvalidArgument,
    Location,
    NotCompiled,
    UnsupportedProgram,
    did_you_mean,
    nearest,
)
from thunder.base.langctx import LanguageContext, resolve_language
from thunder.base.options import (
    CACHE_OPTIONS,
    SHARP_EDGES_OPTIONS,
    CompileOptions,
    DebugOptions,
    resolve_cache_option,
    resolve_options,
    resolve_sharp_edges_option,
)
from thunder.base.plugin_calls import shown
from thunder.base.size_wishes import option_wishes
from thunder.compiler.compiled_objects import compiled_object
from thunder.compiler.stats import CompileData
from thunder.executor_base.caller import caller_location
from thunder.executor_base.executor import Executor
from thunder.extend import add_executor_lists, attached_transforms, get_always_executors, resolve_executors
from thunder.frontend.size_choice import check_argument_names
from thunder.ops.operator import all_rows
from thunder.passes.transform import Transform, calling_hook, defines_hook
from thunder.plugins.contributions import declared_options
from thunder.plugins.manager import get_manager
from thunder.plugins.specs import Lookaside
from thunder.wrappers.thunder_module import ThunderModule, dispatcher_of


def _no_function() -> None:
    """Do nothing; the default of ``fn``, from which a missing argument is recognised."""


_NO_FUNCTION = _no_function


def jit(
    fn: Callable[..., Any] = _NO_FUNCTION,
    /,
    *,
    langctx: LanguageContext | str | None = None,
    executors: Executor | str | Sequence[Executor | str] | None = None,
    sharp_edges: SHARP_EDGES_OPTIONS | str | None = None,
    cache: CACHE_OPTIONS | str | None = None,
    disable_torch_autograd: bool = False,
    transforms: Transform | Sequence[Transform] | None = None,
    debug_options: DebugOptions | None = None,
    require: dict[str, str] | None = None,
    lookasides: Lookaside | Sequence[Lookaside] | None = None,
    **options: Any,
) -> Any:
    """Compile a function or module at its first call and when a guarded fact has changed.

    For a module the result is a :class:`~thunder.core.module.ThunderModule` around it, else a
    :class:`~thunder.wrappers.compiled_function.CompiledFunction` with ``fn``'s attributes and signature.

    Args:
        fn: function, bound method, ``functools.partial``, callable object or ``nn.Module`` instance.
        langctx: the language in which the methods of proxies resolve.
        executors: executors or their names, first wins; they replace the defaults. The fallback executors are
            appended.
        sharp_edges: ``"error"``, ``"warn"`` or ``"allow"``: the policy for reads and writes that can be
            neither guarded nor replayed.
        cache: how compiled programs are reused, a value of ``CACHE_OPTIONS``. By default, sizes and
            integers that differ between calls are inputs of the program from then on.
        disable_torch_autograd: no output requires grad, whatever the inputs.
        transforms: applied in list order; those attached to the module come first.
        debug_options: see :class:`~thunder.core.options.DebugOptions`.
        require: operator id → name of the executor that must run it.
        lookasides: Python functions in whose place others are traced, before those that plugins replace.
        options: those that core and installed plugins declare.

    Raises InvalidArgument, UnknownOption, UnknownExecutor or ExecutorUnavailable for wrong arguments, and
    UnsupportedProgram for modules that other systems have wrapped.
    """
    _check_callable(fn)
    all_transforms = _all_transforms(fn, transforms)
    compile_options = resolve_options(options, declared_options(get_manager()), plugins=_plugin_names())
    executors_list = add_executor_lists(resolve_executors(executors), get_always_executors())
    data = CompileData(
        fn=fn,
        is_module=isinstance(fn, torch.nn.Module),
        langctx=resolve_language(langctx),
        executors_list=executors_list,
        cache_option=_checked_cache(cache),
        sharp_edges=resolve_sharp_edges_option(sharp_edges),
        disable_torch_autograd_support=disable_torch_autograd,
        compile_options=compile_options,
        debug_options=_checked_debug_options(debug_options),
        transforms=all_transforms,
        require=_checked_requirements(require, executors_list),
        lookasides=_as_sequence(lookasides),
    )
    _claim_transforms(all_transforms)
    _validate(all_transforms, fn, compile_options)
    return _transform_module(compiled_object(data), all_transforms)


def _validate(transforms: Sequence[Transform], fn: Any, options: CompileOptions) -> None:
    """Check the names in ``dynamic_sizes``, and run each ``validate``, which raises UserError for misuse."""
    check_argument_names(fn, option_wishes(options.value("dynamic_sizes")))
    for transform in transforms:
        with calling_hook(transform, "validate"):
            transform.validate(fn, options)


def _transform_module(compiled: Any, transforms: Sequence[Transform]) -> Any:
    """Run each transform's ``transform_module`` on a compiled module, before any trace exists."""
    if isinstance(compiled, ThunderModule):
        overrides = dispatcher_of(compiled).overrides
        first = len(dispatcher_of(compiled).data.transforms) - len(transforms)
        for i, transform in enumerate(transforms):
            changes_reads = defines_hook(transform, "transform_traces_pre_prologue")
            overriding = overrides.set_by(
                changes_reads=changes_reads, pending=transforms[i + 1 :], position=first + i
            )
            with calling_hook(transform, "transform_module"), overriding:
                transform.transform_module(compiled)
    return compiled


def add_transform(
    cfn: Any, *, transform: Transform | Sequence[Transform], disable_torch_autograd_support: bool = False
) -> Any:
    """Return a compiled object with the settings of ``cfn`` and more transforms.

    Raises NotCompiled if ``cfn`` is not a compiled object.
    """
    dispatcher = dispatcher_of(cfn)
    if dispatcher is None:
        raise NotCompiled(
            f"{cfn!r} doesn't seem to be a thunder compiled function.", hint="Pass what thunder.jit returned."
        )
    added = _as_sequence(transform)
    _check_transforms(added)
    _claim_transforms(added)
    data = dispatcher.data
    _validate(added, data.fn, data.compile_options)
    autograd_off = data.disable_torch_autograd_support or disable_torch_autograd_support
    changes = {"transforms": (*data.transforms, *added), "disable_torch_autograd_support": autograd_off}
    overrides = dispatcher.overrides.copied(data.fn) if dispatcher.overrides is not None else None
    return _transform_module(compiled_object(dataclasses.replace(data, **changes), overrides), added)


# -- checks of arguments
# ---------------------------------------------------------------------------------------


def _check_callable(fn: Any) -> None:
    if fn is _NO_FUNCTION:
        raise InvalidArgument(
            "thunder.jit was called without a function",
            hint="As a decorator with arguments, write functools.partial(thunder.jit, …).",
        )
    if isinstance(fn, type):
        raise InvalidArgument(
            f"thunder.jit received the class {fn.__qualname__}",
            hint=f"Write thunder.jit({fn.__qualname__}(…)), with an instance.",
        )
    if isinstance(fn, ThunderModule):
        raise InvalidArgument(
            "thunder.jit received a module that is already compiled",
            hint="Use add_transform, or jit the wrapped module.",
        )
    if isinstance(fn, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise UnsupportedProgram(
            "thunder.jit received a TorchScript program", hint="It needs the Python source's module."
        )
    name = type(fn).__qualname__
    if "_torchdynamo_orig_callable" in getattr(fn, "__dict__", {}) or name == "OptimizedModule":
        raise InvalidArgument(
            "thunder.jit received the result of torch.compile", hint="Pass the original module."
        )
    _refuse_distributed(fn, name)
    if not callable(fn):
        raise InvalidArgument(
            f"thunder.jit expected a function, module or callable, and got {fn!r}", found={"type": name}
        )


def _refuse_distributed(fn: Any, name: str) -> None:
    """Refuse modules that torch's data parallelism wraps: its hooks are not in the program."""
    if isinstance(fn, torch.nn.parallel.DistributedDataParallel):
        raise UnsupportedProgram(
            f"thunder.jit received a {name}",
            hint="Compile the wrapped module, DistributedDataParallel(thunder.jit(model)); or use ddp of a "
            "package that provides thunder.distributed.",
        )
    if name == "FullyShardedDataParallel" or name.startswith("FSDP"):
        raise UnsupportedProgram(
            f"thunder.jit received a {name}",
            hint="Compile the module before it is sharded, thunder.jit(model); fsdp of a package that "
            "provides thunder.distributed shards compiled modules.",
        )


def _checked_debug_options(debug_options: Any) -> DebugOptions:
    if debug_options is None:
        return DebugOptions()
    if not isinstance(debug_options, DebugOptions):
        raise InvalidArgument(
            f"debug_options is {type(debug_options).__name__}", hint="Write DebugOptions(**your_options)."
        )
    return debug_options


def _as_sequence(x: Any) -> tuple[Any, ...]:
    if x is None:
        return ()
    return tuple(x) if isinstance(x, list | tuple) else (x,)


def _all_transforms(fn: Any, transforms: Transform | Sequence[Transform] | None) -> tuple[Transform, ...]:
    """Return the transforms that are attached to a module, and those that `jit` received."""
    attached = attached_transforms(fn) if isinstance(fn, torch.nn.Module) else ()
    all_transforms = (*attached, *_as_sequence(transforms))
    _check_transforms(all_transforms)
    return all_transforms


def _check_transforms(transforms: Sequence[Any]) -> None:
    for i, transform in enumerate(transforms):
        if isinstance(transform, type):
            raise InvalidArgument(
                f"transforms[{i}] is the class {transform.__qualname__}",
                hint=f"Write {transform.__qualname__}().",
            )
        if not isinstance(transform, Transform):
            raise InvalidArgument(f"transforms[{i}] is {shown(transform)}, not a Transform")


_places: weakref.WeakKeyDictionary[Transform, Location] = weakref.WeakKeyDictionary()


def _claim_transforms(transforms: Sequence[Transform]) -> None:
    """Refuse a transform of another compiled object, unless its class is ``stateless``."""
    here = caller_location()
    for transform in transforms:
        if getattr(type(transform), "stateless", False):
            continue
        if transform in _places:
            raise InvalidArgument(
                f"this {type(transform).__name__} belongs to another compiled object",
                found={"first": _places[transform], "again": here},
                hint="Use a separate instance for each.",
            )
        _places[transform] = here


def _checked_cache(cache: Any) -> CACHE_OPTIONS:
    return resolve_cache_option(cache)


def _checked_requirements(require: dict[str, str] | None, executors: Sequence[Executor]) -> dict[str, str]:
    operators = {row.id for row in all_rows()}
    names = {executor.name for executor in executors}
    for operator_id, executor in (require or {}).items():
        if executor not in names:
            raise InvalidArgument(
                f"require= names the executor {executor!r}, which is not among those of this compile."
                f"{did_you_mean(str(executor), names)}",
                found={"executors": ", ".join(sorted(names))},
                hint="Add it to executors=, or remove the requirement.",
            )
        if operator_id not in operators:
            close = nearest(str(operator_id), operators)
            raise InvalidArgument(
                f"require= names the operator {operator_id!r}, which does not exist",
                hint=f"Did you mean {close!r}?" if close else None,
            )
    return dict(require or {})


def _plugin_names() -> list[str]:
    return [info.name for info in get_manager().list_plugins()]
