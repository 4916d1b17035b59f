"""``torch.utils.checkpoint`` in the traced program: regions whose values are not saved.

    y = checkpoint(block, x, use_reentrant=False)      →      t0 = sin(x)      compute again
                                                              y = t0 * x       do not compute again

The region is traced where it is called. Its calls, and the values that do not leave it, are tagged; the
partition into forward and backward saves none of those values. It does save the region's results: if they
were computed again from each other, the backward would hold the inside of every region at once. Random
numbers are not drawn twice: values that depend on them directly are saved, so that no state of a generator
must be restored. A region with effects, such as the statistics of a batch norm, runs again for these
(:mod:`~thunder.frontend.checkpoints.region_reruns`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from thunder.base.autocast_state import AUTOCAST_DEVICES
from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.checkpoints.region_effects import Effects, are_repeated, effects_of, note_changes
from thunder.frontend.checkpoints.region_reruns import RegionAgain, begin_region, region_result
from thunder.frontend.checkpoints.region_state import Region, RegionState
from thunder.frontend.custom_gradients.rebuilding import Rebuilding
from thunder.frontend.epilogue.subtrace import recorded, uses_and_definitions
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.lookasides.rng_generators import Generators
from thunder.frontend.places import CHECKPOINTS, COMPUTES, Place
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import ProxyTag, TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.requires_grad import requires_grad
from thunder.ir.substitution import substitute
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, has_tags
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES)

_PARAMETERS = inspect.signature(torch_checkpoint.checkpoint).parameters.values()
#: the keywords that ``checkpoint`` reads; others are arguments of the region
_OPTIONS = frozenset({"preserve_rng_state", *(p.name for p in _PARAMETERS if p.kind is p.KEYWORD_ONLY)})
_DETERMINISM_CHECKS = tuple(torch_checkpoint._allowed_determinism_checks_to_fns)


#: since torch 2.15 the body of ``checkpoint``, which wrapped functions call too
_BODY = getattr(torch_checkpoint, "_checkpoint_impl", None)


@TABLE.lookaside(torch_checkpoint.checkpoint if _BODY is None else None)
def _checkpoint(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    options = {name: value for name, value in kwargs.items() if name in _OPTIONS}
    keywords = {name: value for name, value in kwargs.items() if name not in _OPTIONS}

    def call(function: Any, *inputs: Any) -> Any:
        return _region(session, function, inputs, keywords, **options)

    return call(*args)


@TABLE.lookaside(_BODY)
def _checkpoint_body(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function, inputs, keywords = args
    return _region(session, function, inputs, keywords, **kwargs)


def _region(
    session: TracingSession,
    function: Any,
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    *,
    use_reentrant: bool | None = None,
    context_fn: Any = torch_checkpoint.noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,  # the recomputation is the same program, so it has no error to report
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    respect_saved_tensors_hooks: bool | None = None,  # selective checkpointing: what it saves
) -> Any:
    """Trace a checkpointed call of ``function`` with the options of ``checkpoint``."""
    session.place.check(CHECKPOINTS, "the program calls checkpoint")
    if use_reentrant is None:
        session.call(warnings.warn, (_REENTRANT_NOT_PASSED,), {"stacklevel": 2})
    reentrant = use_reentrant is None or bool(use_reentrant)
    selective = context_fn is not torch_checkpoint.noop_context_fn
    if reentrant:
        if keywords:
            raise ValueError("Unexpected keyword arguments: " + ",".join(keywords))
        if selective or debug is not False or respect_saved_tensors_hooks is not None:
            raise ValueError(_ONLY_WITHOUT_REENTRANT)
    else:
        if selective:
            _check_contexts(session, session.call(context_fn, (), {}))
        _check_options(determinism_check)
    region = _Region(session, function, inputs, keywords)
    if reentrant and not _needs_grad(session, inputs):
        return region.without_gradients()
    if not torch.is_grad_enabled():
        return session.call(function, inputs, keywords)
    stops_early = not reentrant and _stops_early(session, early_stop)
    return region.run(reentrant, stops_early, preserve_rng_state, selective)


def _text_of_torch(beginning: str) -> str:
    """Return the message of torch's ``checkpoint`` that begins so."""
    code = (_BODY or inspect.unwrap(torch_checkpoint.checkpoint)).__code__
    return next(c for c in code.co_consts if isinstance(c, str) and c.startswith(beginning))


_REENTRANT_NOT_PASSED = _text_of_torch("torch.utils.checkpoint: the use_reentrant")
_ONLY_WITHOUT_REENTRANT = _text_of_torch("Passing `context_fn`")


class _Contexts(SessionState):
    """The pairs of contexts of selective checkpointing that the program has made."""

    def __init__(self, session: TracingSession) -> None:
        self.pairs: list[Any] = []


@TABLE.lookaside(torch_checkpoint.create_selective_checkpoint_contexts)
def _selective_contexts(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return contexts that do nothing: a region computes again whatever it does not return.

    The policy decides what eager keeps, and no value depends on it.
    """
    torch_checkpoint.create_selective_checkpoint_contexts(*args, **kwargs)  # raises for a wrong policy
    pair = contextlib.nullcontext(), contextlib.nullcontext()
    session.state(_Contexts).pairs.append(pair)
    return pair


def _check_contexts(session: TracingSession, contexts: Any) -> None:
    """Refuse contexts of a region that are not those of selective checkpointing."""
    if not any(contexts is pair for pair in session.state(_Contexts).pairs):
        raise UnsupportedProgram(
            "torch.utils.checkpoint with a context_fn of the user's",
            hint="Return what torch.utils.checkpoint.create_selective_checkpoint_contexts returns, or enter "
            "the contexts inside of the region.",
        )


def _check_options(determinism_check: Any) -> None:
    if determinism_check not in _DETERMINISM_CHECKS:
        raise ValueError(
            f"determinism_check should be one of {list(_DETERMINISM_CHECKS)}, but got {determinism_check}"
        )


def _stops_early(session: TracingSession, early_stop: bool) -> bool:
    """Return whether torch's recomputation ends at the last saved tensor; this is guarded."""
    setting = _early_stop_setting()
    session.note_state(_early_stop_setting, "torch.utils.checkpoint.set_checkpoint_early_stop", setting)
    return early_stop if setting is None else setting


def _early_stop_setting() -> bool | None:
    return torch_checkpoint._enable_checkpoint_early_stop


def _needs_grad(session: TracingSession, inputs: Iterable[Any]) -> bool:
    """Return whether a reentrant region has a backward: an argument must require grad."""
    needed = any(map(requires_grad, inputs))
    if not needed:
        text = "None of the inputs have requires_grad=True. Gradients will be None"
        session.call(warnings.warn, (text,), {"stacklevel": 2})
    return needed and torch.is_grad_enabled()


class _Region:
    """A call of ``checkpoint``."""

    def __init__(
        self, session: TracingSession, function: Any, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        self.session, self.function, self.inputs, self.keywords = session, function, inputs, keywords

    def without_gradients(self) -> Any:
        """Trace the region with gradients off."""
        outside, set_mode = torch.is_grad_enabled(), torch._C._set_grad_enabled
        self.session.call(set_mode, (False,), {})
        result = self.session.call(self.function, self.inputs, self.keywords)
        self.session.call(set_mode, (outside,), {})
        return result

    def run(self, reentrant: bool, early_stop: bool, preserve_rng_state: bool, selective: bool) -> Any:
        """Trace the region, and what the backward does for it."""
        session = self.session
        region = Region(len(session.trace.peek_scope()), reentrant)
        session.state(RegionState).mark = session.writes.mark()
        with session.place.entered(Place.REGION, region), recorded(session.trace) as calls:
            result = session.call(self.function, self.inputs, self.keywords)
            session.read_lists(result)
            note_changes(session)
        if reentrant:
            _check_reentrant(self.inputs, calls, result)
        is_random = any(map(_is_random, calls))
        if not preserve_rng_state and is_random:
            raise UnsupportedProgram(
                "torch.utils.checkpoint with preserve_rng_state=False around random operators",
                hint="Leave the argument out: the backward then sees the numbers that the forward drew.",
            )
        effects = effects_of(region.marks, calls)
        if selective and effects.places:
            raise UnsupportedProgram(
                "a region with effects under selective checkpointing, whose policy decides what runs twice",
                hint="Leave context_fn= out, or have the effects outside of the region.",
            )
        repeated = bool(effects.places) if reentrant else are_repeated(effects, calls, early_stop)
        if repeated or reentrant:
            self.record(calls, result, effects if repeated else None, is_random, reentrant)
        else:
            self.record_calls(calls, result)
        return result

    def record_calls(self, calls: Iterable[BoundSymbol], results: Any) -> None:
        """Record the region's calls, tagged."""
        for bsym in _tagged(calls, results):
            self.session.trace.record(bsym)

    def record(
        self, calls: list[BoundSymbol], result: Any, effects: Effects | None, is_random: bool, reentrant: bool
    ) -> None:
        """Record the region's calls, and its results as those of a region that runs again."""
        session, trace = self.session, self.session.trace
        rebuilding = Rebuilding(session)
        call = None
        if effects is not None:
            call = rebuilding.maker(functools.partial(self.function, *self.inputs, **self.keywords))
            self._check_effects(effects, rebuilding.tensors)
        tensors = tuple(rebuilding.tensors)
        region = RegionAgain(
            call,
            requires_grad=[t.requires_grad for t in tensors],
            autocast=_autocast(),
            reentrant=reentrant,
            held=rebuilding.held,
        )
        state = None
        if effects is not None and is_random:
            state = prims.get_generator_state(
                session.state(Generators).proxy(session.state(Generators).default().obj)
            )
        begun = begin_region(region)
        defined = uses_and_definitions(calls)[1]
        results = {p.name: p for p in proxies_in(result) if isinstance(p, TensorProxy)}
        outer = [p for p in results.values() if p.requires_grad and p.name in defined]
        inner = {p.name: TensorProxy(like=p) for p in outer}
        saved = [*(p for p in results.values() if p.name not in inner), *inner.values()]
        self.record_calls([substitute(b, inner) for b in calls], saved)
        for p in outer:
            new = region_result(inner[p.name], begun, region, tensors, state)
            scope = trace.peek_scope()
            scope[-1] = substitute(scope[-1], {new.name: p})

    def _check_effects(self, effects: Effects, tensors: Iterable[TensorProxy]) -> None:
        if self.session.place.is_in(Place.REGION):
            raise UnsupportedProgram(
                "a checkpointed region with effects inside of another",
                hint="Checkpoint the outer region alone.",
            )
        own = {p.name for p in tensors}
        for p in effects.written:
            if p.requires_grad or p.name in own or self.session.entry_of(p) is None:
                raise UnsupportedProgram(
                    "a checkpointed region writes in place to a tensor that is not its own",
                    found={"tensor": f'"{p.type_string()}"'},
                    hint="Write to buffers of a module, or to a clone.",
                )


def _autocast() -> dict[str, dict[str, Any]]:
    """Return the active autocast as the arguments of ``torch.autocast`` by device."""
    devices = [d for d in AUTOCAST_DEVICES if d == "cpu" or torch.is_autocast_enabled(d)]
    return {
        device: {
            "enabled": torch.is_autocast_enabled(device),
            "dtype": torch.get_autocast_dtype(device),
            "cache_enabled": torch.is_autocast_cache_enabled(),
        }
        for device in devices
    }


def _check_reentrant(inputs: Iterable[Any], calls: Iterable[BoundSymbol], result: Any) -> None:
    """Refuse reentrant regions whose results or gradients mean something else in torch."""
    arguments = {x.name for x in inputs if isinstance(x, TensorProxy)}
    uses, defined = uses_and_definitions(calls, result)
    captured = [p for p in uses.values() if isinstance(p, TensorProxy) and p.name not in arguments]
    results = result if isinstance(result, tuple) else (result,)
    for what, wrong in (
        (
            "a tensor with a history that is not an argument",
            any(p.requires_grad and not p.declared_leaf for p in captured),
        ),
        ("results in containers", any(proxies_in(r) and not isinstance(r, TensorProxy) for r in results)),
        (
            "a result that depends on no argument, or is one",
            any(
                isinstance(r, TensorProxy)
                and r.dtype.is_inexact
                and not (r.requires_grad and r.name in defined)
                for r in results
            ),
        ),
    ):
        if wrong:
            raise UnsupportedProgram(
                f"torch.utils.checkpoint with use_reentrant=True, and {what}",
                hint="Write use_reentrant=False: torch recommends it too.",
            )


def _is_random(bsym: BoundSymbol) -> bool:
    return has_tags(bsym, {OpTags.RANDOM_OP})


def _tagged(calls: Iterable[BoundSymbol], result: Any) -> Iterator[BoundSymbol]:
    """Yield the calls of a region, tagged; so are their values that are not its results."""
    results = {p.name for p in proxies_in(result)}
    for bsym in calls:
        if _is_random(bsym):
            yield bsym
            continue
        arguments = {p.name for p in bsym.flat_proxy_args}
        for p in _made(bsym):
            if isinstance(p, TensorProxy) and p.name not in results and p.name not in arguments:
                p.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
        leaves = any(p.name in results for p in bsym.flat_proxy_outs)
        yield bsym.from_bsym(tags=(bsym.own_tags - {_AGAIN, _NOT_AGAIN}) | {_NOT_AGAIN if leaves else _AGAIN})


_AGAIN, _NOT_AGAIN = BoundSymbolTag.RECOMPUTE_IN_BACKWARD, OpTags.DONT_RECOMPUTE_IN_BACKWARD


def _made(bsym: BoundSymbol) -> Iterator[Any]:
    """Yield the results of a call; of one that writes in place, those of its parts as well."""
    yield from bsym.flat_proxy_outs
    if has_tags(bsym, {OpTags.IN_PLACE}):
        for sub in bsym.subsymbols:
            yield from _made(sub)
