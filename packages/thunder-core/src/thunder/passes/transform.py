"""`Transform`: the base class of transforms of programs, weights and state dicts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from thunder.base.errors import InvalidArgument, PluginError, UnsupportedProgram, nearest
from thunder.base.extension_origin import origin_of
from thunder.base.plugin_calls import kind_of, plugin_call
from thunder.base.signature import accepted_keywords
from thunder.executor_base.refusal import Refusal
from thunder.ir.trace import TraceCtx, TraceProvenance
from thunder.ops.hook_code import call_hook
from thunder.plugins.specs import Lookaside

__all__ = ["TRACE_HOOKS", "Transform", "call_trace_hook", "calling_hook", "defines_hook"]


#: how the names of hooks begin that transforms define
_PREFIXES = ("transform_", "reverse_", "complete_")


class Transform:
    """The base class of transforms; by default a hook changes nothing.

    A subclass overrides the hooks that it needs. A method whose name looks like a hook (`transform_…`,
    `reverse_…`, `complete_…`) but is not one is refused when the class is defined: it would never run. An
    instance belongs to one compiled object, unless its class sets `stateless = True`.

    A class that sets `observes = True` only watches programs: its one hook on traces is
    `transform_trace_post_optimization`, which adds calls without results. It sees backwards that are compiled
    when they are first needed, too, and a program has as many nodes and derivatives as without it.

    A class or an instance that sets `keeps_sizes = True` changes in `transform_traces_pre_prologue` how a
    program reads the tensors of a module, by `replace_inputs` and `add_input`, or the calls, by operators
    that take any sizes; it keeps the checks of the arguments, and its stages compute with symbols as with
    numbers. Sizes of arguments then are symbols as they are without it.

    A class that sets `identified_by`, names of attributes with literals, has programs that a plugin may keep
    from one process to the next. Where these values and the forms of the tensors in use are equal, and guards
    hold, a kept program runs, and the hooks on traces do not. A subclass says it for itself.
    """

    stateless: ClassVar[bool] = False
    observes: ClassVar[bool] = False
    keeps_sizes: bool = False
    identified_by: ClassVar[Sequence[str] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            if callable(value) and name.startswith(_PREFIXES) and name not in HOOKS:
                close = nearest(name, HOOKS)
                raise InvalidArgument(
                    f"{cls.__name__}.{name} looks like a hook of Transform, and there is no such hook",
                    found={"hooks": ", ".join(sorted(HOOKS))},
                    hint=f"Did you mean {close!r}? A method that is not a hook needs another prefix.",
                )
        if cls.observes:
            changing = [hook for hook in CHANGING_HOOKS if getattr(cls, hook) is not getattr(Transform, hook)]
            if changing:
                raise InvalidArgument(
                    f"{cls.__name__} has observes = True, and defines {changing[0]}",
                    hint="A transform that observes defines transform_trace_post_optimization alone.",
                )

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Called by `jit` before anything else; raises UserError for misuse."""

    def lookasides(self) -> Sequence[Lookaside]:
        """Return functions in whose place others are traced, after those that `jit` received.

        Called once, when the compiled object is made.
        """
        return ()

    def transform_module(self, model: Any) -> None:
        """Change a module's overrides; called once by `jit`, before any trace exists."""

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        """Return the acquired prologue, computation and epilogue, changed or not."""
        return prologue_trace, computation_trace, epilogue_trace

    def transform_joint_trace(self, joint_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        """Return the trace of forward and backward before the partition, changed or not."""
        return joint_trace

    def transform_trace_pre_execution(self, trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        """Return a trace before claims, changed or not; the forward, then the backward."""
        return trace

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        """Return a final trace, changed or not; the forward, then the backward."""
        return computation_trace

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the transformed state of a submodule from the original one; keys have no prefix."""
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the original state of a submodule from the transformed one; keys have no prefix."""
        return state_dict

    def complete_original_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the original state of a submodule, into which what the transform added is put.

        Called after the reverse hooks of all transforms, in list order: each tensor has its original form, in
        whatever form transforms store it.
        """
        return state_dict

    def present_state_dict(self, model: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return what `state_dict()` returns, from the tensors in use by their names."""
        return state_dict

    def accept_state_dict(self, model: Any, state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state dict of tensors to use from one that `load_state_dict` receives."""
        return state_dict

    def unchanged(self) -> Mapping[str, Refusal]:
        """Return the tensors of the module that the transform could not change, with the reasons.

        `thunder.explain` lists them.
        """
        return {}

    def no_effect(self) -> Refusal | None:
        """Return why the transform changes nothing, as where its devices are absent, or None.

        It is asked after each compile. `thunder.explain` shows the answer, and one warning has it.
        """
        return None

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add stages, `pipeline.add(name, fn, after=…)`; called once per compile, before the first."""

    def cache_state(self) -> Mapping[str, Hashable]:
        """Return the state on which the compiled programs depend.

        It is computed at each call and guarded by equality, so it has to be cheap.
        """
        return {}

    # -- programs that are kept from one process to the next

    def program_identity(self) -> Any:
        """Return the values that `identified_by` names, or None: programs of the transform are not kept."""
        names = vars(type(self)).get("identified_by")
        return None if names is None else [getattr(self, name) for name in names]

    def program_record(self, traces: Sequence[TraceCtx]) -> Any:
        """Return literals of what this process has to know beside a program, from its final traces."""
        return None

    def note_program(self, record: Any) -> None:
        """Note what `program_record` has returned where the program was compiled, which is kept."""


HOOKS = frozenset(
    name for name, value in vars(Transform).items() if callable(value) and not name.startswith("_")
)

#: the hooks that take one trace and return one
TRACE_HOOKS = ("transform_joint_trace", "transform_trace_pre_execution", "transform_trace_post_optimization")

#: the hooks that a transform which observes does not define
CHANGING_HOOKS = (
    "transform_module",
    "transform_traces_pre_prologue",
    "transform_joint_trace",
    "transform_trace_pre_execution",
    "configure_pipeline",
)


def defines_hook(transform: Transform, hook: str) -> bool:
    """Return whether a transform overrides a hook."""
    return getattr(type(transform), hook, None) is not getattr(Transform, hook)


def calling_hook(
    transform: Transform, hook: str, passing: tuple[type[Exception], ...] = ()
) -> AbstractContextManager[None]:
    """Return the context in which a hook of a transform is called; its faults are PluginErrors."""
    return plugin_call(
        f"{type(transform).__name__}.{hook}",
        lambda: origin_of(type(transform)),
        hint="Leave the transform out of transforms=, or correct it; the traceback above shows where.",
        passing=passing,
    )


def call_trace_hook(
    transform: Transform, hook: str, *traces: TraceCtx | None, **facts: Any
) -> tuple[Any, ...]:
    """Call a hook and check that it returns as many traces as it received.

    Of the keyword arguments `facts` the hook receives those that its signature has. A trace without
    provenance gets the transform's class name. Raises PluginError for anything else.
    """
    name = type(transform).__name__
    # the functions of core that a hook calls may refuse the program, such as one that writes to a weight
    refusals = (UnsupportedProgram,) if hook in CHANGING_HOOKS else ()
    with calling_hook(transform, hook, passing=refusals):
        method = getattr(transform, hook)
        result = call_hook(method, *traces, **accepted_keywords(method, facts))
    returned = result if len(traces) > 1 else (result,)
    fits = isinstance(returned, tuple) and len(returned) == len(traces)
    if not fits or not all(
        isinstance(r, TraceCtx) or (argument is None and r is None)
        for r, argument in zip(returned, traces, strict=True)
    ):
        expected = "a trace" if len(traces) == 1 else f"a tuple of {len(traces)} traces"
        raise PluginError(
            f"{name}.{hook} returned {kind_of(result)}",
            found={"expected": expected},
            hint="Return the trace, changed or not.",
        ).blame(origin_of(type(transform)))
    for trace, argument in zip(returned, traces, strict=True):
        if trace is not argument and trace is not None and trace.provenance is None:
            trace.set_provenance(TraceProvenance(name))
    return tuple(returned)
