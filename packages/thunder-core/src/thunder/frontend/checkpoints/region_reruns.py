"""A checkpointed region that runs a second time for its effects, in the backward.

    y = checkpoint(region, x)     →     forward:    call = begin_region(region); y = sin(x)
                                        backward:   run_region_again(call, (x,), g_y); g_x = g_y * cos(x)

The trace computes the values that the backward needs again; the region itself is called for its effects, as
eager calls it: with gradients on, under the forward's autocast, from the same random state.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.tags import OpTags
from thunder.frontend.custom_gradients.rebuilding import Maker
from thunder.ir.gradient_declarations import JointRule
from thunder.ir.proxies import AnyProxy, TensorProxy
from thunder.ir.registered_operators import declared_symbol
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.prims.declaration import primitive
from thunder.ops.prims.gradient import get_grad, put_grad


class RegionAgain:
    """A region whose second run a trace begins.

    ``call`` builds a function without arguments from the tensors of a call; it is None if the region has no
    effects. ``requires_grad`` has one bool per tensor, ``autocast`` the arguments of ``torch.autocast`` by
    device. A ``reentrant`` region has torch's conditions on the backward. ``held`` refers to arguments of the
    call, which the forward keeps alive.
    """

    def __init__(
        self,
        call: Maker | None,
        *,
        requires_grad: Sequence[bool],
        autocast: Mapping[str, Mapping[str, Any]],
        reentrant: bool,
        held: Sequence[weakref.ref[Any]],
    ) -> None:
        self.call, self.requires_grad, self.autocast = call, requires_grad, autocast
        self.reentrant, self.held = reentrant, held

    def __repr__(self) -> str:
        return "<checkpointed region>"

    def run(self, tensors: Sequence[torch.Tensor], state: torch.Tensor | None) -> None:
        """Run the region once, from a state of the default generator if there is one."""
        if self.call is None:
            return
        inputs = [
            t.detach().requires_grad_(needed) for t, needed in zip(tensors, self.requires_grad, strict=True)
        ]
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[], enabled=state is not None))
            if state is not None:
                torch.set_rng_state(state)
            for device, options in self.autocast.items():
                stack.enter_context(torch.autocast(device, **options))
            stack.enter_context(torch.enable_grad())
            function: Callable[[], Any] = self.call(inputs, {})
            function()


@dataclass(eq=False)
class RegionCall:
    """One forward of a region.

    Each backward runs it once, however many of its results have a gradient.
    """

    of: RegionAgain
    backward: int | None = None

    def __post_init__(self) -> None:
        self.held = [reference() for reference in self.of.held]

    def run(self, tensors: Sequence[torch.Tensor], state: torch.Tensor | None) -> None:
        """Run the region, unless the running backward has done so."""
        backward = torch._C._current_graph_task_id()
        if backward == self.backward:
            return
        self.backward = backward
        if self.of.reentrant and not torch.autograd._is_checkpoint_valid():
            raise RuntimeError(_NOT_VALID)
        self.of.run(tensors, state)


#: the text of torch
_NOT_VALID = (
    "When use_reentrant=True, torch.utils.checkpoint is incompatible"
    " with .grad() or passing an `inputs` parameter to .backward()."
    " To resolve this error, you can either set use_reentrant=False,"
    " or call .backward() without passing the `inputs` argument."
)


def _begin_meta(region: RegionAgain) -> AnyProxy:
    return AnyProxy()


def _run_meta(call: Any, tensors: Any, state: Any, gradient: TensorProxy) -> None:
    return None


def _run(call: RegionCall, tensors: Any, state: Any, gradient: torch.Tensor) -> None:
    call.run(tensors, state)


def _same_meta(gradient: TensorProxy) -> TensorProxy:
    return TensorProxy(like=gradient)


#: the state that the backwards of one forward of a region share
begin_region = primitive(
    "begin_region", _begin_meta, eager=RegionCall, tags=(OpTags.DONT_RECOMPUTE_IN_BACKWARD,)
)
#: runs a region again, once the gradient of one of its results is computed
run_region_again = primitive(
    "run_region_again", _run_meta, eager=_run, tags=(OpTags.DONT_DCE, OpTags.DONT_RECOMPUTE_IN_BACKWARD)
)
#: a gradient that cannot be differentiated: reentrant regions have no second derivative in eager
reentrant_gradient = primitive("reentrant_gradient", _same_meta, eager=torch.clone)


def _result(a: TensorProxy, call: Any, region: RegionAgain, tensors: Any, state: Any) -> Any:
    return prims.shallow_copy(a)


def _rule(a: TensorProxy, call: Any, region: RegionAgain, tensors: Any, state: Any) -> Any:
    out = prims.shallow_copy(a)
    gradient = get_grad(out)
    run_region_again(call, tensors, state, gradient)
    put_grad(a, reentrant_gradient(gradient) if region.reentrant else gradient)
    return out


#: a result of a region, in whose gradient the region is run again
region_result = declared_symbol(
    Symbol(
        name="region_result",
        id="checkpoint.region_result",
        meta=_result,
        is_prim=False,
        gradient=JointRule(_rule),
    )
)
