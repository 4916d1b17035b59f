"""``torch.utils.checkpoint`` in the traced program: what a region computes is not kept for the backward.

    y = checkpoint(block, x, use_reentrant=False)      →      t0 = sin(x)      compute again
                                                              y = t0 * x       do not compute again

The region is traced where it is called. Its calls, and the values that do not leave it, are tagged; the
partition into forward and backward keeps none of those values. It does keep the region's results: were they
computed again from each other, the backward would hold the inside of every region at once. Random numbers
are not drawn twice: what depends on them directly is kept, so that there is no state of a generator to be
put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from thunder.core.errors import UnsupportedProgram
from thunder.core.frontend.recordings import recorded
from thunder.core.frontend.rules import lookaside
from thunder.core.proxies import ProxyTag, TensorProxy
from thunder.core.symbol import BoundSymbol, BoundSymbolTag, has_tags, proxies_in
from thunder.core.tags import OpTags

if TYPE_CHECKING:
    from thunder.core.frontend.tracer import Tracer

_DETERMINISM_CHECKS = tuple(torch_checkpoint._allowed_determinism_checks_to_fns)


@lookaside(torch_checkpoint.checkpoint)
def _checkpoint(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def call(
        function: Any,
        *inputs: Any,
        use_reentrant: bool | None = None,
        context_fn: Any = torch_checkpoint.noop_context_fn,
        determinism_check: str = "default",
        debug: bool = False,  # the recomputation is the same program: it has no error to report
        early_stop: bool = True,  # nothing is recomputed that is not needed
        preserve_rng_state: bool = True,
        **keywords: Any,
    ) -> Any:
        _check_options(use_reentrant, context_fn, determinism_check)
        with recorded(tracer.trace) as calls:
            result = tracer.call(function, inputs, keywords)
        if not preserve_rng_state and any(map(_is_random, calls)):
            raise UnsupportedProgram(
                "torch.utils.checkpoint with preserve_rng_state=False around random operators",
                hint="Leave the argument out: the backward then sees the numbers that the forward drew.",
            )
        for bsym in _tagged(calls, result) if torch.is_grad_enabled() else calls:
            tracer.trace.record(bsym)
        return result

    return call(*args, **kwargs)


def _check_options(use_reentrant: Any, context_fn: Any, determinism_check: Any) -> None:
    if use_reentrant or use_reentrant is None:
        raise UnsupportedProgram(
            f"torch.utils.checkpoint with use_reentrant={use_reentrant}",
            hint="Write use_reentrant=False: torch recommends it too.",
        )
    if context_fn is not torch_checkpoint.noop_context_fn:
        raise UnsupportedProgram(
            "torch.utils.checkpoint with context_fn (selective checkpointing)",
            hint="Leave it out: thunder itself computes again what is cheap (rematerialization=).",
        )
    if determinism_check not in _DETERMINISM_CHECKS:
        raise ValueError(
            f"determinism_check should be one of {list(_DETERMINISM_CHECKS)}, but got {determinism_check}"
        )


def _is_random(bsym: BoundSymbol) -> bool:
    return has_tags(bsym, {OpTags.RANDOM_OP})


def _tagged(calls: Iterable[BoundSymbol], result: Any) -> Iterator[BoundSymbol]:
    """The calls of a region, tagged, as are those of their values that are not the region's results."""
    results = {p.name for p in proxies_in(result)}
    for bsym in calls:
        if _is_random(bsym):
            yield bsym
            continue
        given = {p.name for p in bsym.flat_proxy_args}
        for p in _made(bsym):
            if isinstance(p, TensorProxy) and p.name not in results and p.name not in given:
                p.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
        leaves = any(p.name in results for p in bsym.flat_proxy_outs)
        yield bsym.from_bsym(tags=(bsym.tags - {_AGAIN, _NOT_AGAIN}) | {_NOT_AGAIN if leaves else _AGAIN})


_AGAIN, _NOT_AGAIN = BoundSymbolTag.RECOMPUTE_IN_BACKWARD, OpTags.DONT_RECOMPUTE_IN_BACKWARD


def _made(bsym: BoundSymbol) -> Iterator[Any]:
    """What a call computes; of one that writes in place, its parts, which functionalisation takes it into."""
    yield from bsym.flat_proxy_outs
    if has_tags(bsym, {OpTags.IN_PLACE}):
        for sub in bsym.subsymbols:
            yield from _made(sub)
