"""The arrival of gradients at leaves: hooks, accumulation, and hooks after it, in torch's order.

Torch's engine runs the nodes of a graph from the newest to the oldest, and a leaf as soon as all nodes that
use it have run. So a leaf comes after the oldest call that uses it:

    h = linear(x, w1, b1)        # the graph is run upwards: linear(…, w2, b2), then b2, then w2,
    y = linear(h, w2, b2)        # then linear(…, w1, b1), then b1, then w1

The order of leaves of one call is that of torch for this call, which is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.pytree import tree_map
from thunder.frontend.custom_gradients.leaf_hooks import (
    AFTER_NODE,
    BEFORE_NODE,
    ON_GRADIENTS,
    POST_ACCUMULATE,
    hooks_of,
)
from thunder.frontend.custom_gradients.tensor_hooks import replaced, replaced_by_node
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims
from thunder.ops.operator import row_of
from thunder.ops.stand_ins import to_hinted_meta

__all__ = ["Accumulate", "Arrivals"]

Accumulate = Callable[[TensorProxy, TensorProxy], None]


class Arrivals:
    """The gradients that arrive at leaves, as the hooks of these replace them.

    ``leaves`` have gradients where ``reached`` says so; ``nodes`` are their values in the calls ``between``.
    Each gradient is accumulated, if there is a function for that. Raises UnsupportedProgram if a leaf has a
    hook, and torch's order is not known.
    """

    def __init__(
        self,
        session: TracingSession,
        leaves: Sequence[TensorProxy],
        nodes: Sequence[TensorProxy],
        reached: Sequence[bool],
        between: Sequence[BoundSymbol],
        accumulate: Accumulate | None,
    ) -> None:
        self.results: list[TensorProxy | None] = [None] * len(leaves)
        self._session, self._leaves, self._accumulate = session, leaves, accumulate
        order = [i for i, is_reached in enumerate(reached) if is_reached]
        inputs = [i for i in order if session.entry_of(leaves[i]) is not None]
        self._on_gradients = {i: hooks_of(session, leaves[i], ON_GRADIENTS) for i in inputs}
        self._after = {i: hooks_of(session, leaves[i], POST_ACCUMULATE) for i in order} if accumulate else {}
        self._of_nodes = {
            (i, kind): hooks_of(session, leaves[i], kind) for i in order if accumulate for kind in _OF_NODES
        }
        hooked = {i for hooks in (self._on_gradients, self._after) for i, found in hooks.items() if found}
        hooked |= {i for (i, _), found in self._of_nodes.items() if found}
        for i in hooked:
            _require_leaf(session, leaves[i])
        self._waiting = _in_torchs_order(order, hooked, nodes, between) if hooked else order

    def deliver(self, gradient_of: Callable[[int], TensorProxy | None]) -> None:
        """Pass on the gradients that have been recorded since the last time; others are None."""
        ready = [(i, g) for i in self._waiting if (g := gradient_of(i)) is not None]
        self._waiting = [i for i in self._waiting if i not in dict(ready)]
        for i, gradient in ready:
            self.results[i] = self._passed(i, gradient)

    def _passed(self, i: int, gradient: TensorProxy) -> TensorProxy:
        """Return a gradient that has passed the hooks of its leaf, and been accumulated."""
        for hook in self._on_gradients.get(i, ()):
            gradient = replaced(hook, self._session.call(hook, (gradient,), {}), gradient)
        for hook in self._of_nodes.get((i, BEFORE_NODE), ()):
            gradient = replaced_by_node(hook, self._session.call(hook, ((gradient,),), {}), (gradient,))[0]
        if self._accumulate is not None:
            self._accumulate(self._leaves[i], gradient)
        for hook in self._after.get(i, ()):
            if self._session.call(hook, (self._leaves[i],), {}) is not None:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")
        for hook in self._of_nodes.get((i, AFTER_NODE), ()):
            replaced_by_node(hook, self._session.call(hook, ((), (gradient,)), {}), ())
        return gradient


_OF_NODES: Final = (BEFORE_NODE, AFTER_NODE)


def _require_leaf(session: TracingSession, x: TensorProxy) -> None:
    """Guard that an input with hooks is a leaf; raises UnsupportedProgram for another one."""
    entry = session.entry_of(x)
    if entry is not None and not entry.obj.is_leaf:
        raise UnsupportedProgram(
            "a gradient is computed inside the program by an input with hooks that is not a leaf",
            found={"tensor": entry.path.source},
            hint="Remove the hooks, or call backward() outside of the compiled function.",
        )
    if entry is not None:
        session.note(prims.check_same_object, entry.path.step("attribute", "is_leaf"), True)


def _in_torchs_order(
    order: Sequence[int], hooked: set[int], nodes: Sequence[TensorProxy], between: Sequence[BoundSymbol]
) -> list[int]:
    """Return the indices of leaves in the order in which gradients arrive at them."""
    if len({nodes[i].device for i in order}) > 1:
        raise _refusal(nodes[min(hooked)], "with leaves on several devices")
    places = {i: _place(nodes[i], between) for i in order}
    result: list[int] = []
    for place, group in groupby(sorted(order, key=lambda i: -places[i]), key=places.__getitem__):
        tied = list(group)
        if len(tied) > 1 and not hooked.isdisjoint(tied):
            call = between[int(place)] if place < len(between) else None
            found = None if call is None else _order_within(call, [nodes[i] for i in tied])
            if found is None:
                raise _refusal(nodes[min(hooked.intersection(tied))], "with leaves of one call")
            tied = [tied[k] for k in found]
        result += tied
    return result


def _place(node: TensorProxy, between: Sequence[BoundSymbol]) -> float:
    """Return the index of the call after which a gradient arrives; an intermediate's is before its call."""
    for i, call in enumerate(between):
        if any(p.name == node.name for p in call.flat_proxy_outs):
            return i + 0.5
    users = (i for i, call in enumerate(between) if any(p.name == node.name for p in call.flat_proxy_args))
    return next(users, len(between))


def _order_within(call: BoundSymbol, leaves: Sequence[TensorProxy]) -> list[int] | None:
    """Return the order in which torch reaches the leaves of a call, run on tensors without data, or None."""
    row = row_of(call.sym)
    if row is None or row.eager is None or call.sym.executor is not None:
        return None
    if torch._C._is_any_autocast_enabled():
        return None
    seen: list[int] = []
    names = [leaf.name for leaf in leaves]

    def stand_in(x: Any) -> Any:
        if not isinstance(x, TensorProxy) or not x.requires_grad:
            return to_hinted_meta(x)
        tensor = to_hinted_meta(x).requires_grad_()
        if x.name not in names:
            return tensor.clone()
        index = names.index(x.name)
        tensor.register_hook(lambda _: seen.append(index))
        return tensor

    try:
        with torch.random.fork_rng(devices=()), torch.enable_grad():
            args, kwargs = tree_map(stand_in, (call.args, call.kwargs))
            results = row.eager(*args, **kwargs)
            outs = results if isinstance(results, list | tuple) else [results]
            tracked = [t for t in outs if isinstance(t, torch.Tensor) and t.requires_grad]
            torch.autograd.backward(tracked, list(map(torch.ones_like, tracked)))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
    return seen if sorted(seen) == list(range(len(leaves))) else None


def _refusal(x: TensorProxy, what: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"a gradient is computed inside the program by a tensor that has hooks, together {what}, of which "
        "torch's order is not known",
        found={x.name: f'"{x.type_string()}"'},
        hint="Remove the hooks, or call backward() outside of the compiled function.",
    )
