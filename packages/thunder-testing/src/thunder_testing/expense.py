"""An estimate of what a call costs, without running it: by its reference on tensors without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from thunder_testing.samples import Sample

__all__ = ["MAX_ELEMENTS", "is_affordable", "is_one_call"]

#: most elements of an intermediate result, results of a call, calls of torch, and floating-point operations
MAX_ELEMENTS, MAX_RESULTS, MAX_CALLS, MAX_FLOPS = 1 << 22, 64, 500, 1e9


class _TooExpensiveError(Exception):
    """A call costs more than the tests may spend."""


class _Budget(TorchDispatchMode):
    """Stops at a call of torch that is too large."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls, self.flops = 0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls += 1
        sizes = [x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        formula = flop_registry.get(getattr(func, "overloadpacket", None))
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        if (
            self.calls > MAX_CALLS
            or len(sizes) > MAX_RESULTS
            or max(sizes, default=0) > MAX_ELEMENTS
            or self.flops > MAX_FLOPS
        ):
            raise _TooExpensiveError
        return result


def is_affordable(reference: Callable[..., Any], sample: Sample) -> bool:
    """Return whether the call is known to be cheap: False if it cannot be estimated."""
    bare = sample.mapped(lambda x: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta"))
    try:
        with torch.device("meta"), torch.no_grad(), _Budget():
            reference(*bare.args, **bare.kwargs)
    except Exception:  # too expensive, or the reference reads values
        return False
    return True


class _Counter(TorchDispatchMode):
    """Counts the calls of torch's operators that compute."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += not func.is_view
        return func(*args, **(kwargs or {}))


def is_one_call(reference: Callable[..., Any], sample: Sample) -> bool:
    """Return whether the reference is a single operator of torch, apart from views."""
    copy = sample.copy()
    try:
        with torch.no_grad(), _Counter() as counter:
            reference(*copy.args, **copy.kwargs)
    except Exception:  # the case about references reports it
        return False
    return bool(counter.calls <= 1)
